"""Codex rollouts: `sessions/YYYY/MM/DD/rollout-*.jsonl`, one file per thread, 0.2x to 0.171.

`response_item` records are what the model saw and said; they are the base. `event_msg` records say most of it
again and never count twice: they give the exit codes and durations of the tools, they tell a person's words
from the harness's, and they stand in for the items where a turn has none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traceflow_formats import jsontext

from ..contract import JsonLineParser, Line
from ..emit import text_block
from ..tools.codex import item_type, shown_call, shown_item
from .calls import ModelCalls
from .history import History
from .names import END_EVENTS, SILENT_EVENTS, SILENT_ITEMS, SILENT_RECORDS
from .output import Outcome, item_blocks, item_outcome, joined, picture, read_arguments, read_output
from .runs import ToolRuns
from .stdout import is_retry, token_counts
from .words import Words

__all__ = ["CodexSession"]

Payload = dict[str, Any]
_WAITING_WORDS = 256  # messages that may wait for the model to speak


class CodexSession(JsonLineParser):
    """One thread with the threads of its subagents, each a part of its own."""

    harness = "codex"
    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[str, Callable[[Payload], Line]] = {
            "response_item": self._response_item,
            "event_msg": self._event,
            "token_usage_record": self._usage_record,
            "turn_context": self._turn_context,
            "session_meta": self._session_meta,
            "compacted": self._compacted,
        }
        self._items: dict[str, Callable[[Payload], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "agent_message": self._between_agents,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "local_shell_call": self._local_shell_call,
            "tool_search_call": self._tool_search_call,
            "web_search_call": self._web_search_call,
            "image_generation_call": self._image_call,
            "tool_search_output": self._tool_search_output,
            **dict.fromkeys(
                ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "mcp_tool_call_output"),
                self._output,
            ),
        }
        self._events: dict[str, Callable[[Payload], Line]] = {
            "token_count": self._token_count,
            "item_completed": self._item_completed,
            "user_message": self._user_event,
            "agent_message": self._agent_event,
            "agent_reasoning": self._agent_event,
            "task_started": self._turn_started,
            "turn_started": self._turn_started,
            "task_complete": self._turn_complete,
            "turn_complete": self._turn_complete,
            "turn_aborted": self._turn_aborted,
            "error": self._error_event,
            "stream_error": self._error_event,
            "warning": self._warning_event,
            "thread_rolled_back": self._rolled_back,
        }
        self._total: Payload | None = None  # what the main thread states of itself
        self._duration = 0
        self.start_part()

    # -- parts -------------------------------------------------------------------------------------------

    def start_part(self) -> None:
        copied = self.part.info.get("copied_items")
        self.emit.copied = False
        self.model: str | None = None
        self.history = History(copied if isinstance(copied, int) else 0)
        self.calls = ModelCalls(self.emit)
        self.runs = ToolRuns()
        self.words = Words()
        self._stamp: Any = None
        self._metadata: Any = None
        self._met = False  # session_meta was read
        self._system: str | None = None  # the system prompt, until it is said
        self._base = ""
        self._has_items = False  # this turn has response items, so events repeat them
        self._stood_in: str | None = None  # what an event said last in place of an item
        self._nameless = 0
        self._running = False
        self._failure: str | None = None

    def end_part(self) -> None:
        self._flush()
        self.calls.count_loose()
        self.calls.end()
        if self.part.agent_id is None:
            self._total = None if self.history.inherits else self.calls.stated
            self.report.incomplete = self.report.incomplete or self._running

    def end(self) -> None:
        self.emit.agent(None)
        self.emit.copied = False
        if self._total is not None and (usage := token_counts(self._total)):
            self.emit.run_usage(usage, durationMs=self._duration or None)

    # -- records -----------------------------------------------------------------------------------------

    def record(self, record: Payload) -> Line:
        kind, payload = record.get("type"), record.get("payload")
        if type(kind) is not str:
            return self._early_record(record)
        if type(payload) is not dict:
            if payload is not None or (kind not in self._items and kind not in SILENT_ITEMS):
                return Line.UNKNOWN
            kind, payload = "response_item", record  # before 0.3x items stood bare
        self._stamp = record.get("timestamp")
        if self.history.inherits and (copied := self.history.at(record, kind, payload)) is not self.emit.copied:
            self._enter(copied)
        handle = self._records.get(kind)
        if handle is None:
            return Line.PARSED if kind in SILENT_RECORDS else Line.UNKNOWN
        self._metadata = record.get("metadata")
        return handle(payload)

    def _early_record(self, record: Payload) -> Line:
        """Before 0.3x the first line was a header without a type, and lines with a state followed."""
        if record.get("record_type") == "state":
            return Line.PARSED
        if isinstance(record.get("id"), str) and "instructions" in record:
            return self._session_meta({"id": record["id"]})
        return Line.UNKNOWN

    def _enter(self, copied: bool) -> None:
        """The copied history begins or ends here."""
        self._flush()
        self.calls.end()
        self.runs.forget()
        self.emit.copied = copied

    def _time(self) -> str | None:
        return self.time(self._stamp)

    def _session_meta(self, payload: Payload) -> Line:
        if self._met:  # a fork repeats its parent's
            return Line.PARSED
        self._met = True
        ident, version = payload.get("id"), payload.get("cli_version")
        if self.part.agent_id is None:
            if isinstance(version, str):
                self.report.version = version
            if isinstance(ident, str) and ident:
                self.report.session_id = self.emit.session_id = ident
        self.history.meta(payload)
        self.calls.inherits = self.history.inherits
        base = payload.get("base_instructions")
        text = base.get("text") if isinstance(base, dict) else None
        if isinstance(text, str) and text:
            self._system = self._base = text
        return Line.PARSED

    def _turn_context(self, payload: Payload) -> Line:
        model = payload.get("model")
        if isinstance(model, str) and model:
            self.model = model
        self.calls.end()
        return Line.PARSED

    def _usage_record(self, payload: Payload) -> Line:
        self._flush()
        return self.calls.usage_record(payload, self._time, self.model)

    def _compacted(self, payload: Payload) -> Line:
        self._flush()
        if not self.calls.compacted():
            self.report.warn("compaction_usage_missing", "the tokens of the call that wrote a summary are not logged")
        message = payload.get("message")
        facts = {"responseId": payload.get("compaction_response_id"), "window": payload.get("window_number")}
        self.emit.user(
            text_block(message if isinstance(message, str) else ""),
            self._time(),
            compaction={name: fact for name, fact in facts.items() if isinstance(fact, str | int)},
        )
        return Line.PARSED

    def _response_item(self, payload: Payload) -> Line:
        kind = payload.get("type")
        if type(kind) is not str:
            return Line.UNKNOWN
        handle = self._items.get(kind)
        if handle is None:
            return Line.PARSED if kind in SILENT_ITEMS else Line.UNKNOWN
        self._has_items = True
        handle(payload)
        return Line.PARSED

    # -- words -------------------------------------------------------------------------------------------

    def _flush(self, speaking: bool = False) -> None:
        """Say what waited: the system prompt, then the words that are decided now."""
        if not self.words.waiting and not speaking:
            return
        emit = self.emit
        if self._system is not None:
            text, self._system = self._system, None
            copied, emit.copied = emit.copied, False  # it is the thread's own
            emit.prompt(text, self._time(), role="system")
            emit.copied = copied
        if self.words.waiting:
            self.calls.end()
            for injected, block, time, message in self.words.take():
                if injected is None and block["type"] == "text":
                    emit.prompt(block["text"], time, message_id=message)
                elif injected != "base_instructions" or block.get("text") != self._base:  # code mode says them as well
                    emit.user(block, time, message, injected=injected)

    def _speak(self, of_tool: bool = False) -> str:
        if self.words.waiting or self._system is not None:
            self._flush(speaking=True)
        return self.calls.speak(of_tool)

    def _message(self, payload: Payload) -> None:
        if payload.get("role") != "assistant":
            self.calls.count_loose()
            self.words.hear(payload, self._time())
            if self.words.waiting > _WAITING_WORDS:
                self._flush()
            return
        call = self._speak()
        if self._sums_up():
            return
        content, phase = payload.get("content"), payload.get("phase")
        if not isinstance(phase, str):
            phase = None
        if isinstance(content, str):
            content = [{"text": content}]
        for part in content if isinstance(content, list) else ():
            text = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
            if isinstance(text, str) and text and text != self._stood_in:
                self.emit.message(text_block(text), self._time(), self.model, call, phase=phase)
        self._stood_in = None

    def _sums_up(self) -> bool:
        """Whether the item is the compaction summary, or a thought on it: no answer to anybody."""
        if isinstance(self._metadata, dict) and self._metadata.get("compaction_output") is True:
            self.calls.summing_up()
            return True
        return False

    def _reasoning(self, payload: Payload) -> None:
        call = self._speak()
        if self._sums_up():
            return
        text = joined(payload.get("summary")) or joined(payload.get("content"))
        if text and text != self._stood_in:
            self.emit.thought(text, self._time(), self.model, call)
        self._stood_in = None

    def _between_agents(self, payload: Payload) -> None:
        """A message of another agent: the task of a subagent, or the report of one to its parent."""
        text = joined(payload.get("content"))
        if not text:
            return
        self._flush(speaking=True)
        self.calls.end()
        own_task = self.part.agent_id is not None and text.startswith("Message Type: NEW_TASK")
        kind = None if own_task else "agent_message"
        author = payload.get("author")
        self.emit.user(
            text_block(text), self._time(), injected=kind, author=author if isinstance(author, str) else None
        )

    # -- tools -------------------------------------------------------------------------------------------

    def _tool(self, payload: Payload, name: Any, raw: Any, script: bool = False) -> str:
        call = self._speak()
        if not isinstance(name, str) or not name:
            name = "unnamed"
        call_id = payload.get("call_id") or payload.get("id")
        if not isinstance(call_id, str):
            self._nameless += 1
            call_id = f"{name}-{self._nameless}"
        namespace = payload.get("namespace")
        if not isinstance(namespace, str):
            namespace = None
        shown = shown_call(name, raw, namespace)
        self.emit.call(call_id, name, shown, raw, self._time(), self.model, call, namespace=namespace)
        self.runs.opened(call_id, script)
        return call_id

    def _function_call(self, payload: Payload) -> None:
        repairs = jsontext.Repairs()
        arguments = read_arguments(payload.get("arguments"), repairs)
        if repairs.surrogates:
            self.report.warn("lone_surrogate", "lone surrogates were replaced by U+FFFD", repairs.surrogates)
        self._tool(payload, payload.get("name"), arguments)

    def _custom_call(self, payload: Payload) -> None:
        name = payload.get("name")
        self._tool(payload, name, payload.get("input"), script=name == "exec")

    def _local_shell_call(self, payload: Payload) -> None:
        self._tool(payload, "local_shell", self.exact(payload.get("action"), "payload", "action"))

    def _tool_search_call(self, payload: Payload) -> None:
        arguments = self.exact(payload.get("arguments"), "payload", "arguments")
        self._tool(payload, "tool_search", read_arguments(arguments))

    def _web_search_call(self, payload: Payload) -> None:
        call_id = self._tool(payload, "web_search", payload.get("action"))
        self._hosted(call_id, payload, None)

    def _image_call(self, payload: Payload) -> None:
        prompt, data = payload.get("revised_prompt"), payload.get("result")
        call_id = self._tool(payload, "image_generation", {"revised_prompt": prompt} if prompt else {})
        blocks = None
        if isinstance(data, str) and data:
            blocks = [picture(data if data.startswith("data:") else f"data:image/png;base64,{data}")]
        self._hosted(call_id, payload, blocks)

    def _hosted(self, call_id: str, payload: Payload, blocks: list[Payload] | None) -> None:
        """The provider runs such a tool: the call itself says how it ended, and no output follows."""
        status = payload.get("status")
        if status in ("completed", "failed"):
            self.runs.closed(call_id, Outcome())
            self.emit.result(call_id, blocks, status, self._time())

    def _output(self, payload: Payload) -> None:
        blocks, told = read_output(payload.get("output"))
        self._result(payload, blocks, told)

    def _tool_search_output(self, payload: Payload) -> None:
        tools = payload.get("tools")
        self._result(payload, [text_block(jsontext.dumps(tools).decode())] if tools else [], item_outcome(payload))

    def _result(self, payload: Payload, blocks: list[Payload], told: Outcome) -> None:
        self._flush()
        call_id = payload.get("call_id") or payload.get("id")
        if not isinstance(call_id, str):
            call_id = ""
        self._say_result(call_id, blocks, self.runs.closed(call_id, told))

    def _say_result(self, call_id: str, blocks: list[Payload], outcome: Outcome) -> None:
        self.calls.answered()
        self.emit.result(
            call_id,
            blocks,
            outcome.status,
            self._time(),
            outcome.facts or None,
            exitCode=outcome.exit_code,
            durationMs=outcome.duration_ms,
        )

    def _tool_ended(self, item: Payload, call_id: Any) -> Line:
        """An item says how a tool ended: facts for the output that follows, or all there is of it."""
        if isinstance(call_id, str):
            if self._has_items or not self.runs.whole(call_id):
                self.runs.ended(item, call_id)
            elif (shown := shown_item(item)) is not None:
                name, view, raw = shown
                call = self._speak(of_tool=True)
                self.emit.call(call_id, name, view, raw, self._time(), self.model, call)
                self.runs.opened(call_id)
                self._say_result(call_id, item_blocks(item), self.runs.closed(call_id, item_outcome(item)))
        return Line.PARSED

    # -- events ------------------------------------------------------------------------------------------

    def _event(self, payload: Payload) -> Line:
        kind = payload.get("type")
        if type(kind) is not str:
            return Line.UNKNOWN
        handle = self._events.get(kind)
        if handle is not None:
            return handle(payload)
        if kind in END_EVENTS:
            return self._tool_ended({**payload, "type": END_EVENTS[kind]}, payload.get("call_id"))
        return Line.PARSED if kind in SILENT_EVENTS else Line.UNKNOWN

    def _token_count(self, payload: Payload) -> Line:
        self._flush()
        return self.calls.token_count(payload, self._time, self.model)

    def _item_completed(self, payload: Payload) -> Line:
        item = payload.get("item")
        if not isinstance(item, dict):
            return Line.UNKNOWN
        kind = item_type(item)
        if self._has_items and kind in ("agent_message", "reasoning"):
            return Line.DUPLICATE
        if kind == "user_message":
            return self._heard(joined(item.get("content")) or "")
        if kind == "agent_message":
            return self._stand_in(kind, joined(item.get("content")))
        if kind == "reasoning":
            return self._stand_in(kind, joined(item.get("summary_text")) or joined(item.get("raw_content")))
        return self._tool_ended(item, item.get("id"))

    def _user_event(self, payload: Payload) -> Line:
        message = payload.get("message")
        if isinstance(message, str) and payload.get("kind") in (None, "plain"):  # 0.3x: other kinds are injected
            return self._heard(message)
        return Line.PARSED

    def _heard(self, text: str) -> Line:
        """An event says what a person typed."""
        if not self.words.waiting:
            self.calls.count_loose()
        self.words.hear_event(text, self._time())
        return Line.PARSED

    def _agent_event(self, payload: Payload) -> Line:
        text = payload.get("message", payload.get("text"))
        kind = "reasoning" if payload.get("type") == "agent_reasoning" else "agent_message"
        return self._stand_in(kind, text if isinstance(text, str) else None)

    def _stand_in(self, kind: str, text: str | None) -> Line:
        """What the model said, as an event tells it: news only in a turn that has no response items."""
        if self._has_items:
            return Line.DUPLICATE
        call = self._speak()
        self._stood_in = text
        if text and kind == "reasoning":
            self.emit.thought(text, self._time(), self.model, call)
        elif text:
            self.emit.message(text_block(text), self._time(), self.model, call)
        return Line.PARSED

    def _turn_started(self, payload: Payload) -> Line:
        if not self.emit.copied:
            self._running, self._failure = True, None
        self._has_items = False
        self.calls.end()
        return Line.PARSED

    def _turn_complete(self, payload: Payload) -> Line:
        self._end_turn()
        error, duration = payload.get("error"), payload.get("duration_ms")
        if error is not None:
            self._fail(error.get("message") if isinstance(error, dict) else error, payload)
        if type(duration) is int and self.part.agent_id is None and not self.emit.copied:
            self._duration += duration
        return Line.PARSED

    def _turn_aborted(self, payload: Payload) -> Line:
        self._end_turn()
        reason = payload.get("reason")
        self._fail(f"turn aborted: {reason}" if isinstance(reason, str) else None, payload, fatal=False)
        return Line.PARSED

    def _end_turn(self) -> None:
        self._flush()
        self.calls.count_loose()
        self.calls.end()
        self._running = False

    def _error_event(self, payload: Payload) -> Line:
        message = payload.get("message")
        again = payload.get("type") == "stream_error" or (isinstance(message, str) and is_retry(message))
        self._fail(message, payload, fatal=not again, retried=again or None)
        return Line.PARSED

    def _fail(self, message: Any, payload: Payload, fatal: bool = True, retried: bool | None = None) -> None:
        """An error, told once: the end of a turn repeats the message of the event before it."""
        self._flush()
        self.calls.end()
        text = message if isinstance(message, str) and message.strip() else jsontext.dumps(payload).decode()
        if self.emit.copied or (fatal and text == self._failure):
            return
        if fatal:
            self._failure = text
        self.emit.error(text, fatal, self._time(), retried=retried)

    def _warning_event(self, payload: Payload) -> Line:
        message = payload.get("message")
        if isinstance(message, str) and message:
            self._flush()
            self.emit.user(text_block(message), self._time(), injected="warning")
        return Line.PARSED

    def _rolled_back(self, payload: Payload) -> Line:
        self.report.warn("thread_rolled_back", "turns were taken back; they stand in the trace as they were")
        return Line.PARSED
