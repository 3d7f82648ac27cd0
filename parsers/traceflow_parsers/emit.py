"""Builds the events of a trace in the order that the contract asks for, whatever order the harness wrote.

- a result never stands before its call: an early one waits for the call, or for the end;
- one `call` usage per model call, the source's last word: it waits until the next call of that agent begins;
- every fact stands beside `update` in one fixed order, absent where unknown.

Agents are told apart by their id; the main agent has none. `agent()` says whose records follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from traceflow_formats.jsontext import too_deep
from traceflow_formats.trace import Event

from .report import Report
from .tools import Shown

__all__ = ["Emitter", "image_block", "text_block"]

_Key = str | tuple[str, str]  # a call: its id alone for the main agent, (agent, id) for a subagent


def text_block(text: str) -> dict[str, Any]:
    """A text content block."""
    return {"type": "text", "text": text}


def image_block(data: str, mime: str, uri: str | None = None) -> dict[str, Any]:
    """An image content block; `data` is base64, empty where only the address is known."""
    block = {"type": "image", "data": data, "mimeType": mime}
    if uri:
        block["uri"] = uri
    return block


class Emitter:
    """The one place where events are made. Methods append; `drain` hands over what is ready."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.session_id: str | None = None
        self.agent_id: str | None = None
        self.parent_call: str | None = None
        self.abandoned = False  # the records in hand were withdrawn from the history
        self.copied = False  # the records in hand are a copy of another session's history: never counted
        self.ready: list[Event] = []  # what `drain` hands over
        self._open: dict[_Key, int] = {}  # calls that wait for a result
        self._known: set[int] = set()  # hashes of all calls seen
        self._early: dict[_Key, list[Event]] = {}  # results that wait for their call
        self._usage: dict[str | None, tuple[str | None, Event]] = {}  # per agent: the call's usage so far
        self._run_usage: Event | None = None
        self._losses: dict[tuple[str, str], tuple[int, list[int]]] = {}
        self._prompted = False
        self._introduced = False

    # -- who is speaking ---------------------------------------------------------------------------------

    def agent(self, agent_id: str | None, parent_call: str | None = None) -> None:
        """The records that follow are this subagent's (None: the main agent's)."""
        self.agent_id = agent_id
        self.parent_call = parent_call

    def drain(self) -> list[Event]:
        """The events that are ready, oldest first; each is handed over once."""
        out = self.ready
        if not out:
            return []  # never the list that events are still added to
        self.ready = []
        return out

    # -- words -------------------------------------------------------------------------------------------

    def prompt(
        self, text: str, time: str | None = None, role: str | None = None, message_id: str | None = None, **extra: Any
    ) -> None:
        """What a person asked. The first one of the main agent is the `prompt`, later ones are user chunks.

        With `role="system"` it is the system prompt, which is never the instruction. A subagent's prompt is a
        user chunk of that subagent. Further blocks of the same message (images) share its `message_id`.
        """
        if role is None and (self._prompted or self.agent_id is not None):
            self.user(text_block(text), time, message_id, **extra)
            return
        body: dict[str, Any] = {"text": text}
        if role is not None:
            body["role"] = role
        elif not self.abandoned:
            self._prompted = True
        self.ready.append(self._event("prompt", {"_prompt": body}, time, None, message_id, extra))

    def user(self, block: dict[str, Any], time: str | None = None, message_id: str | None = None, **extra: Any) -> None:
        """A block of user text or an image. `injected="kind"` marks what the harness put in itself, and
        `compaction={...}` the summary that replaces the history before it."""
        data: dict[str, Any] = {"update": {"sessionUpdate": "user_message_chunk", "content": block}}
        self.ready.append(self._event("user_message_chunk", data, time, None, message_id, extra))

    def message(
        self,
        block: dict[str, Any],
        time: str | None = None,
        model: str | None = None,
        message_id: str | None = None,
        **extra: Any,
    ) -> None:
        """A block that the model said to the user."""
        if self._usage:
            self._turn(message_id)
        data: dict[str, Any] = {"update": {"sessionUpdate": "agent_message_chunk", "content": block}}
        self.ready.append(self._event("agent_message_chunk", data, time, model, message_id, extra))

    def thought(
        self,
        text: str,
        time: str | None = None,
        model: str | None = None,
        message_id: str | None = None,
        **extra: Any,
    ) -> None:
        """A block of reasoning."""
        if self._usage:
            self._turn(message_id)
        block = {"type": "text", "text": text}
        data: dict[str, Any] = {"update": {"sessionUpdate": "agent_thought_chunk", "content": block}}
        self.ready.append(self._event("agent_thought_chunk", data, time, model, message_id, extra))

    # -- tools -------------------------------------------------------------------------------------------

    def call(
        self,
        call_id: str,
        name: str,
        shown: Shown,
        raw_input: Any = None,
        time: str | None = None,
        model: str | None = None,
        message_id: str | None = None,
        status: str = "pending",
        **extra: Any,
    ) -> None:
        """A tool call under the harness's own name. `shown` is its kind and title, places and content.

        A plan in `shown` follows the call as a `plan` event.
        """
        if self._usage:
            self._turn(message_id)
        update: dict[str, Any] = {
            "sessionUpdate": "tool_call",
            "toolCallId": call_id,
            "toolName": name,
            "title": shown.title,
            "kind": shown.kind,
            "status": status,
        }
        if raw_input is not None:
            update["rawInput"] = self.bounded(raw_input)
        if shown.content:
            update["content"] = shown.content
        if shown.locations:
            update["locations"] = shown.locations
        self.ready.append(self._event("tool_call", {"update": update}, time, model, message_id, extra))
        key = call_id if self.agent_id is None else (self.agent_id, call_id)
        mark = hash(key)
        if mark in self._known:
            self.report.warn("duplicate_call_id", f"the call id {call_id[:80]!r} stands for more than one call")
        else:
            self._known.add(mark)
        if not self.copied:  # a copied history may end before its results: they stand in the original
            self._open[key] = self._open.get(key, 0) + 1
        if shown.plan is not None:
            self.plan(shown.plan, time, message_id)
        if self._early and (early := self._early.pop(key, None)):
            self.ready.extend(early)
            if not self.copied and (left := self._open.pop(key) - 1):
                self._open[key] = left

    def result(
        self,
        call_id: str,
        content: Sequence[dict[str, Any]] | None,
        status: str = "completed",
        time: str | None = None,
        raw_output: Any = None,
        title: str | None = None,
        message_id: str | None = None,
        final: bool = True,
        **extra: Any,
    ) -> None:
        """What a call returned: content blocks, verbatim. `final=False` for progress of a call still running."""
        update: dict[str, Any] = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status}
        if title is not None:
            update["title"] = title
        if content is not None:
            update["content"] = [
                block if block.get("type") == "diff" else {"type": "content", "content": block} for block in content
            ]
        if raw_output is not None:
            update["rawOutput"] = self.bounded(raw_output)
        event = self._event("tool_call_update", {"update": update}, time, None, message_id, extra)
        key = call_id if self.agent_id is None else (self.agent_id, call_id)
        if key in self._open:
            self.ready.append(event)
            if final and (left := self._open.pop(key) - 1):
                self._open[key] = left
        elif hash(key) in self._known:
            self.ready.append(event)
        else:
            self._early.setdefault(key, []).append(event)

    def plan(
        self,
        entries: list[dict[str, Any]],
        time: str | None = None,
        message_id: str | None = None,
        **extra: Any,
    ) -> None:
        """The whole plan as it now stands: entries of content, status and priority."""
        data: dict[str, Any] = {"update": {"sessionUpdate": "plan", "entries": entries}}
        self.ready.append(self._event("plan", data, time, None, message_id, extra))

    # -- numbers and failures ----------------------------------------------------------------------------

    def usage(
        self,
        usage: dict[str, Any],
        message_id: str | None,
        time: str | None = None,
        model: str | None = None,
        **extra: Any,
    ) -> None:
        """The tokens of one model call; said again for the same call, the last word counts."""
        held = self._usage.get(self.agent_id)
        if held is not None and held[0] != message_id:
            self.ready.append(held[1])
        data: dict[str, Any] = {"update": {"sessionUpdate": "usage", "scope": "call", "usage": self._counts(usage)}}
        self._usage[self.agent_id] = (message_id, self._event("usage", data, time, model, message_id, extra))

    def run_usage(self, usage: dict[str, Any], time: str | None = None, **extra: Any) -> None:
        """The totals that the source states for the whole run; the last word counts, and stands at the end."""
        data: dict[str, Any] = {"update": {"sessionUpdate": "usage", "scope": "run", "usage": self._counts(usage)}}
        self._run_usage = self._event("usage", data, time, None, None, extra)

    def error(
        self,
        message: str,
        fatal: bool,
        time: str | None = None,
        message_id: str | None = None,
        **extra: Any,
    ) -> None:
        """A failure of the harness or of the provider; `retried=True` where the harness tried again."""
        update = {"sessionUpdate": "error", "message": message.strip() or "(no message)", "fatal": fatal}
        self.ready.append(self._event("error", {"update": update}, time, None, message_id, extra))

    def loss(self, reason: str, count: int, path: str, lines: list[int]) -> None:
        """Lines that could not be read: one `trace_loss` event per reason and file stands at the end."""
        total, places = self._losses.get((reason, path), (0, []))
        self._losses[(reason, path)] = (total + count, places + lines if len(places) < 100 else places)

    # -- the end -----------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Hand over what was held back: usage, results without a call, losses, and the totals last."""
        for _, event in self._usage.values():
            self.ready.append(event)
        self._usage.clear()
        for events in self._early.values():
            self.ready.extend(events)
            self.report.warn("orphan_result", "a result whose call is not in the source")
        self._early.clear()
        if self._open:
            self.report.warn("missing_result", "a call has no result", sum(self._open.values()))
            self.report.incomplete = True
        for (reason, path), (count, lines) in sorted(self._losses.items()):
            update = {
                "sessionUpdate": "trace_loss",
                "reason": reason,
                "count": count,
                "source": {"path": path, "lines": lines},
            }
            self.ready.append(Event("trace_loss", {"update": update}))
        self._losses.clear()
        if self._run_usage is not None:
            self.ready.append(self._run_usage)
            self._run_usage = None

    @property
    def open_calls(self) -> list[tuple[str | None, str]]:
        """The calls that still wait for a result: (agent id, call id)."""
        return [(None, key) if isinstance(key, str) else key for key in self._open]

    def bounded(self, value: Any) -> Any:
        """The value, unless it is nested more deeply than a trace could be written: then it is left out and said.

        Values come from strangers, and what one can read another cannot write again.
        """
        if value.__class__ is not dict and value.__class__ is not list:
            return value
        for item in value.values() if value.__class__ is dict else value:  # hardly any value has three levels
            if item.__class__ is dict or item.__class__ is list:
                for deeper in item.values() if item.__class__ is dict else item:
                    if deeper.__class__ is dict or deeper.__class__ is list:
                        if not too_deep(value):
                            return value
                        self.left_out()
                        return {}
        return value

    def left_out(self) -> None:
        """Say that something nested too deeply was left out of the line in hand."""
        line = self.report.line
        self.report.warn("nested_too_deeply", "a value nested more deeply than can be written was left out")
        self.loss("nested_too_deeply", 1, self.report.path, [line] if line else [])

    # -- inside ------------------------------------------------------------------------------------------

    def _counts(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The counts of a call or run; only `extra` may hold more than numbers."""
        extra = usage.get("extra")
        if extra is None:
            return usage
        bounded = self.bounded(extra)
        return usage if bounded is extra else {**usage, "extra": bounded}

    def _turn(self, message_id: str | None) -> None:
        """A model call speaks: the usage of the agent's call before it is final now."""
        held = self._usage.get(self.agent_id)
        if held is not None and held[0] != message_id:
            self.ready.append(held[1])
            del self._usage[self.agent_id]

    def _event(
        self,
        kind: str,
        data: dict[str, Any],
        time: str | None,
        model: str | None,
        message_id: str | None,
        extra: dict[str, Any],
    ) -> Event:
        """The one place where an event comes to be; the hot path of every parser."""
        if self.session_id is not None:
            data["sessionId"] = self.session_id
        if time is not None:
            data["timestamp"] = time
        if model is not None:
            data["model"] = model
        if message_id is not None:
            data["messageId"] = message_id
        if self.parent_call is not None:
            data["parentToolCallId"] = self.parent_call
        if extra:
            for value in extra.values():
                if value is None or value.__class__ is dict or value.__class__ is list:
                    extra = self._stated(extra)
                    break
        if self.agent_id is not None:
            extra["agentId"] = self.agent_id
        if self.abandoned:
            extra["abandoned"] = True
        if self.copied:
            extra["copied"] = True
        if not self._introduced:  # the first event says who wrote the trace
            self._introduced = True
            extra["harness"] = self.report.harness
            if self.report.version is not None:
                extra["harnessVersion"] = self.report.version
        if extra:
            data["extra"] = extra
        return _new_event(Event, (kind, data))

    def _stated(self, extra: dict[str, Any]) -> dict[str, Any]:
        """The facts that are known, none of them too deep."""
        stated = {}
        for name, value in extra.items():
            if value is not None:
                nested = value.__class__ is dict or value.__class__ is list
                stated[name] = self.bounded(value) if nested else value
        return stated


_new_event = tuple.__new__  # what Event(...) comes to, without a call in between
