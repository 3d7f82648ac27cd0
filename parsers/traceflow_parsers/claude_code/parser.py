"""What Claude Code's session files and its stdout have in common: Anthropic messages, one block per line.

All blocks of one API response share `message.id`, also when the results of parallel calls stand between them. A
model call is told by that id, and its usage is said once, with the last word of its blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceflow_formats.jsontext import rounded

from ..contract import JsonLineParser
from ..emit import text_block
from ..tools.claude import shown
from .messages import exit_code, facts, injected_kind, result_blocks, token_usage, user_block

__all__ = ["SYNTHETIC", "ClaudeParser", "ModelCall"]

SYNTHETIC = "<synthetic>"  # the model name of messages that the harness wrote itself
NOT_AN_ERROR = "No response requested."  # synthetic as well, and nothing failed
_PROMPT_COUNTS = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_SPAWNS = ("Agent", "Task")


class ModelCall:
    """The model call that an agent is in, with what its blocks have said of its usage so far.

    A plain class with defaults: one is made per call, and most of it is set once.
    """

    usage: dict[str, Any] | None = None
    stop: str | None = None
    time: str | None = None
    model: str | None = None
    final = False  # its output tokens are known
    closed = False  # the conversation went on: the same id without a request id is another call
    counted = False  # its usage was handed over: what still comes is a late block
    abandoned = False
    copied = False

    def __init__(self, source_id: str | None, request: str | None, name: str, parent_call: str | None) -> None:
        self.source_id = source_id  # message.id
        self.request = request
        self.id = name  # unique in the agent
        self.parent_call = parent_call  # of the agent


class ClaudeParser(JsonLineParser):
    """Turns the messages of one agent after the other into events; `emit.agent` says whose they are."""

    harness = "claude-code"

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str | None, ModelCall] = {}
        self.spawning: dict[int, list[str]] = {}  # hash of a subagent's prompt -> the calls that gave it
        self.boundary: dict[str, Any] | None = None  # a compaction whose summary has not come yet
        self._boundary_time: str | None = None
        self._call_ids: set[int] = set()
        self._repeats: dict[int, int] = {}
        self._nameless = 0

    # -- the model ---------------------------------------------------------------------------------------

    def model_call(self, source_id: object, request: object, usage: object) -> ModelCall:
        """The call that a message belongs to: the agent's present one, or a new one."""
        agent = self.emit.agent_id
        call = self.calls.get(agent)
        if call is not None and call.source_id == source_id and call.request == request and request is not None:
            return call
        name = source_id if type(source_id) is str and source_id else None
        asked = request if type(request) is str else None
        if call is not None:
            same = call.source_id == name and (asked is None or call.request is None or asked == call.request)
            if same and not call.closed and not _differs(call.usage, usage):
                return call
            self._settle(call)
        new = self.calls[agent] = self._new_call(agent, name, asked, call)
        return new

    def _new_call(
        self, agent: str | None, name: str | None, request: str | None, before: ModelCall | None
    ) -> ModelCall:
        key, parent = name or request, self.emit.parent_call
        if key is None:
            self._nameless += 1
            return ModelCall(name, request, f"call-{self._nameless}", parent)
        mark = hash((agent, key))
        if mark not in self._call_ids:
            self._call_ids.add(mark)
            return ModelCall(name, request, key, parent)
        if before is not None and before.source_id == name:  # a proxy that gives every message the same id
            number = self._repeats[mark] = self._repeats.get(mark, 1) + 1
            return ModelCall(name, request, f"{key}#{number}", parent)
        late = ModelCall(name, request, key, parent)
        late.counted = True
        return late

    def is_main_call(self, source_id: object) -> bool:
        """Whether the main agent made this call: a subagent that has it too began with a copy of the history."""
        return type(source_id) is str and source_id[:4] == "msg_" and hash((None, source_id)) in self._call_ids

    def count(
        self, call: ModelCall, usage: object, stop: object, time: str | None, model: str | None, final: bool
    ) -> None:
        """Take the usage that stands on a block; the call's last word counts, and it never counts back."""
        if type(usage) is not dict or (call.final and not final):
            return
        if call.final and call.usage is not None:
            before, now = call.usage.get("output_tokens"), usage.get("output_tokens")
            if before is not now and type(before) is int and type(now) is int and now < before:
                return
        call.usage, call.final, call.time, call.model = usage, final, time, model
        if type(stop) is str:
            call.stop = stop
        if self.emit.abandoned:
            call.abandoned = True
        if self.emit.copied:
            call.copied = True

    def _settle(self, call: ModelCall) -> None:
        """The next call of the agent begins: hand over what this one used."""
        if call.counted or call.usage is None:
            return
        call.counted = True
        emit, used = self.emit, token_usage(call.usage, call.final)
        abandoned, copied = emit.abandoned, emit.copied
        emit.abandoned, emit.copied = call.abandoned, call.copied
        emit.usage(used, call.id, call.time, call.model, stopReason=call.stop, requestId=call.request)
        emit.abandoned, emit.copied = abandoned, copied

    def settle_all(self) -> None:
        """No more calls: hand over the usage of every agent's last one."""
        emit = self.emit
        agent_id, parent_call = emit.agent_id, emit.parent_call
        for agent, call in self.calls.items():
            emit.agent(agent, call.parent_call)
            self._settle(call)
        self.calls.clear()
        emit.agent(agent_id, parent_call)

    def say(self, content: object, call: ModelCall, time: str | None, model: str | None) -> None:
        """The blocks of an assistant message."""
        emit = self.emit
        if type(content) is not list:
            content = [content]
        for index, block in enumerate(content):
            if type(block) is not dict:
                if isinstance(block, str) and block:
                    emit.message(text_block(block), time, model, call.id)
                continue
            kind = block.get("type")
            if kind == "text":
                text = block.get("text")
                if type(text) is str and text:
                    emit.message({"type": "text", "text": text}, time, model, call.id)
            elif kind == "tool_use" or kind == "server_tool_use" or kind == "mcp_tool_use":
                self._tool_call(block, index, call, time, model)
            elif kind == "thinking":
                text = block.get("thinking")
                if type(text) is str and text:
                    emit.thought(text, time, model, call.id)
            elif isinstance(kind, str) and kind.endswith("tool_result"):  # a tool that ran at the provider
                self.tool_result(block, None, time)
            elif kind != "redacted_thinking":
                name = kind[:40] if isinstance(kind, str) else "?"
                self.report.warn("unknown_block", f"a block of type {name!r} in a message was left out")

    def _tool_call(
        self, block: dict[str, Any], index: int, call: ModelCall, time: str | None, model: str | None
    ) -> None:
        name, call_id = block.get("name"), block.get("id")
        if type(name) is not str:
            name = ""
        if type(call_id) is not str or not call_id:
            self._nameless += 1
            call_id = f"tool-{self._nameless}"
        arguments = block.get("input")
        if rounded(arguments):
            arguments = self.exact(arguments, "message", "content", index, "input")
        if name in _SPAWNS and type(arguments) is dict:
            prompt = arguments.get("prompt")
            if type(prompt) is str:
                self.spawning.setdefault(hash(prompt), []).append(call_id)
        self.emit.call(call_id, name, shown(name, arguments), arguments, time, model, call.id)

    # -- the other side ----------------------------------------------------------------------------------

    def tool_result(self, block: Mapping[str, Any], said: object, time: str | None) -> None:
        """A result; `said` is the harness's own account of it (`toolUseResult`), where the record has one."""
        blocks = result_blocks(block.get("content"))
        known = facts(said) if said and type(said) is dict else None
        extra: dict[str, Any] = {}
        failed = bool(block.get("is_error"))
        if failed or (known is not None and "exitCode" in known):
            code = exit_code((blocks[0].get("text") if blocks else said) if failed else None, known)
            if code is not None:
                extra["exitCode"] = code
                failed = failed or code != 0
        if known is not None:
            duration = known.get("durationMs", known.get("totalDurationMs"))
            if type(duration) is int or type(duration) is float:
                extra["durationMs"] = duration
        call_id = block.get("tool_use_id")
        if self._nameless and (call := self.calls.get(self.emit.agent_id)) is not None and call.source_id is None:
            call.closed = True
        status = "failed" if failed else "completed"
        self.emit.result(call_id if type(call_id) is str else "", blocks, status, time, known, **extra)

    def words(self, record: Mapping[str, Any], blocks: list[dict[str, Any]], time: str | None) -> None:
        """The words and images of a user message: a person's, or what the harness put in."""
        emit = self.emit
        uuid = record.get("uuid")
        message_id = uuid if len(blocks) > 1 and type(uuid) is str else None
        if not blocks:
            blocks = [{"type": "text", "text": ""}]
        for block in blocks:
            shape = user_block(block)
            text = shape.get("text", "") if block.get("type") == "text" else None
            if text == "":
                self.report.warn("empty_message", "a user message without content")
            kind = injected_kind(record, text or "")
            if kind is not None or text is None:
                emit.user(shape, time, message_id, injected=kind)
            else:
                emit.prompt(text, time, message_id=message_id)
            if kind is None and (call := self.calls.get(emit.agent_id)) is not None:
                call.closed = True

    def compacted(self, summary: str, time: str | None) -> None:
        """The summary that replaces the history, with what its boundary said."""
        known, self.boundary = self.boundary, None
        self.emit.user(text_block(summary), time, compaction=known or {"isCompactSummary": True})

    def hold_boundary(self, known: dict[str, Any], time: str | None) -> None:
        """A compaction's boundary: its summary is the next record, if there is one."""
        self.flush_boundary()
        self.boundary, self._boundary_time = known, time

    def flush_boundary(self) -> None:
        """No summary follows the boundary."""
        if self.boundary is not None:
            self.compacted("", self._boundary_time)


def _differs(before: Mapping[str, Any] | None, usage: object) -> bool:
    """Whether two usages are of different calls: the prompt side of one call does not change."""
    if before is None or type(usage) is not dict:
        return False
    return any(
        type(a := before.get(key)) is int and type(b := usage.get(key)) is int and a != b for key in _PROMPT_COUNTS
    )
