"""Reading `events.grep`: which blocks of a job's events may hold a literal, and where their pages lie.

A block is a row group of events.parquet. For each there is a set of hashed 4-grams of its text, in 2^18 buckets.
Blocks are gathered into segments of up to 256. A segment is 256 zstd frames, each of 1,024 buckets; a bucket is a
bit for each block of the segment, filled up to whole bytes. One that more than 15 of 16 blocks have is
written as if all had it: such a bucket tells little and takes room. A question reads the frames of its 4-grams.

    "TFGREP01"
    segments, one after the other
    trials, a zstd frame: a JSON list of id, name, task, agent, model, first row, rows; in the order of the job
    footer, a zstd frame: a line of JSON, then unsigned 64-bit little-endian numbers
    offset of the footer (8 bytes), its length (8 bytes), "TFGREP01"

The JSON holds `version`, `events` (bytes of the events.parquet that was indexed), `columns`, `trials` (offset and
length of their frame), `segments` (offset, blocks) and `blocks`. The numbers are, column by column: the lengths of the
segments' frames; the rows of each block; then of each column of `columns` the offset and the length of its pages in
each block.

Version 1, which is read as well, had the trials themselves in the footer, hashed grams once (see `grams`), and wrote
a bucket of more than three quarters of the blocks as one of all.
"""

from __future__ import annotations

import json
import sys
from itertools import accumulate

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

from .grams import BUCKETS, buckets
from .pages import BadPageError, unpack

if TYPE_CHECKING:
    from typing import Any

    from .backend import Backend
    from .manifest import Manifest

__all__ = [
    "COLUMNS",
    "FRAMES",
    "FRAME_BUCKETS",
    "MAGIC",
    "NAME",
    "SEGMENT_BLOCKS",
    "VERSION",
    "BadIndexError",
    "GrepIndex",
    "IndexedTrial",
    "index_name",
    "open_index",
]

NAME = "events.grep"
MAGIC = b"TFGREP01"
VERSION = 2
SEGMENT_BLOCKS = 256
FRAME_BUCKETS = 1024
FRAMES = BUCKETS // FRAME_BUCKETS
COLUMNS = ("text", "seq", "type", "tool_name", "agent_id", "timestamp")  # what a hit is made of
_TAIL = 24
_FIRST_READ = 32 << 10
_MAX_GRAMS = 24  # of a literal: more would cost more reads than they save
_MAX_FOOTER = 1 << 30


class BadIndexError(Exception):
    """An index that cannot be used: the question is answered by a scan."""


class IndexedTrial(NamedTuple):
    """A trial that has events: `first` is the row of its first one in the job's events."""

    trial_id: str
    name: str
    task_name: str | None
    agent: str | None
    model: str | None
    first: int
    rows: int


class _Segment(NamedTuple):
    first_block: int
    blocks: int
    starts: list[int]  # of the frames, and the end of the last


class GrepIndex:
    """The index of one job, its footer read. `open_index` makes one."""

    def __init__(self, backend: Backend, name: str, footer: bytes) -> None:
        self._backend = backend
        self._name = name
        line, _, rest = footer.partition(b"\n")
        head = json.loads(line)
        self._version = head["version"]
        if self._version not in (1, VERSION):
            raise BadIndexError(f"version {self._version}")
        self.events_size: int = head["events"]
        self._listed: Any = head["trials"]  # of version 2 where they lie
        self._trials: list[IndexedTrial] | None = None
        if sys.byteorder == "big":
            from array import array

            swapped = array("Q", rest)
            swapped.byteswap()
            rest = swapped.tobytes()
        numbers = self._numbers = memoryview(rest).cast("Q")
        self.blocks: int = head["blocks"]
        self._segments: list[_Segment] = []
        at, block = 0, 0
        for offset, count in head["segments"]:
            starts = list(accumulate(numbers[at : at + FRAMES], initial=offset))
            self._segments.append(_Segment(block, count, starts))
            at, block = at + FRAMES, block + count
        self.rows = numbers[at : at + block]
        at += block
        self._columns: dict[str, int] = {}
        for column in head["columns"]:
            self._columns[column] = at
            at += 2 * block
        if at != len(numbers) or block != self.blocks or any(column not in self._columns for column in COLUMNS):
            raise BadIndexError("its footer has another length")
        self.starts = list(accumulate(self.rows, initial=0))
        self._literals: dict[bytes, set[int]] = {}

    @property
    def trials(self) -> list[IndexedTrial]:
        """The trials that have events, in their order. Raises BadIndexError when they are not those of all events."""
        if self._trials is None:
            listed = self._listed
            try:
                if self._version > 1:
                    offset, length = listed
                    listed = json.loads(_unpack(self._backend.read_range(self._name, offset, length), _MAX_FOOTER))
                trials = sorted((IndexedTrial(*trial) for trial in listed), key=lambda trial: trial.first)
                if sum(trial.rows for trial in trials) != self.starts[-1]:
                    raise BadIndexError("it does not know the trials of all events")
            except (ValueError, TypeError) as error:
                raise BadIndexError(str(error)) from None
            self._trials = trials
        return self._trials

    def page(self, column: str, block: int) -> tuple[int, int]:
        """Where the pages of a column of a block lie in events.parquet: offset and length."""
        at = self._columns[column] + block
        return self._numbers[at], self._numbers[at + self.blocks]

    def having(self, literal: bytes) -> set[int]:
        """The blocks that may hold a folded literal of 4 bytes or more: all that do, and perhaps others."""
        found = self._literals.get(literal)
        if found is None:
            found = set()
            wanted = buckets(literal, self._version > 1)
            if len(wanted) > _MAX_GRAMS:
                wanted = [wanted[n * len(wanted) // _MAX_GRAMS] for n in range(_MAX_GRAMS)]
            # neighbours share letters and blocks: from the end in strides, an absent literal is known a sixth sooner
            wanted = [bucket for first in (0, 2, 4, 1, 3) for bucket in wanted[::-1][first::5]]
            for segment in self._segments:
                found |= self._in_segment(segment, wanted)
            self._literals[literal] = found
        return found

    def _in_segment(self, segment: _Segment, wanted: list[int]) -> set[int]:
        left = (1 << segment.blocks) - 1
        for bucket in wanted:
            left &= self._having(segment, bucket)
            if not left:
                break
        return {segment.first_block + n for n in range(segment.blocks) if left >> n & 1}

    def _having(self, segment: _Segment, bucket: int) -> int:
        """The blocks of the segment that have the bucket, as bits."""
        number, at = divmod(bucket, FRAME_BUCKETS)
        start, end = segment.starts[number], segment.starts[number + 1]
        width = (segment.blocks + 7) // 8
        data = _unpack(self._backend.read_range(self._name, start, end - start), width * FRAME_BUCKETS)
        if len(data) != width * FRAME_BUCKETS:
            raise BadIndexError("a frame has another length")
        return int.from_bytes(data[at * width : (at + 1) * width], "little")


def index_name(backend: Backend, job: Manifest) -> tuple[str, int] | None:
    """Where the index of a job lies, and its bytes: written with the job, or made later beside it."""
    stored = job.object(NAME)
    if stored is not None:
        return job.path(NAME), stored.size
    name = job.path(f"search/{NAME}")
    try:
        return (name, backend.size(name)) if backend.exists(name) else None
    except FileNotFoundError:
        return None


def open_index(backend: Backend, job: Manifest) -> GrepIndex | None:
    """The index of a job; None where there is none.

    Raises BadIndexError for one that is damaged or of another version.
    """
    place = index_name(backend, job)
    if place is None:
        return None
    name, size = place
    try:
        end = backend.read_range(name, max(0, size - _FIRST_READ), _FIRST_READ)
        if len(end) < _TAIL or end[-8:] != MAGIC:
            raise BadIndexError("it does not end as an index does")
        offset, length = (int.from_bytes(end[at : at + 8], "little") for at in (-24, -16))
        if offset + length + _TAIL != size:
            raise BadIndexError("its footer is not where it should be")
        frame = end[-_TAIL - length : -_TAIL] if length + _TAIL <= len(end) else None
        index = GrepIndex(backend, name, _unpack(frame or backend.read_range(name, offset, length), _MAX_FOOTER))
    except (ValueError, KeyError, TypeError, IndexError, FileNotFoundError) as error:
        raise BadIndexError(str(error)) from None
    events = job.object("events.parquet")
    if events is None or events.size != index.events_size:
        raise BadIndexError("it is of other events")
    return index


def _unpack(frame: bytes, limit: int) -> bytes:
    """The content of a zstd frame, refused when it says that it is larger than it may be."""
    try:
        return unpack(frame, limit)
    except BadPageError as error:
        raise BadIndexError(str(error)) from None
