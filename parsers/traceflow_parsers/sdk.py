"""SDK session logs: a `_meta` header, `_prompt` lines, the harness's raw stdout lines, `_sessionEnd`.

The raw lines are the harness's own stdout and go to its parser; the log adds the prompts that stdout lacks.
A `_prompt` marks a run or a shell command, and the log does not say which (no output of a command is logged):
one that no harness line follows is kept as injected text, never as a prompt. A parsed download (bare events
under the same header) goes to the trace reader instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
from traceflow_formats.trace import Event, text_of

from .contract import Parser, Part
from .emit import text_block
from .foreign import TraceParser, is_trace
from .source import Harness, Source, file_input

__all__ = ["SDK_AGENTS", "SdkLog", "body_records", "is_sdk_log", "mark_of", "sdk_source"]

SDK_AGENTS = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini-cli",
    "qwen": "qwen-code",
    "kimi": "kimi-code",
    "opencode": "opencode",
    "droid": "droid",
}
_MARKS = ("_meta", "_prompt", "_sessionEnd")


def is_sdk_log(records: Sequence[dict[str, Any]]) -> bool:
    """Whether the first records hold a line that only an SDK session log has."""
    return any(isinstance(record.get("_meta"), dict) for record in records[:3]) or (
        bool(records) and isinstance(records[0].get("_prompt"), dict) and "type" not in records[0]
    )


def body_records(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records without the log's own lines: what the harness printed."""
    return [record for record in records if not any(mark in record for mark in _MARKS)]


class SdkLog(Parser):
    """An SDK log over the stdout parser of its harness, or over the trace reader for a parsed download."""

    harness = "sdk"
    source = "sdk"

    def __init__(self, make: Callable[[], Parser]) -> None:
        super().__init__()
        self.inner = make()
        self.report = self.inner.report
        self.report.source = "sdk"
        self._waiting: list[str] = []  # prompts that no harness line has followed yet
        self._asked: str | None = None  # the prompt of the run, while the harness may still echo it
        self.prompts = 0
        self.ended = False

    def begin(self, part: Part) -> None:
        self.inner.begin(part)

    def feed(self, line: bytes) -> list[Event]:
        mark = mark_of(line)
        if mark is None:
            out: list[Event] = []
            if line.strip() and self._waiting:
                *commands, prompt = self._waiting
                self._waiting = []
                for text in commands:
                    self._command(text)
                self.prompts += 1
                self.inner.emit.prompt(prompt)
                out = self.inner.emit.drain()
                self._asked = prompt.strip()
            said = self.inner.feed(line)
            return out + (said if self._asked is None else self._without_echo(said))
        self.report.line += 1
        self.report.lines.read += 1
        self.report.lines.parsed += 1
        if isinstance(marked := mark.get("_prompt"), dict):
            words = marked.get("text")
            self._waiting.append(words if isinstance(words, str) else "")
        elif "_sessionEnd" in mark:
            self.ended = True
        elif isinstance(meta := mark.get("_meta"), dict) and isinstance(tag := meta.get("tag"), str):
            self.report.session_id = self.report.session_id or tag
        return []

    def finish(self) -> list[Event]:
        if self._waiting and not self.prompts:  # a run that printed nothing at all: the last prompt was its prompt
            *commands, prompt = self._waiting
            for text in commands:
                self._command(text)
            self.inner.emit.prompt(prompt)
        else:
            for text in self._waiting:
                self._command(text)
        self._waiting = []
        if not self.ended:
            self.report.warn("no_end_mark", "the log has no _sessionEnd: the session was not closed")
        return self.inner.emit.drain() + self.inner.finish()

    def _command(self, text: str) -> None:
        self.inner.emit.user(text_block(text), injected="sdk_command")

    def _without_echo(self, events: list[Event]) -> list[Event]:
        """The events without the prompt, which gemini-cli and droid print again before the agent's first word."""
        kept = []
        for event in events:
            extra = event.data.get("extra") or {}
            if event.type in ("user_message_chunk", "prompt") and not {"injected", "agentId"} & extra.keys():
                if self._asked is not None and text_of(event).strip() == self._asked:
                    self._asked = None
                    continue
            elif event.type in ("agent_message_chunk", "agent_thought_chunk", "tool_call"):
                self._asked = None
            kept.append(event)
        return kept


def mark_of(line: bytes) -> dict[str, Any] | None:
    """The record of one of the log's own lines, or None for a line of the harness."""
    head = line[:200]
    if b'"_meta"' not in head and b'"_prompt"' not in head and b'"_sessionEnd"' not in head:
        return None
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(record, dict) or "type" in record:
        return None
    return record if any(mark in record for mark in _MARKS) else None


def sdk_source(path: Path, records: Sequence[dict[str, Any]], harness: Harness | None) -> Source:
    """The SDK log in a file; `harness` is the one whose stdout its lines are (None for a parsed download)."""
    body = body_records(records)
    make = harness.stdout if harness is not None and not is_trace(body) else TraceParser
    name = harness.name if harness is not None else "trace"
    return Source(name, "sdk", path, (file_input(path, Part(path.name)),), lambda: SdkLog(make), files=(path,))
