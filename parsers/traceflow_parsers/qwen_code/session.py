"""The session files of qwen-code as events (checked with 0.5 and 0.15).

One record per response, with its calls and its usage; one per tool result; telemetry beside them. Subagents have
no records up to 0.15: their model calls and tool calls are rebuilt from telemetry when the call that spawned them
returns, without the results, which are logged nowhere.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from traceflow_formats.jsontext import rounded

from ..contract import JsonLineParser, Line
from ..emit import text_block
from ..facts import as_dict
from ..genai import (
    SHELL_TOOLS,
    Keys,
    count,
    exit_code,
    facts,
    media_block,
    parts_of,
    result_blocks,
    split_references,
    usage_of,
)
from ..tools.qwen import AGENT_TOOLS, show
from .telemetry import SUBAGENT, Answer, Run, answer_of, counts_of

__all__ = ["QwenSession", "injected_kind"]

_KEYS = Keys(
    "promptTokenCount",
    "candidatesTokenCount",
    "cachedContentTokenCount",
    "thoughtsTokenCount",
    "toolUsePromptTokenCount",
    "totalTokenCount",
)
_PARSED = Line.PARSED
_SNAPSHOT = "<state_snapshot>"
_INJECTED = {
    "<system-reminder>": "system_reminder",
    "<task-notification>": "notification",
    "<hook_context>": "hook_context",
}
_SAID_BY_PEOPLE = (None, "", "mid_turn_user_message", "realtime_message", "at_command")
_NO_EVENTS = frozenset(
    {
        "attribution_snapshot",
        "at_command",
        "session_notes",
        "custom_title",
        "parent_session",
        "session_source",
        "session_sources_snapshot",
        "session_execution_engine",
        "session_model",
        "session_approval_mode",
        "session_artifact_event",
        "session_artifact_snapshot",
        "file_history_snapshot",
        "user_text_elements",
        "branch_checkpoint",
        "rewind",
        "agent_launch_prompt",
        "agent_retry",
        "agent_session_ready",
        "goal_state",
        "goal_turn_end",
        "turn_result",
    }
)
_OPEN_RUNS = 1000  # subagents whose call has not returned; the oldest is handed over without its call
_TEXTS = frozenset({"fileDiff", "originalContent", "newContent", "result", "taskPrompt"})


def injected_kind(text: str) -> str | None:
    """What the harness put into the conversation: its kind, or None for words of a person."""
    start = text.lstrip()
    return next((kind for mark, kind in _INJECTED.items() if start.startswith(mark)), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class QwenSession(JsonLineParser):
    """A session, then the files of its subagents.

    `Part.info`: "abandoned" the lines off the last branch, "agents" and "calls" the ids of subagents that have a
    file and of the calls that spawned them.
    """

    harness = "qwen-code"
    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._fresh()

    def _fresh(self) -> None:
        self._seen: dict[str, int] = {}
        self._message: str | None = None  # the response whose calls may follow in records of their own
        self._names: dict[str, str] = {}  # open calls
        self._unnamed: dict[str, deque[str]] = {}  # those that the provider gave no id, by tool
        self._prompt_id: str | None = None  # what telemetry calls the turn in hand
        self._waiting: list[Answer] = []  # responses whose record has not come
        self._ahead: tuple[int | None, int | None, int | None] | None = None  # a record whose telemetry has not come
        self._durations: dict[str, deque[int]] = {}
        self._runs: dict[str, Run] = {}
        self._failure: tuple[str, str | None, dict[str, Any]] | None = None
        self._extras = 0

    def start_part(self) -> None:
        self._fresh()
        self._abandoned: frozenset[int] = self.part.info.get("abandoned", frozenset())
        self._filed: frozenset[str] = self.part.info.get("agents", frozenset())
        self._filed_calls: frozenset[str] = self.part.info.get("calls", frozenset())

    def end_part(self) -> None:
        self._close_turn()
        spawning = [i for i, name in self._names.items() if name in AGENT_TOOLS]
        for run_id in list(self._runs):
            self._run(run_id, spawning[0] if len(spawning) == 1 else None, None)
        self.emit.abandoned = self.emit.copied = False

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        if kind not in ("assistant", "tool_result", "system", "user"):
            return Line.UNKNOWN
        uuid = record.get("uuid")
        if type(uuid) is str and uuid:
            mark = hash(self.raw.strip())
            if self._seen.get(uuid) == mark:
                return Line.DUPLICATE
            self._seen[uuid] = mark
        else:
            self._extras += 1
            uuid = f"record-{self._extras}"
        self._open(record)
        time = self.time(record.get("timestamp"))
        if kind == "system":
            return self._system(record, uuid, time)
        message = record.get("message")
        if kind == "assistant" and rounded(message):  # arguments keep all their digits
            message = self.exact(message, "message")
        parts = parts_of(message.get("parts")) if isinstance(message, dict) else []
        if kind == "assistant":
            self._assistant(record, parts, uuid, time)
        elif kind == "tool_result":
            self._tool_result(record, parts, time)
        else:
            self._user(record, parts, uuid, time)
        return _PARSED

    def _open(self, record: dict[str, Any]) -> None:
        emit, report = self.emit, self.report
        if report.version is None:
            report.version = _text(record.get("version"))
        if emit.session_id is None:
            emit.session_id = report.session_id = _text(record.get("sessionId"))
        emit.copied = isinstance(record.get("forkedFrom"), dict)
        emit.abandoned = report.line in self._abandoned

    # -- records ------------------------------------------------------------------------------------------

    def _user(self, record: dict[str, Any], parts: list[dict[str, Any]], uuid: str | None, time: str | None) -> None:
        self._message = None
        harness = record.get("subtype") if record.get("subtype") not in _SAID_BY_PEOPLE else None
        if record.get("provenance") in ("goal_control", "goal_runtime", "system"):
            harness = harness or record["provenance"]
        harness = _text(harness) or _text(record.get("externalInputKind"))
        words: list[str] = []
        parts, referenced, pictures = split_references(parts)
        for part in parts:
            text = part.get("text")
            if isinstance(text, str) and text:
                kind = harness or injected_kind(text)
                if kind is None:
                    words.append(text)
                elif text.lstrip().startswith(_SNAPSHOT):
                    self.emit.user(text_block(text), time, compaction={})
                else:
                    self.emit.user(text_block(text), time, injected=kind)
            elif "functionResponse" in part:
                self._tool_result({}, [part], time)
        pictures = [block for part in parts if (block := media_block(part)) is not None] + pictures
        name = uuid if pictures else None
        if words:
            self._close_turn()
            self.emit.prompt("\n".join(words), time, message_id=name)
        for block in pictures:
            self.emit.user(block, time, name)
        if referenced:
            self.emit.user(text_block(referenced), time, injected="referenced_files")

    def _assistant(self, record: dict[str, Any], parts: list[dict[str, Any]], uuid: str, time: str | None) -> None:
        raw = record.get("usageMetadata")
        usage = usage_of(raw, _KEYS, output_holds_thoughts=True)
        more = False  # a subagent's file has its calls apart, in records of their own
        if record.get("isSidechain") and usage is None and self._message:
            more = bool(parts) and all("functionCall" in part for part in parts)
        if not more:
            self._message = uuid
        name, model = self._message, _text(record.get("model"))
        known = self._match(counts_of(raw, _KEYS) if usage is not None else None)
        if self._failure is not None:
            self._settle(retried=True)
        for part in parts:
            text, call = part.get("text"), part.get("functionCall")
            if type(text) is str and text:
                if part.get("thought"):
                    self.emit.thought(text, time, model, name)
                else:
                    self.emit.message({"type": "text", "text": text}, time, model, name)
            elif type(call) is dict and type(tool := call.get("name")) is str:
                call_id, args = _text(call.get("id")), call.get("args")
                if call_id is None:
                    self._extras += 1
                    call_id = f"{uuid}#{self._extras}"
                    self._unnamed.setdefault(tool, deque()).append(call_id)
                self._names[call_id] = tool
                self.emit.call(call_id, tool, show(tool, args), args, time, model, name)
            elif (block := media_block(part)) is not None:
                self.emit.message(block, time, model, name)
        if usage is None and known is not None:
            usage = known.usage()
        if usage is not None and known is not None:
            self.emit.usage(usage, name, time, model, durationMs=known.duration, requestId=known.name or None)
        elif usage is not None:
            self.emit.usage(usage, name, time, model)

    def _tool_result(self, record: dict[str, Any], parts: list[dict[str, Any]], time: str | None) -> None:
        self._message = None
        said = as_dict(record.get("toolCallResult"))
        responses = [r for p in parts if isinstance(r := p.get("functionResponse"), dict)]
        call_id, tool = _text(said.get("callId") or said.get("id")), ""
        for response in responses:
            call_id = call_id or _text(response.get("callId") or response.get("id"))
            tool = tool or _text(response.get("name")) or ""
        if call_id is None:
            self.report.warn("orphan_result", "a result without the id of its call")
            return
        display, status = said.get("resultDisplay"), said.get("status")
        if call_id not in self._names and self._unnamed.get(tool):
            call_id = self._unnamed[tool].popleft()  # the harness names such a call when it runs it
        name = self._names.pop(call_id, "") or tool
        output: dict[str, Any] = {}
        if isinstance(display, dict):
            if display.get("type") == "task_execution":
                self._returned(call_id, display)
            output = facts(display, _TEXTS) or {}
        blocks = result_blocks(parts)
        if not blocks and isinstance(display, str) and display:
            blocks = [text_block(display)]
        extra: dict[str, Any] = {}
        shown = blocks[0].get("text") if blocks and name in SHELL_TOOLS else None
        if shown is not None and (code := exit_code(shown)) is not None:
            extra["exitCode"] = code
        duration = count(said.get("durationMs"))
        if duration is None and (measured := self._durations.get(name)):
            duration = measured.popleft()
        if duration is not None:
            extra["durationMs"] = duration
        kind = _text(said.get("errorType"))
        if status == "cancelled" or kind:
            given = {"status": status, "errorType": kind, **output}
            output = {key: value for key, value in given.items() if value is not None}
        failed = status in ("error", "cancelled") or (status is None and any(map(_is_error, responses)))
        state = "failed" if failed or extra.get("exitCode") else "completed"
        self.emit.result(call_id, blocks, state, time, output or None, **extra)

    def _system(self, record: dict[str, Any], uuid: str, time: str | None) -> Line:
        kind, payload = _text(record.get("subtype")), as_dict(record.get("systemPayload"))
        if kind == "ui_telemetry":
            event = payload.get("uiEvent")
            if isinstance(event, dict):
                self._telemetry(event, self.time(event.get("event.timestamp")) or time)
        elif kind == "chat_compression":
            self._compacted(payload, time)
        elif kind == "slash_command":
            if payload.get("phase") != "result" and (command := _text(payload.get("rawCommand"))):
                self.emit.user(text_block(command), time, injected="command")
        elif kind == "agent_bootstrap":
            self._inherited(payload, uuid, time)
        elif kind not in _NO_EVENTS:
            return Line.UNKNOWN
        return _PARSED

    def _compacted(self, payload: dict[str, Any], time: str | None) -> None:
        """The summary that replaces the history; the request that wrote it is the last one telemetry knows."""
        if self._waiting:
            self._compaction_usage(self._waiting.pop())
        info, history = payload.get("info"), payload.get("compressedHistory")
        info = info if isinstance(info, dict) else {}
        summary = ""
        for content in history if isinstance(history, list) else ():
            if not isinstance(content, dict):
                continue
            texts = [t for p in parts_of(content.get("parts")) if isinstance(t := p.get("text"), str)]
            if content.get("role") == "user" and (summary := "".join(texts)):
                break
        said = {"preTokens": count(info.get("originalTokenCount")), "postTokens": count(info.get("newTokenCount"))}
        self.emit.user(text_block(summary), time, compaction={k: v for k, v in said.items() if v is not None})

    def _inherited(self, payload: dict[str, Any], uuid: str, time: str | None) -> None:
        """The history of its parent that a forked subagent begins with."""
        self.emit.copied = True
        history = payload.get("history")
        for number, content in enumerate(history if isinstance(history, list) else ()):
            if isinstance(content, dict):
                parts = parts_of(content.get("parts"))
                if content.get("role") == "model":
                    self._assistant({}, parts, f"{uuid}#{number}", time)
                elif any("functionResponse" in part for part in parts):
                    for part in parts:
                        self._tool_result({}, [part], time)
                else:
                    self._user({}, parts, None, time)
        self.emit.copied = False
        self._message = None

    # -- telemetry ----------------------------------------------------------------------------------------

    def _telemetry(self, event: dict[str, Any], time: str | None) -> None:
        kind, prompt = str(event.get("event.name")).rpartition(".")[2], event.get("prompt_id")
        if kind not in ("api_response", "tool_call", "api_error"):
            return
        if type(prompt) is str and "#" in prompt and (child := SUBAGENT(prompt)) is not None:
            if child["run"] not in self._filed:
                if kind == "tool_call":
                    args = self.exact(event.get("function_args"), "systemPayload", "uiEvent", "function_args")
                    event = {**event, "function_args": args}
                if len(self._runs) >= _OPEN_RUNS and child["run"] not in self._runs:
                    self._run(next(iter(self._runs)), None, None)
                self._runs.setdefault(child["run"], Run()).add(kind, event, time)
        elif kind == "api_error":
            self._settle(retried=True)
            message = _text(event.get("error_message")) or _text(event.get("error_type")) or "api_error"
            said = {"errorType": _text(event.get("error_type")), "statusCode": count(event.get("status_code"))}
            self._failure = (message, time, said)
        elif kind == "tool_call":
            name, spent = event.get("function_name"), count(event.get("duration_ms"))
            if isinstance(name, str) and spent is not None:
                self._durations.setdefault(name, deque()).append(spent)
        else:
            self._settle(retried=True)
            answer = answer_of(event, time)
            if _SNAPSHOT in answer.text:
                self._compaction_usage(answer)
            elif self._ahead is not None and self._ahead == answer.counts:
                self._ahead = None
            else:
                self._waiting.append(answer)

    def _match(self, counts: tuple[int | None, int | None, int | None] | None) -> Answer | None:
        """The telemetry of the response in hand; the responses before it whose record never came are told of."""
        waiting = self._waiting
        if not waiting:
            self._ahead = counts
            return None
        self._ahead = None
        last = len(waiting) - 1
        at = next((n for n in range(last, -1, -1) if waiting[n].counts == counts), last) if last else 0
        answer = waiting[at]
        self._prompt_id = answer.prompt
        self._waiting = waiting[at + 1 :]
        if at:
            self._unrecorded(waiting[:at])
        return answer

    def _unrecorded(self, answers: list[Answer]) -> None:
        """Responses that the conversation has no record of: dropped and asked for again, or the run was killed."""
        for answer in answers:
            if answer.prompt != self._prompt_id:
                self.report.warn("side_request", "a request beside the conversation, in telemetry only, was left out")
                continue
            self._extras += 1
            name = answer.name or f"telemetry-{self._extras}"
            if answer.text:
                self.emit.message(text_block(answer.text), answer.time, answer.model, name, telemetry=True)
            if (usage := answer.usage()) is not None:
                self.emit.usage(usage, name, answer.time, answer.model, durationMs=answer.duration, telemetry=True)

    def _compaction_usage(self, answer: Answer) -> None:
        if (usage := answer.usage()) is not None:
            self._extras += 1
            name = answer.name or f"compaction-{self._extras}"
            self.emit.usage(usage, name, answer.time, answer.model, durationMs=answer.duration, compaction=True)

    def _settle(self, retried: bool) -> None:
        """What came after a failed request says whether it was tried again."""
        if self._failure is not None:
            (message, time, said), self._failure = self._failure, None
            self.emit.error(message, not retried, time, retried=True if retried else None, **said)

    def _close_turn(self) -> None:
        """A prompt or the end: what waited for a record gets none."""
        answers, self._waiting = self._waiting, []
        if answers and self._prompt_id is None:
            self._prompt_id = answers[-1].prompt
        self._unrecorded(answers)
        self._settle(retried=False)
        self._prompt_id = self._ahead = None
        self._durations.clear()

    # -- subagents without a file -------------------------------------------------------------------------

    def _returned(self, call_id: str, display: dict[str, Any]) -> None:
        """An agent's call returned: its records in telemetry are those with the same sums, or the only ones."""
        name, summary = display.get("subagentName"), display.get("executionSummary")
        summary = summary if isinstance(summary, dict) else {}
        mine = [i for i in self._runs if i.rpartition("-")[0] == name]
        sums = (summary.get("rounds"), summary.get("inputTokens"))
        same = [i for i in mine if (self._runs[i].rounds, self._runs[i].input) == sums]
        run_id = same[0] if same else mine[0] if len(mine) == 1 else None
        if run_id is None:
            return
        if call_id in self._filed_calls:
            del self._runs[run_id]
        else:
            self._run(run_id, call_id, _text(display.get("taskPrompt")))

    def _run(self, run_id: str, call_id: str | None, prompt: str | None) -> None:
        run, emit, name = self._runs.pop(run_id), self.emit, ""
        emit.agent(run_id, call_id)
        if prompt:
            emit.prompt(prompt)
        for number, (kind, event, time) in enumerate(run.records, 1):
            if kind == "api_response":
                answer = answer_of(event, time)
                name = answer.name or f"{run_id}#{number}"
                if answer.text:
                    emit.message(text_block(answer.text), time, answer.model, name, telemetry=True)
                if (usage := answer.usage()) is not None:
                    emit.usage(usage, name, time, answer.model, durationMs=answer.duration, telemetry=True)
            elif kind == "tool_call":
                tool, args = _text(event.get("function_name")) or "(unknown)", event.get("function_args")
                mine = f"{run_id}#{number}"
                emit.call(
                    mine, tool, show(tool, args), args, time, None, _text(event.get("response_id")) or name or None
                )
                status = "completed" if event.get("success") is True else "failed"
                emit.result(mine, None, status, time, durationMs=count(event.get("duration_ms")), telemetry=True)
            else:
                emit.error(_text(event.get("error_message")) or "api_error", False, time)
        emit.agent(self.part.agent_id, self.part.parent_call)


def _is_error(response: dict[str, Any]) -> bool:
    body = response.get("response")
    return isinstance(body, dict) and "error" in body and "output" not in body
