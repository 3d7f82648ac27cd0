"""The files of a job folder as they stand: listed once, in the order of their paths, links never followed."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, NamedTuple

from traceflow_formats.errors import TraceflowError

from ..limits import Limits, format_size
from .packed import Packed

__all__ = ["Entry", "Tree", "TreeDigest", "list_tree", "sha256_of"]

_SMALL = 1 << 20  # bytes of a file that is read at once
_BUFFER = 1 << 20


class Entry(NamedTuple):
    """A regular file, or an empty folder: path below the root (POSIX), bytes, permission bits."""

    path: str
    size: int
    mode: int
    mtime_ns: int
    directory: bool = False


@dataclass
class Tree:
    """A listing of a folder, sorted by the bytes of the paths, and what was passed over in it.

    Of a million files it takes some 40 MB: entries are kept packed, and made anew each time they are asked for.
    """

    root: Path
    _entries: Packed
    _passed_over: Packed
    oversized: dict[str, int]  # files over `file_bytes`: path -> bytes

    @property
    def entries(self) -> Iterator[Entry]:
        return map(Entry._make, self._entries)

    @property
    def files(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if not entry.directory)

    @property
    def passed_over(self) -> Iterator[tuple[str, str]]:
        """(path, why), in the order of the paths."""
        return ((path, why) for path, why in self._passed_over)

    def below(self, folder: str) -> Iterator[Entry]:
        """What lies in a folder of the tree, at any depth."""
        prefix = f"{folder}/"
        for entry in map(Entry._make, self._entries.since(prefix)):
            if not entry.path.startswith(prefix):
                return
            yield entry

    def folders(self) -> list[str]:
        """The folders at the top that hold files, in the order of their names."""
        found: list[str] = []
        last = None
        for path, _, _, _, directory in self._entries:
            folder, slash, _ = path.partition("/")
            if slash and folder != last and not directory:
                found.append(folder)
                last = folder
        found.sort()
        return found

    def open(self, entry: Entry) -> BinaryIO:
        """The content of a file. Raises io_error when it is no longer the file that was listed."""
        try:
            descriptor = os.open(f"{self.root}/{entry.path}", os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            raise changed(entry.path) from None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
                raise changed(entry.path)
            if entry.size > _SMALL:
                descriptor, opened = -1, descriptor
                return os.fdopen(opened, "rb", buffering=_BUFFER)
            data = os.read(descriptor, entry.size + 1)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        if len(data) != entry.size:
            raise changed(entry.path)
        return io.BytesIO(data)

    def read(self, path: str, limit: int) -> bytes | None:
        """A small file whole, or None where it is absent. Raises upload_too_large when it is over `limit` bytes."""
        entry = self.find(path)
        if entry is None:
            return None
        if entry.size > limit:
            raise TraceflowError(
                "upload_too_large",
                f"{path} has {format_size(entry.size)}; a record may have {format_size(limit)}: raise `record_bytes`",
                file=path,
                bytes=entry.size,
                max_bytes=limit,
            )
        with self.open(entry) as stream:
            return stream.read()

    def find(self, path: str) -> Entry | None:
        """The file with this path."""
        found = self._entries.find(path)
        return None if found is None or found[4] else Entry._make(found)

    def verify(self) -> None:
        """Raise io_error when a file has changed since it was listed."""
        for entry in self.files:
            try:
                found = os.lstat(f"{self.root}/{entry.path}")
            except FileNotFoundError:
                raise changed(entry.path) from None
            if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
                raise changed(entry.path)


def changed(path: str) -> TraceflowError:
    """The source is being written to."""
    return TraceflowError(
        "io_error", f"{path} changed while it was read: import again when nothing writes to the job", path=path
    )


def list_tree(root: Path, limits: Limits) -> Tree:
    """List a folder. Links, special files and names that are no UTF-8 are passed over and said.

    Raises upload_too_large over the bounds `members` and `unpacked_bytes`.
    """
    entries, passed = Packed(), Packed()
    oversized: dict[str, int] = {}
    total = 0
    waiting = [("", iter(_children(f"{root}/", limits.members)))]  # folders, and what is still to be looked at in each
    while waiting:
        prefix, children = waiting[-1]
        child = next(children, None)
        if child is None:
            waiting.pop()
            continue
        name, _, why = child.partition(b"\0")
        if why in _PASSED:
            passed.append((prefix + name.decode("utf-8", "backslashreplace"), _PASSED[why]))
            continue
        path = prefix + name.decode()
        if path[-1] == "/":
            inside = _children(f"{root}/{path}", limits.members - len(entries))
            if inside:
                waiting.append((path, iter(inside)))
                continue
            path, why = path[:-1], _EMPTY
        size, mode, mtime = _status(root, path, bool(why))
        total += size
        entries.append((path, size, mode, mtime, bool(why)))
        if len(entries) > limits.members or total > limits.unpacked_bytes:
            raise _too_large(limits, "members" if len(entries) > limits.members else "unpacked_bytes")
        if size > limits.file_bytes:
            oversized[path] = size
    return Tree(root, entries, passed, oversized)


_EMPTY = b"folder"
_PASSED = {
    b"name": "its name is no UTF-8",
    b"link": "a link: links are not followed",
    b"kind": "neither a file nor a folder",
}


def _children(folder: str, most: int) -> list[bytes]:
    """What lies in a folder, in the order that its paths have in the listing: the names, those of folders with a slash
    behind them, other things with a NUL and what they are.

    They are bytes since there may be a million in one folder. `most` files may be among them.
    """
    found: list[bytes] = []
    files = 0
    with os.scandir(folder) as children:
        for child in children:
            name = os.fsencode(child.name)
            if not _is_utf8(child.name):
                name += b"\0name"
            elif child.is_symlink():
                name += b"\0link"
            elif child.is_dir(follow_symlinks=False):
                name += b"/"
            elif child.is_file(follow_symlinks=False):
                files += 1
                if files > most:
                    break
            else:
                name += b"\0kind"
            found.append(name)
    found.sort()
    twins = [b for a, b in pairwise(found) if b.endswith(b"/") and a.startswith(b[:-1])]
    for name in twins:  # what lies in `a` comes after `a-b`, but `a` itself, where it is empty, before it
        with os.scandir(folder.encode() + name) as inside:
            if next(inside, None) is None:
                found.remove(name)
                insort(found, name[:-1] + b"\0" + _EMPTY)
    return found


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _status(root: Path, path: str, directory: bool) -> tuple[int, int, int]:
    """Bytes, permission bits and time of a file or an empty folder."""
    try:
        status = os.lstat(f"{root}/{path}")
    except FileNotFoundError:
        raise changed(path) from None
    if not (stat.S_ISDIR if directory else stat.S_ISREG)(status.st_mode):
        raise changed(path)
    return 0 if directory else status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime_ns


def _too_large(limits: Limits, name: str) -> TraceflowError:
    bound = getattr(limits, name)
    return TraceflowError(
        "upload_too_large",
        f"the job is over the limit `{name}` of {bound}: split it, or raise the limit",
        limit=name,
        value=bound,
    )


def sha256_of(stream: BinaryIO) -> str:
    """The hex digest of what a stream still holds."""
    digest = hashlib.sha256()
    while chunk := stream.read(1 << 20):
        digest.update(chunk)
    return digest.hexdigest()


class TreeDigest:
    """One digest over the paths and contents of a job's files, in the order of the paths: the identity of a job without
    an id."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, path: str, sha256: str) -> None:
        self._digest.update(path.encode() + b"\0" + sha256.encode() + b"\n")

    def hexdigest(self) -> str:
        return self._digest.hexdigest()
