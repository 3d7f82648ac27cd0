"""gemini-cli: its stream-json stdout, and how the harness is known (checked with 0.22 and 0.61).

stdout prints the model's words in deltas, calls, results, and one total at the end; no thoughts, no usage per call
and no ids of messages: a model call begins with the first words or the first call after a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.jsontext import rounded

from ..contract import JsonLineParser, Line
from ..facts import as_dict
from ..genai import SHELL_TOOLS, count, exit_code
from ..source import Harness, Source
from ..tools.gemini import AGENT_TOOLS, show
from .files import Session, is_session, session_of, sessions_below
from .session import GeminiSession

__all__ = ["HARNESS", "GeminiSession", "GeminiStdout"]

_PARSED = Line.PARSED


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


# -- stdout -----------------------------------------------------------------------------------------------


class GeminiStdout(JsonLineParser):
    """The lines of `gemini --output-format stream-json`."""

    harness = "gemini-cli"
    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._model: str | None = None
        self._calls = 0
        self._message: str | None = None  # the model call that speaks; None: the next words begin one
        self._names: dict[str, str] = {}  # open calls
        self._agents = False  # a subagent ran: the totals hold its tokens
        self._totals: dict[str, int] = {}
        self._stats: dict[str, Any] = {}
        self._status: str | None = None
        self._ended_at: str | None = None

    def record(self, record: dict[str, Any]) -> Line:
        kind, time = record.get("type"), self.time(record.get("timestamp"))
        if kind == "message":
            return self._said(record, time)
        if kind == "tool_use":
            return self._tool_use(record, time)
        if kind == "tool_result":
            return self._tool_result(record, time)
        if kind == "init" and "subtype" not in record:
            self._model = _text(record.get("model"))
            self.emit.session_id = self.report.session_id = _text(record.get("session_id"))
            self._message = self._status = None
            return Line.PARSED
        if kind == "error":
            message = record.get("message")
            text = message if isinstance(message, str) and message.strip() else _json(record)
            self.emit.error(text, False, time, severity=_text(record.get("severity")))
            return Line.PARSED
        if kind == "result" and isinstance(record.get("status"), str):
            return self._result(record, time)
        return Line.UNKNOWN

    def _turn(self) -> str:
        """The model call that speaks."""
        if self._message is None:
            self._calls += 1
            self._message = f"call-{self._calls}"
        return self._message

    def _said(self, record: dict[str, Any], time: str | None) -> Line:
        role, content = record.get("role"), record.get("content")
        if type(content) is not str or role not in ("user", "assistant"):
            return Line.UNKNOWN
        if role == "user":
            self._message = None
            if content:
                self.emit.prompt(content, time)
        elif content:
            message = self._message or self._turn()
            block = {"type": "text", "text": content}
            if record.get("delta") is True:
                self.emit.message(block, time, self._model, message, delta=True)
            else:
                self.emit.message(block, time, self._model, message)
        return _PARSED

    def _tool_use(self, record: dict[str, Any], time: str | None) -> Line:
        call_id, name = _text(record.get("tool_id")), _text(record.get("tool_name"))
        if call_id is None or name is None:
            return Line.UNKNOWN
        args = record.get("parameters")
        if rounded(args):
            args = self.exact(args, "parameters")
        self._names[call_id] = name
        self._agents = self._agents or name in AGENT_TOOLS
        self.emit.call(call_id, name, show(name, args), args, time, self._model, self._message or self._turn())
        return _PARSED

    def _tool_result(self, record: dict[str, Any], time: str | None) -> Line:
        call_id = _text(record.get("tool_id"))
        if call_id is None:
            return Line.UNKNOWN
        self._message = None
        text, error = record.get("output"), as_dict(record.get("error"))
        if text is not None and type(text) is not str:
            text = _json(text)
        text = text or _text(error.get("message")) or ""
        status = "completed" if record.get("status") == "success" else "failed"
        said = {"errorType": kind} if (kind := _text(error.get("type"))) else None
        blocks = [{"type": "text", "text": text}] if text else []
        if self._names.pop(call_id, "") in SHELL_TOOLS and (code := exit_code(text)) is not None:
            self.emit.result(call_id, blocks, "failed" if code else status, time, said, exitCode=code)
        else:
            self.emit.result(call_id, blocks, status, time, said)
        return _PARSED

    def _result(self, record: dict[str, Any], time: str | None) -> Line:
        self._message = None
        self._status, self._ended_at = record["status"], time
        if record["status"] == "error":
            error = as_dict(record.get("error"))
            self.emit.error(
                _text(error.get("message")) or _json(record), True, time, errorType=_text(error.get("type"))
            )
        stats = record.get("stats")
        if isinstance(stats, dict):  # not cumulative: a log of several runs has the sum
            for key, value in stats.items():
                if (number := count(value)) is not None:
                    self._totals[key] = self._totals.get(key, 0) + number
                elif isinstance(value, dict):
                    self._stats[key] = value
        return Line.PARSED

    def end(self) -> None:
        if self.report.lines.parsed and self._status is None:
            self.report.incomplete = True
        if not self._totals:
            return
        totals = dict(self._totals)
        prompt, total = totals.pop("input_tokens", None), totals.get("total_tokens")
        cached, duration = totals.pop("cached", None), totals.pop("duration_ms", None)
        stated: dict[str, Any] = {}
        if prompt is not None:
            stated["promptTokens"] = prompt
            if total is not None and total >= prompt:  # output_tokens leaves the thoughts out
                stated["completionTokens"] = total - prompt
        if cached is not None:
            stated["cachedTokens"] = cached
        extra = {**totals, **self._stats}
        usage: dict[str, Any] = {}
        if self._agents:
            extra["includingSubagents"] = stated
        else:
            usage = stated
        self.emit.agent(None)
        self.emit.run_usage({**usage, "extra": extra}, self._ended_at, durationMs=duration, status=self._status)


def _json(value: object) -> str:
    return jsontext.dumps(value).decode("utf-8")


# -- the harness ------------------------------------------------------------------------------------------


def is_stdout(records: Sequence[dict[str, Any]]) -> bool:
    """Do these first records come from gemini-cli's stdout? Its init has no subtype; without one, its calls tell."""
    for record in records:
        kind = record.get("type")
        if kind == "init" and "subtype" not in record and "session_id" in record and "model" in record:
            return True
        if kind == "tool_use" and {"tool_name", "tool_id", "parameters"} <= record.keys():
            return True
        if kind == "message" and isinstance(record.get("content"), str) and record.get("delta") is True:
            return True
    return False


def _source(session: Session) -> Source:
    return Source(
        "gemini-cli", "session", session.path, session.inputs, GeminiSession, session.session_id, session.files
    )


def session_at(path: Path) -> Source:
    """The session whose main file this is, with its twins and its subagents."""
    return _source(session_of(path))


def sessions_in(folder: Path) -> list[Source]:
    """The root sessions below a folder, in the order of their paths."""
    return [_source(session) for session in sessions_below(folder)]


HARNESS = Harness(
    name="gemini-cli",
    version=1,
    stdout_names=("gemini-cli.txt",),
    is_stdout=is_stdout,
    is_session=is_session,
    stdout=GeminiStdout,
    session_at=session_at,
    sessions_in=sessions_in,
)
