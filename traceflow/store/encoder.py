"""Rows of a trial's events with what only the events before can tell: the step, and the call a result answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from traceflow_formats.errors import TraceflowError
from traceflow_formats.steps import Steps, is_result
from traceflow_formats.trace import Event, TraceLine

from . import columns as at
from .encode import encode
from .rows import NEW_ROW, to_batch
from .tables import GROUP_BYTES, GROUP_ROWS
from .totals import COUNTED, Totals, TotalsCounter

__all__ = ["Answers", "EventEncoder", "RowBatches"]

_REMEMBERED = 200_000  # calls; the oldest are forgotten beyond it
_FEWEST, _MOST = 8, 64  # events that are encoded together, fewer where they have more than so many bytes
_LARGE = 1 << 20


class EventEncoder:
    """Turns the events of one trial into rows, in any process; their batches can be sent to the one that writes."""

    def __init__(self, job_id: str, trial_id: str) -> None:
        self.job_id = job_id
        self.trial_id = trial_id
        self._new = NEW_ROW.copy()
        self._new[at.JOB_ID], self._new[at.TRIAL_ID] = job_id, trial_id
        self._steps = Steps()
        self._answers = Answers()
        self._counter = TotalsCounter()
        self._seq = 0

    def rows(
        self, events: Iterable[Event | TraceLine], refused: Callable[[TraceflowError], None] | None = None
    ) -> Iterator[list[list[Any]]]:
        """The rows of events, some at a time, as they come. Events are numbered from 0, lines of a trace keep their
        position.

        With `refused` an event that cannot be written is told to it and left out; without it the error is raised
        soon after.
        """
        source = iter(events)
        few = _FEWEST
        failed: list[TraceflowError] = []
        while True:
            some: list[Event | TraceLine] = []
            failure: Exception | None = None
            try:
                for event in islice(source, few):  # one kind of work at a time suits the caches: a tenth of an import
                    some.append(event)  # noqa: PERF402 - `extend`, when compiled, takes all or nothing
            except Exception as error:  # what comes before a failure of the source counts
                failure = error
            rows = self._rows(some, refused or failed.append)
            yield rows
            if failure is not None:
                raise failure
            if failed:
                raise failed[0]
            if len(some) < few:
                return
            few = min(few * 2, _MOST) if _size(rows) < _LARGE else max(1, few // 4)

    def _rows(self, events: list[Event | TraceLine], refused: Callable[[TraceflowError], None]) -> list[list[Any]]:
        events, rows = self._encoded(events, refused)
        counter, answers = self._counter, self._answers
        counter.events += len(rows)
        for event, row, place in zip(events, rows, list(map(self._steps.place, events)), strict=True):
            if place is not None:
                row[at.STEP_ID] = place.step
            if row[at.TOOL_CALL_ID] is not None:
                answers.add(event, row)
            if place is None or place.opens or row[at.TYPE] in COUNTED:
                counter.add(event, row, place)
        return rows

    def _encoded(
        self, events: list[Event | TraceLine], refused: Callable[[TraceflowError], None]
    ) -> tuple[list[Event | TraceLine], list[list[Any]]]:
        """The events that can be written, and their rows."""
        kept, rows, new = [], [], self._new
        for event in events:
            if event.__class__ is TraceLine:
                seq = event.seq
            else:
                seq = self._seq
                self._seq += 1
            try:
                row = encode(event, seq, new)
            except TraceflowError as error:
                refused(error)
                continue
            kept.append(event)
            rows.append(row)
        return kept, rows

    def totals(self) -> Totals:
        """What the rows so far add up to."""
        return self._counter.totals()


def _size(rows: list[list[Any]]) -> int:
    """Characters of the texts of rows, which are nearly all of their bytes."""
    return sum([len(row[at.TEXT]) + len(row[at.REST]) for row in rows])


class RowBatches:
    """Gathers rows, of one trial or of many, into Arrow batches of 1,024 rows; fewer where those are over 16 MiB."""

    def __init__(self, each: Callable[[pa.RecordBatch], None]) -> None:
        self.count = 0  # rows so far
        self._each = each
        self._rows: list[list[Any]] = []
        self._size = 0

    def extend(self, rows: Iterable[list[list[Any]]]) -> None:
        """Take in rows, some at a time. What `rows` raises is raised; those before it are taken in."""
        for some in rows:
            size = _size(some)
            self.count += len(some)
            if size < _LARGE:
                room = GROUP_ROWS - len(self._rows)
                self._take(some[:room], size)
                if len(some) > room:
                    self._take(some[room:], _size(some[room:]))
            else:
                for row in some:
                    self._take([row], _size([row]))

    def _take(self, rows: list[list[Any]], size: int) -> None:
        self._rows += rows
        self._size += size
        if len(self._rows) >= GROUP_ROWS or self._size >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand on what is left."""
        if self._rows:
            rows, self._rows, self._size = self._rows, [], 0
            self._each(to_batch(rows))


class Answers:
    """Pairs calls and results by one number, also where a harness uses one id for several calls.

    A result goes to a call of that agent with that id that has no result yet: of the most recent step that has
    one (as the steps are numbered), to the first. News of a call that runs, or that is over, go to the most recent
    one. In a foreign trace a result may come first; then the next call with its id is its own.
    """

    __slots__ = ("_early", "_last", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[_Key, list[tuple[int | None, int]]] = {}
        self._last: dict[_Key, int] = {}
        self._early: dict[_Key, int] = {}

    def add(self, event: Event | TraceLine, row: list[Any]) -> None:
        """Take the next row that names a call, and set its `call_seq`."""
        if row[at.TOOL_CALL_ID] is None:
            return
        key = (row[at.AGENT_ID], row[at.TOOL_CALL_ID])
        if row[at.TYPE] == "tool_call":
            early = self._early.pop(key, None)
            row[at.CALL_SEQ] = row[at.SEQ] if early is None else early
            _remember(self._last, key, row[at.CALL_SEQ])
            if early is None and row[at.STATUS] not in ("completed", "failed"):
                waiting = self._waiting.get(key)
                if waiting is None:
                    _remember(self._waiting, key, [(row[at.STEP_ID], row[at.SEQ])])
                else:
                    waiting.append((row[at.STEP_ID], row[at.SEQ]))
        elif row[at.TYPE] == "tool_call_update":
            row[at.CALL_SEQ] = self._answered(key, is_result(event.data["update"]))
            if row[at.CALL_SEQ] is None:
                row[at.CALL_SEQ] = row[at.SEQ]
                _remember(self._early, key, row[at.SEQ])

    def _answered(self, key: _Key, result: bool) -> int | None:
        waiting = self._waiting.get(key)
        if not waiting:
            return self._last.get(key)
        step, call = waiting[-1]
        if not result:
            return call
        if len(waiting) == 1:
            del self._waiting[key]
            return call
        at = next(n for n, (other, _) in enumerate(waiting) if other == step)
        return waiting.pop(at)[1]


_Key = tuple[str | None, str]


def _remember(known: dict[_Key, Any], key: _Key, value: Any) -> None:
    known[key] = value
    if len(known) > _REMEMBERED:
        del known[next(iter(known))]
