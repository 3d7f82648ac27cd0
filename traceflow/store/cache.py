"""What is kept on this machine of stores elsewhere: indexes and tables that many questions read.

Only objects that never change are kept, each under a key that names it and no other, so that nothing kept can be old.
A file appears whole, by one rename, so that processes share the folder without locks; what has not been used for
longest goes first. Losing any of it, or all, costs time alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LIMIT", "VARIABLE", "Cache", "CacheInfo", "open_cache"]

VARIABLE = "TRACEFLOW_CACHE"
LIMIT = 2 << 30  # bytes
_EVERY = 64  # files that are kept between two looks at how much there is
_OFF = ("", "off", "0", "no")


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Where it is, and what it holds."""

    folder: str
    files: int
    size: int


class Cache:
    """A folder of kept objects. Nothing that goes wrong with it is an error: then there is no copy."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self._kept = 0

    def path(self, key: str) -> Path:
        """Where the object of this key is kept, if it is."""
        name = hashlib.sha256(key.encode()).hexdigest()
        return self.folder / name[:2] / name

    def find(self, key: str) -> Path | None:
        """The copy of an object, which is marked as used."""
        path = self.path(key)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def keep(self, key: str, data: bytes) -> Path | None:
        """Keep a copy."""
        path = self.path(key)
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with partial.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            return None
        self._kept += 1
        if self._kept % _EVERY == 1:
            self._shrink()
        return path

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Last use, bytes and place of every file, unfinished ones of other processes included."""
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    status = path.stat()
                    yield status.st_mtime, status.st_size, path

    def _shrink(self) -> None:
        """Remove what was not used for longest, when there is more than may be."""
        files = sorted(self._files())
        size = sum(found for _, found, _ in files)
        if size <= self.limit:
            return
        for _, found, path in files:
            with contextlib.suppress(OSError):
                path.unlink()
            size -= found
            if size <= self.limit * 3 // 4:
                return

    def info(self) -> CacheInfo:
        files = list(self._files())
        return CacheInfo(str(self.folder), len(files), sum(size for _, size, _ in files))

    def clear(self) -> CacheInfo:
        """Remove all of it; what there was."""
        before = self.info()
        for _, _, path in list(self._files()):
            with contextlib.suppress(OSError):
                path.unlink()
        return before


def open_cache() -> Cache | None:
    """The folder that the environment names, else the user's own for such things; None where it is switched off."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return None if named.strip().lower() in _OFF else Cache(Path(named).expanduser())
    from platformdirs import user_cache_path

    return Cache(user_cache_path("traceflow", appauthor=False) / "objects")
