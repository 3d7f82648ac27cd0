"""The parsed trace of an ATIF document: the inverse of the builder, as far as the format allows.

Building the trace again gives the same steps, calls, results and numbers. Subagents stand behind the call that
spawned them. What a document says and the trace has no field for rides along under `extra.atif` of the event
that belongs to it, and under `extra.trajectory` of an agent's first event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..times import normal_time
from ..trace import Event
from .draft import event_extra
from .read import Reading, totals_of

__all__ = ["Describe", "View", "events_of"]


class View(Protocol):
    """How a tool call is shown: as `traceflow_parsers.tools.Shown`."""

    @property
    def kind(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def content(self) -> list[dict[str, Any]] | None: ...
    @property
    def locations(self) -> list[dict[str, Any]] | None: ...
    @property
    def plan(self) -> list[dict[str, Any]] | None: ...


Describe = Callable[[str, dict[str, Any]], View]
"""Kind, title and the rest of a call, from the tool's name and its arguments."""


def events_of(trajectory: dict[str, Any] | Reading, describe: Describe | None = None) -> Iterator[Event]:
    """The events of a document that `read_trajectory` accepted.

    Without `describe` a call's kind is `other` and its title the tool's name. A step's time is that of its own
    events; results have none, since the document does not say when they came.
    """
    document = trajectory.trajectory if isinstance(trajectory, Reading) else trajectory
    session = document.get("session_id") or document.get("trajectory_id")
    return _Walk(describe).document(document, None, None, session)


class _Walk:
    """One document on its way out."""

    def __init__(self, describe: Describe | None) -> None:
        self._describe = describe
        self._names: set[str] = set()

    def document(
        self, document: dict[str, Any], agent: str | None, parent: str | None, session: str | None
    ) -> Iterator[Event]:
        """The events of one trajectory and of the subagents in it."""
        session = document.get("session_id") or session
        beside = _Beside(document, agent, parent, session)
        children = [(self._name(child), child) for child in document.get("subagent_trajectories") or ()]
        waiting = dict(children)
        known = {child["trajectory_id"]: name for name, child in children}
        instructed = False
        for step in document["steps"]:
            opening: list[Event] = []
            results: list[Event] = []
            for event in self._step(step, beside, not instructed):
                (results if event.type == "tool_call_update" else opening).append(event)
            instructed |= step["source"] == "user"
            yield from opening
            for call_id, name in _spawned(step, known):
                if name in waiting:
                    yield from self.document(waiting.pop(name), name, call_id, session)
            yield from results
        for name, child in waiting.items():
            yield from self.document(child, name, None, session)
        yield from _totals(document, beside)

    def _name(self, child: dict[str, Any]) -> str:
        """The id of a subagent, which is unique among its siblings and becomes unique in the trace."""
        name = wanted = child["trajectory_id"]
        number = 1
        while name in self._names:
            number += 1
            name = f"{wanted}-{number}"
        self._names.add(name)
        return str(name)

    def _step(self, step: dict[str, Any], beside: _Beside, first: bool) -> Iterator[Event]:
        message_id = f"step-{step['step_id']}"
        beside.start(step)
        if step["source"] == "agent":
            yield from self._agent_step(step, message_id, beside)
        else:
            yield from _words(step, message_id, beside, first)
        for result in (step.get("observation") or {}).get("results") or ():
            yield _result(result, beside)

    def _agent_step(self, step: dict[str, Any], message_id: str, beside: _Beside) -> Iterator[Event]:
        extra = dict(step.get("extra") or {})
        error = extra.get("error")
        calls = step.get("tool_calls") or ()
        llm = step.get("llm_call_count")
        if llm == 0 and not step["message"] and not calls and isinstance(error, dict) and error.get("message"):
            del extra["error"]
            update = {"message": str(error["message"]), "fatal": bool(error.get("fatal"))}
            facts = {"errorKind": error.get("kind"), "isApiError": extra.pop("is_api_error", None)}
            known = {name: value for name, value in facts.items() if value is not None}
            yield beside.event("error", update, None, {**event_extra(extra), **known})
            return
        plan = extra.pop("plan", None) if not calls else None
        facts = event_extra(extra)
        if llm is not None and llm != 1:
            facts["llmCallCount"] = llm
        if (effort := step.get("reasoning_effort")) is not None:
            facts["reasoningEffort"] = effort
        if thought := step.get("reasoning_content"):
            content = {"type": "text", "text": thought}
            yield beside.event("agent_thought_chunk", {"content": content}, message_id, facts)
            facts = {}
        metrics = step.get("metrics")
        if step["message"] or facts or not (calls or metrics or thought or plan):
            for block in _blocks(step["message"]) or [{"type": "text", "text": ""}]:
                yield beside.event("agent_message_chunk", {"content": block}, message_id, facts)
                facts = {}
        for call in calls:
            yield from self._call(call, message_id, beside)
        if isinstance(plan, list):
            yield beside.event("plan", {"entries": plan}, message_id)
        if metrics:
            usage, lists = _usage(metrics)
            yield beside.event(
                "usage", {"scope": "call", "usage": usage}, message_id, {"atif": lists} if lists else None
            )

    def _call(self, call: dict[str, Any], message_id: str, beside: _Beside) -> Iterator[Event]:
        name, arguments = call["function_name"], call["arguments"]
        update: dict[str, Any] = {"toolCallId": call["tool_call_id"], "toolName": name, "title": name, "kind": "other"}
        plan = None
        more: dict[str, Any] = {}
        if self._describe is not None:
            view = self._describe(name, arguments)
            update["title"], update["kind"], plan = view.title, view.kind, view.plan
            more = {"content": view.content, "locations": view.locations}
        update |= {"status": "pending", "rawInput": arguments, **{k: v for k, v in more.items() if v}}
        yield beside.event("tool_call", update, message_id, event_extra(call.get("extra") or {}))
        if plan is not None:
            yield beside.event("plan", {"entries": plan}, message_id)


class _Beside:
    """What stands beside the update of every event of one trajectory."""

    def __init__(self, document: dict[str, Any], agent: str | None, parent: str | None, session: str | None) -> None:
        self._session = session
        self._agent = agent
        self._parent = parent
        self._model: str | None = document["agent"].get("model_name")
        self._first: dict[str, Any] | None = _introduction(document)
        self.known = {child["trajectory_id"] for child in document.get("subagent_trajectories") or ()}
        self._time: str | None = None
        self._step_model: str | None = None
        self._copied = False
        self.agent = agent

    def start(self, step: dict[str, Any] | None) -> None:
        """The events that follow are of this step; None: of no step."""
        self._time, self._step_model, self._copied = None, None, False
        if step is None:
            return
        if (text := step.get("timestamp")) is not None:
            try:
                self._time = normal_time(text)[0]
            except (ValueError, OverflowError):
                self._time = None
        if step["source"] == "agent":
            self._step_model = step.get("model_name") or (None if step.get("llm_call_count") == 0 else self._model)
        self._copied = bool(step.get("is_copied_context"))

    def event(
        self, kind: str, update: dict[str, Any], message_id: str | None = None, extra: dict[str, Any] | None = None
    ) -> Event:
        """An event with everything that is known beside it; a prompt is given as its `_prompt`."""
        if kind == "prompt":
            data: dict[str, Any] = {"_prompt": update}
        else:
            data = {"update": {"sessionUpdate": kind, **update}}
        result = kind == "tool_call_update"
        model = None if result else self._step_model
        facts = dict(extra or {})
        if self._agent is not None:
            facts["agentId"] = self._agent
        if self._copied:
            facts["copied"] = True
        if self._first is not None:
            facts |= self._first
            self._first = None
        beside = {
            "sessionId": self._session,
            "timestamp": None if result else self._time,
            "model": model,
            "messageId": message_id,
            "parentToolCallId": self._parent,
            "extra": facts or None,
        }
        data |= {name: value for name, value in beside.items() if value is not None}
        return Event(kind, data)


# what the builder counts anew
_COUNTED = frozenset(
    {
        "calls_without_usage",
        "prompt_tokens_at_least",
        "completion_tokens_at_least",
        "cached_tokens_at_least",
        "source",
        "cumulative",
        "run",
        "compaction",
        "cost_partial",
        "priced_calls",
        "unpriced_calls",
        "including_subagents",
        "harness",
    }
)


def _introduction(document: dict[str, Any]) -> dict[str, Any]:
    """Who wrote the trajectory, and what it says of itself."""
    agent = document["agent"]
    extra = {k: v for k, v in (document.get("extra") or {}).items() if k != "trace_loss"}
    totals = (document.get("final_metrics") or {}).get("extra") or {}
    facts = {
        "trajectory_id": document.get("trajectory_id"),
        "notes": document.get("notes"),
        "continued_trajectory_ref": document.get("continued_trajectory_ref"),
        "model_name": agent.get("model_name"),
        "tool_definitions": agent.get("tool_definitions"),
        "agent_extra": agent.get("extra"),
        "extra": extra,
        "totals_extra": {k: v for k, v in totals.items() if k not in _COUNTED},
    }
    facts = {name: value for name, value in facts.items() if value}
    out = {"harness": agent["name"], "harnessVersion": agent["version"]}
    return {**out, "trajectory": facts} if facts else out


def _blocks(message: str | list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """The content blocks of a message or a result. A sound has no block of its own: its place is told in words."""
    if message is None:
        return []
    if isinstance(message, str):
        return [{"type": "text", "text": message}]
    out = []
    for part in message:
        source = part.get("source") or {}
        if part["type"] == "text":
            out.append({"type": "text", "text": part["text"]})
        elif part["type"] == "image":
            out.append({"type": "image", "data": "", "mimeType": source["media_type"], "uri": source["path"]})
        else:
            out.append({"type": "text", "text": f"[audio: {source['path']}]"})
    return out


def _words(step: dict[str, Any], message_id: str, beside: _Beside, first: bool) -> Iterator[Event]:
    """The events of a user or system step."""
    extra = dict(step.get("extra") or {})
    blocks = _blocks(step["message"]) or [{"type": "text", "text": ""}]
    text = step["message"] if isinstance(step["message"], str) else None
    system = step["source"] == "system"
    kind = extra.get("kind")
    mark: dict[str, Any] = {}
    if system and kind == "compaction" and extra.get("context_management") == _REPLACES:
        del extra["kind"], extra["context_management"]
        details = extra.pop("compaction", None)
        mark = {"compaction": details if isinstance(details, dict) else {}}
    elif system and isinstance(kind, str) and kind:
        del extra["kind"]
        mark = {"injected": kind}
    elif system and text is not None:
        yield beside.event("prompt", {"text": text, "role": "system"}, None, event_extra(extra))
        return
    elif system:
        mark = {"injected": "system"}
    elif first and text is not None and beside.agent is None and not step.get("is_copied_context"):
        yield beside.event("prompt", {"text": text}, None, event_extra(extra))
        return
    facts = event_extra(extra)
    for block in blocks:
        yield beside.event("user_message_chunk", {"content": block}, message_id, {**facts, **mark})
        facts = {}


_REPLACES = {"type": "compaction", "boundary": "replace"}


def _result(result: dict[str, Any], beside: _Beside) -> Event:
    extra = dict(result.get("extra") or {})
    call_id = result.get("source_call_id")
    if call_id is None:
        call_id = extra.pop("tool_call_id", "")
    status = extra.pop("status") if extra.get("status") in ("completed", "failed") else "completed"
    update: dict[str, Any] = {"toolCallId": str(call_id), "status": status}
    content: list[dict[str, Any]] = [{"type": "content", "content": b} for b in _blocks(result.get("content"))]
    diffs = extra.get("diffs")
    if isinstance(diffs, list) and all(isinstance(diff, dict) for diff in diffs):
        content += [{"type": "diff", **diff} for diff in extra.pop("diffs")]
    if content:
        update["content"] = content
    if "raw_output" in extra:
        update["rawOutput"] = extra.pop("raw_output")
    refs = [r for r in result.get("subagent_trajectory_ref") or () if r.get("trajectory_id") not in beside.known]
    files = [ref for ref in refs if ref.get("trajectory_path") is not None]
    if lost := [ref for ref in refs if ref.get("trajectory_path") is None]:
        extra["subagent_trajectory_ref"] = lost  # it leads to nothing in this document
    facts = event_extra(extra)
    if files:
        facts["subagentRefs"] = files
    return beside.event("tool_call_update", update, None, facts)


def _spawned(step: dict[str, Any], known: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The calls of a step and the subagents that its results refer to."""
    for result in (step.get("observation") or {}).get("results") or ():
        if (call_id := result.get("source_call_id")) is not None:
            for ref in result.get("subagent_trajectory_ref") or ():
                if (name := known.get(ref.get("trajectory_id"))) is not None:
                    yield call_id, name


_USAGE = {"prompt_tokens": "promptTokens", "completion_tokens": "completionTokens", "cached_tokens": "cachedTokens"}
_LISTS = ("prompt_token_ids", "completion_token_ids", "logprobs")


def _usage(metrics: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The usage object of a step's metrics, and the lists that a usage has no field for."""
    names = {**_USAGE, "cost_usd": "costUsd", "extra": "extra"}
    usage = {ours: metrics[theirs] for theirs, ours in names.items() if metrics.get(theirs) is not None}
    return usage, {name: metrics[name] for name in _LISTS if metrics.get(name) is not None}


def _gateway(stated: dict[str, Any], notes: dict[str, Any]) -> dict[str, Any]:
    """What a gateway counted, if the totals are its; as one line, since the document keeps no more."""
    names = (*_USAGE, "cost_usd")
    whole = notes.get("including_subagents")
    if notes.get("source") == "gateway":
        return {name: value for name in names if (value := stated.get(f"total_{name}")) is not None}
    if isinstance(whole, dict) and whole.get("source") == "gateway":
        return {name: value for name in names if (value := whole.get(name)) is not None}
    return {}


def _totals(document: dict[str, Any], beside: _Beside) -> Iterator[Event]:
    """What the steps do not add up to: the tokens of summaries, totals of the run, losses."""
    beside.start(None)
    stated = document.get("final_metrics") or {}
    notes = stated.get("extra") or {}
    apart = notes.get("compaction")
    if isinstance(apart, dict):
        usage, _ = _usage({name: value for name, value in apart.items() if name != "extra"})
        yield beside.event("usage", {"scope": "call", "usage": usage}, None, {"compaction": True})
    losses = (document.get("extra") or {}).get("trace_loss")
    for loss in losses if isinstance(losses, list) else ():
        if isinstance(loss, dict):
            yield beside.event("trace_loss", {k: v for k, v in loss.items() if k in ("reason", "count", "source")})
    own = totals_of(document)
    run: dict[str, Any] = {}
    if gateway := _gateway(stated, notes):
        usage, _ = _usage(gateway)
        yield beside.event("usage", {"scope": "call", "source": "gateway", "usage": usage})
        counted = notes.get("harness")
        stated = {f"total_{n}": value for n, value in counted.items()} if isinstance(counted, dict) else {}
    for theirs, ours in (*_USAGE.items(), ("cost_usd", "costUsd")):
        value = stated.get(f"total_{theirs}")
        partial = notes.get("cost_partial") if theirs == "cost_usd" else notes.get("calls_without_usage")
        if value is not None and getattr(own, theirs) is None and not partial:
            run[ours] = value
    if isinstance(other := notes.get("run"), dict):
        run |= _usage(other)[0]
    whole = notes.get("including_subagents")
    if isinstance(whole, dict) and whole.get("source") != "gateway":
        run["extra"] = {"includingSubagents": _usage(whole)[0]}
    if run:
        extra = {"cumulative": True} if notes.get("cumulative") else None
        yield beside.event("usage", {"scope": "run", "usage": run}, None, extra)
