"""How objects are written in a folder of the local file system: whole, durable, and by one writer at a time."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from traceflow_formats.errors import TraceflowError

from .backend import PARTIAL

__all__ = ["NO_LINKS", "alone", "created", "sync_folder", "written"]

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_PATIENCE = 10.0  # seconds to wait for another process that is about to swap; it needs a millisecond


@contextmanager
def created(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content appears under this path, whole and on disk, when the block ends well."""
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
    sync_folder(path.parent)


@contextmanager
def written(data: bytes, folder: Path, path: Path) -> Iterator[Path]:
    """The data of what will be `path` in a file of its own in a folder, which is gone at the end of the block."""
    partial = folder / _partial_name(path)
    try:
        with _open_new(partial) as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def _partial_name(path: Path) -> str:
    import uuid

    return f".{path.name}.{uuid.uuid4().hex[:12]}{PARTIAL}"


def _open_new(path: Path) -> BinaryIO:
    """Create a file, and its folder, which another writer may remove while it is empty."""
    for _ in range(5):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return path.open("xb")
    return path.open("xb")


@contextmanager
def alone(folder: Path) -> Iterator[None]:
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


def sync_folder(path: Path) -> None:
    """Make a name durable. A folder that was removed meanwhile, or a system without this, is no failure."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
