"""The finished steps of a document, on disk: written once, found by number, rewritten where one changes late."""

from __future__ import annotations

import re
import tempfile
import weakref
from array import array
from collections.abc import Iterator
from typing import IO, Any

import orjson

from .. import jsontext
from ..text import clean_value

__all__ = ["Index", "Spool", "dumped", "loaded"]

_CHUNK = 1 << 20
_BETWEEN = b",\n"
_DEEPEST = 200  # orjson writes no deeper value, and no reader of ours has to


def dumped(value: Any) -> bytes:
    """Compact JSON of any value of a trace: lone surrogates become U+FFFD, what is nested too deeply a note."""
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        pruned = _pruned(value, 0)
        return jsontext.dumps(clean_value(pruned)[0])


_LONG = re.compile(rb"[0-9]{19}").search  # such a number may be an integer that orjson rounds


def loaded(data: bytes) -> Any:
    """The value of a JSON text with all digits of its integers. Raises ValueError as orjson does."""
    value = orjson.loads(data)
    if _LONG(data) and jsontext.rounded(value):
        return jsontext.loads(data, exact=True)
    return value


def _pruned(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        if depth >= _DEEPEST:
            return "[nested too deeply]"
        return {name: _pruned(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list):
        if depth >= _DEEPEST:
            return "[nested too deeply]"
        return [_pruned(item, depth + 1) for item in value]
    return value


class Index:
    """Where the steps of one agent are; `size` 0 is a step that has not been written."""

    __slots__ = ("offsets", "sizes")

    def __init__(self) -> None:
        self.offsets = array("Q")
        self.sizes = array("Q")

    def __len__(self) -> int:
        return len(self.offsets)

    def extend(self, count: int) -> None:
        """Make room for steps up to that number."""
        missing = count - len(self.offsets)
        if missing > 0:
            self.offsets.extend([0] * missing)
            self.sizes.extend([0] * missing)


class Spool:
    """JSON values one after another: the last ones in memory, the others in an unnamed file, if they are many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tail = bytearray()  # what has not been written to the file
        self._base = 0  # where it begins
        self._file: IO[bytes] | None = None

    def put(self, index: Index, number: int, value: dict[str, Any]) -> None:
        """Write a step; the one written before under that number is forgotten."""
        data = dumped(value)
        index.extend(number)
        index.offsets[number - 1] = self._base + len(self._tail)
        index.sizes[number - 1] = len(data)
        self._tail += data
        self._tail += _BETWEEN
        if len(self._tail) >= self._limit:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it lives as long as the spool)
                weakref.finalize(self, self._file.close)
            self._file.seek(self._base)
            view = memoryview(self._tail)
            while view:
                view = view[self._file.write(view) or 0 :]
            self._base += len(self._tail)
            self._tail = bytearray()

    def get(self, index: Index, number: int) -> dict[str, Any]:
        """Read a step back."""
        start = index.offsets[number - 1]
        data = b"".join(self._bytes(start, start + index.sizes[number - 1]))
        value: dict[str, Any] = loaded(data)
        return value

    def array(self, index: Index) -> Iterator[bytes]:
        """The steps of an agent in order with a comma and a line feed between them; neighbours are read together."""
        offsets, sizes = index.offsets, index.sizes
        gap = len(_BETWEEN)
        at, count = 0, len(offsets)
        while at < count:
            start, end = offsets[at], offsets[at] + sizes[at]
            at += 1
            while at < count and offsets[at] == end + gap:
                end += gap + sizes[at]
                at += 1
            yield from self._bytes(start, end)
            if at < count:
                yield _BETWEEN

    def _bytes(self, start: int, end: int) -> Iterator[bytes]:
        while start < min(end, self._base):
            assert self._file is not None
            self._file.seek(start)
            chunk = self._file.read(min(_CHUNK, min(end, self._base) - start))
            if not chunk:
                raise OSError("the temporary file of a trajectory has been cut short")
            start += len(chunk)
            yield chunk
        while start < end:
            chunk = bytes(self._tail[start - self._base : min(start + _CHUNK, end) - self._base])
            start += len(chunk)
            yield chunk

    def close(self) -> None:
        """Give the space back; nothing can be read afterwards."""
        self._tail = bytearray()
        if self._file is not None:
            self._file.close()
