"""Gemini CLI's session log (0.61: a message again with its calls, results again, `$set` after each) and its stdout."""

from __future__ import annotations

from collections.abc import Iterator

from .run import START, Call, Run, Turn
from .shape import Record, Shape, iso

__all__ = ["SHAPES"]

_TOOLS = {"shell": "run_shell_command", "read": "read_file", "edit": "replace"}
_PIECE = 120  # characters of one streamed piece of a message


def _arguments(call: Call) -> Record:
    if call.tool == "shell":
        return {"command": call.command, "description": call.described, "is_background": False}
    if call.tool == "read":
        return {"file_path": call.path}
    return {"file_path": call.path, "old_string": call.old, "new_string": call.new, "instruction": call.described}


def _id(call: Call) -> str:
    return f"{_TOOLS[call.tool]}_{call.id[:13]}_0"


def _session_head(run: Run) -> Iterator[Record]:
    moment = iso(START)
    yield {
        "sessionId": run.session, "projectHash": run.hexes(64), "startTime": moment, "lastUpdated": moment,
        "kind": "main",
    }  # fmt: skip
    yield {"id": run.uuid(), "timestamp": moment, "type": "user", "content": [{"text": run.prompt}]}


def _session_turn(run: Run, turn: Turn) -> Iterator[Record]:
    moment, later = iso(turn.time), iso(turn.time + 2000)
    thoughts = [{"subject": "Planning", "description": turn.thought, "timestamp": moment}] if turn.thought else []
    message = {
        "id": run.uuid(),
        "timestamp": moment,
        "type": "gemini",
        "content": turn.text,
        "thoughts": thoughts,
        "tokens": {
            "input": turn.fresh + turn.cached,
            "output": turn.written,
            "cached": turn.cached,
            "thoughts": turn.thinking,
            "tool": 0,
            "total": turn.fresh + turn.cached + turn.written + turn.thinking,
        },
        "model": "gemini-2.5-pro",
    }
    yield message
    yield {"$set": {"lastUpdated": moment}}
    if not turn.calls:
        return
    made, parts = [], []
    for call in turn.calls:
        response = {"id": _id(call), "name": _TOOLS[call.tool], "response": {"output": call.output}}
        parts.append({"functionResponse": response})
        display = call.output if call.tool == "shell" else ""
        status = "error" if call.failed else "success"
        frame = {"id": _id(call), "name": _TOOLS[call.tool], "args": _arguments(call)}
        shown = {"resultDisplay": display, "description": call.described, "displayName": "Shell"}
        made.append({**frame, "result": [parts[-1]], "status": status, "timestamp": later, **shown})
    yield {**message, "toolCalls": made}
    yield {"id": run.uuid(), "timestamp": later, "type": "user", "content": parts}
    yield {"$set": {"lastUpdated": later}}


def _stdout_head(run: Run) -> Iterator[Record]:
    moment = iso(START)
    yield {"type": "init", "timestamp": moment, "session_id": run.session, "model": "gemini-2.5-pro"}
    yield {"type": "message", "timestamp": moment, "role": "user", "content": run.prompt}


def _stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    moment, later = iso(turn.time), iso(turn.time + 2000)
    size = max(len(turn.text) // 2, 1) if run.short else _PIECE
    for start in range(0, len(turn.text), size):
        piece = turn.text[start : start + size]
        yield {"type": "message", "timestamp": moment, "role": "assistant", "content": piece, "delta": True}
    for call in turn.calls:
        named = {"tool_name": _TOOLS[call.tool], "tool_id": _id(call)}
        yield {"type": "tool_use", "timestamp": moment, **named, "parameters": _arguments(call)}
        result = {"type": "tool_result", "timestamp": later, "tool_id": _id(call)}
        output = {"output": call.output if call.tool == "shell" else ""}  # what it reads it does not print
        yield {**result, "status": "error" if call.failed else "success", **({} if call.tool == "edit" else output)}


def _stdout_tail(run: Run) -> Iterator[Record]:
    stats = {"total_tokens": 12, "input_tokens": 10, "output_tokens": 2, "cached": 0, "duration_ms": 9, "tool_calls": 1}
    yield {"type": "result", "timestamp": iso(START), "status": "success", "stats": stats}


SHAPES = {
    "session": Shape("session-2026-11-30T12-10-synthetic.jsonl", _session_head, _session_turn),
    "stdout": Shape("stdout.jsonl", _stdout_head, _stdout_turn, _stdout_tail),
}
