"""qwen-code: its stream-json stdout, and how the harness is known (checked with 0.5 and 0.15).

The lines look like Claude's, yet each block has a message id of its own: the blocks of one response are those up
to the one that states its tokens. A failed request is an ordinary answer, "[API Error: ...]", and the run a success.
The total counts all runs of the session, and its subagents.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.jsontext import rounded

from ..contract import JsonLineParser, Line
from ..emit import image_block, text_block
from ..genai import SHELL_TOOLS, Keys, count, exit_code, usage_of
from ..source import Harness, Source
from ..tools.qwen import AGENT_TOOLS, show
from .files import Session, is_session, session_of, sessions_below
from .session import QwenSession, injected_kind

__all__ = ["HARNESS", "QwenSession", "QwenStdout"]

_KEYS = Keys("input_tokens", "output_tokens", "cache_read_input_tokens", "", "", "total_tokens")
_FAILURE = "[API Error"
_PARSED = Line.PARSED


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class QwenStdout(JsonLineParser):
    """The lines of `qwen --output-format stream-json`."""

    harness = "qwen-code"
    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._speaking: dict[str | None, str] = {}  # per agent: the response whose end has not come
        self._names: dict[str, str] = {}  # open calls
        self._agents = False  # a subagent ran: the totals hold its tokens
        self._failed = False
        self._totals: dict[str | None, tuple[dict[str, Any], dict[str, Any]]] = {}  # per session: usage, facts
        self._ended = False

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        if kind == "system":
            return self._system(record)
        if kind == "result":
            return self._result(record)
        if kind == "stream_event":
            return Line.DUPLICATE  # --include-partial-messages: the whole blocks follow
        message = record.get("message")
        if kind not in ("assistant", "user") or not isinstance(message, dict):
            return Line.UNKNOWN
        parent = _text(record.get("parent_tool_use_id"))
        if parent is not None:
            self._agents = True
        if parent != self.emit.agent_id:
            self.emit.agent(parent, parent)  # stdout has no other name for a subagent than the call that spawned it
        content = message.get("content")
        blocks: list[Any] = content if isinstance(content, list) else []
        if isinstance(content, str):
            blocks = [{"type": "text", "text": content}]
        if kind == "assistant":
            self._answer(record, message, blocks, parent)
        else:
            self._speaking.pop(parent, None)
            self._user(blocks)
        return _PARSED

    def _system(self, record: dict[str, Any]) -> Line:
        self.emit.agent(None)
        if record.get("subtype") == "init":
            self.report.version = _text(record.get("qwen_code_version")) or self.report.version
            self.emit.session_id = self.report.session_id = _text(record.get("session_id"))
            self._speaking.clear()
            self._ended = self._failed = False
            return Line.PARSED
        if record.get("subtype") == "compact_boundary":
            said = record.get("compact_metadata")
            said = said if isinstance(said, dict) else {}
            facts = {"trigger": _text(said.get("trigger")), "preTokens": count(said.get("pre_tokens"))}
            self.emit.user(text_block(""), compaction={k: v for k, v in facts.items() if v is not None})
            return Line.PARSED
        return Line.UNKNOWN

    def _answer(self, record: dict[str, Any], message: dict[str, Any], blocks: list[Any], agent: str | None) -> None:
        usage = usage_of(message.get("usage"), _KEYS, output_holds_thoughts=True)
        name = self._speaking.get(agent) or _text(message.get("id")) or _text(record.get("uuid"))
        if name is None:
            name = f"line-{self.report.line}"
        model = _text(message.get("model"))
        for place, block in enumerate(blocks):
            if not isinstance(block, dict):
                continue
            kind = block.get("type")
            if kind == "text":
                if (text := _text(block.get("text"))) is None:
                    continue
                if usage is None and text.startswith(_FAILURE):
                    self._failed = self._failed or agent is None
                    self.emit.error(text, agent is None)
                else:
                    self.emit.message({"type": "text", "text": text}, None, model, name)
            elif kind == "thinking":
                if (thought := _text(block.get("thinking"))) is not None:
                    self.emit.thought(thought, None, model, name)
            elif kind == "tool_use" and isinstance(tool := block.get("name"), str):
                args = block.get("input")
                if rounded(args):
                    args = self.exact(args, "message", "content", place, "input")
                call_id = _text(block.get("id")) or f"{name}#{place}"
                self._names[call_id] = tool
                self._agents = self._agents or tool in AGENT_TOOLS
                self.emit.call(call_id, tool, show(tool, args), args, None, model, name)
        stop = _text(message.get("stop_reason"))
        if usage is not None:
            _whole(usage)
            self.emit.usage(usage, name, None, model, stopReason=stop)
        if usage is not None or stop is not None:
            self._speaking.pop(agent, None)
        else:
            self._speaking[agent] = name

    def _user(self, blocks: list[Any]) -> None:
        for block in blocks:
            if not isinstance(block, dict):
                continue
            kind = block.get("type")
            if kind == "text" and (text := _text(block.get("text"))) is not None:
                if (put_in := injected_kind(text)) is not None:
                    self.emit.user(text_block(text), injected=put_in)
                else:
                    self.emit.prompt(text)
            elif kind == "tool_result" and (call_id := _text(block.get("tool_use_id"))) is not None:
                content = _result_blocks(block.get("content"))
                status = "failed" if block.get("is_error") is True else "completed"
                code = None
                if self._names.pop(call_id, "") in SHELL_TOOLS and content and content[0]["type"] == "text":
                    code = exit_code(content[0]["text"])  # printed for the commands of subagents only
                if code is None:
                    self.emit.result(call_id, content, status)
                else:
                    self.emit.result(call_id, content, "failed" if code else status, exitCode=code)

    def _result(self, record: dict[str, Any]) -> Line:
        error, said = record.get("error"), record.get("result")
        error = error if isinstance(error, dict) else {}
        message = _text(error.get("message")) or _text(said) or _text(record.get("subtype")) or ""
        if (parent := _text(record.get("parent_tool_use_id"))) is not None:  # a subagent's end is not the run's
            self.emit.agent(parent, parent)
            if record.get("is_error") is True:
                self.emit.error(message, False)
            return Line.PARSED
        self.emit.agent(None)
        self._ended = True
        text_failed = isinstance(said, str) and said.startswith(_FAILURE)
        if (record.get("is_error") is True or text_failed) and not self._failed:
            self.emit.error(message, True)
        usage = usage_of(record.get("usage"), _KEYS, output_holds_thoughts=True)
        facts = {"durationMs": count(record.get("duration_ms")), "numTurns": count(record.get("num_turns"))}
        if usage is not None:
            self._totals[self.emit.session_id] = (_whole(usage), facts)
        return Line.PARSED

    def end(self) -> None:
        if self.report.lines.parsed and not self._ended:
            self.report.incomplete = True
        if not self._totals:
            return
        sums: dict[str, int] = {}
        counts: dict[str, int] = {}
        facts: dict[str, Any] = {}
        for usage, said in self._totals.values():
            _add(sums, {k: v for k, v in usage.items() if k != "extra"})
            _add(counts, usage.get("extra", {}))
            _add(facts, said)
        extra: dict[str, Any] = {**counts, "includingSubagents": sums} if self._agents else dict(counts)
        stated = {} if self._agents else sums
        self.emit.agent(None)
        self.emit.run_usage({**stated, **({"extra": extra} if extra else {})}, cumulative=True, **facts)


def _whole(usage: dict[str, Any]) -> dict[str, Any]:
    """Some providers leave the thoughts out of `output_tokens`; stdout has no count of them, but the total."""
    total = usage.get("extra", {}).get("total_tokens")
    prompt, completion = usage.get("promptTokens"), usage.get("completionTokens")
    if total is not None and prompt is not None and completion is not None and total > prompt + completion:
        usage["completionTokens"] = total - prompt
    return usage


def _add(sums: dict[str, int], counts: dict[str, Any]) -> None:
    for key, value in counts.items():
        if value is not None:
            sums[key] = sums.get(key, 0) + value


def _result_blocks(content: object) -> list[dict[str, Any]]:
    """What a tool returned, verbatim: a text, or a list of text and image blocks."""
    if isinstance(content, str):
        return [text_block(content)] if content else []
    blocks = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict):
            continue
        text, source = block.get("text"), block.get("source")
        if isinstance(text, str):
            blocks.append(text_block(text))
        elif block.get("type") == "image" and isinstance(source, dict) and isinstance(source.get("data"), str):
            blocks.append(image_block(source["data"], _text(source.get("media_type")) or ""))
        else:
            blocks.append(text_block(jsontext.dumps(block).decode("utf-8")))
    return blocks


# -- the harness ------------------------------------------------------------------------------------------


def is_stdout(records: Sequence[dict[str, Any]]) -> bool:
    """Do these first records come from qwen-code's stdout? Its init names its version; each of its blocks has one
    id for the line and the message, which Claude's have not."""
    for record in records:
        message = record.get("message")
        if record.get("type") == "system" and isinstance(record.get("qwen_code_version"), str):
            return True
        if record.get("type") == "assistant" and isinstance(message, dict) and "parent_tool_use_id" in record:
            return isinstance(message.get("id"), str) and message["id"] == record.get("uuid")
    return False


def _source(session: Session) -> Source:
    return Source("qwen-code", "session", session.path, session.inputs, QwenSession, session.session_id, session.files)


def session_at(path: Path) -> Source:
    """The session whose main file this is, with its subagents."""
    return _source(session_of(path))


def sessions_in(folder: Path) -> list[Source]:
    """The root sessions below a folder, in the order of their paths."""
    return [_source(session) for session in sessions_below(folder)]


HARNESS = Harness(
    name="qwen-code",
    version=1,
    stdout_names=("qwen-code.txt",),
    is_stdout=is_stdout,
    is_session=is_session,
    stdout=QwenStdout,
    session_at=session_at,
    sessions_in=sessions_in,
)
