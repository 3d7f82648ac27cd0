"""Bytes to lines. Lines end at LF and nowhere else: U+2028, U+2029 and U+0085 stand raw inside JSON strings."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

__all__ = ["MAX_LINE", "iter_lines"]

MAX_LINE = 1 << 30  # a longer line is not read into memory: it is skipped and counted
_CHUNK = 1 << 20


class LongLine(bytes):
    """The first bytes of a line over the bound; `length` is what the whole line had, its LF included."""

    length: int


def iter_lines(stream: BinaryIO, max_line: int = MAX_LINE) -> Iterator[bytes]:
    """The lines of a stream, each with its LF (the last one may lack it).

    A UTF-16 byte order mark at the start turns the whole stream into UTF-8. A line longer than `max_line`
    bytes comes as a `LongLine` with its first 200 bytes, so that its neighbours are not lost.
    """
    head = stream.read(2)
    if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        yield from _utf16(stream, "utf-16-le" if head == codecs.BOM_UTF16_LE else "utf-16-be")
        return
    while b"\n" in head:
        line, _, head = head.partition(b"\n")
        yield line + b"\n"
    line = head + stream.readline(max_line)
    while line:
        if len(line) >= max_line and not line.endswith(b"\n"):
            yield _skip(stream, line)
        else:
            yield line
        line = stream.readline(max_line)


def _skip(stream: BinaryIO, head: bytes) -> LongLine:
    long = LongLine(head[:200])
    length = len(head)
    while chunk := stream.readline(_CHUNK):
        length += len(chunk)
        if chunk.endswith(b"\n"):
            break
    long.length = length
    return long


def _utf16(stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    rest = b""
    while chunk := stream.read(_CHUNK):
        rest += decoder.decode(chunk).encode("utf-8", "replace")
        *whole, rest = rest.split(b"\n")
        for line in whole:
            yield line + b"\n"
    rest += decoder.decode(b"", final=True).encode("utf-8", "replace")
    if rest:
        yield rest
