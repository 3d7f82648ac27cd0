"""OTLP/JSON traces by OpenTelemetry's conventions for generative AI: a span per agent, model call and tool call.

An agent is an `invoke_agent` span, each of its model calls a `chat` span below it and each tool call an
`execute_tool` span; a subagent's span is below the call that spawned it. Ids follow from the session's id and the
place in it, so the same session gives the same bytes. A span must have times: docs/otlp.md says which they are where
the source states none, and every time that is not the source's own is counted as a loss. Attributes in a namespace of
our own (`traceflow.*`) hold what the conventions have no name for and a reader will look for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from .atif.document import Built, Trajectory
from .atif.facts import END
from .atif.spool import dumped
from .errors import TraceflowError
from .losses import Losses
from .otlp_value import attributes, json_text, made_id, nanos

__all__ = ["first_time", "write_resource_spans"]

_INTERNAL, _CLIENT = 1, 3  # kinds of spans
_ERROR = {"code": 2}
# whose API a harness speaks where it can speak no other; the others say it with each call, or not at all
_PROVIDERS = {
    "claude-code": "anthropic", "codex": "openai", "gemini-cli": "gcp.gemini", "kimi-code": "moonshot_ai",
    "kimi-cli": "moonshot_ai",
}  # fmt: skip
_REASONING = ("reasoning_output_tokens", "thoughts", "thoughtsTokenCount", "reasoning")
_CACHE_WRITES = ("cache_creation_input_tokens", "input_cache_creation")
_USAGE = (
    ("gen_ai.usage.input_tokens", "prompt_tokens"),
    ("gen_ai.usage.output_tokens", "completion_tokens"),
    ("gen_ai.usage.cache_read.input_tokens", "cached_tokens"),
)
_KNOWN = frozenset({END, "kind", "step_name", "stop_reason", "context_management", "compaction", "provider", "plan"})
_RESULT_KNOWN = frozenset({END, "status", "exit_code", "duration_ms", "tool_call_id"})


def first_time(built: Built, at: str | None = None) -> int:
    """The first time that the document states, else `at`; raises invalid_trajectory where there is neither."""
    begins = next((time for t in built.trajectories() for time in _times(t)), None) or nanos(at)
    if begins is None:
        session = next(built.trajectories()).id
        raise TraceflowError(
            "invalid_trajectory", f"session {session} states no time, and a span needs one: give it with --at TIME"
        )
    return begins


def write_resource_spans(
    built: Built,
    out: BinaryIO,
    losses: Losses,
    begins: int,
    *,
    number: int = 0,
    line: bytes = b"\n",
    trial: Mapping[str, Any] | None = None,
) -> int:
    """Write one entry of `resourceSpans`, the session and its subagents, and return how many spans it has.

    The document must have been built with `times`; `begins` is what `first_time` says of it. `number` tells sessions
    of one id apart. `line` stands between spans, so that each has its line. `trial` is what is known of its trial.
    """
    trajectories = built.trajectories()
    root = next(trajectories)
    trace_id = made_id(16, root.facts.get("session_id"), root.id, number)
    agent = root.facts["agent"]
    version = agent["version"] if agent["version"] != "unknown" else None
    known = [(f"traceflow.trial.{name}", value) for name, value in (trial or {}).items()]
    resource = {"attributes": attributes([("service.name", agent["name"]), ("service.version", version), *known])}
    out.write(b'{"resource":' + dumped(resource) + b',"scopeSpans":[{"scope":{"name":"traceflow"},"spans":[')
    spawned: dict[str, tuple[str, int]] = {}
    count = 0
    for trajectory in (root, *trajectories):
        parent, start = spawned.get(trajectory.id) or (None, None)
        if parent is None and trajectory.parent is not None:
            parent, start = spawned[trajectory.parent + "\0"]
        spans = _Agent(trajectory, trace_id, parent, start or begins, losses, spawned)
        for span in spans.spans():
            out.write((b"," if count else b"") + line + dumped(span))
            count += 1
    out.write(line + b"]}]}")
    return count


def _times(trajectory: Trajectory) -> Iterator[int]:
    return (time for step in trajectory.steps() if (time := nanos(step.get("timestamp"))) is not None)


class _Agent:
    """The spans of one trajectory, step by step; that of the agent itself comes last, when all about it is known."""

    def __init__(
        self,
        trajectory: Trajectory,
        trace_id: str,
        parent: str | None,
        start: int,
        losses: Losses,
        spawned: dict[str, tuple[str, int]],
    ) -> None:
        self._trajectory = trajectory
        self._facts = trajectory.facts
        self._trace_id = trace_id
        self._parent = parent
        self._losses = losses
        self._spawned = spawned  # subagent -> the span of the call that spawned it, and when that began
        # a subagent may have the id of its parent, and then is told apart by having one
        self._place = (trajectory.id, trajectory.parent) if trajectory.id == trajectory.parent else (trajectory.id,)
        self._id = made_id(8, trace_id, *self._place)
        self._now = next(_times(trajectory), start)  # the last time that is known
        self._start = self._end = self._now
        self._inputs: list[dict[str, Any]] = []  # what the next model call is given on top of what it knows
        self._heard: int | None = None  # when the last of them came
        self._instructions: list[dict[str, Any]] | None = []
        self._events: list[dict[str, Any]] = []
        self._error: dict[str, Any] | None = None
        self._calls = 0
        spawned[trajectory.id + "\0"] = (self._id, self._now)

    def spans(self) -> Iterator[dict[str, Any]]:
        for step in self._trajectory.steps():
            if step.get("is_copied_context"):
                self._losses.add("copied_context")
                continue
            extra = step.get("extra") or {}
            self._count_facts(step, extra)
            begins, ends = self._span_of(step, extra)
            if "error" in extra:
                self._fail(extra["error"], begins)
            elif step["source"] == "agent":
                if step.get("llm_call_count") != 0:
                    yield self._chat(step, extra, begins, ends)
                yield from self._tools(step, ends)
            else:
                self._hear(step, extra, begins)
        if self._inputs:
            self._losses.add("input_without_call", len(self._inputs))
        yield self._invoke()

    def _count_facts(self, step: dict[str, Any], extra: dict[str, Any]) -> None:
        losses = self._losses
        losses.add("reasoning_effort", "reasoning_effort" in step)
        losses.add("compaction", "context_management" in extra)
        losses.add("plan", "plan" in extra)
        losses.add("step_extra", any(name not in _KNOWN and name != "error" for name in extra))

    def _span_of(self, step: dict[str, Any], extra: dict[str, Any]) -> tuple[int, int]:
        """When a step began and ended, as its source says; else the time of the step before it."""
        begins = nanos(step.get("timestamp"))
        if begins is None:
            self._losses.add("time_of_neighbour")
            begins = self._now
        ends = max(nanos(extra.get(END)) or begins, begins)
        self._now = ends
        self._cover(begins, ends)
        return begins, ends

    def _cover(self, begins: int, ends: int) -> None:
        self._start, self._end = min(self._start, begins), max(self._end, ends)

    # -- what is said to the model ---------------------------------------------------------------------------

    def _hear(self, step: dict[str, Any], extra: dict[str, Any], at: int) -> None:
        parts = _parts(step["message"])
        for result in step.get("observation", {}).get("results", ()):
            parts.extend(_parts(result.get("content")))
        if self._instructions is not None and step["source"] == "system" and "kind" not in extra:
            self._instructions.extend(parts)
        elif parts:
            self._instructions = self._instructions or None
            self._inputs.append({"role": step["source"], "parts": parts})
        self._heard = at if self._heard is None else max(self._heard, at)

    def _fail(self, error: dict[str, Any], at: int) -> None:
        kind = error.get("kind") or "_OTHER"
        said = [("exception.type", kind), ("exception.message", error["message"])]
        self._events.append({"timeUnixNano": str(at), "name": "exception", "attributes": attributes(said)})
        if error.get("fatal"):
            self._error = {"type": kind, "status": {**_ERROR, "message": error["message"]}}

    # -- spans -----------------------------------------------------------------------------------------------

    def _chat(self, step: dict[str, Any], extra: dict[str, Any], begins: int, ends: int) -> dict[str, Any]:
        if self._heard is None or self._heard > ends:
            self._losses.add("call_start")
            start = begins
        else:
            start = self._heard  # nothing was asked before the last input was there
        self._cover(start, ends)
        self._losses.add("input_history", self._calls > 0)
        self._calls += 1
        model = step.get("model_name") or self._facts["agent"].get("model_name")
        reason = extra.get("stop_reason")
        output = _output(step, reason)
        metrics = step.get("metrics") or {}
        span = self._span(
            made_id(8, self._trace_id, *self._place, step["step_id"]),
            self._id,
            f"chat {model}" if model else "chat",
            _CLIENT,
            (start, ends),
            [
                ("gen_ai.operation.name", "chat"),
                ("gen_ai.provider.name", self._provider(extra)),
                ("gen_ai.conversation.id", self._facts.get("session_id")),
                ("gen_ai.request.model", model),
                ("gen_ai.response.finish_reasons", [reason] if isinstance(reason, str) else None),
                *_usage(metrics),
                ("traceflow.usage.cost_usd", metrics.get("cost_usd")),
                ("gen_ai.system_instructions", json_text(self._instructions) if self._instructions else None),
                ("gen_ai.input.messages", json_text(self._inputs) if self._inputs else None),
                ("gen_ai.output.messages", json_text([output])),
            ],
        )
        self._losses.add("metrics_extra", bool(metrics.get("extra")))
        self._inputs, self._heard, self._instructions = [], None, None
        return span

    def _provider(self, extra: dict[str, Any]) -> str:
        said = extra.get("provider")
        provider = said if isinstance(said, str) and said else _PROVIDERS.get(self._facts["agent"]["name"])
        self._losses.add("provider_unknown", provider is None)
        return provider or "unknown"

    def _tools(self, step: dict[str, Any], begins: int) -> Iterator[dict[str, Any]]:
        waiting: dict[str, list[dict[str, Any]]] = {}
        for result in step.get("observation", {}).get("results", ()):
            more = result.get("extra") or {}
            self._losses.add("result_extra", any(name not in _RESULT_KNOWN for name in more))
            if result.get("source_call_id") is None:
                self._losses.add("result_without_call")
            else:
                waiting.setdefault(result["source_call_id"], []).append(result)
        for number, call in enumerate(step.get("tool_calls") or ()):
            self._losses.add("call_extra", bool(call.get("extra")))
            results = waiting.get(call["tool_call_id"]) or []
            result = results.pop(0) if results else None
            yield self._tool(step, number, call, result, begins)
        self._losses.add("further_result", sum(map(len, waiting.values())))

    def _tool(
        self, step: dict[str, Any], number: int, call: dict[str, Any], result: dict[str, Any] | None, begins: int
    ) -> dict[str, Any]:
        more = (result or {}).get("extra") or {}
        span_id = made_id(8, self._trace_id, *self._place, step["step_id"], number)
        ends = self._returned(more, begins) if result is not None else begins
        self._losses.add("call_without_result", result is None)
        self._cover(begins, ends)
        said: Any = None
        if result is not None:
            for ref in result.get("subagent_trajectory_ref") or ():
                if isinstance(ref.get("trajectory_id"), str):
                    self._spawned[ref["trajectory_id"]] = span_id, begins
            parts = _parts(result.get("content"))
            said = parts
            if all(part["type"] == "text" for part in parts):
                said = "\n\n".join(part["content"] for part in parts)
            response = {"type": "tool_call_response", "id": call["tool_call_id"], "response": said}
            self._inputs.append({"role": "tool", "parts": [response]})
            self._heard = ends if self._heard is None else max(self._heard, ends)
            self._now = max(self._now, ends)
        failed = more.get("status") == "failed"
        code = more.get("exit_code")
        span = self._span(
            span_id,
            self._id,
            f"execute_tool {call['function_name']}",
            _INTERNAL,
            (begins, ends),
            [
                ("gen_ai.operation.name", "execute_tool"),
                ("gen_ai.conversation.id", self._facts.get("session_id")),
                ("gen_ai.tool.name", call["function_name"]),
                ("gen_ai.tool.call.id", call["tool_call_id"] or None),
                ("gen_ai.tool.type", "function"),
                ("gen_ai.tool.call.arguments", json_text(call["arguments"])),
                ("gen_ai.tool.call.result", said if isinstance(said, str) else json_text(said) if said else None),
                ("error.type", "_OTHER" if failed else None),
                ("process.exit.code", code if type(code) is int else None),
            ],
        )
        if failed:
            span["status"] = {**_ERROR, "message": f"exit code {code}"} if type(code) is int else _ERROR
        return span

    def _returned(self, more: dict[str, Any], begins: int) -> int:
        """When a call returned: as the source says, or by how long it took."""
        if (time := nanos(more.get(END))) is not None:
            return max(time, begins)
        duration = more.get("duration_ms")
        if isinstance(duration, int | float) and 0 <= duration < 1e12:
            return begins + round(duration * 1_000_000)
        self._losses.add("tool_end")
        return begins

    def _invoke(self) -> dict[str, Any]:
        facts, agent = self._facts, self._facts["agent"]
        final = facts.get("final_metrics") or {}
        totals = {name: final.get(f"total_{name}") for _, name in _USAGE}
        tools = agent.get("tool_definitions")
        span = self._span(
            self._id,
            self._parent,
            f"invoke_agent {agent['name']}",
            _INTERNAL,
            (self._start, self._end),
            [
                ("gen_ai.operation.name", "invoke_agent"),
                ("gen_ai.provider.name", _PROVIDERS.get(agent["name"], "unknown")),
                ("gen_ai.agent.name", agent["name"]),
                ("gen_ai.agent.id", self._trajectory.id),
                ("gen_ai.agent.version", agent["version"] if agent["version"] != "unknown" else None),
                ("gen_ai.conversation.id", facts.get("session_id")),
                ("gen_ai.request.model", agent.get("model_name")),
                *((name, totals[key]) for name, key in _USAGE),
                ("traceflow.usage.cost_usd", final.get("total_cost_usd")),
                ("gen_ai.tool.definitions", json_text(tools) if tools else None),
                ("error.type", self._error["type"] if self._error else None),
            ],
        )
        if self._events:
            span["events"] = self._events
        if self._error:
            span["status"] = self._error["status"]
        return span

    def _span(
        self,
        span_id: str,
        parent: str | None,
        name: str,
        kind: int,
        times: tuple[int, int],
        said: list[tuple[str, Any]],
    ) -> dict[str, Any]:
        span: dict[str, Any] = {"traceId": self._trace_id, "spanId": span_id}
        if parent is not None:
            span["parentSpanId"] = parent
        span |= {"name": name, "kind": kind, "startTimeUnixNano": str(times[0]), "endTimeUnixNano": str(times[1])}
        return {**span, "attributes": attributes(said)}


# -- content ---------------------------------------------------------------------------------------------------


def _usage(metrics: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, key in _USAGE:
        yield name, metrics.get(key)
    more = metrics.get("extra") or {}
    cache = more.get("cache")
    written = [cache.get("write")] if isinstance(cache, dict) else []
    yield "gen_ai.usage.cache_creation.input_tokens", _first_count(*(more.get(key) for key in _CACHE_WRITES), *written)
    yield "gen_ai.usage.reasoning.output_tokens", _first_count(*(more.get(key) for key in _REASONING))


def _first_count(*values: Any) -> int | None:
    return next((value for value in values if type(value) is int and value >= 0), None)


def _output(step: dict[str, Any], reason: Any) -> dict[str, Any]:
    parts: list[dict[str, Any]] = []
    if step.get("reasoning_content"):
        parts.append({"type": "reasoning", "content": step["reasoning_content"]})
    parts.extend(_parts(step["message"]))
    for call in step.get("tool_calls") or ():
        said = {"id": call["tool_call_id"], "name": call["function_name"], "arguments": call["arguments"]}
        parts.append({"type": "tool_call", **said})
    message: dict[str, Any] = {"role": "assistant", "parts": parts}
    return {**message, "finish_reason": reason} if isinstance(reason, str) else message


def _parts(content: Any) -> list[dict[str, Any]]:
    """The parts of a message or result, in the words of the conventions."""
    if isinstance(content, str):
        return [{"type": "text", "content": content}] if content else []
    parts: list[dict[str, Any]] = []
    for part in content or ():
        if part["type"] == "text":
            parts.append({"type": "text", "content": part["text"]})
        else:
            source = part["source"]
            said = {"mime_type": source["media_type"], "modality": part["type"], "uri": source["path"]}
            parts.append({"type": "uri", **said})
    return parts
