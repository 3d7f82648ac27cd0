"""Objects of another machine as streams."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from .backend import Backend

__all__ = ["CopyStream", "RangeStream"]

_LEAST, _MOST = 1 << 18, 32 << 20  # bytes that are read ahead


class RangeStream(io.RawIOBase):
    """An object as a seekable stream. What is read at a place is asked for exactly; who reads on gets more at once."""

    def __init__(self, backend: Backend, name: str, size: int) -> None:
        super().__init__()
        self._backend, self._name, self._size = backend, name, size
        self._at = 0
        self._held, self._held_at = b"", 0  # what was read ahead, and its place
        self._ahead = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        left = max(0, self._size - self._at)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        skip = self._at - self._held_at
        if not 0 <= skip <= len(self._held) - wanted:
            following = bool(self._held) and skip == len(self._held)  # nothing was passed over
            self._ahead = min(_MOST, max(4 * self._ahead, _LEAST)) if following else 0
            length = min(left, max(wanted, self._ahead))
            self._held, self._held_at, skip = (
                self._backend.read_ranges([(self._name, self._at, length)])[0],
                self._at,
                0,
            )
        data = self._held[skip : skip + wanted]
        self._at += len(data)
        return data

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


class CopyStream(io.RawIOBase):
    """A copy on this machine. DuckDB closes no file that it was given, so it closes itself without a word."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._handle = -1
        self._handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return os.lseek(self._handle, offset, whence)

    def tell(self) -> int:
        return os.lseek(self._handle, 0, os.SEEK_CUR)

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = os.read(self._handle, len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and self._handle >= 0:
            os.close(self._handle)
        super().close()
