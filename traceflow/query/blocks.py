"""Grep by the index: only the blocks that can match are read, page by page, and checked with RE2.

Nothing here needs an engine, so that a search for something rare is done before one would have been loaded. A
store, job or pattern that this cannot answer is left to `scan`; both give the same hits in the same order.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from itertools import chain, groupby, islice

import re2

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple
from traceflow.store.grep_index import BadIndexError
from traceflow.store.pages import BadPageError, read_numbers, read_strings, split_page, text_page

from .hits import Hit
from .literals import ANY_TEXT, AllOf, literals_of
from .pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from typing import Any

    from traceflow.store.backend import Backend
    from traceflow.store.grep_index import GrepIndex, IndexedTrial
    from traceflow.store.manifest import Manifest

    from .literals import Condition

__all__ = ["UNUSABLE", "BlockSearch", "Blocks", "Row", "in_order", "processors"]

_AHEAD = 48  # blocks in hand at once, where threads read them
_WORTH = 2  # blocks for each thread that are worth starting them
_ROWS = 8
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
        self._firsts: list[int] | None = None

    def number(self, row: Row) -> int:
        """The row among all events of the job."""
        return self._index.starts[row.block] + row.at

    def at(self, numbers: Sequence[int]) -> list[Hit]:
        """The events in these rows of the job, which ascend."""
        out: list[Hit] = []
        starts = self._index.starts
        for block, some in groupby(numbers, key=lambda number: bisect_right(starts, number) - 1):
            page, bounds = self._text(block)
            places = [number - starts[block] for number in some]
            out += self.hits([Row(block, at, page[bounds[at] + 4 : bounds[at + 1]]) for at in places])
        return out

    def having(self, numbers: Sequence[int], search: Callable[[bytes], Any]) -> list[int]:
        """Those of these rows of the job, which ascend, in whose text something is found."""
        starts = self._index.starts

        def found(item: tuple[int, list[int]]) -> list[int]:
            block, places = item
            page, bounds = self._text(block)
            return [at + starts[block] for at in places if search(page[bounds[at] + 4 : bounds[at + 1]])]

        groups = groupby(numbers, key=lambda number: bisect_right(starts, number) - 1)
        blocks = ((block, [number - starts[block] for number in some]) for block, some in groups)
        return [number for _, some in in_order(found, blocks, processors()) for number in some]

    def trial_of(self, row: Row) -> IndexedTrial:
        """The trial whose event it is."""
        return self._index.trials[self._trial_number(row.block, row.at)]

    def _trial_number(self, block: int, at: int) -> int:
        if self._firsts is None:
            self._firsts = [trial.first for trial in self._index.trials]
        return bisect_right(self._firsts, self._index.starts[block] + at) - 1

    def _chunk(self, column: str, block: int) -> bytes:
        offset, length = self._index.page(column, block)
        data = self._backend.read_range(self._events, offset, length)
        if len(data) != length:
            raise BadPageError("events.parquet is too short")
        return data

    def _text(self, block: int) -> tuple[bytes, list[int]]:
        rows = self._index.rows[block]
        page = text_page(self._chunk("text", block), rows)
        return page, split_page(page, rows)

    def hits(self, found: list[Row]) -> list[Hit]:
        """The events themselves; `found` are of one block, and ascend."""
        if not found:
            return []
        block = found[0].block
        rows = self._index.rows[block]
        wanted = [row.at for row in found]
        seq = read_numbers(self._chunk("seq", block), rows, False, wanted)
        types = read_strings(self._chunk("type", block), rows, False, wanted)
        tools = read_strings(self._chunk("tool_name", block), rows, True, wanted)
        agents = read_strings(self._chunk("agent_id", block), rows, True, wanted)
        times = read_numbers(self._chunk("timestamp", block), rows, True, wanted)
        out = []
        for n, row in enumerate(found):
            trial = self.trial_of(row)
            hit = Hit(  # by place, as there may be very many
                *(self._job.job_id, trial.trial_id, trial.name),
                seq[n] or 0,
                types[n] or "",
                tools[n],
                agents[n],
                times[n],
                row.text.decode(),
                self._pattern,
            )
            out.append(hit)
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
        self._literal = condition != ANY_TEXT
        expression = f"(?i:{_necessary(condition)})" if self._literal else pattern.expression
        self._find = Pattern(expression, expression).compile().search
        self._types = types
        self._kept = None if keep is None else [keep(trial) for trial in index.trials]
        self.blocks = sorted(self._allowed(_blocks_of(condition, index)))

    def _allowed(self, blocks: set[int]) -> set[int]:
        """Of these blocks those that hold a trial that is asked for."""
        if self._kept is None:
            return blocks
        starts = self._index.starts
        allowed: set[int] = set()
        for kept, trial in zip(self._kept, self._index.trials, strict=True):
            if kept and trial.rows:
                first = bisect_right(starts, trial.first) - 1
                last = bisect_right(starts, trial.first + trial.rows - 1) - 1
                allowed.update(range(first, last + 1))
        return blocks & allowed

    def rows(self, backwards: bool = False) -> Iterator[list[Row]]:
        """The events that match, block by block, in their order; or from the last block to the first."""
        return map(self.block, self.blocks[::-1] if backwards else self.blocks)

    def block(self, block: int) -> list[Row]:
        """The events of a block that match. Threads may call it."""
        rows = self._index.rows[block]
        page = text_page(self._chunk("text", block), rows)
        at = _first(self._find(page)) if self._literal else 0
        if at < 0:
            return []  # most blocks that cannot be told from the right ones end here
        bounds = split_page(page, rows)
        if not self._literal:
            at = self._next(page, bounds, 0)
        types = None if self._types is None else read_strings(self._chunk("type", block), rows, False)
        out = []
        while at >= 0:
            row = bisect_right(bounds, at) - 1
            start, end = bounds[row] + 4, bounds[row + 1]
            if (self._kept is None or self._kept[self._trial_number(block, row)]) and (
                types is None or types[row] in (self._types or ())
            ):
                text = page[start:end]
                # what was found may begin or end among the lengths that stand between texts: the text is asked again
                if self._search(text):
                    out.append(Row(block, row, text))
            at = self._next(page, bounds, row + 1)
        return out

    def _next(self, page: bytes, bounds: list[int], row: int) -> int:
        """Where from this row on something is found next, -1 for nowhere."""
        if self._literal:
            return _first(self._find(page, bounds[row]))
        some, rows = _ROWS, len(bounds) - 1
        while row < rows:  # a match could run to the end of the page: some rows at a time, more as long as none matches
            stop = min(row + some, rows)
            at = _first(self._find(page, bounds[row], bounds[stop]))
            if at >= 0:
                return at
            row, some = stop, 2 * some
        return -1


def _first(match: Any) -> int:
    return -1 if match is None else int(match.start())


def _necessary(condition: Condition) -> str:
    """An expression that is found, in any case, in every text that fulfils the condition."""
    if isinstance(condition, bytes):
        return str(re2.escape(condition.decode()))
    if isinstance(condition, AllOf):  # one of them is enough to tell most blocks: the one that asks for most
        return _necessary(max(condition.parts, key=lambda part: min(map(len, literals_of(part)))))
    return "|".join(map(_necessary, condition.parts))


def _blocks_of(condition: Condition, index: GrepIndex) -> set[int]:
    """The blocks that may fulfil a condition."""
    if isinstance(condition, bytes):
        return index.having(condition)
    if condition == ANY_TEXT:
        return set(range(index.blocks))
    found: set[int] | None = None
    every = isinstance(condition, AllOf)
    for part in condition.parts:
        some = _blocks_of(part, index)
        found = some if found is None else found & some if every else found | some
        if every and not found:
            break
    return found or set()


# -- several at once ---------------------------------------------------------------------------------------


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Slot:
    """A piece of work, and what came of it."""

    __slots__ = ("done", "error", "item", "result")

    def __init__(self, item: Any, done: Any) -> None:
        self.item = item
        self.result: Any = None
        self.error: Exception | None = None
        self.done = done
        done.acquire()


def in_order(work: Callable[[Any], Any], items: Iterable[Any], threads: int) -> Generator[tuple[Any, Any], None, None]:
    """Each item with what `work` makes of it, in the order of the items.

    At most so many threads are started, as many as have enough to do, and end with the iteration. What `work` raises
    is raised when its item has its turn.
    """
    source = iter(items)
    waiting = deque(islice(source, _WORTH * threads))
    threads = min(threads, len(waiting) // _WORTH)
    if threads < 2:
        yield from ((item, work(item)) for item in chain(waiting, source))
        return
    from _queue import SimpleQueue  # what `queue` and `threading` have around these takes as long as reading two blocks
    from _thread import allocate_lock, start_new_thread

    tasks: SimpleQueue[_Slot | None] = SimpleQueue()
    ended: list[bool] = []

    def run(slot: _Slot) -> None:
        """A thread, which is a piece of work itself: it is done when the thread ends."""
        while (other := tasks.get()) is not None:
            try:
                other.result = None if ended else work(other.item)
            except Exception as error:
                other.error = error
            other.done.release()
        slot.done.release()

    def put(item: Any) -> _Slot:
        slot = _Slot(item, allocate_lock())
        tasks.put(slot)
        return slot

    slots: deque[_Slot] = deque(map(put, waiting))
    running = [_Slot(None, allocate_lock()) for _ in range(threads)]
    for thread in running:
        start_new_thread(run, (thread,))
    try:
        while slots:
            while len(slots) < _AHEAD and (more := next(source, None)) is not None:
                slots.append(put(more))
            slot = slots.popleft()
            slot.done.acquire()
            if slot.error is not None:
                raise slot.error
            yield slot.item, slot.result
    finally:
        ended.append(True)
        for _ in running:
            tasks.put(None)
        for thread in running:
            thread.done.acquire()
