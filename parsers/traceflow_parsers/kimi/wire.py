"""The wire protocol of kimi-cli: what happens in a session, as `wire.jsonl` keeps it and wire mode prints it.

Calls are streamed: a `ToolCall` begins with the arguments that are there, `ToolCallPart`s bring the rest, and results
of earlier calls may come in between. A call is told when its arguments are whole, or when something else shows that
nothing more will come.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from traceflow_formats import jsontext

from ..contract import JsonLineParser, Line
from ..emit import text_block
from ..facts import as_dict, as_text, count, plain_input, tool_input
from ..tools.kimi import show
from .parts import blocks_of, exit_code, text_of_parts, usage_of

__all__ = ["WireParser"]

_COUNTS = ("input_other", "output", "input_cache_read", "input_cache_creation")
_TOO_SHORT = "Your previous response was too brief."  # asked of a subagent by the harness, not by its caller
_LONGEST_NOTE = 256
_PARSED = Line.PARSED
_SILENT = frozenset(
    {
        "ApprovalRequest", "ApprovalRequestResolved", "ApprovalResponse", "BtwBegin", "BtwEnd", "HookRequest",
        "HookResolved", "HookTriggered", "MCPLoadingBegin", "MCPLoadingEnd", "MCPStatusSnapshot", "Notification",
        "PlanDisplay", "QuestionRequest", "QuestionResponse", "ToolCallRequest",
    }
)  # fmt: skip
_BETWEEN = _SILENT | {
    "SubagentEvent",
    "ToolCallPart",
    "ToolResult",
    "StatusUpdate",
}  # may come while arguments are streamed


@dataclass(slots=True, eq=False, repr=False)
class _Pending:
    """A tool call whose arguments may still be coming."""

    id: str
    name: str
    arguments: str
    time: str | None
    step: str


@dataclass(slots=True, eq=False, repr=False)
class _Agent:
    """Where one agent stands in the wire."""

    agent_id: str | None = None
    parent: str | None = None
    steps: int = 0
    step: str | None = None
    spoke: bool = False
    pending: _Pending | None = None
    open: bool = False  # a turn is under way
    turns: int = 0  # since the call that asked for it
    asked: int = 0


class WireParser(JsonLineParser):
    """Events of the wire protocol, as they stand in `wire.jsonl` and are printed in wire mode."""

    harness = "kimi-cli"

    def __init__(self) -> None:
        super().__init__()
        self._main = _Agent()
        self._agents: dict[str, _Agent] = {}
        self._summaries: list[str] = []

    def begin_wire(self) -> None:
        self._main = _Agent(self.part.agent_id, self.part.parent_call)
        self._agents = {}

    def end_wire(self) -> None:
        for agent in (self._main, *self._agents.values()):
            self.emit.agent(agent.agent_id, agent.parent)
            self._flush(agent)
        if self._main.open and self._main.agent_id is None:
            self.report.incomplete = True

    def wire_event(self, kind: object, payload: object, time: str | None) -> Line:
        """An event of the main agent, or of a subagent in an envelope."""
        if type(kind) is not str:
            return Line.UNKNOWN
        content = payload if type(payload) is dict else {}
        return self._event(self._main, kind, content, time)

    def _enveloped(self, envelope: dict[str, Any], time: str | None) -> Line:
        inner = as_dict(envelope.get("event"))
        parent = as_text(envelope.get("parent_tool_call_id")) or as_text(envelope.get("task_tool_call_id"))
        name, kind = as_text(envelope.get("agent_id")) or parent, inner.get("type")
        if name is None or kind == "SubagentEvent":
            return Line.UNKNOWN
        agent = self._agents.setdefault(name, _Agent(name, parent))
        if parent is not None and parent != agent.parent:  # resumed by another call
            agent.parent, agent.turns = parent, 0
        if type(kind) is not str:
            return Line.UNKNOWN
        self.emit.agent(agent.agent_id, agent.parent)
        known = self._event(agent, kind, as_dict(inner.get("payload")), time)
        self.emit.agent(self._main.agent_id, self._main.parent)
        return known

    def _event(self, agent: _Agent, kind: str, payload: dict[str, Any], time: str | None) -> Line:
        if agent.pending is not None and kind not in _BETWEEN:
            self._flush(agent)
        tell = _TELLERS.get(kind)
        if tell is not None:
            return tell(self, agent, payload, time)
        if kind == "SubagentEvent" and agent is self._main:
            return self._enveloped(payload, time)
        return _PARSED if kind in _SILENT else Line.UNKNOWN

    # -- turns -------------------------------------------------------------------------------------------

    def _turn(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        self._asked(agent, payload.get("user_input"), time)
        agent.open, agent.step = True, None
        return _PARSED

    def _end_turn(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        agent.open, agent.step = False, None
        return _PARSED

    def _interrupted(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        """By the user or by an error, whose words are on stdout or stderr only."""
        agent.open, agent.step = False, None
        self.emit.error("StepInterrupted", True, time)
        return _PARSED

    def _retried(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        name, status = as_text(payload.get("error_type")), count(payload.get("status_code"))
        words = name or "the model call was tried again"
        self.emit.error(words, False, time, retried=True, errorName=name, statusCode=status)
        if agent.spoke:
            self._begin_step(agent)
        return _PARSED

    def _compacted(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        main = agent is self._main and agent.agent_id is None
        text = self._summaries.pop(0) if main and self._summaries else ""
        trigger = "auto" if agent.step is not None else "manual"
        self.emit.user(text_block(text), time, compaction={"trigger": trigger})
        return _PARSED

    # -- words and calls ---------------------------------------------------------------------------------

    def _asked(self, agent: _Agent, given: object, time: str | None) -> None:
        text = text_of_parts(given)
        agent.turns += 1
        agent.asked += 1
        name = f"turn-{agent.asked}"
        again = agent.agent_id is not None and agent.turns > 1 and text.startswith(_TOO_SHORT)
        if text.startswith("<system-reminder>"):
            self.emit.user(text_block(text), time, name, injected="system_reminder")
        elif again:
            self.emit.user(text_block(text), time, name, injected="summary_request")
        elif text:
            self.emit.prompt(text, time, message_id=name)
        for block in blocks_of(given) if isinstance(given, list) else ():
            if block["type"] == "image":
                self.emit.user(block, time, name)

    def _begin_step(self, agent: _Agent) -> str:
        agent.steps += 1
        agent.step = f"call-{agent.steps}"
        agent.spoke = False
        return agent.step

    def _step(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        agent.steps += 1
        agent.step, agent.spoke = f"call-{agent.steps}", False
        return _PARSED

    def _content(self, agent: _Agent, part: dict[str, Any], time: str | None) -> Line:
        step = agent.step or self._begin_step(agent)
        agent.spoke = True
        if part.get("type") == "think":
            if (thought := as_text(part.get("think"))) is not None:
                self.emit.thought(thought, time, None, step)
            return _PARSED
        for block in blocks_of([part]):
            self.emit.message(block, time, None, step)
        return _PARSED

    def _call(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        step = agent.step or self._begin_step(agent)
        function, call_id = as_dict(payload.get("function")), payload.get("id")
        name, text = function.get("name"), function.get("arguments")
        if type(text) is not str:
            text = "" if text is None else jsontext.dumps(text).decode()
        if type(call_id) is not str or not call_id:
            call_id = f"{step}-{self.report.line}"
        if type(name) is not str or not name:
            name = "unknown"
        given = plain_input(text)
        if given is not None:
            agent.spoke = True
            self.emit.call(call_id, name, show(name, given), given, time, None, step)
            return _PARSED
        agent.pending = _Pending(call_id, name, text, time, step)
        if _is_whole(text):
            self._flush(agent)
        return _PARSED

    def _more(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        """A further piece of the last call's arguments; a result of an earlier call may have come in between."""
        piece = payload.get("arguments_part")
        if not isinstance(piece, str) or not piece:
            return _PARSED
        if agent.pending is None:
            self.report.warn("orphan_arguments", "a piece of arguments that belongs to no call")
            return _PARSED
        agent.pending.arguments += piece
        if piece.rstrip().endswith("}") and _is_whole(agent.pending.arguments):
            self._flush(agent)
        return _PARSED

    def _flush(self, agent: _Agent) -> None:
        pending, agent.pending = agent.pending, None
        if pending is not None:
            agent.spoke = True
            self.say_call(pending.id, pending.name, pending.arguments, pending.time, pending.step)

    def say_call(self, call_id: str, name: str, arguments: object, time: str | None, step: str) -> None:
        """A tool call. Arguments that are no JSON were cut: they stay the text that they are."""
        given = tool_input(arguments, self.report)
        if isinstance(given, str):
            self.report.warn("cut_arguments", "the arguments of a call are cut off")
        self.emit.call(call_id, name, show(name, given), given, time, None, step)

    def _result(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        call_id = as_text(payload.get("tool_call_id"))
        if call_id is None:
            return Line.UNKNOWN
        if agent.pending is not None and agent.pending.id == call_id:
            self._flush(agent)
        returned = as_dict(payload.get("return_value", payload.get("result")))
        output, message = returned.get("output"), as_text(returned.get("message"))
        blocks = blocks_of([output] if isinstance(output, dict) else output)
        note, code = None, None
        if message is not None:
            code = exit_code(message)
            if blocks and len(message) <= _LONGEST_NOTE:
                note = {"message": message}
            else:
                blocks.insert(0, text_block(message))
        status = "failed" if code or returned.get("is_error") is True else "completed"
        if code is None:
            self.emit.result(call_id, blocks, status, time, note)
        else:
            self.emit.result(call_id, blocks, status, time, note, exitCode=code)
        return _PARSED

    def _status(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        usage = usage_of(payload.get("token_usage"), _COUNTS)
        if usage is None:
            return _PARSED
        if agent.step is None:
            self.report.warn("side_usage", "tokens of a request that is no part of the conversation were left out")
            return _PARSED
        self.emit.usage(usage, agent.step, time, requestId=as_text(payload.get("message_id")))
        return _PARSED

    def _silent(self, agent: _Agent, payload: dict[str, Any], time: str | None) -> Line:
        return _PARSED


_Teller = Callable[[WireParser, _Agent, dict[str, Any], str | None], Line]
_TELLERS: dict[str, _Teller] = {
    "TurnBegin": WireParser._turn,
    "SteerInput": WireParser._turn,
    "StepBegin": WireParser._step,
    "ContentPart": WireParser._content,
    "ToolCall": WireParser._call,
    "ToolCallPart": WireParser._more,
    "ToolResult": WireParser._result,
    "StatusUpdate": WireParser._status,
    "TurnEnd": WireParser._end_turn,
    "StepInterrupted": WireParser._interrupted,
    "StepRetry": WireParser._retried,
    "CompactionBegin": WireParser._silent,
    "CompactionEnd": WireParser._compacted,
}


def _is_whole(arguments: str) -> bool:
    """Whether arguments are a whole object: nothing can follow then."""
    text = arguments.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        jsontext.loads(text)
    except ValueError:
        return False
    return True
