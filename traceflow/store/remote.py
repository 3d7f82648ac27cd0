"""A store at any URL that fsspec knows: object stores, other machines, memory.

Objects are made in a local temporary file and sent whole, so that none is ever visible in part. The commit is
`pipe_file(..., mode="create")`, which file systems that have a conditional put (S3 does) refuse when there is an
object already. On one that has none, two writers that commit one job in the same moment are not told apart; nor are,
anywhere, two that swap it in the same moment: the later one stands, and both revisions are whole.
"""

from __future__ import annotations

import contextlib
import inspect
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem
from traceflow_formats.errors import TraceflowError

from .backend import ObjectInfo

__all__ = ["FsspecBackend"]

# these look first and write then, and the asynchronous one hands on to `_pipe_file`
_GENERIC = (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file)


class FsspecBackend:
    """The folder `root` of an fsspec file system. `FsspecBackend.open(url)` makes one."""

    moves_folders = False

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.url = url.rstrip("/")
        self._conditional = any(
            "mode" in inspect.signature(method).parameters
            for name in ("pipe_file", "_pipe_file")
            if (method := getattr(type(fs), name, None)) not in (None, *_GENERIC)
        )

    @classmethod
    def open(cls, url: str) -> FsspecBackend:
        """Raises TraceflowError invalid_input where fsspec has no such file system or it cannot be set up."""
        try:
            fs, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise TraceflowError("invalid_input", f"the store {url} cannot be opened: {error}") from None
        fs.use_listings_cache = False
        return cls(fs, root, url)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def read_bytes(self, name: str) -> bytes:
        return bytes(self._fs.cat_file(self._path(name)))

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        return bytes(self._fs.cat_file(self._path(name), start=offset, end=offset + length))

    def open_read(self, name: str) -> BinaryIO:
        return cast(BinaryIO, self._fs.open(self._path(name), "rb"))

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with tempfile.NamedTemporaryFile(prefix="traceflow-") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            self._parent(name)
            self._fs.put_file(stream.name, self._path(name))

    def put_if_absent(self, name: str, data: bytes, scratch: str = "") -> bool:
        self._parent(name)
        if not self._conditional:
            if self.exists(name):
                return False
            self._fs.pipe_file(self._path(name), data)
            return True
        try:
            self._fs.pipe_file(self._path(name), data, mode="create")
        except FileExistsError:
            return False
        return True

    def swap(self, name: str, old: bytes, new: bytes, scratch: str = "") -> bool:
        try:
            if self.read_bytes(name) != old:
                return False
        except FileNotFoundError:
            return False
        self._fs.pipe_file(self._path(name), new)
        return True

    def carry(self, source: str, target: str) -> None:
        self._parent(target)
        self._fs.cp_file(self._path(source), self._path(target))

    def move_folder(self, source: str, target: str) -> bool:
        raise NotImplementedError("an object store moves no folders")

    def exists(self, name: str) -> bool:
        self._fs.invalidate_cache()
        return bool(self._fs.isfile(self._path(name)))

    def size(self, name: str) -> int:
        return int(self._fs.size(self._path(name)))

    def folders(self, prefix: str) -> list[str]:
        self._fs.invalidate_cache()
        try:
            entries = self._fs.ls(self._path(prefix), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries if e["type"] == "directory"})

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        self._fs.invalidate_cache()
        now = time.time()
        try:
            found = self._fs.find(self._path(prefix), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        base = len(self._root) + 1 if self._root else 0
        for path, entry in sorted(found.items()):
            yield ObjectInfo(path[base:].lstrip("/"), int(entry.get("size") or 0), max(0.0, now - _written(entry, now)))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def delete_prefix(self, prefix: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(self._path(prefix), recursive=True)

    def is_empty(self) -> bool:
        self._fs.invalidate_cache()
        try:
            return not self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return True

    def duckdb_root(self, connection: Any) -> str:
        connection.register_filesystem(self._fs)
        return str(self._fs.unstrip_protocol(self._root)).rstrip("/") + "/"

    def _parent(self, name: str) -> None:
        """Folders of file systems that have some."""
        with contextlib.suppress(NotImplementedError, FileExistsError, PermissionError):
            self._fs.makedirs(self._path(name).rsplit("/", 1)[0], exist_ok=True)


def _written(entry: dict[str, Any], now: float) -> float:
    """Seconds since 1970 of the last write, by whatever name the file system has for it; `now` where it says none."""
    for key in ("mtime", "LastModified", "last_modified", "modified", "updated", "created"):
        value = entry.get(key)
        if isinstance(value, datetime):
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                moment = datetime.fromisoformat(value)
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return now
