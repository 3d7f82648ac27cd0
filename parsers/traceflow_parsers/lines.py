"""Bytes to lines. Lines end at LF and nowhere else: U+2028, U+2029 and U+0085 stand raw inside JSON strings."""

from __future__ import annotations

import codecs
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = ["MAX_LINE", "LongLine", "file_lines", "iter_lines"]

MAX_LINE = 1 << 30  # a longer line is not read into memory: it is skipped and counted
_CHUNK = 1 << 20
_BUFFER = 1 << 20  # lines are long: with the default of 8 KiB a reader is at work mostly for its buffer
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class LongLine(bytes):
    """The first bytes of a line over the bound; `length` is what the whole line had, its LF included."""

    length: int


def file_lines(path: Path, max_line: int = MAX_LINE) -> Iterator[bytes]:
    """The lines of a file, streamed, as `iter_lines` gives them."""
    with io.BufferedReader(io.FileIO(path), _BUFFER) as stream:
        about = os.fstat(stream.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_size < max_line and stream.peek(2)[:2] not in _WIDE:
            yield from stream  # no line can be over the bound
        else:
            yield from iter_lines(stream, max_line)


def iter_lines(stream: BinaryIO, max_line: int = MAX_LINE) -> Iterator[bytes]:
    """The lines of a stream, each with its LF (the last one may lack it).

    A UTF-16 byte order mark at the start turns the whole stream into UTF-8. A line longer than `max_line`
    bytes comes as a `LongLine` with its first 200 bytes, so that its neighbours are not lost.
    """
    head = stream.read(2)
    if head in _WIDE:
        yield from _utf16(stream, "utf-16-le" if head == codecs.BOM_UTF16_LE else "utf-16-be")
        return
    while b"\n" in head:
        line, _, head = head.partition(b"\n")
        yield line + b"\n"
    readline = stream.readline
    line = head + readline(max_line)
    while line:
        if len(line) >= max_line and not line.endswith(b"\n"):
            yield _skip(stream, line)
        else:
            yield line
        line = readline(max_line)


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
