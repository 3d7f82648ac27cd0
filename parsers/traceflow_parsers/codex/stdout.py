"""What `codex exec --json` prints: items that start, change and complete, 0.4x to 0.171.

There is no time, no model name, no prompt and no call id on it. Item ids start again in every run, so a log of
several runs (`codex exec resume`) has them again: from the second run on they carry the run. The usage of
`turn.completed` counts the whole thread, earlier runs included. Subagents, compaction and calls of tools that
are no items (`tool_search`, unknown tools) leave no trace here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from traceflow_formats import jsontext

from ..contract import JsonLineParser, Line
from ..emit import text_block
from ..tools.codex import shown_item
from .output import item_blocks, item_outcome

__all__ = ["CodexStdout", "is_retry", "is_stdout", "token_counts"]

_RETRY = re.compile(r"Reconnecting\.{3} \d+/\d+|stream disconnected - retrying")
_TEXT_ITEMS = ("agent_message", "reasoning", "error", "user_message", "plan")
_KNOWN_ITEMS = frozenset(
    (*_TEXT_ITEMS, "collab_tool_call", "command_execution", "file_change", "mcp_tool_call", "todo_list", "web_search")
)
_NUMBERS = {"input_tokens": "promptTokens", "cached_input_tokens": "cachedTokens", "output_tokens": "completionTokens"}


def is_stdout(records: Sequence[dict[str, Any]]) -> bool:
    """Whether these first records were printed by `codex exec --json` (not kept in another log of an SDK)."""
    if any("_meta" in record or "_prompt" in record for record in records):
        return False
    for record in records:
        kind, item = record.get("type"), record.get("item")
        if kind == "thread.started" and isinstance(record.get("thread_id"), str):
            return True
        if kind in ("item.started", "item.updated", "item.completed") and isinstance(item, dict):
            known = item.get("type")
            if isinstance(known, str) and known in _KNOWN_ITEMS:
                return True
    return False


def is_retry(message: str) -> bool:
    """Whether an error says that codex tries again."""
    return _RETRY.match(message) is not None


def token_counts(usage: dict[str, Any]) -> dict[str, Any]:
    """The trace's usage of codex's counts: input includes what was cached, output includes reasoning."""
    counts: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in usage.items():
        if type(value) is not int:
            continue
        field = _NUMBERS.get(name)
        if field is not None:
            counts[field] = value
        else:
            rest[name] = value
    if rest:
        counts["extra"] = rest
    return counts


class CodexStdout(JsonLineParser):
    """The stream of one or more runs of a thread."""

    harness = "codex"
    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[str, Callable[[dict[str, Any]], Line]] = {
            "thread.started": self._thread_started,
            "turn.started": self._turn_started,
            "item.started": self._item,
            "item.updated": self._item,
            "item.completed": self._item,
            "turn.completed": self._turn_completed,
            "turn.failed": self._turn_failed,
            "error": self._error,
        }
        self._run = 0
        self._thread_id: str | None = None
        self._calls = 0
        self._call: str | None = None  # the model call that is speaking, as far as the order of items tells
        self._said = ""  # the type of its last item
        self._open: set[str] = set()  # items that have started
        self._plans: dict[str, tuple[int, Any]] = {}  # todo list -> how often it was written, and as what
        self._usage: dict[str, Any] | None = None
        self._finished: list[dict[str, Any]] = []  # the totals of other threads in this log
        self._message: str | None = None  # an error that may be the one that ends the turn
        self._running = False

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        handle = self._lines.get(kind) if isinstance(kind, str) else None
        if handle is None:
            return Line.UNKNOWN
        if self._message is not None and kind != "turn.failed":
            self._say_error(fatal=False)
        return handle(record)

    def end_part(self) -> None:
        if self._message is not None:
            self._say_error(fatal=True)
        self.report.incomplete = self.report.incomplete or self._running

    def end(self) -> None:
        usage = self._usage
        if usage is None and not self._finished:
            return
        for other in self._finished:
            usage = _added(usage or {}, other)
        if counts := token_counts(usage or {}):
            self.emit.run_usage(counts, cumulative=True)

    # -- runs --------------------------------------------------------------------------------------------

    def _thread_started(self, record: dict[str, Any]) -> Line:
        thread = record.get("thread_id")
        self._run += 1
        self._call = None
        self._open.clear()
        self._plans.clear()
        if isinstance(thread, str) and thread:
            if self._thread_id is None:
                self.report.session_id = self.emit.session_id = thread
            elif thread != self._thread_id and self._usage is not None:
                self._finished.append(self._usage)
                self._usage = None
            self._thread_id = thread
        return Line.PARSED

    def _turn_started(self, record: dict[str, Any]) -> Line:
        self._call = None
        self._running = True
        return Line.PARSED

    def _turn_completed(self, record: dict[str, Any]) -> Line:
        self._call = None
        self._running = False
        usage = record.get("usage")
        if isinstance(usage, dict):
            self._usage = usage
        return Line.PARSED

    def _turn_failed(self, record: dict[str, Any]) -> Line:
        """The line before it has the same message: one failure, told twice."""
        self._call = None
        self._running = False
        error = record.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        if not isinstance(message, str) or not message:
            message = self._message or jsontext.dumps(record).decode()
        if self._message is not None and self._message != message:
            self._say_error(fatal=False)
        self._message = message
        self._say_error(fatal=True)
        return Line.PARSED

    def _error(self, record: dict[str, Any]) -> Line:
        message = record.get("message")
        if not isinstance(message, str) or not message:
            message = jsontext.dumps(record).decode()
        if is_retry(message):
            self._call = None
            self.emit.error(message, fatal=False, retried=True)
        else:
            self._message = message
        return Line.PARSED

    def _say_error(self, fatal: bool) -> None:
        message, self._message = self._message, None
        self._call = None
        self.emit.error(message or "", fatal)

    # -- items -------------------------------------------------------------------------------------------

    def _item(self, record: dict[str, Any]) -> Line:
        item = record.get("item")
        if not isinstance(item, dict):
            return Line.UNKNOWN
        kind = item.get("type")
        if not isinstance(kind, str) or kind not in _KNOWN_ITEMS:
            return Line.UNKNOWN
        done = record["type"] == "item.completed"
        if kind == "todo_list":
            self._todo_list(item, done)
        elif kind not in _TEXT_ITEMS:
            self._tool(kind, item, done)
        elif done:
            self._text(kind, item)
        return Line.PARSED

    def _text(self, kind: str, item: dict[str, Any]) -> None:
        text = item.get("message" if kind == "error" else "text")
        if not isinstance(text, str) or not text:
            return
        if kind == "error":  # a warning: errors of the run are lines of their own
            self.emit.user(text_block(text), injected="warning")
        elif kind == "user_message":
            self.emit.prompt(text)
        elif kind == "reasoning":
            self.emit.thought(text, message_id=self._speak(kind))
        else:
            self.emit.message(text_block(text), message_id=self._speak(kind))

    def _tool(self, kind: str, item: dict[str, Any], done: bool) -> None:
        shown = shown_item(item)
        if shown is None:
            return
        call_id = self._id(item)
        if call_id not in self._open:
            name, view, raw = shown
            if kind == "mcp_tool_call":
                raw = self.exact(raw, "item", "arguments")
            self.emit.call(call_id, name, view, raw, message_id=self._speak(kind), status="in_progress")
            self._open.add(call_id)
        if not done:
            return
        self._open.discard(call_id)
        outcome = item_outcome(item)
        blocks = item_blocks(item)
        self.emit.result(
            call_id,
            blocks,
            outcome.status,
            raw_output=outcome.facts or None,
            exitCode=outcome.exit_code,
            durationMs=outcome.duration_ms,
        )

    def _todo_list(self, item: dict[str, Any], done: bool) -> None:
        """Each time the list is started or updated the model has called its tool; the end of the turn repeats it."""
        shown = shown_item(item)
        if shown is None:
            return
        name, view, raw = shown
        list_id = self._id(item)
        times, last = self._plans.get(list_id, (0, None))
        if done and times and last == view.plan:
            return
        self._plans[list_id] = (times + 1, view.plan)
        call_id = list_id if not times else f"{list_id}.{times + 1}"
        self.emit.call(call_id, name, view, raw, message_id=self._speak("todo_list"), status="in_progress")
        self.emit.result(call_id, None)

    def _id(self, item: dict[str, Any]) -> str:
        ident = item.get("id")
        text = ident if isinstance(ident, str) and ident else "item"
        return text if self._run <= 1 else f"run{self._run}:{text}"

    def _speak(self, kind: str) -> str:
        """The model call that an item belongs to: a response thinks, then speaks, then calls tools."""
        again = kind == "agent_message" and self._said != "reasoning"
        again = again or (kind == "reasoning" and self._said != "reasoning")
        if self._call is None or again:
            self._calls += 1
            self._call = f"call-{self._calls}"
        self._said = kind
        return self._call


def _added(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    names = [*one, *(name for name in other if name not in one)]
    pairs = {name: (one.get(name, 0), other.get(name, 0)) for name in names}
    return {name: a + b for name, (a, b) in pairs.items() if type(a) is int and type(b) is int}
