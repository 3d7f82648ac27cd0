"""From a trial's files to the rows of its events: the part of an import that runs in any process.

A `TrialTask` says all that is needed, so that it can be sent to a worker. What comes back is the same rows wherever
they were made, so an import is the same with one process and with many.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event

from ..store import EventEncoder, Totals
from .trial_trace import TrialTrace, find_trace

__all__ = ["Parsing", "TrialTask", "trace_of"]


class TrialTask(NamedTuple):
    """A trial to parse. `folder` is the trial's own, `ignored` are paths below it that an export added,
    `steps` the names of the steps of a multi-step trial in the order of its record, `size` bytes of its agent files.
    """

    job_id: str
    trial_id: str
    folder: str
    agent_name: str | None
    steps: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    atif_limit: int = 1 << 30
    size: int = 0


class Parsing:
    """One parse of a trial: iterate `rows` once, then read `totals()` and `report()`."""

    def __init__(self, task: TrialTask) -> None:
        self._encoder = EventEncoder(task.job_id, task.trial_id)
        self._trace = trace_of(task)
        self.rows: Iterator[list[list[Any]]] = self._encoder.rows(self._trace.events, self._refused)

    def _refused(self, error: TraceflowError) -> None:
        self._trace.problems.append({"code": error.code, "message": error.message})

    def totals(self) -> Totals:
        return self._encoder.totals()

    def report(self) -> dict[str, Any] | None:
        return self._trace.report()


def trace_of(task: TrialTask) -> TrialTrace:
    """The trace of a trial; of a multi-step one those of its steps, in their order, each event with its step."""
    root = Path(task.folder)
    ignored = frozenset(root / path for path in task.ignored)
    own = find_trace(root / "agent", task.agent_name, task.atif_limit, ignored)
    steps = root / "steps"
    present = sorted(p.name for p in steps.iterdir() if p.is_dir() and not p.is_symlink()) if steps.is_dir() else []
    if not present:
        return own
    order = {name: number for number, name in enumerate(task.steps)}
    present.sort(key=lambda name: (order.get(name, len(order)), name))
    parts = [(name, find_trace(steps / name / "agent", task.agent_name, task.atif_limit, ignored)) for name in present]
    joined = TrialTrace(_joined(parts, own))
    for name, part in [*parts, ("", own)]:
        joined.parses.extend(part.parses)
        joined.problems.extend(part.problems)
        joined.files.extend(f"steps/{name}/agent/{file}" if name else file for file in part.files)
    return joined


def _joined(parts: list[tuple[str, TrialTrace]], own: TrialTrace) -> Iterator[Event]:
    for name, part in parts:
        for event in part.events:
            extra = {**(event.data.get("extra") or {}), "stepName": name}
            yield Event(event.type, {**event.data, "extra": extra})
    yield from own.events
