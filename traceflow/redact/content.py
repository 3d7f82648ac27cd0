"""What a file is: text that can be rewritten, or bytes in which a secret can only be searched for.

A secret in a database, an image or an archive cannot be replaced: lengths, offsets and checksums hold the file
together (pages of SQLite, frames of its log, CRCs of PNG and zip), and programs read what fails a check as damage or
not at all. So what is compressed is unpacked, one level deep, and looked through.
"""

from __future__ import annotations

import bz2
import lzma
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO, cast

import zstandard

__all__ = ["Chunks", "is_json_name", "is_text", "unpacked"]

Chunks = Callable[[], Iterable[bytes]]  # opens a content

_HEAD = 8192
_MAGIC = (
    b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\x89PNG", b"\xff\xd8\xff", b"GIF8",
    b"SQLite format 3", b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83", b"%PDF", b"\x7fELF", b"\xff\xfe", b"\xfe\xff",
)  # fmt: skip
_PIECE = 1 << 20
_FAULTS = (OSError, EOFError, zlib.error, lzma.LZMAError, zstandard.ZstdError, zipfile.BadZipFile, ValueError)


def is_text(chunks: Chunks) -> bool:
    """Whether a content is text, by its first bytes: no signature of a binary format, no NUL."""
    head = b""
    for chunk in chunks():
        head += chunk
        if len(head) >= _HEAD:
            break
    return not head.startswith(_MAGIC) and b"\0" not in head[:_HEAD]


def is_json_name(path: str) -> bool:
    """Whether a file is JSON or lines of it, by its name."""
    return path.lower().endswith((".json", ".jsonl", ".ndjson"))


def unpacked(chunks: Chunks) -> Iterator[bytes]:
    """The bytes inside a compressed content, as far as they can be read; nothing where it is not compressed."""
    source = iter(chunks())
    first = next(source, b"")
    try:
        if first.startswith(b"PK\x03\x04"):
            yield from _zip_members(first, source)
        elif (opener := _decompressor(first)) is not None:
            yield from _decompressed(opener, first, source)
    except (*_FAULTS, RuntimeError, NotImplementedError):
        return


def _decompressor(first: bytes) -> Callable[[], object] | None:
    if first.startswith(b"\x1f\x8b"):
        return lambda: zlib.decompressobj(31)
    if first.startswith(b"BZh"):
        return bz2.BZ2Decompressor
    if first.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor
    if first.startswith(b"\x28\xb5\x2f\xfd"):
        return lambda: zstandard.ZstdDecompressor().decompressobj()
    return None


def _decompressed(opener: Callable[[], object], first: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    """The content of a compressed stream; several behind one another are one."""
    unpacker = opener()
    for chunk in _chain(first, source):
        data = chunk
        while data:
            for start in range(0, len(data), _PIECE >> 4):  # small bites: a little may unpack to much
                yield cast(bytes, unpacker.decompress(data[start : start + (_PIECE >> 4)]))  # type: ignore[attr-defined]
                if getattr(unpacker, "eof", False):
                    data = getattr(unpacker, "unused_data", b"") + data[start + (_PIECE >> 4) :]
                    unpacker = opener()
                    break
            else:
                data = b""


def _zip_members(first: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    with tempfile.TemporaryFile() as spool:
        for chunk in _chain(first, source):
            spool.write(chunk)
        with zipfile.ZipFile(cast(IO[bytes], spool)) as archive:
            for info in archive.infolist():
                yield info.filename.encode("utf-8", "replace") + b"\n"
                with archive.open(info) as member:
                    while piece := member.read(_PIECE):
                        yield piece


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
