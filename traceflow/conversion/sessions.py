"""Converting sessions: sources in, trajectories or parsed traces out, and a report that adds up."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats.atif import AtifBuilder, Built, Summary
from traceflow_formats.errors import TraceflowError
from traceflow_formats.losses import Losses
from traceflow_formats.trace import Event, write_trace
from traceflow_parsers.report import Report
from traceflow_parsers.source import Source

from ..files import atomic_file

__all__ = ["Conversion", "build", "convert_all", "convert_one", "each_source", "folder_name", "refuse_empty"]


@dataclass
class Conversion:
    """The report of a conversion over all its sessions, in the shape that `convert --json` prints."""

    harnesses: list[str] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    source: str = ""
    sessions: int = 0
    steps: int | None = None  # this and the next two are counted where a trajectory is made
    model_calls: int | None = None
    tool_calls: int | None = None
    lines: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("read", "parsed", "unknown", "malformed", "duplicate"), 0)
    )
    tokens: dict[str, int | None] = field(
        default_factory=lambda: dict.fromkeys(("prompt", "completion", "cached"), None)
    )
    cost_usd: float | None = None
    unknown_types: dict[str, int] = field(default_factory=dict)
    malformed_at: list[dict[str, Any]] = field(default_factory=list)
    incomplete: bool = False
    warnings: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    losses: Losses | None = None  # what the format cannot hold; None where the format holds everything
    redacted: dict[str, Any] | None = None  # what a redaction replaced

    def warn(self, code: str, message: str, path: str | None = None) -> None:
        """A warning about a source as a whole."""
        self.warnings.append({"code": code, "count": 1, "message": message} | ({"path": path} if path else {}))

    def add(self, report: Report, summary: Summary | None) -> None:
        """Count one session in."""
        said = report.as_dict()
        self.sessions += 1
        if report.harness not in self.harnesses:
            self.harnesses.append(report.harness)
        if report.version and report.version not in self.versions:
            self.versions.append(report.version)
        self.source = self.source or report.source
        for key in self.lines:
            self.lines[key] += said["lines"][key]
        for name, count in said["unknown_types"].items():
            self.unknown_types[name] = self.unknown_types.get(name, 0) + count
        self.malformed_at.extend(said["malformed_at"])
        self.incomplete = self.incomplete or report.incomplete
        self.warnings.extend(said["warnings"])
        if summary is None:
            return
        self.steps = _sum(self.steps, summary.steps)
        self.model_calls = _sum(self.model_calls, summary.model_calls)
        self.tool_calls = _sum(self.tool_calls, summary.tool_calls)
        self.tokens = {
            "prompt": _sum(self.tokens["prompt"], summary.prompt_tokens),
            "completion": _sum(self.tokens["completion"], summary.completion_tokens),
            "cached": _sum(self.tokens["cached"], summary.cached_tokens),
        }
        if summary.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + summary.cost_usd

    def as_dict(self) -> dict[str, Any]:
        said = {
            "harness": ", ".join(self.harnesses),
            "version": ", ".join(self.versions) or None,
            "source": self.source,
            "sessions": self.sessions,
            "steps": self.steps,
            "model_calls": self.model_calls,
            "tool_calls": self.tool_calls,
            "lines": self.lines,
            "unknown_types": dict(sorted(self.unknown_types.items())),
            "malformed_at": self.malformed_at[:100],
            "tokens": self.tokens,
            "cost_usd": self.cost_usd,
            "incomplete": self.incomplete,
            "warnings": self.warnings,
            "outputs": self.outputs,
        }
        if self.losses is not None:
            said["losses"] = self.losses.as_dict()
        if self.redacted is not None:
            said["redacted"] = self.redacted
        return said


def _sum(have: int | None, more: int | None) -> int | None:
    if more is None:
        return have
    return more if have is None else have + more


def convert_one(source: Source, to: str, out: BinaryIO, conversion: Conversion) -> None:
    """Write the trajectory (`atif`) or the parsed trace (`trace`) of one source to a binary stream.

    Raises empty_trace when the source yields no step; nothing has been written then.
    """
    parse = source.parse()
    if to == "trace":
        write_trace(parse, out)
        refuse_empty(source, parse.report, empty=parse.report.lines.parsed == 0)
        conversion.add(parse.report, None)
        return
    with build(parse) as built:
        refuse_empty(source, parse.report, empty=built.is_empty)
        built.write(out)
        conversion.add(parse.report, built.summary)


def convert_all(
    sources: list[Source],
    to: str,
    folder: Path,
    conversion: Conversion,
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Write `FOLDER/<session id>/trajectory.json` (or `trace-parsed.jsonl`) for each source that has steps.

    Images go to `images/` beside a trajectory. A session without steps is a warning, all of them without is
    empty_trace.
    """
    taken: set[str] = set()
    each_source(sources, conversion, lambda source: _convert_into(source, to, folder, conversion, taken), progress)


def each_source(
    sources: list[Source],
    conversion: Conversion,
    convert: Callable[[Source], None],
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Convert the sources one by one. A session that cannot be is a warning beside others; all of them raise."""
    refused: list[TraceflowError] = []
    for source in sources:
        try:
            convert(source)
        except TraceflowError as error:
            if error.code not in ("empty_trace", "invalid_trajectory") or len(sources) == 1:
                raise
            refused.append(error)
            conversion.warn(error.code, error.message)
        progress(1, source.path.name)
    if refused and len(refused) == len(sources):
        raise refused[0]


def _convert_into(source: Source, to: str, folder: Path, conversion: Conversion, taken: set[str]) -> None:
    parse = source.parse()
    if to == "trace":
        events = iter(parse)
        first = next(events, None)
        if first is None:
            refuse_empty(source, parse.report, empty=True)
        target = folder / folder_name(source, parse.report, taken) / "trace-parsed.jsonl"
        with atomic_file(target) as out:
            write_trace(_chain(first, events), out)
        conversion.add(parse.report, None)
        conversion.outputs.append(str(target))
        return
    images: dict[str, bytes] = {}
    with build(parse, images) as built:
        refuse_empty(source, parse.report, empty=built.is_empty)
        target = folder / folder_name(source, parse.report, taken) / "trajectory.json"
        for name, data in sorted(images.items()):
            with atomic_file(target.parent / name) as out:
                out.write(data)
        with atomic_file(target) as out:
            built.write(out)
        conversion.add(parse.report, built.summary)
    conversion.outputs.append(str(target))


def build(events: Iterable[Event], images: dict[str, bytes] | None = None, *, times: bool = False) -> Built:
    """The document of a trace; its images are put into `images`, or become a few words."""
    builder = AtifBuilder(images=images.__setitem__ if images is not None else None, times=times)
    for event in events:
        builder.add(event)
    return builder.finish()


def _chain(first: Event | None, rest: Iterator[Event]) -> Iterator[Event]:
    if first is not None:
        yield first
    yield from rest


def refuse_empty(source: Source, report: Report, *, empty: bool) -> None:
    """Raise empty_trace, with what became of the lines, where a source came to nothing."""
    if not empty:
        return
    lines = report.lines
    raise TraceflowError(
        "empty_trace",
        f"{source.path}: {source.harness} {source.kind} without a step"
        f" ({lines.read} lines read, {lines.unknown} of unknown types, {lines.malformed} malformed)",
        path=str(source.path),
        lines=lines.as_dict(),
    )


_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


def folder_name(source: Source, report: Report, taken: set[str]) -> str:
    """A folder name for a session: its id where that is a safe name, else its digest; a second one gets -2."""
    session = report.session_id or source.session_id or source.path.stem
    name = _UNSAFE.sub("_", session)[:100].lstrip(".")
    if not name or name != session:
        name = f"{name or 'session'}-{hashlib.sha256(session.encode('utf-8', 'replace')).hexdigest()[:8]}"
    unique, number = name, 1
    while unique.lower() in taken:
        number += 1
        unique = f"{name}-{number}"
    taken.add(unique.lower())
    return unique
