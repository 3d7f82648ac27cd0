"""Kimi Code: `kimi --output-format stream-json -p`, and its sessions (wire protocol 1.0 to 1.5 and "2").

A session is a folder with `state.json` and, for each agent, `agents/<id>/wire.jsonl`: a journal in which most things
stand twice. The base are `context.append_message` and `context.append_loop_event`; `agent.message.appended` repeats
them at the end of a turn, `usage.record` has the numbers of `step.end`, `turn.prompt` the words of the message that
follows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from traceflow_formats.jsontext import rounded

from ..content import last_text
from ..contract import JsonLineParser, Line
from ..emit import text_block
from ..facts import as_dict, as_list, as_text, count, facts, tool_input
from ..source import Harness
from ..tools.kimi import show
from .files import code_session_at, code_sessions_in
from .parts import blocks_of, exit_code, text_of_parts, usage_of, written_by

__all__ = ["HARNESS", "KimiCodeSession", "KimiCodeStdout"]

_NAME = "kimi-code"
_PARSED = Line.PARSED
_COUNTS = ("inputOther", "output", "inputCacheRead", "inputCacheCreation")
_PERSONS = frozenset({"user", "skill_activation", "plugin_command"})  # origins of what a person asked
_SILENT = frozenset(
    {
        "agent.turn.ended", "agent.turn.started", "context.clear", "context.undo", "file_history.checkpoint",
        "file_history.tracked", "forked", "full_compaction.complete", "interruptionReminder.recorded",
        "llm.tools_snapshot", "mcp.tools_discovered", "plan.revision", "plugin.session_start", "prompt.accepted",
        "prompt.completed", "runtime.set_binding", "subagent.completed", "subagent.failed", "subagent.spawned",
        "subagent.started", "swarm_mode.enter", "swarm_mode.exit", "turn.cancel",
    }
)  # fmt: skip
_SILENT_GROUPS = (
    "cron.", "goal.", "interaction.", "permission.", "plan_mode.", "staleGuard.", "task.", "token_counting.", "tools.",
    "tower_mode.",
)  # fmt: skip


class KimiCodeStdout(JsonLineParser):
    """One assistant line per model call, one tool line per result, `meta` lines for version, retries, session.

    Times, tokens, thoughts and the prompt are not printed; the error that ends a run is on stderr alone.
    """

    harness = _NAME
    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._calls = 0
        self._ended = False

    def record(self, record: dict[str, Any]) -> Line:
        role = record.get("role")
        if role == "meta":
            return self._meta(record)
        if role == "assistant":
            self._calls += 1
            self._ended = False
            message = f"call-{self._calls}"
            for block in blocks_of(record.get("content")):
                self.emit.message(block, message_id=message)
            for at, item in enumerate(as_list(record.get("tool_calls"))):
                call = as_dict(item)
                function = as_dict(call.get("function"))
                name = as_text(function.get("name")) or "unknown"
                given = tool_input(function.get("arguments"), self.report)
                call_id = as_text(call.get("id")) or f"{message}-{at}"
                self.emit.call(call_id, name, show(name, given), given, message_id=message)
            return Line.PARSED
        answered = as_text(record.get("tool_call_id"))
        if role == "tool" and answered is not None:
            blocks = blocks_of(record.get("content"))
            text = last_text(blocks)
            code = exit_code(text)
            status = "failed" if code or _refused(text) else "completed"
            self.emit.result(answered, blocks, status, exitCode=code)
            return Line.PARSED
        return Line.UNKNOWN

    def end_part(self) -> None:
        if not self._ended:
            self.report.incomplete = True

    def _meta(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        if kind == "system.version":
            self.report.version = self.report.version or as_text(record.get("version"))
        elif kind == "session.resume_hint":
            self.report.session_id = self.report.session_id or as_text(record.get("session_id"))
            self._ended = True
        elif kind == "turn.step.retrying":
            self.emit.error(
                as_text(record.get("error_message")) or "the model call was tried again", False, retried=True,
                errorName=as_text(record.get("error_name")), statusCode=count(record.get("status_code")),
            )  # fmt: skip
        else:
            return Line.UNKNOWN
        return Line.PARSED


def _refused(text: str) -> bool:
    """The two answers of 2.1 to a call that was never made: stdout has no flag for them, the journal has."""
    if text.startswith("Tool ") and text.endswith(" not found"):
        return len(text) < 300
    return text.startswith("Invalid args for tool ")


class KimiCodeSession(JsonLineParser):
    """The journals of a session's agents. `part.info` has the session's id, what spawned the agent, and the lines
    that were undone: `session`, `spawns` (tool calls, one per turn of a subagent), `withdrawn` (pairs of lines)."""

    harness = _NAME
    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._reset()

    def _reset(self) -> None:
        self._model: str | None = None
        self._system: str | None = None
        self._step: str | None = None  # the model call that is under way
        self._steps = 0
        self._recorded: tuple[dict[str, Any], str | None] | None = None  # its usage.record
        self._prompt: tuple[str, str | None, list[dict[str, Any]]] | None = None  # a turn.prompt without its message
        self._turns = 0
        self._written = False  # the journal has context records: what repeats them is left out
        self._compacting: dict[str, Any] | None = None
        self._compactions = 0
        self._interrupted: tuple[str, str | None] | None = None
        self._open = False  # a turn is under way
        self._withdrawn: Sequence[tuple[int, int]] = ()  # the lines that were undone, from and to

    def start_part(self) -> None:
        self._reset()
        self._withdrawn = self.part.info.get("withdrawn") or ()
        session = as_text(self.part.info.get("session"))
        if session is not None and self.report.session_id is None:
            self.report.session_id = self.emit.session_id = session

    def end_part(self) -> None:
        self._say_prompt()
        self._end_step(None, None)
        self._fail_interrupted()
        if self._open and self.part.agent_id is None:
            self.report.incomplete = True
        self.emit.abandoned = False

    # -- records -----------------------------------------------------------------------------------------

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        if type(kind) is not str:
            return Line.UNKNOWN
        if self._withdrawn:
            line = self.report.line
            self.emit.abandoned = any(first <= line <= last for first, last in self._withdrawn)
        time = self.time(record.get("time"))
        tell = _TELLERS.get(kind)
        if tell is not None:
            return tell(self, record, time)
        return _PARSED if kind in _SILENT or kind.startswith(_SILENT_GROUPS) else Line.UNKNOWN

    def _appended(self, record: dict[str, Any], time: str | None) -> Line:
        self._written = True
        return self._message(as_dict(record.get("message")), time, {})

    def _repeated(self, record: dict[str, Any], time: str | None) -> Line:
        """A message again, at the end of its turn; all there is in journals without context records."""
        if self._written:
            return Line.DUPLICATE
        inner = as_dict(record.get("message"))
        return self._message(as_dict(inner.get("message")), time, as_dict(inner.get("meta")))

    def _request(self, record: dict[str, Any], time: str | None) -> Line:
        if record.get("kind") != "compaction":
            self._model = as_text(record.get("model")) or self._model
        return _PARSED

    def _profile(self, record: dict[str, Any], time: str | None) -> Line:
        self._model = self._model or as_text(record.get("modelAlias"))
        system = as_text(record.get("systemPrompt"))
        if system is not None and system != self._system:
            self._system = system
            self.emit.prompt(system, time, role="system")
        return _PARSED

    def _retrying(self, record: dict[str, Any], time: str | None) -> Line:
        self._interrupted = None
        self.emit.error(
            as_text(record.get("errorMessage")) or "the model call was tried again", False, time, retried=True,
            errorName=as_text(record.get("errorName")), statusCode=count(record.get("statusCode")),
        )  # fmt: skip
        return _PARSED

    def _stopped(self, record: dict[str, Any], time: str | None) -> Line:
        if record.get("reason") == "error":
            self._interrupted = (as_text(record.get("message")) or "", time)
        return _PARSED

    def _metadata(self, record: dict[str, Any], time: str | None) -> Line:
        return _PARSED

    # -- turns -------------------------------------------------------------------------------------------

    def _turn(self, record: dict[str, Any], time: str | None) -> Line:
        self._say_prompt()
        self._open = True
        spawns = as_list(self.part.info.get("spawns"))
        if spawns:  # each turn of a subagent was asked for by a call of its own
            self.emit.agent(self.part.agent_id, spawns[min(self._turns, len(spawns) - 1)])
        self._turns += 1
        origin = as_dict(record.get("origin")).get("kind")
        if origin in (None, "user") or self.part.agent_id is not None:
            parts = as_list(record.get("input"))
            images = [block for block in blocks_of(parts) if block["type"] == "image"]
            self._prompt = (text_of_parts(parts), time, images)
        return Line.PARSED

    def _say_prompt(self) -> None:
        """The words of a turn whose message never came."""
        if self._prompt is not None:
            text, time, images = self._prompt
            self._prompt = None
            if text:
                self.emit.prompt(text, time, message_id=f"turn-{self._turns}")
            for image in images:
                self.emit.user(image, time, f"turn-{self._turns}")

    def _end_turn(self, record: dict[str, Any], time: str | None) -> Line:
        self._say_prompt()
        self._end_step(None, time)
        self._open = False
        error = as_dict(record.get("error"))
        reason = record.get("reason")
        if error or reason in ("failed", "blocked"):
            words = as_text(error.get("message")) or (self._interrupted[0] if self._interrupted else None)
            self.emit.error(
                words or f"the turn was {reason}", True, time, code=as_text(error.get("code")),
                errorName=as_text(error.get("name")), statusCode=count(as_dict(error.get("details")).get("statusCode")),
            )  # fmt: skip
            self._interrupted = None
        else:
            self._fail_interrupted()
        return Line.PARSED

    def _fail_interrupted(self) -> None:
        if self._interrupted is not None:
            words, time = self._interrupted
            self._interrupted = None
            self.emit.error(words, True, time)

    # -- messages ----------------------------------------------------------------------------------------

    def _message(self, message: dict[str, Any], time: str | None, meta: dict[str, Any]) -> Line:
        role, content = message.get("role"), message.get("content")
        if role == "user":
            return self._user(message, as_dict(message.get("origin", meta.get("origin"))), time)
        if role == "assistant":  # sessions that were moved here from kimi-cli have whole messages
            self._end_step(None, time)
            self._begin_step(as_text(message.get("id")))
            for part in as_list(content) or [{"type": "text", "text": content}]:
                self._part(part, time)
            for at, item in enumerate(as_list(message.get("toolCalls"))):
                call = as_dict(item)
                function = as_dict(call.get("function")) or call  # 1.0 writes {function: {name, arguments}}
                given = tool_input(function.get("arguments"), self.report)
                self._call(call.get("id"), at, function.get("name"), given, time)
            self._end_step(meta, time)
            return Line.PARSED
        call_id = as_text(message.get("toolCallId"))
        if role == "tool" and call_id is not None:
            self._result(call_id, content, message, time)
            return Line.PARSED
        if role == "system":
            self.emit.prompt(text_of_parts(content), time, role="system")
            return Line.PARSED
        return Line.UNKNOWN

    def _user(self, message: dict[str, Any], origin: dict[str, Any], time: str | None) -> Line:
        kind = as_text(origin.get("kind"))
        text = text_of_parts(message.get("content"))
        if kind == "compaction_summary":
            return Line.DUPLICATE  # context.apply_compaction has told it
        person = kind in _PERSONS or (kind == "system_trigger" and self.part.agent_id is not None)
        if kind is None:
            person = not text.startswith("<system-reminder>")
        mark = None if person else _injected(text, kind, origin)
        if mark is None:
            self._prompt = None  # the words of the turn are these
        name = as_text(message.get("id")) or f"line-{self.report.line}"
        if text and mark is None:
            self.emit.prompt(text, time, message_id=name)
        elif text:
            self.emit.user(text_block(text), time, name, injected=mark)
        for block in blocks_of(message.get("content")):
            if block["type"] == "image":
                self.emit.user(block, time, name, injected=mark)
        return Line.PARSED

    # -- steps -------------------------------------------------------------------------------------------

    def _loop_event(self, record: dict[str, Any], time: str | None) -> Line:
        self._written = True
        event = record.get("event")
        if type(event) is not dict or type(kind := event.get("type")) is not str:
            return Line.UNKNOWN
        if kind == "content.part":
            self._part(event.get("part"), time)
        elif kind == "tool.call":
            given = event.get("args")
            if rounded(given):
                given = self.exact(given, "event", "args")
            self._call(event.get("toolCallId"), 0, event.get("name"), given, time)
        elif kind == "tool.result" and (call_id := as_text(event.get("toolCallId"))) is not None:
            result = as_dict(event.get("result"))
            self._result(call_id, result.get("output"), result, time)
        elif kind == "step.begin":
            self._say_prompt()
            if self._step is not None or self._recorded is not None:
                self._end_step(None, time)
            self._begin_step(as_text(event.get("uuid")))
        elif kind == "step.end":
            self._end_step(event, time)
        else:
            return Line.UNKNOWN
        return _PARSED

    def _begin_step(self, name: str | None) -> str:
        self._steps += 1
        self._step = name or f"step-{self._steps}"
        return self._step

    def _end_step(self, event: dict[str, Any] | None, time: str | None) -> None:
        """The call is over: its tokens, from its end or from the record before it. A failed one has none."""
        step, self._step = self._step, None
        recorded, self._recorded = self._recorded, None
        if step is None:
            return
        usage = usage_of(as_dict(event).get("usage"), _COUNTS)
        if usage is None and recorded is not None:
            usage, time = recorded
        if usage is not None:
            self.emit.usage(usage, step, time, self._model, stopReason=as_text(as_dict(event).get("finishReason")))

    def _part(self, item: object, time: str | None) -> None:
        step = self._step or self._begin_step(None)
        part = as_dict(item)
        if part.get("type") == "think":
            if (thought := as_text(part.get("think"))) is not None:
                self.emit.thought(thought, time, self._model, step)
            return
        for block in blocks_of([part]):
            self.emit.message(block, time, self._model, step)

    def _call(self, call_id: object, at: int, name: object, given: Any, time: str | None) -> None:
        step = self._step or self._begin_step(None)
        tool = as_text(name) or "unknown"
        self.emit.call(as_text(call_id) or f"{step}-{at}", tool, show(tool, given), given, time, self._model, step)

    def _result(self, call_id: str, output: object, result: dict[str, Any], time: str | None) -> None:
        blocks = blocks_of(output)
        text = last_text(blocks)
        code = exit_code(text)
        failed = result.get("isError") is True or bool(code)
        extra: dict[str, Any] = {} if code is None else {"exitCode": code}
        if isinstance(spent := result.get("durationMs"), int | float):
            extra["durationMs"] = spent
        note = facts({"note": result["note"]}) if "note" in result else None
        self.emit.result(call_id, blocks, "failed" if failed else "completed", time, note, **extra)

    # -- tokens and compaction ---------------------------------------------------------------------------

    def _usage_record(self, record: dict[str, Any], time: str | None) -> Line:
        usage = usage_of(record.get("usage"), _COUNTS)
        if usage is None:
            return Line.PARSED
        if self._compacting is not None:
            self._compactions += 1
            self.emit.usage(usage, f"compaction-{self._compactions}", time, self._model, compaction=True)
        elif self._step is not None:
            self._recorded = (usage, time)
        else:
            self.report.warn("side_usage", "tokens of a request that is no part of the conversation were left out")
        return Line.PARSED

    def _compaction(self, record: dict[str, Any], time: str | None) -> Line:
        kind = record["type"]
        self._say_prompt()
        self._end_step(None, time)
        if kind == "full_compaction.begin":
            self._compacting = {"trigger": as_text(record.get("source")) or "auto"}
            return Line.PARSED
        begun, self._compacting = self._compacting, None
        if kind == "full_compaction.cancel":
            return Line.PARSED
        summary = record.get("summary", record.get("contextSummary"))
        text = summary if isinstance(summary, str) else text_of_parts(as_dict(summary).get("content"))
        told = {"preTokens": count(record.get("tokensBefore")), "postTokens": count(record.get("tokensAfter"))}
        known = {key: value for key, value in told.items() if value is not None}
        self.emit.user(text_block(text), time, compaction={**(begun or {"trigger": "auto"}), **known})
        return Line.PARSED


_Teller = Callable[[KimiCodeSession, dict[str, Any], str | None], Line]
_TELLERS: dict[str, _Teller] = {
    "context.append_loop_event": KimiCodeSession._loop_event,
    "context.append_message": KimiCodeSession._appended,
    "agent.message.appended": KimiCodeSession._repeated,
    "turn.prompt": KimiCodeSession._turn,
    "turn.steer": KimiCodeSession._turn,
    "turn.ended": KimiCodeSession._end_turn,
    "llm.request": KimiCodeSession._request,
    "profile.bind": KimiCodeSession._profile,
    "config.update": KimiCodeSession._profile,
    "metadata": KimiCodeSession._metadata,
    "usage.record": KimiCodeSession._usage_record,
    "full_compaction.begin": KimiCodeSession._compaction,
    "full_compaction.cancel": KimiCodeSession._compaction,
    "context.apply_compaction": KimiCodeSession._compaction,
    "turn.step.retrying": KimiCodeSession._retrying,
    "turn.step.interrupted": KimiCodeSession._stopped,
}


def _injected(text: str, kind: str | None, origin: dict[str, Any]) -> str:
    if text.startswith("<system-reminder>"):
        return "system_reminder"
    if kind == "shell_command":
        return "command"
    return as_text(origin.get("variant")) or kind or "context"


def _is_session(records: Sequence[dict[str, Any]]) -> bool:
    """The journal's records have dotted types and a time; kimi-cli's wire wraps its own in `message`."""
    for record in records:
        kind = as_text(record.get("type")) or ""
        if kind == "metadata" and "protocol_version" in record and "created_at" in record:
            return True
        if kind in ("context.append_loop_event", "context.append_message", "turn.prompt") and "time" in record:
            return True
    return False


HARNESS = Harness(
    name=_NAME,
    version=1,
    stdout_names=("kimi-code.txt",),
    is_stdout=lambda records: written_by(records) == _NAME,
    is_session=_is_session,
    stdout=KimiCodeStdout,
    session_at=lambda path: code_session_at(path, KimiCodeSession),
    sessions_in=lambda folder: code_sessions_in(folder, KimiCodeSession, _is_session),
)
