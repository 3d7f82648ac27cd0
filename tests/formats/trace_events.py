"""Events for tests, written short."""

from __future__ import annotations

from typing import Any

from traceflow_formats.trace import Event

__all__ = ["call", "error", "event", "gateway", "loss", "prompt", "result", "run", "says", "thinks", "usage", "user"]


def event(kind: str, update: dict[str, Any], message_id: str | None = None, **beside: Any) -> Event:
    """An event. Keywords: time, model, parent, agent, session; anything else is `extra`."""
    data: dict[str, Any] = {"_prompt": update} if kind == "prompt" else {"update": {"sessionUpdate": kind, **update}}
    if (agent := beside.pop("agent", None)) is not None:
        beside["agentId"] = agent
    names = {"session": "sessionId", "time": "timestamp", "model": "model", "parent": "parentToolCallId"}
    data |= {theirs: beside.pop(ours) for ours, theirs in names.items() if ours in beside}
    if message_id is not None:
        data["messageId"] = message_id
    if beside:
        data["extra"] = beside
    return Event(kind, data)


def _block(content: str | dict[str, Any]) -> dict[str, Any]:
    return {"type": "text", "text": content} if isinstance(content, str) else content


def prompt(text: str, **beside: Any) -> Event:
    role = beside.pop("role", None)
    return event("prompt", {"text": text, **({"role": role} if role else {})}, beside.pop("message_id", None), **beside)


def user(content: str | dict[str, Any], message_id: str | None = None, **beside: Any) -> Event:
    return event("user_message_chunk", {"content": _block(content)}, message_id, **beside)


def says(content: str | dict[str, Any], message_id: str | None = None, **beside: Any) -> Event:
    return event("agent_message_chunk", {"content": _block(content)}, message_id, **beside)


def thinks(text: str, message_id: str | None = None, **beside: Any) -> Event:
    return event("agent_thought_chunk", {"content": _block(text)}, message_id, **beside)


def call(call_id: str, message_id: str | None = None, arguments: Any = None, name: str = "f", **beside: Any) -> Event:
    update = {"toolCallId": call_id, "toolName": name, "title": "t", "kind": "other", "status": "pending"}
    return event("tool_call", update | ({} if arguments is None else {"rawInput": arguments}), message_id, **beside)


def result(call_id: str, *content: str | dict[str, Any], **beside: Any) -> Event:
    items = [
        c if isinstance(c, dict) and c["type"] == "diff" else {"type": "content", "content": _block(c)} for c in content
    ]
    update: dict[str, Any] = {"toolCallId": call_id, "status": beside.pop("status", "completed")}
    if items:
        update["content"] = items
    if "raw" in beside:
        update["rawOutput"] = beside.pop("raw")
    return event("tool_call_update", update, None, **beside)


def _usage(prompt: Any, completion: Any, cached: Any, cost: Any, more: Any) -> dict[str, Any]:
    names = ("promptTokens", "completionTokens", "cachedTokens", "costUsd", "extra")
    return {k: v for k, v in zip(names, (prompt, completion, cached, cost, more), strict=True) if v is not None}


def usage(
    message_id: str | None, prompt: Any = None, completion: Any = None, cached: Any = None, cost: Any = None,
    more: Any = None, **beside: Any,
) -> Event:  # fmt: skip
    numbers = _usage(prompt, completion, cached, cost, more)
    return event("usage", {"scope": "call", "usage": numbers}, message_id, **beside)


def run(
    prompt: Any = None, completion: Any = None, cached: Any = None, cost: Any = None, more: Any = None, **beside: Any
) -> Event:  # fmt: skip
    return event("usage", {"scope": "run", "usage": _usage(prompt, completion, cached, cost, more)}, **beside)


def gateway(prompt: Any = None, completion: Any = None, cached: Any = None, cost: Any = None) -> Event:
    numbers = _usage(prompt, completion, cached, cost, None)
    return event("usage", {"scope": "call", "source": "gateway", "usage": numbers})


def error(message: str, fatal: bool = True, **beside: Any) -> Event:
    return event("error", {"message": message, "fatal": fatal}, None, **beside)


def loss(reason: str) -> Event:
    return event("trace_loss", {"reason": reason, "count": 1, "source": {"path": "a.jsonl", "lines": [3]}})
