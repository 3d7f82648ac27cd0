"""Rows of a trial's events with what only the events before can tell: the step, and the call a result answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from traceflow_formats.steps import Steps, is_result
from traceflow_formats.trace import Event, TraceLine

from .rows import EventRow, encode, to_batch
from .tables import GROUP_BYTES, GROUP_ROWS
from .totals import Totals, TotalsCounter

__all__ = ["Answers", "EventEncoder"]

_REMEMBERED = 200_000  # calls; the oldest are forgotten beyond it


class EventEncoder:
    """Turns the events of one trial into rows, in any process; `batches` can be sent to the one that writes."""

    def __init__(self, job_id: str, trial_id: str) -> None:
        self.job_id = job_id
        self.trial_id = trial_id
        self._steps = Steps()
        self._answers = Answers()
        self._counter = TotalsCounter()
        self._seq = 0

    def row(self, event: Event | TraceLine) -> EventRow:
        """The next row. Events are numbered from 0, lines of a trace keep their position."""
        if isinstance(event, TraceLine):
            seq = event.seq
        else:
            seq = self._seq
            self._seq += 1
        row = encode(event, seq)
        row.job_id, row.trial_id = self.job_id, self.trial_id
        place = self._steps.place(event)
        if place is not None:
            row.step_id = place.step
        if row.tool_call_id is not None:
            self._answers.add(event, row)
        self._counter.add(event, row, place)
        return row

    def batches(self, events: Iterable[Event | TraceLine]) -> Iterator[pa.RecordBatch]:
        """The rows as Arrow batches of at most 1,024 rows and about 16 MiB."""
        rows: list[EventRow] = []
        size = 0
        for event in events:
            row = self.row(event)
            rows.append(row)
            size += len(row.text) + len(row.rest)
            if len(rows) >= GROUP_ROWS or size >= GROUP_BYTES:
                yield to_batch(rows)
                rows, size = [], 0
        if rows:
            yield to_batch(rows)

    def totals(self) -> Totals:
        """What the rows so far add up to."""
        return self._counter.totals()


class Answers:
    """Finds the call that a result answers, also where a harness uses one id for several calls.

    It is a call of that agent with that id that has no result yet: of the most recent step that has one (as the
    steps are numbered), the first. News of a call that runs, or that is over, go to the most recent one.
    """

    __slots__ = ("_last", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[tuple[str | None, str], list[tuple[int | None, int]]] = {}
        self._last: dict[tuple[str | None, str], int] = {}

    def add(self, event: Event | TraceLine, row: EventRow) -> None:
        """Take the next row that names a call; of a result `call_seq` is set, where there is a call."""
        if row.tool_call_id is None:
            return
        key = (row.agent_id, row.tool_call_id)
        if row.type == "tool_call":
            self._last[key] = row.seq
            if row.status not in ("completed", "failed"):
                self._waiting.setdefault(key, []).append((row.step_id, row.seq))
            for known in (self._last, self._waiting):
                if len(known) > _REMEMBERED:
                    del known[next(iter(known))]
        elif row.type == "tool_call_update":
            waiting = self._waiting.get(key)
            if waiting and is_result(event.data["update"]):
                step = waiting[-1][0]
                at = next(n for n, call in enumerate(waiting) if call[0] == step)
                row.call_seq = waiting.pop(at)[1]
                if not waiting:
                    del self._waiting[key]
            else:
                row.call_seq = waiting[-1][1] if waiting else self._last.get(key)
