"""Where a store's objects lie: a small contract, and the local file system.

An object is written once and never changed. It is invisible until it is complete. Everything else rests on two
atomic steps: `put_if_absent`, which makes a job, and `swap`, which puts another revision in its place; of two writers
exactly one is told True.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from traceflow_formats.errors import TraceflowError

if TYPE_CHECKING:  # a search that the index answers is done before these would be imported
    from pathlib import Path

    from .cache import Cache

__all__ = ["PARTIAL", "Backend", "LocalBackend", "ObjectInfo"]

PARTIAL = ".partial"  # how the names of unfinished objects end
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_PATIENCE = 10.0  # seconds to wait for another process that is about to swap; it needs a millisecond


class ObjectInfo:
    """An object below a prefix: its name from the store's root, its bytes, seconds since it was written or carried."""

    __slots__ = ("age", "name", "size")

    def __init__(self, name: str, size: int, age: float) -> None:
        self.name = name
        self.size = size
        self.age = age


class Backend(Protocol):
    """Objects by name. Names are relative to the store's root, with slashes.

    Reading what is not there raises FileNotFoundError; everything else that fails is an OSError.
    """

    url: str
    moves_folders: bool  # whether `move_folder` works
    stamped: bool  # whether `stamps` works
    parallel: int  # reads that are worth making at once, where they wait for a network; else 1

    @property
    def commit(self) -> str:
        """How `put_if_absent` and `swap` tell two writers apart, in words."""

    def read_bytes(self, name: str) -> bytes:
        """The whole object."""

    def read_many(self, names: Iterable[str]) -> list[bytes | None]:
        """Whole objects in their order, None for one that is not there; at once where reads wait."""

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """That part of it; shorter where the object ends."""

    def read_ranges(self, ranges: Iterable[tuple[str, int, int]]) -> list[bytes]:
        """Parts of objects, each as name, offset and length, in their order; at once where reads wait, and never from
        a copy."""

    def prefetch(self, objects: Iterable[tuple[str, int]]) -> None:
        """Bring objects that will be asked for, each with its bytes, to this machine, where copies are kept of them."""

    @property
    def cache(self) -> Cache | None:
        """Where copies of objects are kept, if they are."""

    def open_read(self, name: str) -> BinaryIO:
        """The object as a seekable stream."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A seekable stream to write the object to. It appears, whole and on disk, when the block ends well;
        when the block raises nothing is left."""

    def put_if_absent(self, name: str, data: bytes, scratch: str = "") -> bool:
        """Write the object unless there is one: True when it was written. `scratch` is a folder for what has
        to lie somewhere meanwhile."""

    def swap(self, name: str, old: bytes, new: bytes, scratch: str = "") -> bool:
        """Put `new` in the place of an object that is `old`, byte for byte: False when it is not, or not there."""

    def carry(self, source: str, target: str) -> None:
        """Make an object appear under a second name, without another copy of its bytes where that is possible."""

    def move_folder(self, source: str, target: str) -> bool:
        """Give a folder another name in one step: False when there is one of that name."""

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below a prefix, sorted; empty where there is no such prefix."""

    def stamps(self, prefix: str, name: str) -> dict[str, str]:
        """The folders directly below a prefix that hold an object of this name, sorted, each with a word that is
        another one when the object is."""

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object below a prefix, unfinished ones of other writers included."""

    def delete(self, name: str) -> None:
        """Remove one object; one that is not there is no error."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below a prefix, and the prefix."""

    def is_empty(self) -> bool:
        """Whether nothing at all lies at the root."""

    def duckdb_root(self, connection: Any) -> str:
        """The root as DuckDB names it, made readable on the connection; object names are appended to it."""


class LocalBackend:
    """A folder of the local file system."""

    moves_folders = True
    stamped = True
    parallel = 1
    commit = "hard link"
    cache = None  # it is the disk itself

    def __init__(self, root: Path | str) -> None:
        self.url = os.path.abspath(root)  # noqa: PTH100 - links in the path stay as the user wrote them

    @property
    def root(self) -> Path:
        """The folder."""
        from pathlib import Path

        return Path(self.url)

    def _path(self, name: str) -> Path:
        return self.root / name

    def read_bytes(self, name: str) -> bytes:
        with open(f"{self.url}/{name}", "rb", 0) as stream:  # noqa: PTH123 - see above: no Path where it must be fast
            return stream.readall()

    def read_many(self, names: Iterable[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for name in names:
            try:
                found.append(self.read_bytes(name))
            except (FileNotFoundError, NotADirectoryError):
                found.append(None)
        return found

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        handle = os.open(f"{self.url}/{name}", _READ)
        try:
            return _read_at(handle, offset, length)
        finally:
            os.close(handle)

    def read_ranges(self, ranges: Iterable[tuple[str, int, int]]) -> list[bytes]:
        return [self.read_range(*one) for one in ranges]

    def prefetch(self, objects: Iterable[tuple[str, int]]) -> None:
        pass

    def open_read(self, name: str) -> BinaryIO:
        return self._path(name).open("rb")

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = self._path(name)
        partial = path.with_name(_partial_name(path))
        try:
            with _open_new(partial) as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)

    def put_if_absent(self, name: str, data: bytes, scratch: str = "") -> bool:
        path = self._path(name)
        with self._partial(path, data, scratch) as partial:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(partial, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in _NO_LINKS:
                    raise TraceflowError(
                        "io_error",
                        f"the file system of {self.root} has no hard links, so that no commit is safe on it; "
                        "choose a store on another one",
                    ) from None
                raise
        _sync_folder(path.parent)
        return True

    @contextlib.contextmanager
    def _partial(self, path: Path, data: bytes, scratch: str) -> Iterator[Path]:
        """The data in a file of its own, which is gone at the end of the block."""
        folder = self._path(scratch) if scratch else path.parent
        partial = folder / _partial_name(path)
        try:
            with _open_new(partial) as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            yield partial
        finally:
            partial.unlink(missing_ok=True)

    def swap(self, name: str, old: bytes, new: bytes, scratch: str = "") -> bool:
        path = self._path(name)
        with self._partial(path, new, scratch) as partial, _alone(path.parent):
            try:
                if path.read_bytes() != old:
                    return False
            except FileNotFoundError:
                return False
            partial.replace(path)
        _sync_folder(path.parent)
        return True

    def carry(self, source: str, target: str) -> None:
        path = self._path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._path(source), path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            import shutil

            with self.open_read(source) as stream, self.create(target) as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        _sync_folder(path.parent)

    def move_folder(self, source: str, target: str) -> bool:
        try:
            self._path(source).rename(self._path(target))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        _sync_folder(self._path(target).parent)
        return True

    def exists(self, name: str) -> bool:
        return os.path.isfile(f"{self.url}/{name}")  # noqa: PTH113 - see above

    def size(self, name: str) -> int:
        return self._path(name).stat().st_size

    def folders(self, prefix: str) -> list[str]:
        try:
            with os.scandir(f"{self.url}/{prefix}") as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def stamps(self, prefix: str, name: str) -> dict[str, str]:
        base = str(self._path(prefix))
        found = {}
        for folder in self.folders(prefix):
            try:
                status = os.stat(f"{base}/{folder}/{name}")  # noqa: PTH116 - of ten thousand it takes half the time
            except (FileNotFoundError, NotADirectoryError):
                continue
            found[folder] = f"{status.st_mtime_ns}-{status.st_size}"
        return found

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        from pathlib import Path

        now, root = time.time(), self.root
        base = root / prefix
        for folder, _, names in os.walk(base):
            for name in sorted(names):
                path = Path(folder, name)
                try:
                    found = path.lstat()
                except FileNotFoundError:  # removed meanwhile
                    continue
                # a second name changes the time of the change, not that of the content: both revisions are in use then
                age = max(0.0, now - max(found.st_mtime, found.st_ctime))
                yield ObjectInfo(path.relative_to(root).as_posix(), found.st_size, age)

    def delete(self, name: str) -> None:
        path = self._path(name)
        with _alone(path.parent):  # else a swap could bring back what is deleted in the same moment
            path.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def delete_prefix(self, prefix: str) -> None:
        import shutil

        shutil.rmtree(self._path(prefix), ignore_errors=True)
        path = self._path(prefix)
        if path.exists():  # say why it could not go
            shutil.rmtree(path)
        if path.parent.parent != self.root:
            with contextlib.suppress(OSError):  # a job's folder goes with its last revision
                path.parent.rmdir()

    def is_empty(self) -> bool:
        try:
            with os.scandir(self.url) as entries:
                return next(entries, None) is None
        except FileNotFoundError:
            return True

    def duckdb_root(self, connection: Any) -> str:
        return f"{self.url}/"


_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def _read_at(handle: int, offset: int, length: int) -> bytes:
    """That part of an open file; shorter where it ends."""
    os.lseek(handle, offset, os.SEEK_SET)
    data = os.read(handle, length)
    while len(data) < length and (more := os.read(handle, length - len(data))):  # one read gives 2 GiB at most
        data += more
    return data


def _partial_name(path: Path) -> str:
    import uuid

    return f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}"


def _open_new(path: Path) -> BinaryIO:
    """Create a file, and its folder, which another writer may remove while it is empty."""
    for _ in range(5):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            return path.open("xb")
    return path.open("xb")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """No other process is in such a block for this folder. The system ends the lock with the process that holds it.

    Where there are no locks of this kind the block runs without: then only the moment between look and rename is open.
    """
    try:
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, OSError):
        yield
        return
    try:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TraceflowError(
                        "store_conflict", f"another process holds {folder}; end it, or try again"
                    ) from None
                time.sleep(0.002)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


def _sync_folder(path: Path) -> None:
    """Make a name durable. A folder that was removed meanwhile, or a system without this, is no failure."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
