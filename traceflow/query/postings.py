"""Reading the words of a job without an engine: which events have a term and how often, and how long events are.

`search/words.pages` says where in the two Parquet tables beside it the pages lie, so that a question reads those of its
terms and nothing else. It is "TFWORDS1" and a zstd frame: a line of JSON, then unsigned 64-bit little-endian numbers.

The JSON holds `version`, `events` (bytes of the events.parquet that was read), `docs` (events that have a term),
`length` (terms of all events), `trials` (id, name, agent, model, first row, rows; those that have events), `terms` (the
first of each row group of words.parquet) and `groups` (row groups of docs.parquet). The numbers are, for each row
group of words.parquet, its rows, then offset and length of the pages of `term`, `event` and `tf`; then the same for
docs.parquet with `length` and `type`.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_left

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple
from traceflow.store.pages import BadPageError, read_int32, read_strings, text_page, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from traceflow.store.backend import Backend
    from traceflow.store.manifest import Manifest

__all__ = ["DOCS", "MAGIC", "PAGES", "VERSION", "WORDS", "BadWordsError", "JobWords", "WordsTrial", "open_words"]

WORDS, DOCS, PAGES = "search/words.parquet", "search/docs.parquet", "search/words.pages"
MAGIC = b"TFWORDS1"
VERSION = 1
_MOST = 1 << 30
_LENGTH = b"\x00\x00\x00"  # the high bytes of a term's length: no term is that long, and none holds such a byte


class BadWordsError(Exception):
    """An index of words that cannot be used: it is made anew."""


class WordsTrial(NamedTuple):
    """A trial that has events; `first` is the row of its first one."""

    trial_id: str
    name: str
    agent: str | None
    model: str | None
    first: int
    rows: int


class _Group(NamedTuple):
    rows: int
    pages: tuple[tuple[int, int], ...]  # offset and length, column by column


class JobWords:
    """The words of one job. `open_words` makes one. What is asked raises BadWordsError where the tables are damaged."""

    def __init__(self, backend: Backend, job: Manifest, data: bytes) -> None:
        self._backend = backend
        self._job = job
        line, _, rest = unpack(data[len(MAGIC) :], _MOST).partition(b"\n")
        head = json.loads(line)
        events = job.object("events.parquet")
        if head["version"] != VERSION or events is None or head["events"] != events.size:
            raise BadWordsError("it is of another version, or of other events")
        self.docs: int = head["docs"]
        self.length: int = head["length"]
        self.trials = [WordsTrial(*trial) for trial in head["trials"]]
        self._terms: list[str] = head["terms"]
        numbers = array("Q")
        numbers.frombytes(rest)
        if sys.byteorder == "big":
            numbers.byteswap()
        self._numbers = numbers
        first = 7 * len(self._terms)
        self._docs = [self._group(first + 5 * n, 2) for n in range(head["groups"])]
        self._lengths: array[int] | None = None
        self._found: dict[str, tuple[array[int], array[int]]] = {}

    def _group(self, at: int, columns: int) -> _Group:
        rows, *places = self._numbers[at : at + 1 + 2 * columns]
        return _Group(rows, tuple(zip(places[::2], places[1::2], strict=True)))

    def postings(self, term: str) -> tuple[array[int], array[int]]:
        """The events that have the term, which ascend, and how often each has it."""
        if term in self._found:
            return self._found[term]
        events, counts = array("i"), array("i")
        number = max(bisect_left(self._terms, term) - 1, 0)
        while number < len(self._terms) and self._terms[number] <= term:
            group = self._group(7 * number, 3)
            start, count = self._rows_of(term, group, self._terms[number : number + 2])
            if count:
                for column, into in ((1, events), (2, counts)):
                    into.extend(read_int32(self._chunk(WORDS, group, column), group.rows, start, count))
            number += 1
        self._found[term] = events, counts
        return events, counts

    def _rows_of(self, term: str, group: _Group, firsts: list[str]) -> tuple[int, int]:
        """The first row of the term in a row group, and how many there are. `firsts` begin it and the next one."""
        if firsts == [term, term]:
            return 0, group.rows
        page = text_page(self._chunk(WORDS, group, 0), group.rows)
        data = term.encode()
        entry = len(data).to_bytes(4, "little") + data
        at = page.find(entry)
        return (0, 0) if at < 0 else (page.count(_LENGTH, 0, at), page.count(entry, at))

    def lengths(self) -> array[int]:
        """How many terms each event of the job has."""
        if self._lengths is None:
            self._lengths = array("i")
            for group in self._docs:
                self._lengths.extend(read_int32(self._chunk(DOCS, group, 0), group.rows, 0, group.rows))
        return self._lengths

    def types(self, events: Sequence[int]) -> list[str | None]:
        """The types of these events, which ascend."""
        out: list[str | None] = []
        first = 0
        for group in self._docs:
            low, high = bisect_left(events, first), bisect_left(events, first + group.rows)
            if low < high:
                some = [event - first for event in events[low:high]]
                out += read_strings(self._chunk(DOCS, group, 1), group.rows, False, some)
            first += group.rows
        return out

    def _chunk(self, name: str, group: _Group, column: int) -> bytes:
        offset, length = group.pages[column]
        data = self._backend.read_range(self._job.path(name), offset, length)
        if len(data) != length:
            raise BadPageError(f"{name} is too short")
        return data


def open_words(backend: Backend, job: Manifest) -> JobWords | None:
    """The words of a job; None where they are not indexed, or were by a version whose index is not read."""
    try:
        data = backend.read_bytes(job.path(PAGES))
        return JobWords(backend, job, data) if data.startswith(MAGIC) else None
    except (FileNotFoundError, BadPageError, BadWordsError, ValueError, KeyError, TypeError, IndexError):
        return None


def pack_pages(head: dict[str, Any], numbers: Sequence[int]) -> bytes:
    """The content of `search/words.pages`."""
    import zstandard

    places = array("Q", numbers)
    if sys.byteorder == "big":
        places.byteswap()
    text = json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return MAGIC + zstandard.ZstdCompressor(level=3).compress(text + b"\n" + places.tobytes())
