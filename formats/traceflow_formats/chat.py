"""Chat records for training sets: one JSON object per trajectory and line, with messages as OpenAI's chat API has them.

What ATIF says and a list of messages cannot hold is left out and counted by name (docs/chat.md lists the names).
Nothing is made up: a call without a result stays without one, and history that was copied from another session,
which is no work of this one, is left out. Messages go out step by step, so that a session of any size fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from .atif.document import Built, Trajectory
from .atif.spool import dumped
from .losses import Losses

__all__ = ["write_chat"]

_TOTALS = {"prompt": "total_prompt_tokens", "completion": "total_completion_tokens", "cached": "total_cached_tokens"}
_SPOKEN = frozenset({"kind", "context_management", "compaction"})  # said in another way


def write_chat(
    built: Built,
    out: BinaryIO,
    losses: Losses,
    *,
    source: str = "",
    harness: str = "",
    trial: Mapping[str, Any] | None = None,
) -> int:
    """Write the trajectories of a document as lines, the root first, and return how many.

    `source` and `harness` are what the document was read from, `trial` what is known of its trial. A trajectory without
    a message is no line; it is counted as `trajectory_without_message`.
    """
    lines = 0
    for trajectory in built.trajectories():
        messages = (message for step in trajectory.steps() for message in _messages(step, losses))
        first = next(messages, None)
        if first is None:
            losses.add("trajectory_without_message")
            continue
        out.write(b'{"messages":[' + dumped(first))
        for message in messages:
            out.write(b"," + dumped(message))
        out.write(b"]")
        rest: dict[str, Any] = {}
        if tools := _tools(trajectory, losses):
            rest["tools"] = tools
        rest["metadata"] = _metadata(trajectory, source, harness) | ({"trial": dict(trial)} if trial else {})
        out.write(b"," + dumped(rest)[1:] + b"\n")
        lines += 1
    return lines


def _metadata(trajectory: Trajectory, source: str, harness: str) -> dict[str, Any]:
    facts = trajectory.facts
    agent, final = facts["agent"], facts.get("final_metrics") or {}
    tokens = {name: final[key] for name, key in _TOTALS.items() if key in final}
    parent = {"trajectory_id": trajectory.parent, "tool_call_id": trajectory.spawned_by}
    said = {
        "session_id": facts.get("session_id"),
        "trajectory_id": trajectory.id,
        "parent": {name: value for name, value in parent.items() if value is not None} or None,
        "agent": agent["name"],
        "agent_version": agent["version"],
        "model": agent.get("model_name"),
        "tokens": tokens or None,
        "cost_usd": final.get("total_cost_usd"),
        "status": (final.get("extra") or {}).get("status"),
        "source": {name: value for name, value in (("kind", source), ("harness", harness)) if value} or None,
    }
    return {name: value for name, value in said.items() if value is not None}


def _tools(trajectory: Trajectory, losses: Losses) -> list[dict[str, Any]]:
    """The tools that the source defines, in the shape of the chat API."""
    tools = []
    for said in trajectory.facts["agent"].get("tool_definitions") or ():
        if (tool := _tool(said)) is None:
            losses.add("tool_definition")
        else:
            tools.append(tool)
    return tools


def _tool(said: dict[str, Any]) -> dict[str, Any] | None:
    """A definition as the chat API, the Responses API or Anthropic's API write it; None for any other."""
    function = said.get("function")
    if isinstance(function, dict):
        return {"type": "function", "function": function} if isinstance(function.get("name"), str) else None
    if not isinstance(said.get("name"), str) or said.get("type", "function") not in ("function", "custom"):
        return None
    made = {"name": said["name"]}
    if isinstance(said.get("description"), str):
        made["description"] = said["description"]
    schema = next((said[key] for key in ("parameters", "input_schema") if isinstance(said.get(key), dict)), None)
    return {"type": "function", "function": made | ({"parameters": schema} if schema is not None else {})}


# -- messages --------------------------------------------------------------------------------------------------


def _messages(step: dict[str, Any], losses: Losses) -> Iterator[dict[str, Any]]:
    """The messages of one step: none where it holds nothing that was said."""
    if step.get("is_copied_context"):
        losses.add("copied_context")
        return
    extra = step.get("extra") or {}
    _count_facts(step, extra, losses)
    if "error" in extra:
        losses.add("error")
        return
    if step["source"] == "agent":
        yield from _assistant(step, losses)
        return
    if extra.get("kind") == "result_without_call":
        losses.add("result_without_call", len(step.get("observation", {}).get("results", ())))
        return
    if "context_management" in extra:
        losses.add("compaction")  # the messages before it were no longer what the model saw
    content = _content(step["message"])
    if content:
        yield {"role": step["source"], "content": content if step["source"] == "user" else _texts(content, losses)}
    elif not step.get("observation"):
        losses.add("empty_step")
    for result in step.get("observation", {}).get("results", ()):  # of a document that was read
        yield from _shown(result, losses)


def _count_facts(step: dict[str, Any], extra: dict[str, Any], losses: Losses) -> None:
    """Facts of a step that no message has a place for."""
    losses.add("timestamp", "timestamp" in step)
    losses.add("metrics", "metrics" in step)
    losses.add("reasoning_effort", "reasoning_effort" in step)
    losses.add("step_extra", any(name not in _SPOKEN and name not in ("error", "plan") for name in extra))
    losses.add("plan", "plan" in extra)


def _shown(result: dict[str, Any], losses: Losses) -> Iterator[dict[str, Any]]:
    """A result that stands in a step of a person or the harness: what the model was shown."""
    if content := _content(result.get("content")):
        yield {"role": "system", "content": _texts(content, losses)}


def _assistant(step: dict[str, Any], losses: Losses) -> Iterator[dict[str, Any]]:
    content, reasoning, calls = _content(step["message"]), step.get("reasoning_content"), step.get("tool_calls") or []
    results = step.get("observation", {}).get("results", [])
    if content or reasoning or calls:
        message: dict[str, Any] = {"role": "assistant", "content": _texts(content, losses) if content else None}
        if reasoning:
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = [_call(step, number, call, losses) for number, call in enumerate(calls)]
        elif message["content"] is None:
            message["content"] = ""  # the API wants the one or the other
        yield message
    elif not results:
        losses.add("empty_step")
    yield from _results(step, calls, results, losses)


def _call(step: dict[str, Any], number: int, call: dict[str, Any], losses: Losses) -> dict[str, Any]:
    losses.add("call_extra", bool(call.get("extra")))
    arguments = dumped(call["arguments"]).decode()
    function = {"name": call["function_name"], "arguments": arguments}
    return {"id": _call_id(step, number, call), "type": "function", "function": function}


def _call_id(step: dict[str, Any], number: int, call: dict[str, Any]) -> str:
    """The id of a call; the API wants one where the source has none."""
    return call["tool_call_id"] or f"call_{step['step_id']}_{number + 1}"


def _results(
    step: dict[str, Any], calls: list[dict[str, Any]], results: list[dict[str, Any]], losses: Losses
) -> Iterator[dict[str, Any]]:
    """One tool message for each call that returned, in the order of the calls; several results of one are joined."""
    by_call: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        losses.add("result_extra", bool(result.get("extra")))
        if result.get("source_call_id") is None:
            losses.add("result_without_call")
        else:
            by_call.setdefault(result["source_call_id"], []).append(result)
    for number, call in enumerate(calls):
        found = by_call.get(call["tool_call_id"])
        if not found:
            losses.add("call_without_result")
            continue
        twins = sum(other["tool_call_id"] == call["tool_call_id"] for other in calls[number + 1 :])
        mine = found[: len(found) - twins] or found[:1]
        del found[: len(mine)]
        losses.add("results_joined", len(mine) - 1)
        content = _joined([_content(result.get("content")) for result in mine])
        yield {"role": "tool", "tool_call_id": _call_id(step, number, call), "content": content}


# -- content ---------------------------------------------------------------------------------------------------

_Content = str | list[dict[str, Any]]


def _content(content: Any) -> _Content:
    """A message or result as the API writes it: text, or parts where there are pictures."""
    if not isinstance(content, list):
        return content or ""
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": part["text"]}
        if part["type"] == "text"
        else {"type": "image_url", "image_url": {"url": part["source"]["path"]}}
        if part["type"] == "image"
        else {"type": "text", "text": f"[{part['type']}: {part['source']['path']}]"}
        for part in content
    ]
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n\n".join(part["text"] for part in parts)


def _joined(contents: list[_Content]) -> _Content:
    """Several contents as one."""
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(content for content in contents if isinstance(content, str) and content)
    parts: list[dict[str, Any]] = []
    for content in contents:
        if isinstance(content, list):
            parts.extend(content)
        elif content:
            parts.append({"type": "text", "text": content})
    return parts


def _texts(content: _Content, losses: Losses) -> str:
    """A content where the API takes no pictures: their names stand for them."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content:
        losses.add("image_in_text", part["type"] == "image_url")
        texts.append(part["text"] if part["type"] == "text" else f"[image: {part['image_url']['url']}]")
    return "\n\n".join(texts)
