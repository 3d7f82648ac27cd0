"""Qwen Code's session records (0.15: with telemetry of each request and call) and its stdout."""

from __future__ import annotations

from collections.abc import Iterator

from .run import START, Call, Run, Turn
from .shape import Record, Shape, iso

__all__ = ["SHAPES"]

_TOOLS = {"shell": "run_shell_command", "read": "read_file", "edit": "edit"}


def _arguments(call: Call) -> Record:
    if call.tool == "shell":
        return {"command": call.command, "description": call.described, "is_background": False}
    if call.tool == "read":
        return {"file_path": call.path, "offset": 10, "limit": 200}
    return {"file_path": call.path, "old_string": call.old, "new_string": call.new}


def _row(run: Run, time: int, kind: str, body: Record) -> Record:
    uuid = run.uuid()
    parent, run.kept["row"] = run.kept.get("row"), uuid
    links = {"uuid": uuid, "parentUuid": parent, "sessionId": run.session, "timestamp": iso(time)}
    return {**links, "type": kind, "cwd": "/srv/app", "version": "0.15.10", **body}


def _telemetry(run: Run, time: int, event: Record) -> Record:
    payload = {"uiEvent": {**event, "event.timestamp": iso(time), "prompt_id": "4d21f03eed9d3"}}
    return _row(run, time, "system", {"subtype": "ui_telemetry", "systemPayload": payload})


def _session_head(run: Run) -> Iterator[Record]:
    yield _row(run, START, "user", {"message": {"role": "user", "parts": [{"text": run.prompt}]}})


def _session_turn(run: Run, turn: Turn) -> Iterator[Record]:
    prompt, written = turn.fresh + turn.cached, turn.written + turn.thinking
    response = "chatcmpl-" + run.hexes(28)
    yield _telemetry(run, turn.time, {
        "event.name": "qwen-code.api_response", "response_id": response, "model": "qwen3-coder-plus",
        "status_code": 200, "duration_ms": 277, "input_token_count": prompt, "output_token_count": written,
        "cached_content_token_count": turn.cached, "thoughts_token_count": turn.thinking,
        "total_token_count": prompt + written, "response_text": turn.text, "auth_type": "openai",
    })  # fmt: skip
    parts: list[Record] = []
    if turn.thought:
        parts.append({"text": turn.thought, "thought": True})
    if turn.text:
        parts.append({"text": turn.text})
    parts.extend(
        {"functionCall": {"id": "call_" + call.id, "name": _TOOLS[call.tool], "args": _arguments(call)}}
        for call in turn.calls
    )
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": written,
        "thoughtsTokenCount": turn.thinking,
        "totalTokenCount": prompt + written,
        "cachedContentTokenCount": turn.cached,
    }
    said = {"model": "qwen3-coder-plus", "message": {"role": "model", "parts": parts}, "usageMetadata": usage}
    yield _row(run, turn.time, "assistant", said)
    for call in turn.calls:
        status = "error" if call.failed else "success"
        yield _telemetry(run, turn.time, {
            "event.name": "qwen-code.tool_call", "function_name": _TOOLS[call.tool], "function_args": _arguments(call),
            "duration_ms": 254, "status": status, "success": not call.failed, "decision": "auto_accept",
            "response_id": response, "tool_type": "native", "content_length": len(call.output),
        })  # fmt: skip
        named = {"id": "call_" + call.id, "name": _TOOLS[call.tool]}
        text = call.output
        if call.tool == "shell":
            text = f"Command: {call.command}\nDirectory: (root)\nOutput: {text}\nExit Code: {int(call.failed)}"
        part = {"functionResponse": {**named, "response": {"output": text}}}
        shown = {"callId": "call_" + call.id, "status": status, "resultDisplay": call.output}
        body = {"message": {"role": "user", "parts": [part]}, "toolCallResult": shown}
        yield _row(run, turn.time + 2000, "tool_result", body)


def _stdout_head(run: Run) -> Iterator[Record]:
    yield {
        "type": "system", "subtype": "init", "uuid": run.session, "session_id": run.session, "cwd": "/srv/app",
        "tools": ["read_file", "edit"], "mcp_servers": [], "model": "qwen3-coder-plus", "permission_mode": "yolo",
        "qwen_code_version": "0.15.10",
    }  # fmt: skip


def _stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    blocks: list[list[Record]] = []
    if turn.thought:
        blocks.append([{"type": "thinking", "thinking": turn.thought, "signature": ""}])
    if turn.text:
        blocks.append([{"type": "text", "text": turn.text}])
    uses = [
        {"type": "tool_use", "id": "call_" + call.id, "name": _TOOLS[call.tool], "input": _arguments(call)}
        for call in turn.calls
    ]
    if uses:
        blocks.append(uses)
    prompt, written = turn.fresh + turn.cached, turn.written + turn.thinking
    used = {
        "input_tokens": prompt,
        "output_tokens": written,
        "cache_read_input_tokens": turn.cached,
        "total_tokens": prompt + written,
    }
    for number, content in enumerate(blocks, 1):
        last, uuid = number == len(blocks), run.uuid()
        message = {
            "id": uuid, "type": "message", "role": "assistant", "model": "qwen3-coder-plus", "content": content,
            "stop_reason": "tool_use" if last and uses else None,
            "usage": used if last else {"input_tokens": 0, "output_tokens": 0},
        }  # fmt: skip
        frame = {"type": "assistant", "uuid": uuid, "session_id": run.session, "parent_tool_use_id": None}
        yield {**frame, "message": message}
    for call in turn.calls:
        block = {"type": "tool_result", "tool_use_id": "call_" + call.id, "is_error": call.failed}
        frame = {"type": "user", "uuid": run.uuid(), "session_id": run.session, "parent_tool_use_id": None}
        yield {**frame, "message": {"role": "user", "content": [{**block, "content": call.output}]}}


def _stdout_tail(run: Run) -> Iterator[Record]:
    yield {
        "type": "result", "subtype": "success", "uuid": run.uuid(), "session_id": run.session, "is_error": False,
        "duration_ms": 900_000, "duration_api_ms": 800_000, "num_turns": 40, "result": "Done.",
        "usage": {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 3, "total_tokens": 12},
    }  # fmt: skip


SHAPES = {
    "session": Shape("6f1c2b1e-9a35-4c1e-8a57-0c2f6d1f4a11.jsonl", _session_head, _session_turn),
    "stdout": Shape("stdout.jsonl", _stdout_head, _stdout_turn, _stdout_tail),
}
