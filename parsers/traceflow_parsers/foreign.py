"""Traces that are no harness's own: a parsed trace of ours or of the platform, and an ATIF document.

Both pass through the same contract as a harness, so that whatever reads events need not care where they came
from. Ids, texts and unknown fields stay as they are; only the order is mended (an update before its call).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.jsontext import MAX_DEPTH, too_deep
from traceflow_formats.trace import GATEWAY_SEQ, Event, TraceLine, as_trace_line

from .contract import JsonLineParser, Line, Parser, Part
from .emit import Emitter
from .source import Source, file_input

__all__ = ["FOREIGN_VERSIONS", "AtifParser", "TraceParser", "atif_source", "is_atif", "is_trace", "trace_source"]

FOREIGN_VERSIONS = {"atif": 1, "trace": 1}  # as `Harness.version`


def is_trace(records: Sequence[dict[str, Any]]) -> bool:
    """Whether the first records are events of a parsed trace, numbered or bare."""
    return bool(records) and all(as_trace_line(record, 0) is not None for record in records[:5])


def is_atif(records: Sequence[dict[str, Any]]) -> bool:
    """Whether a document is a trajectory: its schema says so, or it has an agent and steps."""
    if len(records) != 1:
        return False
    schema = records[0].get("schema_version")
    if isinstance(schema, str) and schema.startswith("ATIF-"):
        return True
    return isinstance(records[0].get("agent"), dict) and isinstance(records[0].get("steps"), list)


def _bounded(data: dict[str, Any], emit: Emitter, parts: tuple[str, ...] = ("update", "_prompt")) -> dict[str, Any]:
    """The data of an event, without the values in it that are nested more deeply than they could be written again."""
    out = data
    for key, value in data.items():
        kind = value.__class__
        if kind is dict or kind is list:
            kept = _bounded(value, emit, ()) if key in parts and kind is dict else emit.bounded(value)
            if kept is not value:
                out = {**out, key: kept}
    return out


class TraceParser(JsonLineParser):
    """A parsed trace, line by line. Gateway lines keep their place at the end and their `source`."""

    harness = "trace"
    source = "trace"

    def __init__(self) -> None:
        super().__init__()
        self._next = 0
        self._ready: list[Event] = []
        self._known: set[int] = set()
        self._early: dict[str, list[Event]] = {}

    def record(self, record: dict[str, Any]) -> Line:
        line = as_trace_line(record, self._next)
        if line is None:
            return Line.UNKNOWN
        if line.seq < GATEWAY_SEQ:
            self._next = line.seq + 1
        self._learn(line)
        deep = self.raw.count(b"{") + self.raw.count(b"[") > MAX_DEPTH  # quicker than a look into every event
        self._take(Event(line.type, _bounded(line.data, self.emit) if deep else line.data))
        return Line.PARSED

    def feed(self, line: bytes) -> list[Event]:
        super().feed(line)
        ready, self._ready = self._ready, []
        return ready

    def finish(self) -> list[Event]:
        rest = [event for events in self._early.values() for event in events]
        if rest:
            self.report.warn("orphan_result", "a result whose call is not in the source", len(rest))
        self._early.clear()
        return rest + super().finish()

    def _learn(self, line: TraceLine) -> None:
        report = self.report
        extra = line.data.get("extra")
        if isinstance(extra, dict):
            if isinstance(name := extra.get("harness"), str):
                report.harness = name
            if isinstance(version := extra.get("harnessVersion"), str):
                report.version = version
        if report.session_id is None and isinstance(session := line.data.get("sessionId"), str):
            report.session_id = session

    def _take(self, event: Event) -> None:
        update = event.data.get("update")
        call_id = update.get("toolCallId") if isinstance(update, dict) else None
        if not isinstance(call_id, str):
            self._ready.append(event)
        elif event.type == "tool_call":
            self._known.add(hash(call_id))
            self._ready.append(event)
            self._ready.extend(self._early.pop(call_id, ()))
        elif hash(call_id) in self._known:
            self._ready.append(event)
        else:
            self._early.setdefault(call_id, []).append(event)


class AtifParser(Parser):
    """An ATIF document of any version. It is read whole: one document is one value."""

    harness = "atif"
    source = "atif"

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[bytes] = []

    def begin(self, part: Part) -> None:
        self.report.path = part.name

    def feed(self, line: bytes) -> list[Event]:
        self._lines.append(line)
        if line.strip():
            self.report.lines.read += 1
            self.report.lines.parsed += 1
        return []

    def finish(self) -> list[Event]:
        from traceflow_formats.atif import events_of, read_trajectory  # its models take long to load

        data = b"".join(self._lines)
        self._lines.clear()
        reading = read_trajectory(data, self.report.path or None)
        document = reading.trajectory
        for warning in reading.warnings:
            self.report.warn(warning.code, warning.message, warning.count)
        agent = document["agent"]
        self.report.harness = agent["name"]
        self.report.version = agent["version"]
        session = document.get("session_id")
        self.report.session_id = session if isinstance(session, str) else None
        events = list(events_of(document))
        if too_deep(document):
            events = [Event(event.type, _bounded(event.data, self.emit)) for event in events]
            self.emit.finish()
        return events + self.emit.drain()


def _source(path: Path, kind: str, make: Callable[[], Parser]) -> Source:
    return Source(kind, kind, path, (file_input(path, Part(path.name)),), make, files=(path,))


def trace_source(path: Path) -> Source:
    """The parsed trace in a file."""
    return _source(path, "trace", TraceParser)


def atif_source(path: Path, limit: int = 1 << 30) -> Source:
    """The trajectory in a file. Raises trial_too_large when the file is over `limit` bytes (1 GiB)."""
    size = path.stat().st_size
    if size > limit:
        raise TraceflowError(
            "trial_too_large",
            f"{path.name} has {size} bytes; a trajectory may have {limit}",
            file=path.name,
            bytes=size,
            max_bytes=limit,
        )
    return _source(path, "atif", AtifParser)
