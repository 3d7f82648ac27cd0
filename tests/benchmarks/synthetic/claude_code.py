"""Claude Code's rows and stdout: one block of a message per line."""

from __future__ import annotations

from collections.abc import Iterator

from .run import START, Call, Run, Turn
from .shape import Record, Shape, iso

__all__ = ["SHAPES"]

_TOOLS = {"shell": "Bash", "read": "Read", "edit": "Edit"}


def _input(call: Call) -> Record:
    if call.tool == "shell":
        return {"command": call.command, "description": call.described}
    if call.tool == "read":
        return {"file_path": call.path, "offset": 10, "limit": 200}
    return {"file_path": call.path, "old_string": call.old, "new_string": call.new}


def _row(run: Run, time: int, body: Record) -> Record:
    uuid = run.uuid()
    parent, run.kept["row"] = run.kept.get("row"), uuid
    return {
        "parentUuid": parent,
        "isSidechain": False,
        **body,
        "uuid": uuid,
        "timestamp": iso(time),
        "userType": "external",
        "entrypoint": "sdk-cli",
        "cwd": "/srv/app",
        "sessionId": run.session,
        "version": "2.1.197",
        "gitBranch": "HEAD",
    }


def _blocks(run: Run, turn: Turn) -> Iterator[Record]:
    if turn.thought:
        yield {"type": "thinking", "thinking": turn.thought, "signature": run.hexes(200)}
    if turn.text:
        yield {"type": "text", "text": turn.text}
    for call in turn.calls:
        name = _TOOLS[call.tool]
        yield {"type": "tool_use", "id": f"toolu_01{call.id}", "name": name, "input": _input(call)}


def _message(name: str, block: Record, turn: Turn, written: int, stop: str | None) -> Record:
    return {
        "id": name,
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5-20250929",
        "content": [block],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 12,
            "cache_creation_input_tokens": turn.fresh,
            "cache_read_input_tokens": turn.cached,
            "cache_creation": {"ephemeral_5m_input_tokens": turn.fresh, "ephemeral_1h_input_tokens": 0},
            "output_tokens": written,
            "service_tier": "standard",
        },
    }


def _result(call: Call) -> Record:
    block = {"tool_use_id": f"toolu_01{call.id}", "type": "tool_result", "content": call.output}
    return {"role": "user", "content": [block | {"is_error": call.failed}]}


def _session_head(run: Run) -> Iterator[Record]:
    yield _row(run, START, {"type": "user", "message": {"role": "user", "content": run.prompt}})


def _session_turn(run: Run, turn: Turn) -> Iterator[Record]:
    name, request = "msg_01" + run.hexes(22), "req_011" + run.hexes(20)
    stop = "tool_use" if turn.calls else "end_turn"
    for block in _blocks(run, turn):
        message = _message(name, block, turn, turn.written, stop)
        yield _row(run, turn.time, {"message": message, "requestId": request, "type": "assistant"})
    for call in turn.calls:
        said: Record = {"stdout": call.output, "stderr": "", "interrupted": False, "isImage": False}
        if call.tool == "read":
            file = {"filePath": call.path, "content": call.output, "numLines": 60, "startLine": 1, "totalLines": 900}
            said = {"type": "text", "file": file}
        elif call.tool == "edit":
            said = {"filePath": call.path, "oldString": call.old, "newString": call.new, "userModified": False}
        body = {"type": "user", "message": _result(call), "toolUseResult": said}
        yield _row(run, turn.time + 2000, body)


def _stdout_head(run: Run) -> Iterator[Record]:
    yield {
        "type": "system", "subtype": "init", "cwd": "/srv/app", "session_id": run.session, "tools": ["Bash", "Read"],
        "mcp_servers": [], "model": "claude-sonnet-4-5-20250929", "apiKeySource": "ANTHROPIC_API_KEY",
        "claude_code_version": "2.1.197", "uuid": run.uuid(),
    }  # fmt: skip


def _stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    name, request = "msg_01" + run.hexes(22), "req_011" + run.hexes(20)
    frame = {"parent_tool_use_id": None, "session_id": run.session}
    for block in _blocks(run, turn):
        message = _message(name, block, turn, 1, None)
        yield {"type": "assistant", "message": message, **frame, "uuid": run.uuid(), "request_id": request}
    for call in turn.calls:
        said = {"stdout": call.output, "stderr": "", "interrupted": False}
        stamp = {"uuid": run.uuid(), "timestamp": iso(turn.time + 2000), "tool_use_result": said}
        yield {"type": "user", "message": _result(call), **frame, **stamp}


def _stdout_tail(run: Run) -> Iterator[Record]:
    yield {
        "type": "result", "subtype": "success", "is_error": False, "duration_ms": 900_000, "num_turns": 40,
        "result": "Done.", "session_id": run.session, "total_cost_usd": 1.5, "uuid": run.uuid(),
        "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 3},
    }  # fmt: skip


SHAPES = {
    "session": Shape("6f1c2b1e-9a35-4c1e-8a57-0c2f6d1f4a11.jsonl", _session_head, _session_turn),
    "stdout": Shape("stdout.jsonl", _stdout_head, _stdout_turn, _stdout_tail),
}
