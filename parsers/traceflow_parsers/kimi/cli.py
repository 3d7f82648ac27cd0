"""kimi-cli (Python, up to 1.49): its print mode and wire mode on stdout, and its sessions.

A session's `wire.jsonl` has what happened, with times and tokens; `context.jsonl` is what the model was sent, read
where there is no wire. Subagents speak in the wire of the main agent, as `SubagentEvent`. On stdout a line may be cut
by a race: when a result arrives while further calls are still being streamed, these are printed half.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson
from traceflow_formats import jsontext
from traceflow_formats.text import clean_value
from traceflow_formats.trace import Event

from ..contract import Line, Part
from ..emit import text_block
from ..facts import as_dict, as_list, as_text
from ..lines import LongLine
from ..source import Harness
from .files import COMPACTED, cli_session_at, cli_sessions_in
from .parts import blocks_of, exit_code, text_of_parts, written_by
from .wire import WireParser

__all__ = ["HARNESS", "KimiCliSession", "KimiCliStdout"]

_NAME = "kimi-cli"
_FAILED = re.compile(rb"(Error\b|LLM\b|Max number of steps|Unknown error|Connection error|Request timed out)")
_WIDTH = 80  # columns at which print mode breaks an error's words
_FRAGMENTS = 1000
_FRAGMENT_BYTES = 16 << 20


class KimiCliSession(WireParser):
    """A session: its wire, or its contexts. `part.info`: `session`, `system`, `summaries`, `context`."""

    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._context = False
        self._system: str | None = None
        self._lines: set[bytes] = set()  # the messages of the contexts before this one
        self._copying = False  # a context begins with what was kept of the one before
        self._calls = 0
        self._last = ""

    def start_part(self) -> None:
        info = self.part.info
        session = as_text(info.get("session"))
        if session is not None and self.report.session_id is None:
            self.report.session_id = self.emit.session_id = session
        self._context = info.get("context") is True
        self._copying = self._context and bool(self._lines)
        self._summaries = [text for text in as_list(info.get("summaries")) if isinstance(text, str)]
        self._say_system(as_text(info.get("system")), None)
        self.begin_wire()

    def end_part(self) -> None:
        self.end_wire()

    def end(self) -> None:
        if self._last in ("user", "tool"):
            self.report.incomplete = True

    def record(self, record: dict[str, Any]) -> Line:
        message = record.get("message")
        if type(message) is dict and "timestamp" in record:
            return self.wire_event(message.get("type"), message.get("payload"), self.time(record["timestamp"]))
        if record.get("type") == "metadata":
            return Line.PARSED
        if isinstance(record.get("role"), str):
            return self._message(record)
        return Line.UNKNOWN

    def _say_system(self, text: str | None, time: str | None) -> None:
        if text is not None and text != self._system:
            self._system = text
            self.emit.prompt(text, time, role="system")

    def _message(self, record: dict[str, Any]) -> Line:
        role, content = record["role"], record.get("content")
        if role in ("_checkpoint", "_usage"):
            return Line.PARSED
        if role == "_system_prompt":
            self._say_system(as_text(content), None)
            return Line.PARSED
        text = text_of_parts(content)
        if role == "user" and text.startswith(COMPACTED):
            self.emit.user(text_block(text_of_parts(as_list(content)[1:])), compaction={})
            return Line.PARSED
        mark = self.raw.strip()
        if self._copying and mark in self._lines:
            return Line.DUPLICATE
        self._copying = False
        self._lines.add(mark)
        self._last = role
        if role == "user":
            self._user(content, text)
        elif role == "assistant":
            self._calls += 1
            self._last = "calls" if record.get("tool_calls") else ""
            _say_assistant(self, record, f"call-{self._calls}")
        elif role == "tool" and (call_id := as_text(record.get("tool_call_id"))) is not None:
            _say_result(self, call_id, content)
        else:
            return Line.UNKNOWN
        return Line.PARSED

    def _user(self, content: object, text: str) -> None:
        name = f"line-{self.report.line}"
        if text.startswith(("<system>", "<system-reminder>")):
            kind = "system_reminder" if text.startswith("<system-reminder>") else "system"
            self.emit.user(text_block(text), message_id=name, injected=kind)
        elif text:
            self.emit.prompt(text, message_id=name)
        for block in blocks_of(content) if isinstance(content, list) else ():
            if block["type"] == "image":
                self.emit.user(block, message_id=name)


class KimiCliStdout(WireParser):
    """Print mode (`--output-format stream-json`), one message a line, and wire mode, one JSON-RPC event a line.

    Older releases leave line feeds inside their strings, so that an object stands on several lines: the pieces are
    held until they make one, or until a line that is whole shows that they never will.
    """

    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []
        self._held = 0
        self._calls = 0
        self._last = ""
        self._words: list[bytes] = []  # the lines that are no JSON, since the last one that was

    def begin(self, part: Part) -> None:
        self._release()
        super().begin(part)

    def start_part(self) -> None:
        self.begin_wire()
        self._words = []

    def feed(self, line: bytes) -> list[Event]:
        if type(line) is LongLine:
            return [*self._release(), *super().feed(line)]
        if not line.lstrip().startswith(b"{"):
            if self._pieces:
                return self._hold(line)
            self._hear(line)
            return super().feed(line)
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            if not _is_odd(line):
                return self._hold(line)
            events = self._release()
            self._words = []
            return [*events, *super().feed(line)]
        events = self._release() if self._pieces else []
        self._words = []
        return [*events, *self.take(line, record)] if events else self.take(line, record)

    def finish(self) -> list[Event]:
        return [*self._release(), *super().finish()]

    def record(self, record: dict[str, Any]) -> Line:
        if record.get("jsonrpc") == "2.0":
            params = as_dict(record.get("params"))
            if "method" not in record:
                return Line.PARSED  # an answer to a request of the client
            return self.wire_event(params.get("type"), params.get("payload"), None)
        role = record.get("role")
        if role == "assistant":
            if not self.emit.open_calls:  # a line that comes while calls wait is the rest of the same model call
                self._calls += 1
            self._last = "calls" if record.get("tool_calls") else "answer"
            _say_assistant(self, record, f"call-{max(self._calls, 1)}")
            return Line.PARSED
        call_id = as_text(record.get("tool_call_id"))
        if role == "tool" and call_id is not None:
            self._last = "tool"
            _say_result(self, call_id, record.get("content"))
            return Line.PARSED
        if {"category", "source_kind", "severity"} <= record.keys() or record.keys() == {"content", "file_path"}:
            return Line.PARSED  # a notification, a plan on display
        return Line.UNKNOWN

    def end_part(self) -> None:
        self.end_wire()
        words = _unwrapped(self._words)
        if _FAILED.match(words):  # what ended the run: print mode says it in words, broken at 80 columns
            self.emit.error(words.decode("utf-8", "replace"), True)
        elif self._last in ("calls", "tool"):
            self.report.incomplete = True

    # -- lines that are cut ------------------------------------------------------------------------------

    def _hear(self, line: bytes) -> None:
        if line.lstrip().startswith(b"{"):
            self._words = []
        elif line.strip() and len(self._words) < 100:
            self._words.append(line.rstrip(b"\r\n")[:2000])

    def _hold(self, line: bytes) -> list[Event]:
        self._pieces.append(line)
        self._held += len(line)
        whole = _joined(self._pieces) if line.rstrip().endswith(b"}") else None
        if whole is not None:
            return self._feed_joined(whole)
        if len(self._pieces) >= _FRAGMENTS or self._held > _FRAGMENT_BYTES:
            return self._release()
        return []

    def _release(self) -> list[Event]:
        """The pieces never made an object: each is a line by itself, and none that can be read."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        events: list[Event] = []
        for piece in pieces:
            self._hear(piece)
            events += super().feed(piece)
        return events

    def _feed_joined(self, value: Any) -> list[Event]:
        """Feed the object of several lines, and count them all."""
        pieces, self._pieces, self._held = self._pieces, [], 0
        counts, names = self.report.lines, self.report.unknown_types
        line, byte, unknown = self.report.line, self._next_byte, counts.unknown
        before, known = counts.as_dict(), dict(names)
        self._words = []
        cleaned, replaced = clean_value(value)
        self.report.warn("lone_surrogate", "lone surrogates were replaced by U+FFFD", replaced)
        self.report.warn("split_line", "an object was printed over several lines")
        events = super().feed(jsontext.dumps(cleaned))
        more = sum(1 for piece in pieces if piece.strip()) - 1
        for key in ("read", "parsed", "unknown", "malformed", "duplicate"):
            if counts.as_dict()[key] > before[key]:
                setattr(counts, key, getattr(counts, key) + more)
        if counts.unknown > unknown:
            for name in names:
                names[name] += more if names[name] > known.get(name, 0) else 0
        self.report.line, self._next_byte = line + len(pieces), byte + sum(map(len, pieces))
        return events


def _say_assistant(parser: WireParser, record: dict[str, Any], message: str) -> None:
    """An assistant message: thoughts, words, calls."""
    content, emit = record.get("content"), parser.emit
    for item in content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []:
        part = as_dict(item)
        if part.get("type") == "think":
            if (thought := as_text(part.get("think"))) is not None:
                emit.thought(thought, None, None, message)
            continue
        for block in blocks_of([item]):
            emit.message(block, None, None, message)
    for at, item in enumerate(as_list(record.get("tool_calls"))):
        call = as_dict(item)
        function = as_dict(call.get("function"))
        name = as_text(function.get("name")) or "unknown"
        call_id = as_text(call.get("id")) or f"{message}-{at}"
        parser.say_call(call_id, name, function.get("arguments"), None, message)


def _say_result(parser: WireParser, call_id: str, content: object) -> None:
    """A tool message: `<system>` words of the harness come first, `ERROR:` among them when the call failed."""
    blocks = blocks_of(content)
    system = next((text for block in blocks if (text := block.get("text")) is not None), "")
    if not system.startswith("<system>"):
        parser.emit.result(call_id, blocks)
        return
    code = exit_code(system)
    status = "failed" if code or system.startswith("<system>ERROR:") else "completed"
    if code is None:
        parser.emit.result(call_id, blocks, status)
    else:
        parser.emit.result(call_id, blocks, status, exitCode=code)


def _is_odd(line: bytes) -> bool:
    """Whether a line that orjson refuses is JSON by itself all the same."""
    try:
        jsontext.loads(line)
    except ValueError:
        return False
    return True


def _joined(pieces: list[bytes]) -> Any:
    """The object that pieces make when line feeds are allowed inside strings, or None."""
    try:
        value = json.loads(b"".join(pieces).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _unwrapped(lines: list[bytes]) -> bytes:
    """Words that were broken at the width of the terminal, in one line each."""
    text = b""
    for line in lines:
        text += line if len(line) >= _WIDTH else line + b"\n"
    return text.strip()


def _is_session(records: Sequence[dict[str, Any]]) -> bool:
    """A wire wraps `{type, payload}` in `message`; a context has the roles `_checkpoint`, `_usage`, ..."""
    for record in records:
        message = as_dict(record.get("message"))
        if "timestamp" in record and isinstance(message.get("type"), str) and isinstance(message.get("payload"), dict):
            return True
        if record.get("role") in ("_system_prompt", "_checkpoint", "_usage"):
            return True
    return False


HARNESS = Harness(
    name=_NAME,
    version=1,
    stdout_names=("kimi-cli.txt",),
    is_stdout=lambda records: written_by(records) == _NAME,
    is_session=_is_session,
    stdout=KimiCliStdout,
    session_at=lambda path: cli_session_at(path, KimiCliSession, _is_session),
    sessions_in=lambda folder: cli_sessions_in(folder, KimiCliSession, _is_session),
)
