"""Codex's rollouts (0.171: the model's items, and events that repeat them) and its stdout."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .run import START, Call, Run, Turn
from .shape import Record, Shape, iso

__all__ = ["SHAPES"]


def _record(run: Run, time: int, kind: str, payload: Record, **metadata: Any) -> Record:
    ordinal = run.kept["ordinal"] = run.kept.get("ordinal", -1) + 1
    record: Record = {"timestamp": iso(time), "ordinal": ordinal, "type": kind, "payload": payload}
    if metadata:
        record["metadata"] = {"history_sequence": ordinal, "client_authored": False, **metadata}
    return record


def _item(run: Run, turn: Turn, item: Record) -> Record:
    frame = {"type": "item_completed", "thread_id": run.session, "turn_id": run.session}
    moments = {"started_at_ms": turn.time, "completed_at_ms": turn.time}
    return _record(run, turn.time, "event_msg", {**frame, "item": item, **moments})


def _session_head(run: Run) -> Iterator[Record]:
    meta = {"id": run.session, "cwd": "/srv/app", "originator": "codex_exec", "cli_version": "0.171.0"}
    yield _record(run, START, "session_meta", meta | {"source": "exec", "model_provider": "openai"})
    yield _record(run, START, "turn_context", {"turn_id": run.session, "cwd": "/srv/app", "model": "gpt-5.5"})
    stated = {"turn_id": run.session, "content_item_kinds": ["user.text"]}
    words = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": run.prompt}]}
    yield _record(run, START, "response_item", words | {"internal_chat_message_metadata_passthrough": stated})


def _session_turn(run: Run, turn: Turn) -> Iterator[Record]:
    passed = {"internal_chat_message_metadata_passthrough": {"turn_id": run.session}}
    state = {"sampled_through_sequence": 3, "model_search_state": "unused"}
    if turn.thought:
        name = "rs_" + run.hexes(48)
        yield _item(run, turn, {"type": "Reasoning", "id": name, "summary_text": [turn.thought]})
        summary = [{"type": "summary_text", "text": turn.thought}]
        thought = {"type": "reasoning", "id": name, "summary": summary, "content": None}
        yield _record(
            run, turn.time, "response_item", {**thought, "encrypted_content": run.hexes(400), **passed}, **state
        )
    if turn.text:
        name = "msg_" + run.hexes(48)
        said = {"type": "AgentMessage", "id": name, "content": [{"type": "Text", "text": turn.text}]}
        yield _item(run, turn, said | {"phase": "commentary"})
        text = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "status": "completed", "id": name, "role": "assistant", "content": [text]}
        yield _record(run, turn.time, "response_item", {**message, "phase": "commentary", **passed}, **state)
    for call in turn.calls:
        yield _record(run, turn.time, "response_item", {**_made(run, call), **passed}, **state)
    counts = {
        "input_tokens": turn.fresh + turn.cached,
        "cached_input_tokens": turn.cached,
        "cache_write_input_tokens": 0,
        "output_tokens": turn.written,
        "reasoning_output_tokens": min(turn.thinking, turn.written),
        "total_tokens": turn.fresh + turn.cached + turn.written,
    }
    before = run.kept.get("total", {})
    total = run.kept["total"] = {name: before.get(name, 0) + value for name, value in counts.items()}
    frame = {"thread_id": run.session, "turn_id": run.session, "response_id": "resp_" + run.hexes(48)}
    totals = {"turn_token_usage": total, "thread_token_usage": total}
    yield _record(run, turn.time, "token_usage_record", {**frame, "usage": counts, **totals})
    for call in turn.calls:
        patch = call.tool == "edit"
        command = ["/bin/bash", "-lc", call.command]
        item: Record = {"type": "CommandExecution", "id": "call_" + call.id, "command": command, "cwd": "/srv/app"}
        if patch:
            item = {"type": "FileChange", "id": "call_" + call.id, "changes": {call.path: {"type": "update"}}}
        code = int(call.failed)
        ended = {"status": "failed" if code else "completed", "aggregated_output": call.output, "exit_code": code}
        yield _item(run, turn, item | ended | {"duration": {"secs": 0, "nanos": 21310}})
        text = f"Wall time: 0.1 seconds\nProcess exited with code {code}\nOutput:\n{call.output}"
        kind = "custom_tool_call_output" if patch else "function_call_output"
        output = {"type": kind, "id": "fco_" + run.uuid(), "call_id": "call_" + call.id, "output": text}
        yield _record(run, turn.time + 2000, "response_item", {**output, **passed}, **state)
    info = {"total_token_usage": total, "last_token_usage": counts, "model_context_window": 258400}
    yield _record(run, turn.time + 2000, "event_msg", {"type": "token_count", "info": info, "rate_limits": None})


def _made(run: Run, call: Call) -> Record:
    frame = {"status": "completed", "id": "fc_" + run.hexes(48), "call_id": "call_" + call.id}
    if call.tool != "edit":
        command = call.command if call.tool == "shell" else f"sed -n 10,200p {call.path}"
        arguments = json.dumps({"cmd": command})
        return {"type": "function_call", **frame, "name": "exec_command", "arguments": arguments}
    lines = ["-" + line for line in call.old.split("\n")] + ["+" + line for line in call.new.split("\n")]
    patch = "\n".join(["*** Begin Patch", f"*** Update File: {call.path}", "@@", *lines, "*** End Patch\n"])
    return {"type": "custom_tool_call", **frame, "name": "apply_patch", "input": patch}


def _stdout_head(run: Run) -> Iterator[Record]:
    yield {"type": "thread.started", "thread_id": run.session}
    yield {"type": "turn.started"}


def _stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    def item(kind: str, **fields: Any) -> Record:
        number = run.kept["item"] = run.kept.get("item", -1) + 1
        return {"id": f"item_{number}", "type": kind, **fields}

    if turn.thought:
        yield {"type": "item.completed", "item": item("reasoning", text=turn.thought)}
    if turn.text:
        yield {"type": "item.completed", "item": item("agent_message", text=turn.text)}
    for call in turn.calls:
        if call.tool == "edit":
            change = item("file_change", changes=[{"path": call.path, "kind": "update"}])
            yield {"type": "item.started", "item": change | {"status": "in_progress"}}
            yield {"type": "item.completed", "item": change | {"status": "completed"}}
            continue
        started = item("command_execution", command=f"/bin/bash -lc '{call.command}'", aggregated_output="")
        yield {"type": "item.started", "item": started | {"exit_code": None, "status": "in_progress"}}
        ended = {"aggregated_output": call.output, "exit_code": int(call.failed)}
        status = {"status": "failed" if call.failed else "completed"}
        yield {"type": "item.completed", "item": started | ended | status}


def _stdout_tail(run: Run) -> Iterator[Record]:
    yield {"type": "turn.completed", "usage": {"input_tokens": 9, "cached_input_tokens": 1, "output_tokens": 2}}


SHAPES = {
    "session": Shape("rollout-2026-11-30T12-10-21-synthetic.jsonl", _session_head, _session_turn),
    "stdout": Shape("stdout.jsonl", _stdout_head, _stdout_turn, _stdout_tail),
}
