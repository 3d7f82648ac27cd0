"""A store at any URL that fsspec knows: object stores, other machines, memory.

Objects are made in a local temporary file and sent whole, so that none is ever visible in part. The commit is a
conditional write where the server has one (`conditional`). Where it has none, a writer says what it is about to do
and looks for others that have said so: of two that commit at once both may be refused, never do both succeed.
"""

from __future__ import annotations

import contextlib
import errno
import re
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import fsspec
from traceflow_formats.errors import TraceflowError

from ..archive.urls import has_folders
from .backend import PARTIAL, ObjectInfo
from .cache import Cache, open_cache
from .conditional import Conditions
from .layout import STORE
from .remote_streams import CopyStream, RangeStream

__all__ = ["FsspecBackend"]

_PART = 8 << 20  # bytes of one request; more are asked for in several at once
_AT_ONCE = 32  # requests
_LARGEST_COPY = 64 << 20  # bytes of an object that is kept on this machine
# what many questions read, and what never changes: a revision's folder has a name that is not used again
_MAY_KEEP = re.compile(
    r"^jobs/[^/]+/[^/]+/(events\.grep|trials\.parquet|search/[^/]+)$|^catalog/(jobs|trials)-[0-9a-f]{32}\.\w+$"
)
_DEAD = 600.0  # seconds after which a writer that began to commit is taken for dead: it needs two or three requests


class FsspecBackend:
    """The folder `root` of an fsspec file system. `FsspecBackend.open(url)` makes one."""

    moves_folders = False
    stamped = False  # a listing of folders does not tell when an object in one has changed
    parallel = _AT_ONCE

    def __init__(self, fs: Any, root: str, url: str) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self.url = url.rstrip("/")
        self._flat = not has_folders(fs)
        self._cache = open_cache()
        self._sizes: dict[str, int] = {}  # of objects that never change and are not kept
        self._conditions = Conditions(fs, self._path(STORE))

    @classmethod
    def open(cls, url: str) -> FsspecBackend:
        """Raises TraceflowError invalid_input where fsspec has no such file system or it cannot be set up."""
        try:
            fs, root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            scheme = url.partition("://")[0]
            extra = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}.get(scheme)
            advice = f"; pip install 'traceflow[{extra}]' brings what it needs" if extra else ""
            raise TraceflowError("invalid_input", f"the store {url} cannot be opened: {error}{advice}") from None
        except ValueError as error:
            raise TraceflowError("invalid_input", f"the store {url} cannot be opened: {error}") from None
        return cls(fs, root, url)

    @property
    def commit(self) -> str:
        """How a commit is made, in words."""
        if not self._conditions.creates:
            return "no conditional write: writers of one job at the same time are refused"
        if not self._conditions.replaces:
            return "conditional put; of one job's replacements at the same time all may be refused"
        return "conditional put"

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    # -- reading -----------------------------------------------------------------------------------------

    def read_bytes(self, name: str) -> bytes:
        (data,) = self.read_many([name])
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self._path(name))
        return data

    def read_many(self, names: Iterable[str]) -> list[bytes | None]:
        pieces = [(number, self._path(name), 0, None) for number, name in enumerate(names)]
        return [
            None if isinstance(found, FileNotFoundError | NotADirectoryError) else self._part(path, found)
            for (_, path, _, _), found in zip(pieces, self._cat_ranges(pieces), strict=True)
        ]

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        if _MAY_KEEP.search(name) and (copy := self._copy(name)) is not None:
            with contextlib.suppress(OSError), copy.open("rb") as stream:
                stream.seek(offset)
                return stream.read(length)
        return self.read_ranges([(name, offset, length)])[0]

    def read_ranges(self, ranges: Iterable[tuple[str, int, int]]) -> list[bytes]:
        pieces: list[tuple[int, str, int, int]] = []  # number of the range, and a part of it
        count = 0
        for count, (name, offset, length) in enumerate(ranges, 1):
            path, end = self._path(name), offset + length
            pieces += ((count - 1, path, at, min(at + _PART, end)) for at in range(offset, end, _PART))
        parts: list[list[bytes]] = [[] for _ in range(count)]
        for (number, path, _, _), found in zip(pieces, self._cat_ranges(pieces), strict=True):
            parts[number].append(self._part(path, found))
        return [b"".join(part) for part in parts]

    def _part(self, path: str, found: Any) -> bytes:
        """What was read, or what went wrong instead."""
        if isinstance(found, BaseException) and not _beyond_the_end(found):
            with _told(self.url, path):
                raise found
        return b"" if isinstance(found, BaseException) else bytes(found)

    def _cat_ranges(self, pieces: Sequence[tuple[int, str, int, int | None]]) -> list[Any]:
        if not pieces:
            return []
        paths = [path for _, path, _, _ in pieces]
        starts, ends = [start for _, _, start, _ in pieces], [end for _, _, _, end in pieces]
        with _told(self.url, paths[0]):
            found: list[Any] = self._fs.cat_ranges(paths, starts, ends, on_error="return")
            return found

    def prefetch(self, objects: Iterable[tuple[str, int]]) -> None:
        if self._cache is None:
            return
        missing = [
            (name, 0, size)
            for name, size in objects
            if _MAY_KEEP.search(name) and size <= _LARGEST_COPY and self._cache.find(self._key(name)) is None
        ]
        for at in range(0, len(missing), _AT_ONCE):
            some = missing[at : at + _AT_ONCE]
            for (name, _, size), data in zip(some, self.read_ranges(some), strict=True):
                if len(data) == size:
                    self._cache.keep(self._key(name), data)

    def open_kept(self, name: str) -> BinaryIO:
        """The object as a seekable stream, from this machine where it is kept."""
        if _MAY_KEEP.search(name) and (copy := self._copy(name)) is not None:
            with contextlib.suppress(OSError):
                return cast(BinaryIO, CopyStream(copy))
        return self.open_read(name)

    def _copy(self, name: str) -> Path | None:
        """The copy of an object on this machine, which is made when there is none; None for what is not kept."""
        if self._cache is None or self._sizes.get(name, 0) > _LARGEST_COPY:
            return None
        key = self._key(name)
        if (found := self._cache.find(key)) is not None:
            return found
        size = self._sizes[name] = self.size(name)
        if size > _LARGEST_COPY:
            return None
        (data,) = self.read_ranges([(name, 0, size)])
        return self._cache.keep(key, data) if len(data) == size else None

    def _key(self, name: str) -> str:
        """What names an object and no other: its place, and where another may come to lie there, what it is now."""
        place = str(self._fs.unstrip_protocol(self._path(name)))
        if "/search/" not in name:
            return place
        info = self._info(name)
        return f"{place} {info.get('ETag')} {_written(info, 0)} {info['size']}"

    @property
    def cache(self) -> Cache | None:
        """Where copies are kept."""
        return self._cache

    def open_read(self, name: str) -> BinaryIO:
        return cast(BinaryIO, RangeStream(self, name, self.size(name)))

    def exists(self, name: str) -> bool:
        try:  # not `isfile`, which takes every failure for an absence
            return bool(self._info(name)["type"] == "file")
        except (FileNotFoundError, NotADirectoryError):
            return False

    def size(self, name: str) -> int:
        return int(self._info(name)["size"])

    def _info(self, name: str) -> dict[str, Any]:
        with _told(self.url, name):
            self._fs.invalidate_cache()
            return cast(dict[str, Any], self._fs.info(self._path(name)))

    # -- listing -----------------------------------------------------------------------------------------

    def _entries(self, prefix: str) -> list[dict[str, Any]]:
        with _told(self.url, prefix):
            self._fs.invalidate_cache()
            try:
                return cast(list[dict[str, Any]], self._fs.ls(self._path(prefix), detail=True))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def folders(self, prefix: str) -> list[str]:
        return sorted({_last(e) for e in self._entries(prefix) if e["type"] == "directory"})

    def stamps(self, prefix: str, name: str) -> dict[str, str]:
        raise NotImplementedError("an object store tells what changed by a request for each object")

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        now = time.time()
        with _told(self.url, prefix):
            self._fs.invalidate_cache()
            try:
                found = self._fs.find(self._path(prefix), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return
        base = len(self._root) + 1 if self._root else 0
        for path, entry in sorted(found.items()):
            yield ObjectInfo(path[base:].lstrip("/"), int(entry.get("size") or 0), max(0.0, now - _written(entry, now)))

    def is_empty(self) -> bool:
        return not self._entries("")

    # -- writing -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        with tempfile.NamedTemporaryFile(prefix="traceflow-") as stream:
            yield cast(BinaryIO, stream)
            stream.flush()
            with _told(self.url, name):
                self._parent(name)
                self._fs.put_file(stream.name, self._path(name))

    def put_if_absent(self, name: str, data: bytes, scratch: str = "") -> bool:
        with _told(self.url, name):
            if self._conditions.can_create():
                self._parent(name)
                return self._conditions.create(self._path(name), data)
            with self._alone(name):
                if self.exists(name):
                    return False
                self._fs.pipe_file(self._path(name), data)
                return True

    def swap(self, name: str, old: bytes, new: bytes, scratch: str = "") -> bool:
        with _told(self.url, name):
            if self._conditions.can_replace():
                return self._conditions.replace(self._path(name), old, new)
            with self._alone(name):
                try:
                    if self.read_bytes(name) != old:
                        return False
                except FileNotFoundError:
                    return False
                self._fs.pipe_file(self._path(name), new)
                return True

    @contextlib.contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """No other writer is in such a block for this object.

        Each first writes an object of its own and then lists those of all: of two at least one sees the other.
        """
        folder, _, base = name.rpartition("/")
        mine = f".{base}.{uuid.uuid4().hex[:12]}{PARTIAL}"
        own = self._path(f"{folder}/{mine}" if folder else mine)
        self._parent(name)
        self._fs.pipe_file(own, b"")
        try:
            now = time.time()
            for entry in self._entries(folder):
                other = _last(entry)
                if other == mine or not (other.startswith(f".{base}.") and other.endswith(PARTIAL)):
                    continue
                if now - _written(entry, now) < _DEAD:
                    raise TraceflowError(
                        "store_conflict",
                        f"another process is writing {name} at this moment, and {self.url} has no conditional write to "
                        "tell which comes first; run it again",
                    )
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm_file(own)

    def carry(self, source: str, target: str) -> None:
        with _told(self.url, source):
            self._parent(target)
            self._fs.cp_file(self._path(source), self._path(target))

    def move_folder(self, source: str, target: str) -> bool:
        raise NotImplementedError("an object store moves no folders")

    def delete(self, name: str) -> None:
        with _told(self.url, name), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name))

    def delete_prefix(self, prefix: str) -> None:
        with _told(self.url, prefix), contextlib.suppress(FileNotFoundError):
            self._fs.invalidate_cache()
            self._fs.rm(self._path(prefix), recursive=True)

    def _parent(self, name: str) -> None:
        """Folders of file systems that have some. An object store has none: asking for one costs a request, and may
        make a bucket that was misspelt."""
        if self._flat:
            return
        with contextlib.suppress(NotImplementedError, FileExistsError, PermissionError):
            self._fs.makedirs(self._path(name).rsplit("/", 1)[0], exist_ok=True)

    # -- DuckDB ------------------------------------------------------------------------------------------

    def duckdb_root(self, connection: Any) -> str:
        from .duckdb_files import StoreFiles

        connection.register_filesystem(StoreFiles(self, self._fs, self._root))
        return str(self._fs.unstrip_protocol(self._root)).rstrip("/") + "/"


@contextlib.contextmanager
def _told(url: str, name: str) -> Iterator[None]:
    """Whatever a file system raises becomes an OSError, which says where and what to do.

    Their libraries have exceptions of their own for a server that cannot be reached, for credentials that are missing,
    and for an answer that ends too early.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError):
        raise
    except _Failure:
        raise
    except OSError as error:
        raise _failure(error.errno or errno.EIO, str(error.strerror or error), url, name) from error
    except Exception as error:
        if isinstance(error, TraceflowError) or type(error).__module__ == "builtins":
            raise  # a fault of ours is shown as it is
        raise _failure(errno.EIO, str(error), url, name) from error


class _Failure(OSError):
    """A failure in words."""


def _failure(number: int, why: str, url: str, name: str) -> _Failure:
    advice = "check that the server can be reached, its address and the credentials, and run it again"
    text = " ".join(why.split()) or "no answer"
    return _Failure(number, f"{url} does not answer as it should for {name or 'its root'}: {text}; {advice}")


def _beyond_the_end(error: BaseException) -> bool:
    """Whether a range begins where the object has ended: then it has no bytes."""
    response = getattr(error.__cause__, "response", None)
    return isinstance(response, dict) and response.get("Error", {}).get("Code") in ("InvalidRange", "416")


def _last(entry: dict[str, Any]) -> str:
    return str(entry["name"]).rstrip("/").rsplit("/", 1)[-1]


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
