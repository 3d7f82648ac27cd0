"""Droid's session records (0.215: all blocks of a response in one) and its stdout."""

from __future__ import annotations

from collections.abc import Iterator

from .run import START, Call, Run, Turn
from .shape import Record, Shape, iso

__all__ = ["SHAPES"]

_TOOLS = {"shell": "Execute", "read": "Read", "edit": "Edit"}


def _arguments(call: Call) -> Record:
    if call.tool == "shell":
        return {"command": call.command, "summary": call.described, "timeout": 20}
    if call.tool == "read":
        return {"file_path": call.path}
    return {"file_path": call.path, "old_str": call.old, "new_str": call.new}


def _output(call: Call) -> str:
    return f"{call.output}\n\n\n[Process exited with code {int(call.failed)}]" if call.tool == "shell" else call.output


def _message(run: Run, time: int, role: str, content: list[Record], **more: str) -> Record:
    uuid = run.uuid()
    parent, run.kept["message"] = run.kept.get("message"), uuid
    message = {"role": role, "content": content, **more}
    return {"type": "message", "id": uuid, "parentId": parent, "timestamp": iso(time), "message": message}


def _session_head(run: Run) -> Iterator[Record]:
    start = {"type": "session_start", "id": run.session, "title": run.prompt, "owner": "agent", "version": 2}
    yield start | {"cwd": "/srv/app"}
    yield _message(run, START, "user", [{"type": "text", "text": run.prompt}], interactionMode="auto")


def _session_turn(run: Run, turn: Turn) -> Iterator[Record]:
    content: list[Record] = []
    if turn.thought:
        signed = {"signature": run.hexes(200), "signatureProvider": "anthropic", "durationMs": 1}
        content.append({"type": "thinking", **signed, "thinking": turn.thought})
    if turn.text:
        content.append({"type": "text", "text": turn.text})
    for call in turn.calls:
        named = {"type": "tool_use", "id": "toolu_01" + call.id, "name": _TOOLS[call.tool]}
        content.append({**named, "input": _arguments(call)})
    yield _message(run, turn.time, "assistant", content, modelId="custom:fake-0", reasoningEffort="high")
    results = []
    for call in turn.calls:
        block = {"type": "tool_result", "tool_use_id": "toolu_01" + call.id, "is_error": call.failed}
        results.append({**block, "content": _output(call)})
    if results:
        yield _message(run, turn.time + 2000, "user", results)


def _stdout_head(run: Run) -> Iterator[Record]:
    yield {
        "type": "system", "subtype": "init", "cwd": "/srv/app", "session_id": run.session, "tools": ["Read"],
        "model": "custom:fake-0", "reasoning_effort": "high",
    }  # fmt: skip
    stamp = {"timestamp": START, "session_id": run.session}
    yield {"type": "message", "role": "user", "id": run.uuid(), "text": run.prompt, **stamp}


def _stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    message, stamp = run.uuid(), {"timestamp": turn.time, "session_id": run.session}
    if turn.thought:
        yield {"type": "reasoning", "id": message, "text": turn.thought, **stamp}
    if turn.text:
        yield {"type": "message", "role": "assistant", "id": message, "text": turn.text, **stamp}
    for call in turn.calls:
        named = {"id": "toolu_01" + call.id, "messageId": message, "toolId": _TOOLS[call.tool]}
        yield {"type": "tool_call", **named, "toolName": _TOOLS[call.tool], "parameters": _arguments(call), **stamp}
        yield {"type": "tool_result", **named, "isError": call.failed, "value": _output(call), **stamp}


def _stdout_tail(run: Run) -> Iterator[Record]:
    yield {
        "type": "completion", "finalText": "Done.", "numTurns": 9, "durationMs": 6032, "session_id": run.session,
        "timestamp": START,
        "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3},
    }  # fmt: skip


SHAPES = {
    "session": Shape("6f1c2b1e-9a35-4c1e-8a57-0c2f6d1f4a11.jsonl", _session_head, _session_turn),
    "stdout": Shape("stdout.jsonl", _stdout_head, _stdout_turn, _stdout_tail),
}
