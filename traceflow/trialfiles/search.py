"""Searching the contents of files line by line, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import re2
from traceflow_formats.errors import TraceflowError

__all__ = ["Found", "Hit", "search_files"]

_SNIPPET = 240  # characters around a match
_BEFORE = 60
_QUERY_LIMIT = 512
_SNIFFED = 8192
_LINE = 4 << 20  # a longer line is searched in parts


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that matches: the file's path, the line's number from 1, and the text around the match."""

    path: str
    line: int
    snippet: str


@dataclass(slots=True)
class Found:
    """The hits, and whether there are more than were asked for."""

    hits: list[Hit] = field(default_factory=list)
    truncated: bool = False


def search_files(
    files: Iterable[tuple[str, Iterator[bytes]]], query: str, *, regex: bool = False, limit: int = 200
) -> Found:
    """Lines of the files that hold `query` as it stands, or that match it as an RE2 pattern.

    Files with a NUL in their first 8 KiB are binary and passed by. Raises invalid_input for a bad query.
    """
    if not query or len(query) > _QUERY_LIMIT or "\n" in query:
        raise TraceflowError("invalid_input", f"a search needs one line of 1 to {_QUERY_LIMIT} characters")
    find = _pattern(query) if regex else _literal(query)
    found = Found()
    for path, chunks in files:
        for number, line in _lines(chunks, find):
            where = find(line)
            if where < 0:
                continue
            if len(found.hits) == limit:
                found.truncated = True
                return found
            found.hits.append(Hit(path, number, _snippet(line, where)))
    return found


def _literal(query: str) -> Callable[[bytes], int]:
    needle = query.encode("utf-8", "surrogateescape")
    return lambda data: data.find(needle)


def _pattern(query: str) -> Callable[[bytes], int]:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 64 << 20
    try:
        compiled = re2.compile(query, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        if isinstance(reason, bytes):
            reason = reason.decode("utf-8", "replace")
        raise TraceflowError("invalid_input", f"the pattern {query[:80]!r} is not valid: {reason}") from None

    def find(data: bytes) -> int:
        match = compiled.search(data)
        return match.start() if match is not None else -1

    return find


def _lines(chunks: Iterable[bytes], find: Callable[[bytes], int]) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a text file; none of a binary one."""
    number = 1
    rest = b""
    first = True
    for chunk in chunks:
        if first:
            if b"\0" in chunk[:_SNIFFED]:
                return
            first = False
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) < _LINE:
            rest = data
            continue
        whole, rest = (data[:end], data[end:]) if end else (data, b"")
        yield from _matching(whole, number, find)
        number += whole.count(b"\n")
    if rest:
        yield number, rest


def _matching(block: bytes, number: int, find: Callable[[bytes], int]) -> Iterator[tuple[int, bytes]]:
    """The lines of a block of whole lines; none where nothing in it matches."""
    for line in block.split(b"\n"):
        if line and find(line) >= 0:
            yield number, line
        number += 1


def _snippet(line: bytes, where: int) -> str:
    start = max(0, where - _BEFORE)
    while start and line[start] & 0xC0 == 0x80:  # not in the middle of a character
        start -= 1
    return line[start : start + 4 * _SNIPPET].decode("utf-8", "replace").rstrip("\r")[:_SNIPPET]
