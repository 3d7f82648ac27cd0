"""The journal and the stdout of Kimi Code (2.1) and of kimi-cli (1.40), which print much the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from .run import START, Call, Run, Turn
from .shape import Record, Shape

__all__ = ["CLI_SHAPES", "CODE_SHAPES"]

_CODE = {"shell": "Bash", "read": "Read", "edit": "Edit"}
_CLI = {"shell": "Shell", "read": "ReadFile", "edit": "StrReplaceFile"}


def _arguments(call: Call) -> Record:
    if call.tool == "shell":
        return {"command": call.command, "description": call.described}
    return {"path": call.path}


def _code_arguments(call: Call) -> Record:
    changed = {"old_string": call.old, "new_string": call.new} if call.tool == "edit" else {}
    return _arguments(call) | changed


def _cli_arguments(call: Call) -> Record:
    changed = {"edit": {"old": call.old, "new": call.new}} if call.tool == "edit" else {}
    return _arguments(call) | changed


# -- Kimi Code --------------------------------------------------------------------------------------------


def _code_head(run: Run) -> Iterator[Record]:
    words = [{"type": "text", "text": run.prompt}]
    yield {"type": "metadata", "protocol_version": "1.5", "created_at": START}
    yield {
        "type": "profile.bind", "agentId": "main", "modelAlias": "kimi", "profileName": "agent",
        "systemPrompt": "You are a coding agent.", "time": START,
    }  # fmt: skip
    origin = {"origin": {"kind": "user"}}
    yield {
        "type": "turn.prompt", "agentId": "main", "input": words, **origin, "promptId": "msg_1", "turnId": 0,
        "time": START,
    }  # fmt: skip
    message = {"role": "user", "content": words, "id": "msg_1", "toolCalls": [], **origin}
    yield {"type": "context.append_message", "agentId": "main", "message": message, "time": START}


def _code_turn(run: Run, turn: Turn) -> Iterator[Record]:
    step, time = run.uuid(), turn.time
    place = {"turnId": "0", "step": turn.number}

    def event(kind: str, **fields: Any) -> Record:
        body = {"type": kind, **fields}
        return {"type": "context.append_loop_event", "agentId": "main", "event": body, "time": time}

    used = {
        "inputOther": turn.fresh,
        "output": turn.written,
        "inputCacheRead": turn.cached,
        "inputCacheCreation": 0,
    }
    yield event("step.begin", uuid=step, **place)
    yield {
        "type": "llm.request", "agentId": "main", "kind": "loop", "provider": "openai", "model": "kimi-k2",
        "modelAlias": "kimi", "thinkingEffort": "on", "maxTokens": 200000, "systemPromptHash": run.hexes(64),
        "toolsHash": run.hexes(64), "messageCount": 2 * turn.number + 1, "turnStep": f"0.{turn.number}", "time": time,
    }  # fmt: skip
    yield {
        "type": "usage.record",
        "agentId": "main",
        "model": "kimi",
        "usage": used,
        "usageScope": "turn",
        "time": time,
    }
    total = turn.fresh + turn.cached + turn.written
    yield {"type": "token_counting.measured", "agentId": "main", "length": turn.number, "tokens": total, "time": time}
    if turn.thought:
        part = {"type": "think", "think": turn.thought, "reasoningKey": "reasoning_content"}
        yield event("content.part", uuid=run.uuid(), **place, stepUuid=step, part=part)
    if turn.text:
        part = {"type": "text", "text": turn.text}
        yield event("content.part", uuid=run.uuid(), **place, stepUuid=step, part=part)
    for call in turn.calls:
        uuid, call_id = run.uuid(), "call_" + call.id
        given = _code_arguments(call)
        display = {"kind": "file_io", "operation": call.tool, "path": call.path}
        if call.tool == "shell":
            display = {"kind": "command", "command": call.command, "cwd": "/srv/app", "language": "bash"}
        named = {"toolCallId": call_id, "name": _CODE[call.tool], "args": given, "display": display}
        yield event("tool.call", uuid=uuid, **place, stepUuid=step, **named)
        result: Record = {"output": call.output, "durationMs": 87}
        if call.failed:
            result["isError"] = True
        yield event("tool.result", parentUuid=uuid, toolCallId=call_id, result=result)
    yield event(
        "step.end", uuid=step, **place, finishReason="tool_use" if turn.calls else "stop", usage=used,
        llmFirstTokenLatencyMs=214, llmStreamDurationMs=37, messageId="chatcmpl-" + run.hexes(28),
        providerFinishReason="tool_calls", rawFinishReason="tool_calls",
    )  # fmt: skip


def _code_stdout_head(run: Run) -> Iterator[Record]:
    yield {"role": "meta", "type": "system.version", "version": "2.1.0"}


def _asked(turn: Turn, names: dict[str, str], arguments: Callable[[Call], Record]) -> list[Record]:
    return [
        {
            "type": "function",
            "id": "call_" + call.id,
            "function": {"name": names[call.tool], "arguments": json.dumps(arguments(call))},
        }
        for call in turn.calls
    ]


def _code_stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    message: Record = {"role": "assistant"}
    if turn.text or not turn.calls:
        message["content"] = turn.text
    if turn.calls:
        message["tool_calls"] = _asked(turn, _CODE, _code_arguments)
    yield message
    for call in turn.calls:
        yield {"role": "tool", "tool_call_id": "call_" + call.id, "content": call.output}


# -- kimi-cli ---------------------------------------------------------------------------------------------


def _wire(time: int, kind: str, payload: Record) -> Record:
    return {"timestamp": time / 1000, "message": {"type": kind, "payload": payload}}


def _cli_head(run: Run) -> Iterator[Record]:
    yield {"type": "metadata", "protocol_version": "1.9"}
    yield _wire(START, "TurnBegin", {"user_input": run.prompt})


def _cli_turn(run: Run, turn: Turn) -> Iterator[Record]:
    time = turn.time
    yield _wire(time, "StepBegin", {"n": turn.number})
    if turn.thought:
        yield _wire(time, "ContentPart", {"type": "think", "think": turn.thought, "encrypted": None})
    if turn.text:
        yield _wire(time, "ContentPart", {"type": "text", "text": turn.text})
    for made in _asked(turn, _CLI, _cli_arguments):
        yield _wire(time, "ToolCall", {**made, "extras": None})
    used = {
        "input_other": turn.fresh,
        "output": turn.written,
        "input_cache_read": turn.cached,
        "input_cache_creation": 0,
    }
    yield _wire(time, "StatusUpdate", {
        "context_usage": 0.0006, "context_tokens": turn.fresh + turn.cached, "max_context_tokens": 200000,
        "token_usage": used, "message_id": "chatcmpl-" + run.hexes(28), "plan_mode": False, "mcp_status": None,
    })  # fmt: skip
    for call in turn.calls:
        value = {"is_error": call.failed, "output": call.output, "message": "Done.", "display": [], "extras": None}
        yield _wire(time + 2000, "ToolResult", {"tool_call_id": "call_" + call.id, "return_value": value})


def _cli_stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    content: list[Record] = []
    if turn.thought:
        content.append({"type": "think", "think": turn.thought, "encrypted": None})
    if turn.text or not turn.calls:
        content.append({"type": "text", "text": turn.text})
    message: Record = {"role": "assistant", "content": content}
    if turn.calls:
        message["tool_calls"] = _asked(turn, _CLI, _cli_arguments)
    yield message
    for call in turn.calls:
        parts = [{"type": "text", "text": "<system>Done.</system>"}, {"type": "text", "text": call.output}]
        yield {"role": "tool", "content": parts, "tool_call_id": "call_" + call.id}


def _python_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


CODE_SHAPES = {
    "session": Shape("wire.jsonl", _code_head, _code_turn),
    "stdout": Shape("stdout.jsonl", _code_stdout_head, _code_stdout_turn),
}
CLI_SHAPES = {
    "session": Shape("wire.jsonl", _cli_head, _cli_turn, dumps=_python_json),
    "stdout": Shape("stdout.jsonl", lambda run: (), _cli_stdout_turn),
}
