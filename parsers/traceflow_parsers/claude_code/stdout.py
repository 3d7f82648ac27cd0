"""Claude Code's stdout: `--output-format stream-json --verbose`, with or without partial messages, or `json`.

What it lacks: the prompt, times of the model's messages, the words of subagents (2.x prints their calls only). What
only it has: retries, cost, durations. The output tokens on an assistant line are those of the message's beginning,
unless the line has a stop reason (2.0) or a `message_delta` follows (partial messages); the total is in `result`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..contract import Line
from ..emit import text_block
from ..facts import as_text, count
from .messages import as_blocks, compaction_facts, joined, token_usage
from .parser import NOT_AN_ERROR, SYNTHETIC, ClaudeParser

__all__ = ["ClaudeStdout"]

QUIET = frozenset(
    {
        "auth_status", "control_cancel_request", "control_request", "control_response", "keep_alive",
        "prompt_suggestion", "rate_limit_event", "tool_progress", "tool_use_summary",
    }
)  # fmt: skip
SYSTEM = frozenset(
    {
        "files_persisted", "hook_progress", "hook_response", "hook_started", "informational", "local_command_output",
        "session_state_changed", "status", "task_notification", "task_progress", "task_updated", "thinking_tokens",
    }
)  # fmt: skip
_MODEL_COUNTS = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


@dataclass(slots=True, eq=False, repr=False)
class _Partial:
    """A message that is being streamed in parts, and the block in hand that no line has completed yet."""

    id: str | None
    model: str | None
    usage: dict[str, Any]
    kind: str = ""
    parts: list[str] = field(default_factory=list)


class _Totals(NamedTuple):
    """What a `result` line states; of several runs in one stream, their sum."""

    usage: dict[str, Any]
    facts: dict[str, Any]


class ClaudeStdout(ClaudeParser):
    """One stream: a run, or several in a row (a log of resumed runs)."""

    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._agents: dict[str, str] = {}  # the call that spawned a subagent -> its id
        self._partials: dict[str | None, _Partial] = {}
        # A failure of the main agent that the result may say again: words, time, facts.
        self._failure: tuple[str, str | None, dict[str, Any]] | None = None
        self._said = False  # the model's own messages stand in the stream
        self._subagents = False
        self._running = False  # a run has begun that has no result yet
        self._before: _Totals | None = None  # runs that have ended before the present one
        self._latest: _Totals | None = None
        self._new_run = False
        self._asked_in_run = self._asked_in_stream = 0  # prompt tokens of the main agent's calls
        self._asked_call: str | None = None

    def start_part(self) -> None:
        pass

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        if type(kind) is not str:
            return Line.UNKNOWN
        emit = self.emit
        session = record.get("session_id")
        if emit.session_id is None and type(session) is str and session:
            emit.session_id = self.report.session_id = session
        parent = record.get("parent_tool_use_id")
        if type(parent) is str and parent:
            self._subagents = True
            emit.agent(self._agents.get(parent, parent), parent)
        elif emit.agent_id is not None:
            emit.agent(None)
        if kind == "assistant" or kind == "user":
            message = record.get("message")
            if type(message) is not dict:
                return Line.UNKNOWN
            self._running = True
            if kind == "assistant":
                self._assistant(record, message)
            else:
                self._user(record, message)
        elif kind == "stream_event":
            event = record.get("event")
            if type(event) is not dict:
                return Line.UNKNOWN
            self._running = True
            self._stream(event)
        elif kind == "system":
            return self._system(record)
        elif kind == "result":
            self._result(record)
        elif kind not in QUIET:
            return Line.UNKNOWN
        return Line.PARSED

    def end(self) -> None:
        self.emit.agent(None)
        self.flush_boundary()
        self._fail(fatal=True)
        for agent, partial in self._partials.items():
            self._unfinished(agent, partial)
        self.settle_all()
        if self._latest is not None:
            totals = _sum(self._before, self._latest)
            self.emit.agent(None)
            self.emit.run_usage(totals.usage, **totals.facts)
        if self._running:
            self.report.incomplete = True
            self.report.warn("no_result", "the stream ends without the result of its run")

    # -- messages ----------------------------------------------------------------------------------------

    def _assistant(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        model, agent = message.get("model"), self.emit.agent_id
        time = self.time(record.get("timestamp"))
        if model == SYNTHETIC:
            self._synthetic(record, message, time)
            return
        self._fail(fatal=False)
        self.flush_boundary()
        if type(model) is not str:
            model = None
        usage, stop = message.get("usage"), message.get("stop_reason")
        call = self.model_call(message.get("id"), record.get("request_id"), usage)
        partial = self._partials.get(agent)
        if partial is not None:
            partial.parts = []
        self.say(message.get("content"), call, time, model)
        if agent is None:
            self._said = True
            self._ask(call.id, usage)
        self.count(call, usage, stop, time, model, final=stop is not None)

    def _ask(self, call: str, usage: object) -> None:
        """Keep count of what the main agent's calls were asked, to tell what a result sums up."""
        if type(usage) is dict and call != self._asked_call:
            asked = token_usage(usage).get("promptTokens", 0)
            self._asked_call = call
            self._asked_in_run += asked
            self._asked_in_stream += asked

    def _synthetic(self, record: dict[str, Any], message: dict[str, Any], time: str | None) -> None:
        """Words of the harness in the model's place; a failure is said again by the result."""
        text = joined(message.get("content"))
        if not text or text == NOT_AN_ERROR:
            return
        self._fail(fatal=False)
        error = record.get("error")
        if text.startswith("API Error") or error or record.get("isApiErrorMessage") is True:
            known: dict[str, Any] = {"isApiErrorMessage": True, "error": as_text(error)}
            if self.emit.agent_id is None:
                self._failure = (text, time, known)
            else:
                self.emit.error(text, False, time, **known)
        else:
            self.emit.user(text_block(text), time, injected="synthetic")

    def _fail(self, fatal: bool) -> None:
        """The failure in hand was not said again: it is an error of its own."""
        if self._failure is None:
            return
        (text, time, known), self._failure = self._failure, None
        agent, parent = self.emit.agent_id, self.emit.parent_call
        self.emit.agent(None)
        self.emit.error(text, fatal, time, **known)
        self.emit.agent(agent, parent)

    def _user(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        self._fail(fatal=False)
        time = self.time(record.get("timestamp"))
        blocks = as_blocks(message.get("content"))
        results = [block for block in blocks if block.get("type") == "tool_result"]
        said = record.get("tool_use_result") if len(results) == 1 else None
        for block in results:
            self.tool_result(block, said, time)
        rest = [block for block in blocks if block.get("type") != "tool_result"]
        if self.boundary is not None and record.get("isSynthetic") is True and rest:
            self.compacted(joined(rest), time)
        elif rest or not blocks:
            self.flush_boundary()
            if record.get("isSynthetic") is True:
                record = {**record, "isMeta": True}
            self.words(record, rest, time)

    # -- partial messages --------------------------------------------------------------------------------

    def _stream(self, event: dict[str, Any]) -> None:
        agent, kind = self.emit.agent_id, event.get("type")
        if kind == "message_start":
            message = event.get("message")
            if type(message) is dict:
                source, model, usage = message.get("id"), message.get("model"), message.get("usage")
                self._partials[agent] = _Partial(
                    source if type(source) is str else None,
                    model if type(model) is str else None,
                    usage if type(usage) is dict else {},
                )
            return
        partial = self._partials.get(agent)
        if partial is None:
            return
        if kind == "content_block_start":
            block = event.get("content_block")
            found = block.get("type") if type(block) is dict else None
            partial.kind, partial.parts = found if type(found) is str else "", []
        elif kind == "content_block_delta":
            delta = event.get("delta")
            text = delta.get("text", delta.get("thinking")) if type(delta) is dict else None
            if type(text) is str and partial.kind in ("text", "thinking"):
                partial.parts.append(text)
        elif kind == "message_delta":
            usage, delta = event.get("usage"), event.get("delta")
            call = self.calls.get(agent)
            if type(usage) is dict and call is not None and call.source_id == partial.id:
                stop = delta.get("stop_reason") if type(delta) is dict else None
                known = {**partial.usage, **{key: value for key, value in usage.items() if value is not None}}
                self.count(call, known, stop, None, partial.model, final=True)
        elif kind == "message_stop":
            del self._partials[agent]

    def _unfinished(self, agent: str | None, partial: _Partial) -> None:
        """The run was cut off inside a block: what had come of it is kept and marked."""
        text = "".join(partial.parts)
        if not text:
            return
        spawned_by = next((call for call, name in self._agents.items() if name == agent), agent)
        self.emit.agent(agent, spawned_by)
        call = self.model_call(partial.id, None, partial.usage)
        if partial.kind == "thinking":
            self.emit.thought(text, None, partial.model, call.id, partial=True)
        else:
            self.emit.message(text_block(text), None, partial.model, call.id, partial=True)
        self.count(call, partial.usage, None, None, partial.model, final=False)

    # -- the run -----------------------------------------------------------------------------------------

    def _system(self, record: dict[str, Any]) -> Line:
        subtype = as_text(record.get("subtype"))
        if subtype == "init":
            if self.report.version is None:
                self.report.version = as_text(record.get("claude_code_version"))
            self._running = self._new_run = True
        elif subtype == "api_retry":
            self._fail(fatal=False)
            self.emit.error(
                as_text(record.get("error")) or "API error",
                False,
                self.time(record.get("timestamp")),
                retried=True,
                errorStatus=count(record.get("error_status")),
                attempt=count(record.get("attempt")),
                maxRetries=count(record.get("max_retries")),
            )
        elif subtype == "compact_boundary":
            self.hold_boundary(compaction_facts(record.get("compact_metadata")), self.time(record.get("timestamp")))
        elif subtype == "task_started":
            call, agent = record.get("tool_use_id"), record.get("task_id")
            if type(call) is str and type(agent) is str and agent:
                self._agents.setdefault(call, agent)
        elif subtype not in SYSTEM:
            return Line.UNKNOWN
        return Line.PARSED

    def _result(self, record: dict[str, Any]) -> None:
        self.flush_boundary()
        self._running = False
        words, kind = as_text(record.get("result")) or "", as_text(record.get("subtype")) or ""
        if record.get("is_error") is True or kind.startswith("error"):
            self._failed(record, words, kind)
        else:
            self._fail(fatal=False)
            if not self._said and words:  # `--output-format json`: the answer is all there is
                self.emit.message(text_block(words), message_id=self.model_call(None, None, None).id)
        self._total(record, kind)

    def _failed(self, record: dict[str, Any], words: str, kind: str) -> None:
        errors = record.get("errors")
        if not words and isinstance(errors, list):
            words = "\n".join(error for error in errors if isinstance(error, str))
        said, time, known = self._failure or ("", None, {})
        self._failure = None
        status = count(record.get("api_error_status"))
        words = words or said or kind or "error"
        self.emit.error(words, True, time, **known, apiErrorStatus=status, subtype=kind or None)

    def _total(self, record: dict[str, Any], kind: str) -> None:
        raw = record.get("usage")
        usage = token_usage(raw) if type(raw) is dict else {}
        everyone = _all_models(record.get("modelUsage"))
        if everyone is not None and _more(everyone, usage):
            # More than the main agent's calls: its subagents', or calls on the side (a summary, warm-ups of 2.0).
            name = "includingSubagents" if self._subagents else "includingSideCalls"
            usage.setdefault("extra", {})[name] = everyone
        cost = record.get("total_cost_usd")
        if (type(cost) is float or type(cost) is int) and cost >= 0:
            usage["costUsd"] = cost
        facts = {
            "durationMs": _number(record.get("duration_ms")),
            "durationApiMs": _number(record.get("duration_api_ms")),
            "numTurns": _number(record.get("num_turns")),
            "stopReason": as_text(record.get("stop_reason")),
            "subtype": kind or None,
        }
        if self._latest is not None and self._is_new_run(usage.get("promptTokens")):
            self._before = _sum(self._before, self._latest)
        self._latest = _Totals(usage, {key: value for key, value in facts.items() if value is not None})
        self._new_run = False
        self._asked_in_run = 0

    def _is_new_run(self, prompt: int | None) -> bool:
        """Whether a further result counts from the last one on. Within a run the last one counts everything."""
        if self._asked_in_run == self._asked_in_stream or prompt is None:
            return self._new_run
        if prompt == self._asked_in_stream:
            return False
        return self._new_run or prompt == self._asked_in_run


def _number(value: object) -> int | float | None:
    return value if type(value) is int or type(value) is float else None


def _all_models(value: object) -> dict[str, Any] | None:
    """The sums over `modelUsage`, in the trace's terms."""
    if type(value) is not dict or not value:
        return None
    models = [model for model in value.values() if type(model) is dict]
    return {
        "promptTokens": sum(count(model.get(key)) or 0 for model in models for key in _MODEL_COUNTS),
        "completionTokens": sum(count(model.get("outputTokens")) or 0 for model in models),
        "cachedTokens": sum(count(model.get("cacheReadInputTokens")) or 0 for model in models),
    }


def _more(everyone: Mapping[str, Any], usage: Mapping[str, Any]) -> bool:
    keys = ("promptTokens", "completionTokens")
    return any(everyone[key] > usage.get(key, 0) for key in keys)


def _sum(before: _Totals | None, latest: _Totals) -> _Totals:
    """Totals of runs one after the other; a number that one of them lacks is not known for all."""
    if before is None:
        return latest
    usage: dict[str, Any] = {}
    for key in ("promptTokens", "completionTokens", "cachedTokens", "costUsd"):
        if key in before.usage and key in latest.usage:
            usage[key] = before.usage[key] + latest.usage[key]
    extra = dict(latest.usage.get("extra", {}))
    earlier = before.usage.get("extra", {})
    for key in ("includingSubagents", "includingSideCalls"):
        extra.pop(key, None)
        mine, theirs = latest.usage.get("extra", {}).get(key), earlier.get(key)
        if mine is not None or theirs is not None:
            mine, theirs = mine or latest.usage, theirs or before.usage
            extra[key] = {name: mine.get(name, 0) + theirs.get(name, 0) for name in mine if name.endswith("Tokens")}
    for key, value in extra.items():
        if type(value) is int and type(earlier.get(key)) is int:
            extra[key] = value + earlier[key]
    if extra:
        usage["extra"] = extra
    facts = dict(latest.facts)
    for key in ("durationMs", "durationApiMs", "numTurns"):
        if key in before.facts and key in facts:
            facts[key] += before.facts[key]
    return _Totals(usage, facts)
