"""Writing deterministic .tar.gz archives: same members, same bytes, on every machine.

The tar holds nothing but paths, sizes, contents and the executable bit, in the order of the paths' bytes. The gzip
around it is libdeflate at a fixed level, over fixed pieces of the tar, each a gzip member with a constant header;
so the bytes depend on the version of the package `deflate` alone, and pieces are compressed in parallel. The
sha256 of the tar is the identity that holds whatever compressed it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import deflate
from traceflow_formats.errors import TraceflowError

from ..limits import Limits
from .names import NameTree, safe_name, shown

__all__ = ["ENCODER", "NewMember", "Written", "file_chunks", "tar_digest", "write_tar_gz"]

PIECE = 4 << 20  # of the tar, compressed as one gzip member; changing it changes every archive
LEVEL = 5  # a seventh faster than 6 for a hundredth more bytes, and still smaller than gzip -6
ENCODER = f"deflate-{deflate.__version__}/{LEVEL}/{PIECE >> 20}MiB"

_BLOCK = 512
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"  # no name, no time, no hint on the level, no system
_OCTAL_LARGEST = 0o77777777777  # 8 GiB - 1: what the size field of USTAR holds
_ANY_SIZE = Limits(members=(1 << 31) - 1, path_bytes=1 << 20, path_depth=1 << 20)


@dataclass(frozen=True, slots=True)
class NewMember:
    """A member to be written. `chunks` opens its content, which must have exactly `size` bytes, any pieces.

    A folder is written only where it would else be lost, as it is empty: `directory=True`, no content. The mode is
    0644, or 0755 for a folder and what may be run; `mode` writes other permission bits, for an exact copy.
    """

    path: str
    size: int = 0
    executable: bool = False
    chunks: Callable[[], Iterable[bytes]] = tuple
    directory: bool = False
    mode: int | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: digests of the archive and of the tar inside, sizes in bytes, and what compressed it."""

    archive_sha256: str
    tar_sha256: str
    archive_bytes: int
    tar_bytes: int
    members: int
    encoder: str = ENCODER


def write_tar_gz(
    members: Iterable[NewMember],
    output: Path | BinaryIO,
    *,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Written:
    """Write an archive to a path or to a binary file that need not be seekable.

    `members` come in strictly increasing order of their paths' UTF-8 bytes (ValueError if not, or when a path is no
    safe name). A path is written beside itself first and then renamed, so that it is there whole or not at all.
    `progress` is told the bytes of the tar so far. Memory is some 12 MiB per worker (default: one per processor, at
    most eight). Raises `io_error` when a member's content has another size, or when writing fails.
    """
    if isinstance(output, os.PathLike):
        with _new_file(Path(output)) as file:
            return _write(members, file, workers, progress)
    return _write(members, output, workers, progress)


def tar_digest(members: Iterable[NewMember]) -> str:
    """The sha256 of the tar that `write_tar_gz` would write of these members, without packing it."""
    digest = hashlib.sha256()
    for piece in _pieces(_Tar(members)):
        digest.update(piece)
    return digest.hexdigest()


def file_chunks(path: Path, size: int = 1 << 20) -> Callable[[], Iterator[bytes]]:
    """The content of a file as the `chunks` of a member; a link is not followed."""

    def chunks() -> Iterator[bytes]:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while chunk := file.read(size):
                yield chunk

    return chunks


# -- tar -------------------------------------------------------------------------------------------------------


def tar_header(member: NewMember) -> bytes:
    """The header blocks of a member: USTAR, behind a PAX header where its path or size does not fit USTAR."""
    name = member.path + "/" if member.directory else member.path
    mode = 0o755 if member.executable or member.directory else 0o644
    if member.mode is not None:
        mode = member.mode & 0o777
    kind = b"5" if member.directory else b"0"
    records = b""
    place = _ustar_place(name)
    if place is None:
        records += _pax_record("path", name)
        plain = name.encode("ascii", "replace").replace(b"?", b"_")
        place = b"", plain[:99].rstrip(b"/") + (b"/" if member.directory else b"")
    size = member.size
    if size > _OCTAL_LARGEST:
        records += _pax_record("size", str(size))
        size = 0
    header = _block(*place, mode, size, kind)
    if not records:
        return header
    extended = _block(b"", b"././@PaxHeader", 0o644, len(records), b"x")
    return extended + records + bytes(-len(records) % _BLOCK) + header


def _block(prefix: bytes, name: bytes, mode: int, size: int, kind: bytes) -> bytes:
    fields = (
        name.ljust(100, b"\0"),
        b"%07o\0" % mode,
        b"0000000\0" * 2,  # uid, gid
        b"%011o\0" % size,
        b"00000000000\0",  # mtime
        b" " * 8,  # checksum, counted as spaces
        kind,
        bytes(100),  # link name
        b"ustar\x0000",
        bytes(64),  # user and group name
        b"0000000\0" * 2,  # device numbers
        prefix.ljust(155, b"\0"),
        bytes(12),
    )
    block = b"".join(fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def _ustar_place(name: str) -> tuple[bytes, bytes] | None:
    """(prefix, name) of a USTAR header, the prefix as short as can be; None when the name does not fit."""
    if not name.isascii():
        return None
    raw = name.encode()
    if len(raw) <= 100:
        return b"", raw
    cut = raw.find(b"/", len(raw) - 101)
    if not 0 < cut <= 155 or cut == len(raw) - 1:
        return None
    return raw[:cut], raw[cut + 1 :]


def _pax_record(key: str, value: str) -> bytes:
    """A record of an extended header; its length counts the digits of the length."""
    rest = f" {key}={value}\n".encode()
    length = len(rest)
    while (total := len(rest) + len(str(length))) != length:
        length = total
    return str(length).encode() + rest


class _Tar:
    """The bytes of a tar, in pieces of any size; iterate it once. `count` is the number of members so far."""

    def __init__(self, members: Iterable[NewMember]) -> None:
        self._members = members
        self.count = 0

    def __iter__(self) -> Iterator[bytes]:
        last = b""
        tree = NameTree(_ANY_SIZE)
        for member in self._members:
            key = _checked_path(member.path)
            if key <= last:
                raise ValueError(
                    f"member {shown(key)} after {shown(last)}: members must come in the order of their bytes"
                )
            last = key
            tree.add(member.path, member.directory)
            yield tar_header(member)
            yield from _content(member)
            yield bytes(-member.size % _BLOCK)
            self.count += 1
        yield bytes(2 * _BLOCK)


def _content(member: NewMember) -> Iterator[bytes]:
    """The content of a member, when it has the size that its header states."""
    size = 0
    try:
        for chunk in member.chunks():
            size += len(chunk)
            if size > member.size:
                break
            yield chunk
    except OSError as error:
        problem = f"reading {shown(member.path)} failed: {error.strerror or error}"
        raise TraceflowError("io_error", problem, path=member.path) from error
    if size != member.size:
        amount = f"over {member.size}" if size > member.size else str(size)
        problem = f"{shown(member.path)} was to have {member.size} bytes and has {amount}: it changed meanwhile"
        raise TraceflowError("io_error", problem, path=member.path)


def _checked_path(path: str) -> bytes:
    try:
        if safe_name(path, _ANY_SIZE) == path:
            return path.encode()
    except TraceflowError as error:
        raise ValueError(error.message) from None
    raise ValueError(f"member path {shown(path)} is not in its shortest form")


# -- gzip ------------------------------------------------------------------------------------------------------


def _write(
    members: Iterable[NewMember], output: BinaryIO, workers: int | None, progress: Callable[[int], None] | None
) -> Written:
    count = workers or min(os.cpu_count() or 1, 8)
    tar_digest, archive_digest = hashlib.sha256(), hashlib.sha256()
    tar_bytes = archive_bytes = 0
    tar = _Tar(members)
    waiting: deque[Future[bytes]] = deque()

    def take() -> None:
        nonlocal archive_bytes
        packed = waiting.popleft().result()
        archive_digest.update(packed)
        archive_bytes += len(packed)
        _write_all(output, packed)

    with ThreadPoolExecutor(count, thread_name_prefix="traceflow-gzip") as pool:
        try:
            for piece in _pieces(tar):
                waiting.append(pool.submit(_gzip, piece))
                tar_digest.update(piece)
                tar_bytes += len(piece)
                if progress is not None:
                    progress(tar_bytes)
                while len(waiting) > count:
                    take()
            while waiting:
                take()
        finally:
            for future in waiting:
                future.cancel()
    return Written(archive_digest.hexdigest(), tar_digest.hexdigest(), archive_bytes, tar_bytes, tar.count)


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of PIECE bytes, the last one shorter."""
    parts: list[memoryview] = []
    room = PIECE
    for chunk in chunks:
        rest = memoryview(chunk)
        while len(rest) >= room:
            parts.append(rest[:room])
            rest = rest[room:]
            yield b"".join(parts)
            parts, room = [], PIECE
        if rest:
            parts.append(rest)
            room -= len(rest)
    if parts:
        yield b"".join(parts)


def _gzip(piece: bytes) -> bytes:
    """One gzip member. The header is ours: its bytes are the compressor's business otherwise."""
    packed = bytes(deflate.gzip_compress(piece, LEVEL))
    return _GZIP_HEADER + packed[10:]


def _write_all(output: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            written = output.write(view)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise TraceflowError("io_error", f"writing the archive failed: {error.strerror or error}") from error
        view = view[len(view) if written is None else written :]


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when all of it is written, and not otherwise; a device is written as it is."""
    if path.is_dir():
        raise TraceflowError("invalid_input", f"{path} is a folder; name a file", path=str(path))
    in_place = path.exists() and not path.is_file()
    part = path if in_place else path.with_name(f".{path.name[:200]}.{secrets.token_hex(6)}.part")
    try:
        with part.open("wb" if in_place else "xb") as file:
            yield file
            file.flush()
            if not in_place:
                os.fsync(file.fileno())
        if not in_place:
            part.replace(path)
    except BaseException as error:
        if not in_place:
            with suppress(OSError):
                part.unlink()
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            problem = error.strerror or error
            raise TraceflowError("io_error", f"{path}: {problem}", path=str(path)) from error
        raise
