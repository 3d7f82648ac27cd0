"""The files of a job folder as they stand: listed once, in the order of their paths, links never followed."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from traceflow_formats.errors import TraceflowError

from ..limits import Limits, format_size

__all__ = ["Entry", "Tree", "list_tree", "sha256_of", "tree_digest"]

_SMALL = 1 << 20  # bytes of a file that is read at once
_BUFFER = 1 << 20


@dataclass(frozen=True, slots=True)
class Entry:
    """A regular file, or an empty folder: path below the root (POSIX), bytes, permission bits."""

    path: str
    size: int
    mode: int
    mtime_ns: int
    directory: bool = False


@dataclass
class Tree:
    """A listing of a folder, sorted by the bytes of the paths, and what was passed over in it."""

    root: Path
    entries: list[Entry]
    passed_over: list[tuple[str, str]] = field(default_factory=list)  # (path, why)

    @property
    def files(self) -> Iterator[Entry]:
        return (entry for entry in self.entries if not entry.directory)

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def open(self, entry: Entry) -> BinaryIO:
        """The content of a file. Raises io_error when it is no longer the file that was listed."""
        try:
            descriptor = os.open(f"{self.root}/{entry.path}", os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        except FileNotFoundError:
            raise changed(entry.path) from None
        stream = os.fdopen(descriptor, "rb", buffering=_BUFFER if entry.size > _SMALL else 0)
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
            stream.close()
            raise changed(entry.path)
        if entry.size > _SMALL:
            return stream
        with stream:
            data = stream.read(entry.size + 1)
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
        return self._index().get(path)

    def verify(self) -> None:
        """Raise io_error when a file has changed since it was listed."""
        for entry in self.files:
            try:
                found = os.lstat(f"{self.root}/{entry.path}")
            except FileNotFoundError:
                raise changed(entry.path) from None
            if (found.st_size, found.st_mtime_ns) != (entry.size, entry.mtime_ns):
                raise changed(entry.path)

    def _index(self) -> dict[str, Entry]:
        index: dict[str, Entry] | None = self.__dict__.get("_by_path")
        if index is None:
            index = {entry.path: entry for entry in self.entries if not entry.directory}
            self.__dict__["_by_path"] = index
        return index


def changed(path: str) -> TraceflowError:
    """The source is being written to."""
    return TraceflowError(
        "io_error", f"{path} changed while it was read: import again when nothing writes to the job", path=path
    )


def list_tree(root: Path, limits: Limits) -> Tree:
    """List a folder. Links, special files and names that are no UTF-8 are passed over and said.

    Raises upload_too_large over the bounds `members` and `unpacked_bytes`.
    """
    entries: list[Entry] = []
    passed: list[tuple[str, str]] = []
    pending = [(root, "")]
    total = 0
    while pending:
        folder, prefix = pending.pop()
        with os.scandir(folder) as found:
            children = list(found)
        if prefix and not children:
            status = folder.stat()
            entries.append(Entry(prefix.rstrip("/"), 0, stat.S_IMODE(status.st_mode), status.st_mtime_ns, True))
        for child in children:
            path = prefix + child.name
            try:
                path.encode()
            except UnicodeEncodeError:
                shown = os.fsencode(path).decode("utf-8", "backslashreplace")
                passed.append((shown, "its name is no UTF-8"))
                continue
            if child.is_symlink():
                passed.append((path, "a link: links are not followed"))
            elif child.is_dir(follow_symlinks=False):
                pending.append((Path(child.path), path + "/"))
            elif child.is_file(follow_symlinks=False):
                status = child.stat(follow_symlinks=False)
                total += status.st_size
                entries.append(Entry(path, status.st_size, stat.S_IMODE(status.st_mode), status.st_mtime_ns))
            else:
                passed.append((path, "neither a file nor a folder"))
        _check(len(entries), total, limits)
    entries.sort(key=lambda entry: entry.path.encode())
    passed.sort()
    return Tree(root, entries, passed)


def _check(members: int, total: int, limits: Limits) -> None:
    for name, value, bound in (("members", members, limits.members), ("unpacked_bytes", total, limits.unpacked_bytes)):
        if value > bound:
            raise TraceflowError(
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


def tree_digest(paths: Iterator[tuple[str, str]]) -> str:
    """One digest over (path, sha256 of the content) in the order given: the identity of a job without an id."""
    digest = hashlib.sha256()
    for path, content in paths:
        digest.update(path.encode() + b"\0" + content.encode() + b"\n")
    return digest.hexdigest()
