"""The parsed trace: one JSON object per line, `seq`, `type`, `data`, in one vocabulary for every harness.

`data` of a prompt is `{"_prompt": {"text"}}`, of everything else `{"update": {...}}`; beside it stand the facts
of the event in a fixed order: sessionId, timestamp, model, messageId, parentToolCallId, extra. The vocabulary
is the platform's own, so that a `trace-parsed.jsonl` of either side is read by the other (by the parser of traces;
`as_trace_line` says what one line is).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO, NamedTuple

from . import jsontext

__all__ = [
    "GATEWAY_SEQ",
    "KINDS",
    "STATUSES",
    "TYPES",
    "Event",
    "TraceLine",
    "agent_of",
    "as_trace_line",
    "text_of",
    "write_trace",
]

TYPES = (
    "prompt",
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
    "usage",
    "error",
    "trace_loss",
)
KINDS = ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
STATUSES = ("pending", "in_progress", "completed", "failed")
GATEWAY_SEQ = 1_000_000_000  # gateway usage lines are numbered from here: another reading of the same calls


class Event(NamedTuple):
    """One event of a trace, without its position: the writer numbers them 0, 1, 2, ..."""

    type: str
    data: dict[str, Any]


class TraceLine(NamedTuple):
    """One event with the position it had in the file it was read from."""

    seq: int
    type: str
    data: dict[str, Any]


def text_of(event: Event | TraceLine) -> str:
    """The text of a prompt or chunk, or of a tool's result; empty where the event has none."""
    prompt = event.data.get("_prompt")
    if isinstance(prompt, dict):
        text = prompt.get("text")
        return text if isinstance(text, str) else ""
    update = event.data.get("update")
    content = update.get("content") if isinstance(update, dict) else None
    if isinstance(content, dict):
        text = content.get("text")
        return text if isinstance(text, str) else ""
    if isinstance(content, list):
        return "\n".join(filter(None, map(_block_text, content)))
    return ""


def _block_text(item: object) -> str:
    if not isinstance(item, dict):
        return ""
    block = item.get("content") if item.get("type") == "content" else item
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else ""


def agent_of(data: dict[str, Any]) -> str | None:
    """The subagent an event belongs to, or None for the main agent.

    `extra.agentId` where it is known, else the call that spawned it.
    """
    extra = data.get("extra")
    if isinstance(extra, dict):
        agent = extra.get("agentId")
        if isinstance(agent, str):
            return agent
    parent = data.get("parentToolCallId")
    return parent if isinstance(parent, str) else None


def write_trace(events: Iterable[Event | TraceLine], out: BinaryIO) -> int:
    """Write events as lines and return how many. Events are numbered from 0; lines keep their position."""
    count = 0
    for event in events:
        seq = event.seq if isinstance(event, TraceLine) else count
        out.write(jsontext.dumps({"seq": seq, "type": event.type, "data": event.data}) + b"\n")
        count += 1
    return count


def as_trace_line(value: object, position: int) -> TraceLine | None:
    """The event in a JSON value, or None. `position` numbers the bare ones, which have no seq of their own."""
    if not isinstance(value, dict):
        return None
    data, seq, kind = value.get("data"), value.get("seq"), value.get("type")
    if isinstance(data, dict) and isinstance(kind, str):
        return TraceLine(seq if isinstance(seq, int) and not isinstance(seq, bool) else position, kind, data)
    update = value.get("update")
    if isinstance(update, dict) and isinstance(update.get("sessionUpdate"), str):
        return TraceLine(position, update["sessionUpdate"], value)
    if isinstance(value.get("_prompt"), dict):
        return TraceLine(position, "prompt", value)
    return None
