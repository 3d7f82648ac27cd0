"""Which of a trial's files is its trace: the first source, in a fixed order, that yields events.

1. the native session at the harness's own path (at its real name or at Harbor's slot; equal content once),
2. `agent/trace-parsed.jsonl`, 3. `agent/trajectory.json` (both also as `.gz`), 4. the harness's stdout, then any
other `agent/*.txt` and `agent/*.log`. `agent/source/` is kept and never read as a trace. A session and the stdout
of the same run are reconciled; the opening prompt is taken from the trajectory when the session lacks it.

A file at a session's path may hold stdout lines or a whole SDK log: its content decides, and it is then that
stream, never half of a pair.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor.layout import trace_files
from traceflow_formats.trace import Event
from traceflow_parsers.contract import Part
from traceflow_parsers.detect import open_file
from traceflow_parsers.foreign import AtifParser, TraceParser, atif_source
from traceflow_parsers.lines import iter_lines
from traceflow_parsers.reconcile import Reconciled
from traceflow_parsers.registry import HARNESSES, harness_named
from traceflow_parsers.report import Report
from traceflow_parsers.sdk import SDK_AGENTS
from traceflow_parsers.source import Input, Parse, Source

__all__ = ["TrialTrace", "find_trace"]

_HARBOR_NAMES = {"qwen-coder": "qwen-code"}
_KEPT_ONLY = "source"
_TRACE_BYTES = 5 << 30  # of a packed trace, unpacked

# Where sessions stand, at any depth below agent/ (older downloads have the home folder below sessions/): a harness is
# asked for its sessions only where a path says that it may have some.
_SESSION_PLACES: dict[str, re.Pattern[str]] = {
    "claude-code": re.compile(r"(?:^|/)projects/[^/]+/.*\.jsonl\Z"),
    "codex": re.compile(r"(?:^|/)(?:archived_)?sessions/(?:.*/)?rollout-[^/]*\.jsonl\Z"),
    "gemini-cli": re.compile(r"(?:^|/)\.gemini/.*\.jsonl?\Z|^gemini-cli\.trajectory\.jsonl?\Z"),
    "qwen-code": re.compile(r"(?:^|/)(?:\.qwen|qwen-sessions)/.*\.jsonl?\Z"),
    "kimi-code": re.compile(r"(?:^|/)\.kimi-code/"),
    "kimi-cli": re.compile(r"(?:^|/)\.kimi/"),
    "opencode": re.compile(r"(?:^|/)opencode/(?:.*/)?(?:[^/]+\.db|storage/.*\.json)\Z"),
    "droid": re.compile(r"(?:^|/)\.factory/sessions/.*\.jsonl\Z"),
}


@dataclass
class TrialTrace:
    """The trace of one trial, or of one step of it: iterate `events` once, then read `report()`."""

    events: Iterator[Event]
    parses: list[Parse | Reconciled] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # what was read, relative to the agent folder
    problems: list[dict[str, Any]] = field(default_factory=list)  # sources that could not be read

    def report(self) -> dict[str, Any] | None:
        """One report over all sessions of the trace, in the shape of a parse report with `files` and `lacks`."""
        if not self.parses:
            return {"problems": self.problems} if self.problems else None
        first = self.parses[0].report
        merged = Report(first.harness, first.source, first.version, first.session_id)
        lacks: dict[str, list[str]] = {}
        for parse in self.parses:
            _merge(merged, parse.report)
            if isinstance(parse, Reconciled):
                for side, facts in parse.lacks.items():
                    lacks.setdefault(side, []).extend(f for f in facts if f not in lacks.get(side, []))
        out = merged.as_dict()
        out["files"] = self.files
        if any(lacks.values()):
            out["lacks"] = lacks
        if self.problems:
            out["problems"] = self.problems
        return out


def _merge(into: Report, report: Report) -> None:
    into.lines.add(report.lines)
    into.incomplete = into.incomplete or report.incomplete
    into.malformed_at.extend(report.malformed_at[: 100 - len(into.malformed_at)])
    for name, count in report.unknown_types.items():
        into.unknown_types[name] = into.unknown_types.get(name, 0) + count
    for code, warned in report.warnings.items():
        into.path, into.line, into.byte = warned.path or "", warned.line or 0, warned.byte or 0
        into.warn(code, warned.message, warned.count)


def find_trace(
    agent: Path,
    agent_name: str | None = None,
    atif_limit: int = 1 << 30,
    ignored: frozenset[Path] = frozenset(),
) -> TrialTrace:
    """The trace of an agent folder. An absent or empty one gives no events; a source that cannot be read is a
    problem in the report, and the next one is tried. `ignored` files are not read: an export made them.

    Raises trial_too_large for a trajectory over `atif_limit` bytes.
    """
    if not agent.is_dir():
        return TrialTrace(iter(()))
    return _Finder(agent, harness_of(agent_name), atif_limit, ignored).find()


def harness_of(agent_name: str | None) -> str | None:
    """Our name of the harness that a Harbor agent name or an SDK id stands for, or None."""
    if agent_name is None:
        return None
    name = _HARBOR_NAMES.get(agent_name, SDK_AGENTS.get(agent_name, agent_name))
    return name if harness_named(name) else None


class _Finder:
    """One search through an agent folder; what could not be read is collected on the way."""

    def __init__(self, agent: Path, harness: str | None, atif_limit: int, ignored: frozenset[Path]) -> None:
        self.agent = agent.absolute()  # as some parsers name their files
        self.harness = harness
        self.atif_limit = atif_limit
        self.problems: list[dict[str, Any]] = []
        self.names = [name for name in _list(agent) if agent / name not in ignored] if ignored else _list(agent)
        self.places = trace_files(self.names)
        self.stdout = self._stdout_files()

    def find(self) -> TrialTrace:
        for sources in self._candidates():
            trace = self._first_events(sources)
            if trace is not None:
                return trace
        return TrialTrace(iter(()), problems=self.problems)

    def _candidates(self) -> Iterator[list[Source]]:
        sessions = self._sessions()
        if sessions:
            yield sessions
        else:
            yield from self._streams_at_session_paths()
        if self.places.parsed is not None:
            yield self._parsed(self.agent / self.places.parsed)
        trajectory = self._trajectory()
        if trajectory:
            yield [trajectory]
        for path in self.stdout:
            yield self._opened(path)

    # -- where things stand ------------------------------------------------------------------------------

    def _sessions(self) -> list[Source]:
        found: dict[str, list[Source]] = {}
        for harness in HARNESSES:
            place = _SESSION_PLACES.get(harness.name)
            if place is not None and not any(map(place.search, self.names)):
                continue
            try:
                sources = harness.sessions_in(self.agent)
            except TraceflowError as error:
                self._problem(error)
                continue
            for source in sources:
                if _KEPT_ONLY not in source.path.relative_to(self.agent).parts[:1]:
                    found.setdefault(harness.name, []).append(source)
        if not found:
            return []
        chosen = self.harness if self.harness in found else next(iter(found)) if len(found) == 1 else None
        if chosen is None:
            message = f"sessions of {' and '.join(sorted(found))} in one trial, and its agent is neither"
            self.problems.append({"code": "unrecognized_trace", "message": message})
            return []
        return _unique(found[chosen])

    def _streams_at_session_paths(self) -> Iterator[list[Source]]:
        """What lies where sessions lie and is none: stdout lines, SDK logs. Each harness's are one candidate."""
        found: dict[str, list[Source]] = {}
        for name in (place.path for place in self.places.sessions):
            if not name.endswith((".jsonl", ".json")):
                continue
            try:
                source = open_file(self.agent / name)
            except TraceflowError:
                continue  # sidecars and the like
            if source.kind in ("stdout", "sdk", "trace"):
                found.setdefault(source.harness, []).append(source)
        for harness in sorted(found, key=lambda name: (name != self.harness, name)):
            yield _unique(found[harness])

    def _stdout_files(self) -> list[Path]:
        """The files that may hold stdout: the harness's own name first, then other harnesses' names, then the rest."""
        own = next((h.stdout_names for h in HARNESSES if h.name == self.harness), ())
        return [self.agent / name for name in sorted(self.places.stdout, key=lambda name: name not in own)]

    def _parsed(self, path: Path) -> list[Source]:
        if path.suffix != ".gz":
            return self._opened(path)
        lines = partial(self._unpacked_lines, path, _TRACE_BYTES)
        return [Source("trace", "trace", path, (Input(Part(path.name), lines),), TraceParser, files=(path,))]

    def _trajectory(self) -> Source | None:
        if self.places.trajectory is None:
            return None
        path = self.agent / self.places.trajectory
        if path.suffix != ".gz":
            return atif_source(path, self.atif_limit)
        lines = partial(self._unpacked_lines, path, self.atif_limit)
        return Source("atif", "atif", path, (Input(Part(path.name), lines),), AtifParser, files=(path,))

    def _unpacked_lines(self, path: Path, most: int) -> Iterator[bytes]:
        """The lines of a packed twin. Raises trial_too_large when it unpacks to more than `most` bytes,
        invalid_input where it is damaged."""
        try:
            with gzip.open(path) as stream:
                bounded = _Bounded(stream, most, path.name)
                yield from iter_lines(io.BufferedReader(bounded, 1 << 20))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceflowError("invalid_input", f"{path.name}: {error}", path=path.name) from None

    def _opened(self, path: Path) -> list[Source]:
        try:
            return [open_file(path)]
        except TraceflowError as error:
            if path.suffix not in (".txt", ".log"):  # a log that is no trace is nothing to tell
                self._problem(error)
            return []

    def _problem(self, error: TraceflowError) -> None:
        message = error.message.replace(f"{self.agent}/", "")
        self.problems.append({"code": error.code, "message": message})

    # -- reading -----------------------------------------------------------------------------------------

    def _first_events(self, sources: list[Source]) -> TrialTrace | None:
        """A trace over these sources, or None when they yield no event."""
        parses: list[Parse | Reconciled]
        if len(sources) == 1 and sources[0].kind == "session":
            parses = [self._with_stdout(sources[0])]
        else:
            parses = [source.parse() for source in sources]
        events = self._guarded(parses)
        head = _opening(events)
        if not head:
            return None
        files = [source.path for source in sources]
        if isinstance(parses[0], Reconciled):
            files.append(parses[0].stdout_path)
        prompted = any(event.type == "prompt" and "role" not in event.data["_prompt"] for event in head)
        opening = () if prompted else self._opening_prompt(sources)
        names = [str(path.relative_to(self.agent)) for path in files]
        return TrialTrace(chain(opening, head, events), parses, names, self.problems)

    def _guarded(self, parses: Iterable[Parse | Reconciled]) -> Iterator[Event]:
        """The events; what a source holds may end its reading, but not the import."""
        for parse in parses:
            try:
                yield from parse
            except TraceflowError as error:
                self._problem(error)
            except (MemoryError, OSError):
                raise
            except Exception as error:
                name = parse.report.harness
                message = f"the parser of {name} failed ({type(error).__name__}: {error}); please report it"
                self.problems.append({"code": "parser_failed", "message": message})

    def _with_stdout(self, session: Source) -> Parse | Reconciled:
        """The session with the stdout of the same run, where one of the stdout files is that harness's."""
        for path in self.stdout:
            try:
                stream = open_file(path)
            except TraceflowError:
                continue
            if stream.harness == session.harness and stream.kind == "stdout" and path not in session.files:
                return Reconciled(session, stream)
        return session.parse()

    def _opening_prompt(self, sources: list[Source]) -> tuple[Event, ...]:
        """The instruction of the trajectory, for a session or a stream that lacks it."""
        if any(source.kind in ("atif", "trace") for source in sources):
            return ()
        try:
            trajectory = self._trajectory()
            events = trajectory.parse() if trajectory else ()
            prompt = next((e for e in events if e.type == "prompt" and "role" not in e.data["_prompt"]), None)
        except TraceflowError:
            return ()
        return (prompt,) if prompt is not None else ()


def _opening(events: Iterator[Event]) -> list[Event]:
    """The first events, up to the instruction or to the agent's first word, whichever comes first."""
    head: list[Event] = []
    for event in events:
        head.append(event)
        if event.type not in ("user_message_chunk", "prompt", "usage") or len(head) >= 1000:
            break
        if event.type == "prompt" and "role" not in event.data["_prompt"]:
            break
    return head


def _unique(sources: list[Source]) -> list[Source]:
    """The sources in the order of their paths; equal content is one session, wherever it stands."""
    if len(sources) == 1:
        return sources
    unique: dict[str, Source] = {}
    for source in sorted(sources, key=lambda s: str(s.path)):
        unique.setdefault(_identity(source), source)
    return list(unique.values())


def _identity(source: Source) -> str:
    """Equal for equal content; a database of many is told apart by the session's id."""
    if source.path.is_dir():
        return str(source.path)
    with source.path.open("rb") as stream:
        return f"{hashlib.file_digest(stream, 'sha256').hexdigest()}/{source.session_id}"


def _list(folder: Path) -> list[str]:
    """The regular files below a folder, as sorted POSIX paths; links are passed over."""
    names: list[str] = []
    pending = [("", str(folder))]
    while pending:
        prefix, place = pending.pop()
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append((f"{prefix}{entry.name}/", entry.path))
                elif entry.is_file(follow_symlinks=False):
                    names.append(prefix + entry.name)
    names.sort()
    return names


class _Bounded(io.RawIOBase):
    """A stream that may not hold more than so many bytes."""

    def __init__(self, stream: BinaryIO | gzip.GzipFile, most: int, name: str) -> None:
        super().__init__()
        self._stream = stream
        self._left = self._most = most
        self._name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer))
        self._left -= len(data)
        if self._left < 0:
            raise TraceflowError(
                "trial_too_large", f"{self._name} unpacks to more than {self._most} bytes: raise the limit `atif_bytes`"
            )
        buffer[: len(data)] = data
        return len(data)
