"""A filesystem capture inside a job: a .tar.gz with a MANIFEST.tsv, browsed without unpacking it.

The tar has the files that the run touched; the manifest names the others as well, and those list but do not open.
Nothing is written to disk and no link is followed by us on any file system, so a hostile archive can at most be
refused. It is read as a stream: one pass for the index, one more for contents.
"""

from __future__ import annotations

import gzip
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, BinaryIO, NamedTuple, Self, cast

from traceflow_formats.errors import TraceflowError

from ..limits import Limits
from .manifests import MANIFEST, manifest_hints, split_lines
from .model import Changes, Entry, Hints, changes_of, clean_path

__all__ = ["CaptureTree", "Counts", "is_within"]

_HEADER_LIMIT = 1 << 20
_PLAIN = struct.Struct("100s8s8s8s12s12s8s109x32s32s183x")  # name, numbers, checksum, user, group; no link, no prefix
_PIECE = 1 << 20
_LINKS = 40
_ALL = 1 << 62


class Counts(NamedTuple):
    """Files of a capture: with a content, the bytes of these, those without one, and those left out for a reason."""

    files: int
    bytes: int
    uncaptured: int
    left_out: int


def is_within(name: str, path: str) -> bool:
    """Whether a file lies at a path or below it."""
    return not path or name == path or name.startswith(f"{path}/")


class CaptureTree:
    """The tree of one capture. `open` gives its archive as a stream, anew each time; `name` says which it is."""

    source = "capture"

    def __init__(
        self,
        name: str,
        open_archive: Callable[[], BinaryIO],
        limits: Limits | None = None,
        advance: Callable[[int, str], None] | None = None,
    ) -> None:
        self.name = name
        self._advance = advance  # what is told the bytes that are read for the index
        self._open = open_archive
        self._limits = limits or Limits()
        self.prefix = ""  # a folder around everything
        self.unsafe = 0  # members whose names lead elsewhere: they are passed over
        self._entries: dict[str, Entry] = {}
        self._hard: dict[str, str] = {}
        self._places: dict[str, tuple[int, int]] = {}
        self._sparse = False
        self._hints: dict[str, Entry] | None = None
        self._folders: dict[str, dict[str, Entry]] | None = None
        self._index()
        self._advance = None

    def close(self) -> None:
        """Let go of what is open."""

    @property
    def is_capture(self) -> bool:
        """Whether there is a manifest in it; other archives are plain files of the trial."""
        return self._hints is not None

    def entry(self, path: str) -> Entry | None:
        if not path:
            return Entry("", "dir")
        parent, _, name = path.rpartition("/")
        return self._tree().get(parent, {}).get(name)

    def children(self, path: str, after: str = "", count: int | None = None) -> list[Entry]:
        folder = self._tree().get(path, {})
        return [folder[name] for name in sorted(name for name in folder if name > after)[:count]]

    def below(self, path: str) -> Iterator[tuple[str, Entry]]:
        entry = self.entry(path)
        if entry is not None and entry.type != "dir":
            yield path, entry
            return
        pending = [path]
        while pending:
            folder = pending.pop()
            for child in self.children(folder):
                inside = f"{folder}/{child.name}" if folder else child.name
                if child.type == "dir":
                    pending.append(inside)
                else:
                    yield inside, child

    def contents(self, path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        if not self._sparse:  # of one whose bytes do not lie in one piece no place is known
            with self._unpacked() as stream:
                for at, name, size in self.placed(path):
                    yield name, _stretch(cast("IO[bytes]", stream), at, size)
            return
        with self._archive() as tar:
            for name, info in self._members(tar):
                if info.isreg() and name != MANIFEST and is_within(name, path):
                    yield name, _chunks(tar, info)

    def read(self, path: str, start: int, length: int) -> Iterator[bytes]:
        wanted = path
        for _ in range(_LINKS):
            if wanted not in self._hard:
                break
            wanted = self._hard[wanted]
        if not self._sparse and (place := self.place(wanted)) is not None:
            at, size = place
            yield from self._stretch(at + start, min(length, size - start))
            return
        for name, chunks in self.contents(wanted):
            if name == wanted:  # a sparse one, whose bytes do not lie in one piece
                yield from _part(chunks, start, length)
                return
        raise TraceflowError("not_captured", f"/{path}: the capture has no content of it", path=f"/{path}")

    @contextmanager
    def reader(self, path: str) -> Iterator[Callable[[str], Iterator[bytes]]]:
        with tempfile.TemporaryFile() as stage:  # the contents come one after the other, and are asked for by name
            places: dict[str, tuple[int, int]] = {}
            at = 0
            for name, chunks in self.contents(path):
                size = sum(map(stage.write, chunks))
                places[name] = at, size
                at += size

            def read(inside: str) -> Iterator[bytes]:
                return _stretch(stage, *places[inside]) if inside in places else self.read(inside, 0, _ALL)

            yield read

    def changes(self, phase: str, after: str, count: int) -> Changes:
        return changes_of(self.changed(), phase, after, count)

    def changed(self) -> Hints:
        """What the manifest says was created, modified or removed, by path."""
        told = ((path, hint, self.entry(path)) for path, hint in self.hints().items() if hint.changed is not None)
        return {path: hint if there is None else there.with_change(hint) for path, hint, there in told}

    def uncaptured(self, path: str) -> int:
        return sum(e.type == "file" and not e.captured for _, e in self.below(path))

    def counts(self) -> Counts:
        """How many files there are."""
        files = [entry for _, entry in self.below("") if entry.type == "file"]
        captured = [entry for entry in files if entry.captured]
        left_out = sum(entry.left_out is not None for entry in files)
        rest = sum(not entry.captured and entry.left_out is None for entry in files)
        return Counts(len(captured), sum(entry.size or 0 for entry in captured), rest, left_out)

    def hints(self) -> Hints:
        """Everything that the manifest says, by path."""
        return self._hints or {}

    def folders(self) -> Mapping[str, Mapping[str, Entry]]:
        """All entries, by folder and name."""
        return self._tree()

    def place(self, path: str) -> tuple[int, int] | None:
        """Where the content of a file begins in the tar, and its bytes."""
        return self._places.get(path)

    def placed(self, path: str) -> list[tuple[int, str, int]]:
        """The contents at a path and below it in the order of the tar: place, path, bytes."""
        found = self._places.items()
        return sorted((at, name, size) for name, (at, size) in found if is_within(name, path))

    @property
    def is_sparse(self) -> bool:
        """Whether there is a file in it whose bytes do not lie in one piece."""
        return self._sparse

    def hard_links(self) -> Mapping[str, str]:
        """Where hard links lead, by path."""
        return self._hard

    # -- reading ---------------------------------------------------------------------------------------------

    def _index(self) -> None:
        names: set[str] = set()
        manifests: dict[str, dict[str, Entry]] = {}
        with self._archive() as tar:
            for name, info in self._members(tar):
                names.add(name)
                if len(names) > self._limits.members:
                    raise TraceflowError(
                        "upload_too_large",
                        f"{self.name} holds over {self._limits.members} members: raise the limit `members`",
                    )
                if info.isreg() and name.rpartition("/")[2] == MANIFEST and name.count("/") <= 1:
                    if info.size > self._limits.record_bytes * 4:
                        raise TraceflowError("upload_too_large", f"{self.name}: its {MANIFEST} has {info.size} bytes")
                    manifests[name] = manifest_hints(split_lines(_chunks(tar, info)))
                    continue
                self._take(name, info)
        for name, target in self._hard.items():
            if target in self._entries:
                self._entries[name] = self._entries[name]._replace(size=self._entries[target].size)
        if MANIFEST in manifests:
            self._hints = manifests[MANIFEST]
            return
        tops = {name.partition("/")[0] for name in names}
        if len(tops) == 1 and (inner := f"{next(iter(tops))}/{MANIFEST}") in manifests:
            self.prefix = inner.removesuffix(MANIFEST)
            skip = len(self.prefix)
            self._entries = {name[skip:]: e for name, e in self._entries.items() if len(name) > skip}
            self._hard = {n[skip:]: t.removeprefix(self.prefix) for n, t in self._hard.items()}
            self._places = {n[skip:]: place for n, place in self._places.items()}
            self._hints = manifests[inner]

    def _take(self, name: str, info: tarfile.TarInfo) -> None:
        kind = "dir" if info.isdir() else "symlink" if info.issym() else "file" if info.isreg() else "other"
        target = info.linkname if info.issym() else None
        owner = info.uname or (str(info.uid) if info.uid else None)
        size = info.size if kind == "file" else None
        self._hard.pop(name, None)
        if info.islnk():
            try:
                kind, self._hard[name] = "file", clean_path(info.linkname)
            except TraceflowError:
                self.unsafe += 1
                return
        self._places.pop(name, None)  # the last of a name stands
        if info.isreg():
            self._places[name] = info.offset_data, info.size
            self._sparse |= info.sparse is not None
        last = name.rpartition("/")[2]
        self._entries[name] = Entry(
            last, kind, size, _time(info.mtime), f"{info.mode & 0o7777:04o}", owner, target=target
        )

    def _tree(self) -> dict[str, dict[str, Entry]]:
        """Folders by path, each with its entries by name: what the tar holds, and what only the manifest names."""
        if self._folders is not None:
            return self._folders
        folders: dict[str, dict[str, Entry]] = {"": {}}
        for path, entry in self._entries.items():
            told = self.hints().get(path)
            if told is not None:
                entry = entry._replace(
                    mtime=told.mtime or entry.mtime,
                    mode=told.mode or entry.mode,
                    owner=told.owner or entry.owner,
                    changed=told.changed,
                    phase=told.phase,
                )
            _place(folders, path, entry)
        for path, told in self.hints().items():
            if path not in self._entries and told.changed != "removed":
                _place(folders, path, told._replace(captured=told.type != "file" and told.captured))
        self._folders = folders
        return folders

    def _stretch(self, at: int, length: int) -> Iterator[bytes]:
        """Bytes of the tar."""
        with self._unpacked() as stream:
            yield from _stretch(cast("IO[bytes]", stream), at, length)

    @contextmanager
    def _archive(self) -> Iterator[tarfile.TarFile]:
        """The tar as a stream."""
        with (
            self._unpacked() as stream,
            tarfile.open(fileobj=stream, mode="r|", tarinfo=_Info, errorlevel=1) as tar,
        ):
            yield tar

    @contextmanager
    def _unpacked(self) -> Iterator[gzip.GzipFile]:
        """The tar's bytes. What is damaged becomes invalid_archive."""
        with self._open() as packed:
            try:
                told = packed if self._advance is None else cast("BinaryIO", _Told(packed, self._advance))
                with gzip.GzipFile(fileobj=told, mode="rb") as stream:
                    yield stream
            except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, OverflowError) as error:
                message = f"{self.name} cannot be read as a .tar.gz: {error}"
                raise TraceflowError("invalid_archive", message, path=self.name) from None

    def _members(self, tar: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
        while (info := tar.next()) is not None:
            tar.members.clear()  # type: ignore[attr-defined]  # they are kept otherwise, all of them
            try:
                name = clean_path(info.name)
            except TraceflowError:
                self.unsafe += 1
                continue
            if self.prefix:
                if not name.startswith(self.prefix):
                    continue
                name = name[len(self.prefix) :]
            if name:
                yield name, info


@lru_cache
def _time(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else None
    except (ValueError, OverflowError, OSError):
        return None


class _Told:
    """A stream that says how much was read of it."""

    def __init__(self, stream: BinaryIO, advance: Callable[[int, str], None]) -> None:
        self._stream, self._advance = stream, advance

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._advance(len(data), "")
        return data


class _Info(tarfile.TarInfo):
    """A header whose extensions are bounded: the library would hold one of any size in memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        """A header. Of a plain file it is read here in half of the time that the library takes for any header."""
        if len(buf) == tarfile.BLOCKSIZE and buf[156:157] == b"0" and not buf[345]:
            name, mode, uid, gid, size, mtime, check, user, group = map(_until_nul, _PLAIN.unpack(buf))
            try:
                info = cls(name.decode(encoding, errors))
                info.mode, info.uid, info.gid = int(mode or b"0", 8), int(uid or b"0", 8), int(gid or b"0", 8)
                info.size, info.mtime, info.chksum = int(size or b"0", 8), int(mtime or b"0", 8), int(check or b"0", 8)
                info.uname, info.gname = user.decode(encoding, errors), group.decode(encoding, errors)
            except ValueError:  # numbers of another form
                return super().frombuf(buf, encoding, errors)
            if info.size >= 0 and info.chksum == 256 + sum(buf) - sum(buf[148:156]):
                return info
        return super().frombuf(buf, encoding, errors)

    def _proc_member(self, tar: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type in (b"L", b"K", b"x", b"X", b"g", b"S") and self.size > _HEADER_LIMIT:
            raise tarfile.ReadError(f"a header has {self.size} bytes")
        return cast("tarfile.TarInfo", super()._proc_member(tar))  # type: ignore[misc]


def _until_nul(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _chunks(tar: tarfile.TarFile, info: tarfile.TarInfo) -> Iterator[bytes]:
    stream = tar.extractfile(info)
    while stream is not None and (chunk := stream.read(_PIECE)):
        yield chunk


def _stretch(stream: IO[bytes], at: int, length: int) -> Iterator[bytes]:
    while length > 0:
        stream.seek(at)
        piece = stream.read(min(length, _PIECE))
        if not piece:
            return
        at, length = at + len(piece), length - len(piece)
        yield piece


def _part(chunks: Iterator[bytes], start: int, length: int) -> Iterator[bytes]:
    at = 0
    for chunk in chunks:
        if piece := chunk[max(0, start - at) : max(0, start + length - at)]:
            yield piece
        at += len(chunk)
        if at >= start + length:
            return


def _place(folders: dict[str, dict[str, Entry]], path: str, entry: Entry) -> None:
    """Put an entry into its folder, and the folders that are only implied above it."""
    parent, _, name = path.rpartition("/")
    if entry.type == "dir":
        folders.setdefault(path, {})
    held = folders.setdefault(parent, {})
    if name not in held or held[name].type == "dir":
        held[name] = entry
    while parent:
        above, _, name = parent.rpartition("/")
        folder = folders.setdefault(above, {})
        if name in folder:
            return
        folder[name] = Entry(name, "dir")
        parent = above
