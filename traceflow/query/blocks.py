"""Grep by the index: only the blocks that can match are read, page by page, and checked with RE2.

Nothing here needs an engine, so that a search for something rare is done before one would have been loaded. A
store, job or pattern that this cannot answer is left to `scan`; both give the same hits in the same order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from traceflow.store.backend import Backend
from traceflow.store.grams import folds_odd, lower
from traceflow.store.grep_index import BadIndexError, GrepIndex, IndexedTrial
from traceflow.store.manifest import Manifest
from traceflow.store.pages import BadPageError, Strings, read_numbers, read_strings, split_page, text_page

from .hits import Hit
from .literals import AllOf, Condition
from .pattern import Pattern

__all__ = ["UNUSABLE", "BlockSearch", "Blocks", "Row"]

_AHEAD = 32  # blocks in hand at once, where threads read them
UNUSABLE = (BadIndexError, BadPageError, ValueError)  # what a damaged index or page may raise


class Row(NamedTuple):
    """An event that matches: its block, its place there, and its text."""

    block: int
    at: int
    text: bytes


class Blocks:
    """The events of a job that has an index, read block by block.

    What is raised is BadIndexError, BadPageError or ValueError when the job cannot be read like this, and OSError.
    """

    def __init__(self, backend: Backend, job: Manifest, index: GrepIndex, pattern: Pattern) -> None:
        self._backend = backend
        self._job = job
        self._index = index
        self._pattern = pattern
        self._events = job.path("events.parquet")
        self._trials = sorted(index.trials, key=lambda trial: trial.first)
        self._firsts = [trial.first for trial in self._trials]
        if sum(trial.rows for trial in self._trials) != index.starts[-1]:
            raise BadIndexError("it does not know the trials of all events")

    def number(self, row: Row) -> int:
        """The row among all events of the job."""
        return self._index.starts[row.block] + row.at

    def at(self, numbers: Sequence[int]) -> list[Hit]:
        """The events in these rows of the job, which ascend."""
        out: list[Hit] = []
        starts = self._index.starts
        for block, some in groupby(numbers, key=lambda number: bisect_right(starts, number) - 1):
            text = self._text(block)
            places = [number - starts[block] for number in some]
            out += self.hits([Row(block, at, text.data[text.starts[at] : text.ends[at]]) for at in places])
        return out

    def trial_of(self, row: Row) -> IndexedTrial:
        """The trial whose event it is."""
        return self._trials[self._trial_number(row.block, row.at)]

    def _trial_number(self, block: int, at: int) -> int:
        return bisect_right(self._firsts, self._index.starts[block] + at) - 1

    def _chunk(self, column: str, block: int) -> bytes:
        offset, length = self._index.pages[column][block]
        data = self._backend.read_range(self._events, offset, length)
        if len(data) != length:
            raise BadPageError("events.parquet is too short")
        return data

    def _text(self, block: int) -> Strings:
        rows = self._index.rows[block]
        return split_page(text_page(self._chunk("text", block), rows), rows)

    def hits(self, found: list[Row]) -> list[Hit]:
        """The events themselves; `found` are of one block."""
        if not found:
            return []
        block = found[0].block
        rows = self._index.rows[block]
        seq = read_numbers(self._chunk("seq", block), rows, False)
        types = read_strings(self._chunk("type", block), rows, False)
        tools = read_strings(self._chunk("tool_name", block), rows, True)
        agents = read_strings(self._chunk("agent_id", block), rows, True)
        times = read_numbers(self._chunk("timestamp", block), rows, True)
        out = []
        for row in found:
            at, trial = row.at, self.trial_of(row)
            out.append(
                Hit(
                    job_id=self._job.job_id,
                    trial_id=trial.trial_id,
                    trial_name=trial.name,
                    seq=seq[at] or 0,
                    type=types[at] or "",
                    tool_name=tools[at],
                    agent_id=agents[at],
                    timestamp=times[at],
                    text=row.text.decode(),
                    pattern=self._pattern,
                )
            )
        return out


class BlockSearch(Blocks):
    """One pattern over one job that has an index."""

    def __init__(
        self,
        backend: Backend,
        job: Manifest,
        index: GrepIndex,
        pattern: Pattern,
        condition: Condition,
        keep: Callable[[IndexedTrial], bool] | None = None,
        types: frozenset[str] | None = None,
    ) -> None:
        super().__init__(backend, job, index, pattern)
        self._search = pattern.compile().search
        self._condition = condition
        self._types = types
        self._kept = None if keep is None else [keep(trial) for trial in self._trials]
        self.blocks = sorted(self._allowed(_blocks_of(condition, index)))

    def _allowed(self, blocks: set[int]) -> set[int]:
        """Of these blocks those that hold a trial that is asked for."""
        if self._kept is None:
            return blocks
        starts = self._index.starts
        allowed: set[int] = set()
        for kept, trial in zip(self._kept, self._trials, strict=True):
            if kept and trial.rows:
                first = bisect_right(starts, trial.first) - 1
                last = bisect_right(starts, trial.first + trial.rows - 1) - 1
                allowed.update(range(first, last + 1))
        return blocks & allowed

    def rows(self, backwards: bool = False, threads: int = 1) -> Iterator[list[Row]]:
        """The events that match, block by block, in their order; or from the last block to the first."""
        blocks = self.blocks[::-1] if backwards else self.blocks
        if threads < 2 or len(blocks) < _AHEAD:
            yield from map(self._block, blocks)
            return
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(threads) as pool:
            for at in range(0, len(blocks), _AHEAD):
                yield from pool.map(self._block, blocks[at : at + _AHEAD])

    def _block(self, block: int) -> list[Row]:
        rows = self._index.rows[block]
        page = text_page(self._chunk("text", block), rows)
        small = None if folds_odd(page) else lower(page)  # places move where a letter shrinks when it is folded
        if small is not None and not _holds(self._condition, small):
            return []  # most blocks that cannot be told from the right ones end here
        text = split_page(page, rows)
        wanted: Sequence[int] = (
            range(rows) if small is None else sorted(_rows_of(self._condition, text._replace(data=small)))
        )
        if self._kept is not None:
            wanted = [at for at in wanted if self._kept[self._trial_number(block, at)]]
        if self._types is not None and wanted:
            types = read_strings(self._chunk("type", block), rows, False)
            wanted = [at for at in wanted if types[at] in self._types]
        data, starts, ends, search = text.data, text.starts, text.ends, self._search
        out = []
        for at in wanted:
            piece = data[starts[at] : ends[at]]
            if search(piece):
                out.append(Row(block, at, piece))
        return out


def _blocks_of(condition: Condition, index: GrepIndex) -> set[int]:
    """The blocks that may fulfil a condition."""
    if isinstance(condition, bytes):
        return index.having(condition)
    found: set[int] | None = None
    every = isinstance(condition, AllOf)
    for part in condition.parts:
        some = _blocks_of(part, index)
        found = some if found is None else found & some if every else found | some
        if every and not found:
            break
    return found or set()


def _holds(condition: Condition, data: bytes) -> bool:
    """Whether folded bytes fulfil a condition, wherever in them."""
    if isinstance(condition, bytes):
        return condition in data
    return (all if isinstance(condition, AllOf) else any)(_holds(part, data) for part in condition.parts)


def _rows_of(condition: Condition, text: Strings) -> set[int]:
    """The rows of a block that fulfil it. `text` is folded."""
    if not isinstance(condition, bytes):
        found: set[int] | None = None
        every = isinstance(condition, AllOf)
        for part in condition.parts:
            some = _rows_of(part, text)
            found = some if found is None else found & some if every else found | some
            if every and not found:
                break
        return found or set()
    rows = set()
    find, starts, ends = text.data.find, text.starts, text.ends
    at = find(condition)
    while at >= 0:
        row = bisect_right(starts, at) - 1
        if row >= 0:
            rows.add(row)
            at = find(condition, max(ends[row], at + 1))
        else:
            at = find(condition, at + 1)
    return rows
