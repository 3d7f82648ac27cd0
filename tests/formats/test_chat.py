"""Chat records: what becomes a message, and what is said to be lost."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

from chat_api import check_record
from trace_events import call, error, event, prompt, result, run, says, thinks, usage, user
from traceflow_formats.atif import AtifBuilder
from traceflow_formats.chat import write_chat
from traceflow_formats.losses import Losses
from traceflow_formats.trace import Event

PICTURE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def records(events: Iterable[Event], *, images: bool = False) -> tuple[list[dict[str, Any]], dict[str, int]]:
    builder = AtifBuilder(images=(lambda name, data: None) if images else None)
    for item in events:
        builder.add(item)
    losses, out = Losses(), io.BytesIO()
    with builder.finish() as built:
        lines = write_chat(built, out, losses, source="session", harness="codex")
        losses.add("image", built.images_in_words)
    found = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(found) == lines
    for record in found:
        check_record(record)
    return found, losses.as_dict()


def one(*events: Event, images: bool = False) -> tuple[list[dict[str, Any]], dict[str, int]]:
    (record,), losses = records(events, images=images)
    return record["messages"], losses


def test_a_run_is_messages_with_calls_and_results_in_their_order() -> None:
    messages, losses = one(
        prompt("Be brief.", role="system"),
        prompt("Count the files."),
        thinks("One command.", "m1"),
        says("Counting.", "m1"),
        call("c1", "m1", {"command": "ls | wc -l"}, name="shell"),
        result("c1", "3\n"),
        says("Three.", "m2"),
    )
    assert messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Count the files."},
        {
            "role": "assistant",
            "content": "Counting.",
            "reasoning_content": "One command.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command":"ls | wc -l"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "3\n"},
        {"role": "assistant", "content": "Three."},
    ]
    assert losses == {}


def test_results_stand_in_the_order_of_their_calls_one_for_each() -> None:
    messages, losses = one(
        prompt("x"),
        call("a", "m1"),
        call("b", "m1"),
        call("", "m1"),
        result("b", "second"),
        result("a", "first"),
        result("a", "again"),
        says("done", "m2"),
    )
    assert [(m["tool_call_id"], m["content"]) for m in messages if m["role"] == "tool"] == [
        ("a", "first\n\nagain"),
        ("b", "second"),
    ]
    assert [c["id"] for c in messages[1]["tool_calls"]] == ["a", "b", "call_2_3"]
    assert losses == {"call_without_result": 1, "results_joined": 1}


def test_two_calls_of_one_id_have_a_result_each() -> None:
    messages, losses = one(
        prompt("x"), call("a", "m1"), call("a", "m1"), result("a", "one"), result("a", "two"), says("ok", "m2")
    )
    assert [m["content"] for m in messages if m["role"] == "tool"] == ["one", "two"]
    assert losses == {}


def test_history_that_was_copied_is_left_out() -> None:
    messages, losses = one(
        prompt("old", copied=True), says("old answer", "m0", copied=True), prompt("new"), says("answer", "m1")
    )
    assert [m["content"] for m in messages] == ["new", "answer"]
    assert losses == {"copied_context": 2}


def test_errors_plans_and_compactions_are_counted() -> None:
    messages, losses = one(
        prompt("x", time="2026-01-01T00:00:00Z"),
        event("plan", {"entries": [{"content": "a", "status": "pending", "priority": "low"}]}, "m1"),
        error("overloaded"),
        user("summary of it all", compaction={"trigger": "auto"}),
        says("ok", "m2"),
        usage("m2", prompt=10, completion=2),
    )
    assert [m["role"] for m in messages] == ["user", "system", "assistant"]
    assert losses == {"compaction": 1, "empty_step": 1, "error": 1, "metrics": 1, "plan": 1, "timestamp": 1}


def test_pictures_are_parts_by_their_path_or_words() -> None:
    events = [
        user("Look:", "u"),
        user(PICTURE, "u"),
        call("a", "m1"),
        result("a", "read", PICTURE),
        says(PICTURE, "m2"),
    ]
    messages, losses = one(*events, images=True)
    path = messages[0]["content"][1]["image_url"]["url"]
    assert path.startswith("images/")
    assert messages[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": path}},
    ]
    assert messages[2]["content"][1] == {"type": "image_url", "image_url": {"url": path}}
    assert messages[3]["content"] == f"[image: {path}]"
    assert losses == {"image_in_text": 1}
    messages, losses = one(*events)
    assert messages[0]["content"] == "Look:\n\n[image: image/png, 8 bytes]"
    assert losses == {"image": 3}


def test_a_subagent_is_a_record_of_its_own_that_names_its_parent() -> None:
    (parent, child), _ = records(
        [
            prompt("x", session="s1", harness="claude-code", harnessVersion="2.1"),
            call("t1", "m1", name="Task"),
            prompt("look", agent="helper", parent="t1"),
            says("found", "k1", agent="helper", parent="t1", model="small"),
            result("t1", "found"),
            says("done", "m2", model="large"),
            usage("m2", prompt=7, completion=3),
            run(prompt=20, completion=9, cost=0.5),
        ]
    )
    assert parent["metadata"] == {
        "session_id": "s1",
        "trajectory_id": "s1",
        "agent": "claude-code",
        "agent_version": "2.1",
        "model": "large",
        "tokens": {"prompt": 20, "completion": 9},
        "cost_usd": 0.5,
        "source": {"kind": "session", "harness": "codex"},
    }
    assert child["metadata"]["parent"] == {"trajectory_id": "s1", "tool_call_id": "t1"}
    assert (child["metadata"]["trajectory_id"], child["metadata"]["model"]) == ("helper", "small")
    assert [m["content"] for m in child["messages"]] == ["look", "found"]


def test_tools_stand_in_a_record_only_where_the_source_defines_them() -> None:
    said = [
        {"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}},
        {"name": "b", "description": "does b", "input_schema": {"type": "object"}},
        {"type": "web_search"},
    ]
    (record,), losses = records(
        [prompt("x", trajectory={"tool_definitions": said}), says("y", "m1")],
    )
    assert record["tools"] == [
        said[0],
        {"type": "function", "function": {"name": "b", "description": "does b", "parameters": {"type": "object"}}},
    ]
    assert losses == {"tool_definition": 1}
    (record,), _ = records([prompt("x"), says("y", "m1")])
    assert "tools" not in record
