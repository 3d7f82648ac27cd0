"""A store in a folder of the local file system.

A search that the index answers reads with `open` and `os` alone; what writes is imported where it is called.
"""

from __future__ import annotations

import errno
import os

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Any, BinaryIO

    from .backend import ObjectInfo

__all__ = ["LocalBackend"]


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

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        from .local_files import created

        return created(self._path(name))

    def put_if_absent(self, name: str, data: bytes, scratch: str = "") -> bool:
        from .local_files import NO_LINKS, sync_folder, written

        path = self._path(name)
        with written(data, self._path(scratch) if scratch else path.parent, path) as partial:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(partial, path)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno in NO_LINKS:
                    raise TraceflowError(
                        "io_error",
                        f"the file system of {self.root} has no hard links, so that no commit is safe on it; "
                        "choose a store on another one",
                    ) from None
                raise
        sync_folder(path.parent)
        return True

    def swap(self, name: str, old: bytes, new: bytes, scratch: str = "") -> bool:
        from .local_files import alone, sync_folder, written

        path = self._path(name)
        folder = self._path(scratch) if scratch else path.parent
        with written(new, folder, path) as partial, alone(path.parent):
            try:
                if path.read_bytes() != old:
                    return False
            except FileNotFoundError:
                return False
            partial.replace(path)
        sync_folder(path.parent)
        return True

    def carry(self, source: str, target: str) -> None:
        from .local_files import NO_LINKS, sync_folder

        path = self._path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self._path(source), path)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            import shutil

            with self.open_read(source) as stream, self.create(target) as out:
                shutil.copyfileobj(stream, out, 1 << 20)
        sync_folder(path.parent)

    def move_folder(self, source: str, target: str) -> bool:
        from .local_files import sync_folder

        try:
            self._path(source).rename(self._path(target))
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        sync_folder(self._path(target).parent)
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
        import time
        from pathlib import Path

        from .backend import ObjectInfo

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
        from .local_files import alone, sync_folder

        path = self._path(name)
        with alone(path.parent):  # else a swap could bring back what is deleted in the same moment
            path.unlink(missing_ok=True)
        sync_folder(path.parent)

    def delete_prefix(self, prefix: str) -> None:
        import shutil
        from contextlib import suppress

        shutil.rmtree(self._path(prefix), ignore_errors=True)
        path = self._path(prefix)
        if path.exists():  # say why it could not go
            shutil.rmtree(path)
        if path.parent.parent != self.root:
            with suppress(OSError):  # a job's folder goes with its last revision
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
