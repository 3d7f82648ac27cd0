"""SDK session logs by the rules of the official packing: which runs a log holds, and which may be packed.

A run has one `_prompt` and one closing line of its harness that says it went well, and its log one `_meta` and one
`_sessionEnd`. `_prompt` marks a run or a shell command and the log does not say which, so a log with several is cut
only where the harness itself marks each run with a first line of its own. What fits neither rule is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from traceflow_formats.errors import TraceflowError
from traceflow_formats.times import normal_time
from traceflow_parsers.lines import LongLine, iter_lines
from traceflow_parsers.sdk import mark_of

__all__ = ["SdkLog", "SdkRun", "read_sdk_log"]

_STAMP = re.compile(r"_[^_]+_\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-\d{3}Z\Z")
_CUMULATIVE = ("codex", "qwen-code")  # a resumed run states the totals of its whole thread
_CANDIDATES = (b'"init"', b'"thread.started"', b'"result"', b'"turn.', b'"completion"', b'"system.version"')


@dataclass(slots=True)
class SdkRun:
    """One run of a log: where its lines are (byte offsets), and what its harness says of its end."""

    start: int = 0
    end: int = 0
    prompts: int = 0
    starts: list[str] = field(default_factory=list)  # the ids that its first lines state
    closed_well: int = 0
    closed_badly: int = 0


@dataclass(slots=True)
class SdkLog:
    """What the log's own lines say, and its runs in order."""

    path: Path
    harness: str
    meta: dict[str, Any] = field(default_factory=dict)
    tag: str | None = None
    tag_differs: bool = False  # the file's name has another tag than `_meta`; the name is trusted
    started_at: str | None = None
    ended_at: str | None = None
    metas: int = 0
    prompts: int = 0
    ends: int = 0
    runs: list[SdkRun] = field(default_factory=list)
    header: tuple[int, int] = (0, 0)
    footer: tuple[int, int] = (0, 0)

    def ranges(self, run: SdkRun) -> tuple[tuple[int, int | None], ...]:
        """The bytes of a run's own log: all of it, or where there are several its lines between header and end."""
        if len(self.runs) == 1:
            return ((0, None),)
        return tuple(pair for pair in (self.header, (run.start, run.end), self.footer) if pair[1] > pair[0])

    def refuse(self, run: SdkRun | None, why: str) -> TraceflowError:
        """The refusal of a run, or of the whole log."""
        number = self.runs.index(run) + 1 if run is not None and len(self.runs) > 1 else None
        where = f"{self.path}: " + (f"run {number}: " if number is not None else "")
        return TraceflowError("invalid_input", where + why, path=str(self.path), run=number)


def read_sdk_log(path: Path, harness: str) -> SdkLog:
    """Read a log once, and cut it into runs.

    Raises TraceflowError("invalid_input") for a log that is not one session's, or whose runs cannot be told apart.
    """
    log = SdkLog(path, harness)
    waiting: list[tuple[int, int]] = []  # prompts that no line of the harness has followed yet
    for line, start, end in _lines(path):
        mark = mark_of(line)
        if mark is None:
            if line.strip():
                if waiting or not log.runs:
                    log.runs.append(SdkRun(waiting[0][0] if waiting else start, end, len(waiting)))
                    waiting = []
                log.runs[-1].end = end
                _read_line(log, line)
        elif "_prompt" in mark:
            log.prompts += 1
            waiting.append((start, end))
        elif "_sessionEnd" in mark:
            log.ends += 1
            log.footer, log.ended_at = (start, end), _time(mark["_sessionEnd"])
        else:
            log.metas += 1
            log.header, meta = (start, end), mark["_meta"]
            log.meta = meta if isinstance(meta, dict) else {}
            log.started_at = _time(meta)
    if waiting and log.runs:  # commands after the last run
        log.runs[-1].end = waiting[-1][1]
    _name(log)
    _check(log)
    return log


def _lines(path: Path) -> Iterator[tuple[bytes, int, int]]:
    at = 0
    with path.open("rb") as stream:
        for line in iter_lines(stream):
            start, at = at, at + (line.length if type(line) is LongLine else len(line))
            yield line, start, at


def _time(mark: object) -> str | None:
    try:
        return normal_time(mark.get("timestamp") if isinstance(mark, dict) else None)[0]
    except (ValueError, OverflowError):
        return None


def _name(log: SdkLog) -> None:
    """The tag: the file's name says `TAG_provider_sandbox_agent_time`, and is right where `_meta` differs."""
    said = log.meta.get("tag")
    log.tag = said if isinstance(said, str) and said else None
    stem = _STAMP.sub("", log.path.stem)
    between = f"_{log.meta.get('provider')}_{log.meta.get('sandbox_id')}"
    if stem != log.path.stem and stem.endswith(between) and (named := stem.removesuffix(between)):
        log.tag_differs = log.tag is not None and named != log.tag
        log.tag = named


def _read_line(log: SdkLog, line: bytes) -> None:
    """Take what a line of the harness says about the beginning or the end of its run."""
    if not any(word in line for word in _CANDIDATES):
        return
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return
    if not isinstance(record, dict):
        return
    run = log.runs[-1]
    if (ident := _start_of(log.harness, record)) is not None:
        run.starts.append(ident)
    well = _end_of(log.harness, record)
    if well is not None:
        run.closed_well += well
        run.closed_badly += not well


def _start_of(harness: str, record: dict[str, Any]) -> str | None:
    """The session that a run's first line names ("" where it names none), or None for any other line."""
    kind = record.get("type")
    if harness in ("claude-code", "qwen-code", "droid") and kind == "system" and record.get("subtype") == "init":
        return str(record.get("session_id") or "")
    if harness == "codex" and kind == "thread.started":
        return str(record.get("thread_id") or "")
    if harness == "gemini-cli" and kind == "init":
        return str(record.get("session_id") or "")
    if harness == "kimi-code" and record.get("role") == "meta" and kind == "system.version":
        return ""
    return None


def _end_of(harness: str, record: dict[str, Any]) -> bool | None:
    """Whether a run's closing line says that it went well, or None for any other line."""
    kind = record.get("type")
    if harness in ("claude-code", "qwen-code") and kind == "result":
        return record.get("is_error") is False
    if harness == "gemini-cli" and kind == "result":
        return record.get("status") == "success"
    if harness == "codex" and kind in ("turn.completed", "turn.failed"):
        return bool(kind == "turn.completed")
    if harness == "droid" and kind == "completion":
        return True
    return None


def _check(log: SdkLog) -> None:
    if log.metas != 1:
        raise log.refuse(None, f"{log.metas} _meta lines; the log of one session has exactly one")
    if not log.prompts:
        raise log.refuse(None, "no _prompt line: the log does not say what the agent was asked")
    if not log.runs:
        raise TraceflowError("empty_trace", f"{log.path}: no line of the harness in it", path=str(log.path))
    if len(log.runs) == 1 and log.prompts == 1 and log.runs[0].prompts == 1:
        return
    unmarked = [run for run in log.runs if len(run.starts) != 1 or not run.prompts]
    if unmarked:
        raise log.refuse(
            None,
            f"{log.prompts} _prompt lines, and the harness does not mark which of them began a run "
            f"({sum(len(run.starts) for run in log.runs)} first lines of a run of {log.harness}); it cannot be cut",
        )
    ids = [run.starts[0] for run in log.runs if run.starts[0]]
    if log.harness in _CUMULATIVE and len(set(ids)) < len(ids):
        raise log.refuse(
            None,
            f"{len(log.runs)} runs that go on with one thread of {log.harness}; the totals of a later run count the "
            "earlier ones too, so the runs cannot be told apart",
        )
