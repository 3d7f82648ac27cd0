"""A document made a trace and built again: steps, calls, results, numbers and what else it said are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pytest
from traceflow_formats.atif import events_of, read_trajectory, strict_problems, trajectory
from traceflow_formats.trace import KINDS, STATUSES, TYPES, Event

FIXTURES = Path(__file__).parents[2] / "fixtures"
DOCUMENTS = [
    *sorted((FIXTURES / "atif").glob("harbor-*.json")),
    FIXTURES / "cases" / "32-duplicate-ids-in-one-step" / "trajectory.json",
    *sorted((FIXTURES / "cases" / "66-atif-copied-context-totals").glob("*.json")),
]


def again(document: dict[str, Any]) -> dict[str, Any]:
    made = trajectory(events_of(read_trajectory(document)))
    assert strict_problems(made) == []
    return made


def as_written_by_us(document: dict[str, Any]) -> dict[str, Any]:
    """What a document lacks that we always state: one model call per step, and the model of each."""
    model = document["agent"].get("model_name")
    for step in document["steps"]:
        if step["source"] == "agent":
            step.setdefault("llm_call_count", 1)
            if model is not None:
                step.setdefault("model_name", model)
    for child in document.get("subagent_trajectories") or ():
        as_written_by_us(child)
    return document


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: f"{p.parent.name[:2]}-{p.stem}")
def test_documents_of_others_keep_their_steps(path: Path) -> None:
    before = as_written_by_us(orjson.loads(path.read_bytes()))
    after = again(orjson.loads(path.read_bytes()))
    assert after["steps"] == before["steps"]
    assert after["agent"] == before["agent"]
    assert [c["steps"] for c in after.get("subagent_trajectories", [])] == [
        c["steps"] for c in before.get("subagent_trajectories", [])
    ]
    assert again(after) == after, "once through, nothing changes any more"


RICH: dict[str, Any] = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "trajectory_id": "root",
    "agent": {
        "name": "mine",
        "version": "1",
        "model_name": "m",
        "tool_definitions": [{"name": "f", "parameters": {"x": None}}],
        "extra": {"kit": 1},
    },
    "steps": [
        {
            "step_id": 1,
            "source": "system",
            "message": "You are.",
            "extra": {"agentId": "not an agent", "abandoned": True},
        },
        {"step_id": 2, "source": "system", "message": "cwd", "extra": {"kind": "environment_context"}},
        {"step_id": 3, "timestamp": "2026-01-01T00:00:00Z", "source": "user", "message": "go", "extra": {"k": None}},
        {
            "step_id": 4,
            "source": "user",
            "message": [
                {"type": "text", "text": "see"},
                {"type": "image", "source": {"media_type": "image/png", "path": "images/a.png"}},
            ],
        },
        {
            "step_id": 5,
            "timestamp": "2026-01-01T00:00:01.5Z",
            "source": "agent",
            "model_name": "m2",
            "reasoning_effort": "high",
            "message": "working",
            "reasoning_content": "hm",
            "tool_calls": [
                {"tool_call_id": "a", "function_name": "f", "arguments": {"n": None}, "extra": {"trace": [1]}},
                {"tool_call_id": "b", "function_name": "Task", "arguments": {}},
                {"tool_call_id": "c", "function_name": "g", "arguments": {}},
            ],
            "observation": {
                "results": [
                    {
                        "source_call_id": "b",
                        "subagent_trajectory_ref": [{"trajectory_id": "kid"}],
                    },
                    {
                        "source_call_id": "a",
                        "content": "text",
                        "subagent_trajectory_ref": [{"session_id": "x", "trajectory_path": "sub.json"}],
                        "extra": {"status": "failed", "exit_code": 2, "colour": "red"},
                    },
                    {"content": [{"type": "text", "text": "of no call"}, {"type": "text", "text": "!"}]},
                ]
            },
            "metrics": {
                "prompt_tokens": 5,
                "completion_tokens": 2,
                "cached_tokens": 1,
                "cost_usd": 0.5,
                "completion_token_ids": [1, 2],
                "logprobs": [-0.5, -1.5],
                "extra": {"x": 1},
            },
            "llm_call_count": 1,
            "extra": {"stop_reason": "tool_use", "mood": {"a": 1}},
        },
        {
            "step_id": 6,
            "source": "system",
            "message": "summary",
            "extra": {
                "kind": "compaction",
                "context_management": {"type": "compaction", "boundary": "replace"},
                "compaction": {"trigger": "auto"},
            },
        },
        {"step_id": 7, "source": "system", "message": "", "observation": {"results": [{"content": "set up"}]}},
        {
            "step_id": 8,
            "source": "agent",
            "model_name": "m",
            "message": "three calls in one",
            "llm_call_count": 3,
        },
        {"step_id": 9, "source": "agent", "message": "scripted", "llm_call_count": 0},
        {
            "step_id": 10,
            "source": "agent",
            "message": "",
            "llm_call_count": 0,
            "extra": {"error": {"message": "429", "fatal": True, "kind": "rate_limit"}, "is_api_error": True},
        },
        {
            "step_id": 11,
            "source": "agent",
            "model_name": "m",
            "message": "",
            "llm_call_count": 1,
            "extra": {"plan": [{}]},
        },
        {
            "step_id": 12,
            "source": "agent",
            "model_name": "m",
            "message": "copied",
            "metrics": {"prompt_tokens": 9},
            "is_copied_context": True,
            "llm_call_count": 1,
        },
    ],
    "notes": "n",
    "final_metrics": {"total_steps": 12, "extra": {"mine": 1}},
    "continued_trajectory_ref": "next.json",
    "extra": {"build": {"id": 7}},
    "subagent_trajectories": [
        {
            "schema_version": "ATIF-v1.7",
            "session_id": "s",
            "trajectory_id": "kid",
            "agent": {"name": "kid", "version": "2"},
            "steps": [{"step_id": 1, "source": "user", "message": "look"}],
            "final_metrics": {"total_steps": 1},
        }
    ],
}


def test_everything_a_document_can_say_is_kept() -> None:
    after = again(RICH)
    for mine, theirs in zip(after["steps"], RICH["steps"], strict=True):
        assert mine == theirs
    numbers = after.pop("final_metrics")
    assert after == {name: value for name, value in RICH.items() if name != "final_metrics"}
    assert numbers["extra"]["mine"] == 1
    assert numbers["total_cost_usd"] == 0.5
    assert again(again(RICH)) == again(RICH)


def test_the_events_are_those_of_a_trace() -> None:
    events = list(events_of(RICH))
    assert {event.type for event in events} <= set(TYPES)
    assert events[0].data["extra"]["harness"] == "mine"
    instruction = [event for event in events if event.type == "prompt" and "role" not in event.data["_prompt"]]
    assert [event.data["_prompt"]["text"] for event in instruction] == ["go"]
    for event in events:
        update = event.data.get("update", {})
        if event.type == "tool_call":
            assert update["kind"] in KINDS
        if "status" in update:
            assert update["status"] in STATUSES
        assert [key for key in event.data if key not in ("update", "_prompt")] == [
            key
            for key in ("sessionId", "timestamp", "model", "messageId", "parentToolCallId", "extra")
            if key in event.data
        ]
    at = {(e.type, e.data.get("update", {}).get("toolCallId")): n for n, e in enumerate(events)}
    child = next(n for n, e in enumerate(events) if e.data.get("extra", {}).get("agentId") == "kid")
    assert at["tool_call", "b"] < child < at["tool_call_update", "b"], "a subagent stands between call and result"
    assert events[child].data["parentToolCallId"] == "b"


class View(NamedTuple):
    kind: str
    title: str
    content: list[dict[str, Any]] | None = None
    locations: list[dict[str, Any]] | None = None
    plan: list[dict[str, Any]] | None = None


def test_calls_can_be_described() -> None:
    plan = [{"content": "x", "status": "pending", "priority": "medium"}]

    def describe(name: str, arguments: dict[str, Any]) -> View:
        return View("execute", f"{name} {arguments}", None, [{"path": "/a"}], plan if name == "g" else None)

    events = [e for e in events_of(RICH, describe) if e.type in ("tool_call", "plan")]
    assert [e.type for e in events] == ["tool_call", "tool_call", "tool_call", "plan", "plan"]
    assert events[0].data["update"]["title"] == "f {'n': None}"
    assert events[0].data["update"]["locations"] == [{"path": "/a"}]
    assert again(RICH)["steps"] == trajectory(events_of(RICH, describe))["steps"]


def test_subagents_of_one_id_in_two_families_are_told_apart() -> None:
    def family(name: str, children: list[dict[str, Any]]) -> dict[str, Any]:
        step = {"step_id": 1, "source": "user", "message": name}
        agent = {"name": "a", "version": "1"}
        return {"trajectory_id": name, "agent": agent, "steps": [step], "subagent_trajectories": children}

    document = family("root", [family("a", [family("k", [])]), family("b", [family("k", [])])])
    events: list[Event] = list(events_of(read_trajectory(document)))
    assert [e.data.get("extra", {}).get("agentId") for e in events] == [None, "a", "k", "b", "k-2"]


def test_odd_facts_of_others_break_nothing() -> None:
    odd: list[Any] = [None, 0, "x", [], [1], {}, {"source": "gateway"}]
    for value in odd:
        notes = {
            "compaction": value,
            "harness": value,
            "including_subagents": value,
            "run": value,
            "cost_partial": value,
        }
        step = {
            "step_id": 1,
            "source": "agent",
            "message": "m",
            "llm_call_count": 0,
            "observation": {"results": [{"extra": {"status": value, "diffs": value, "tool_call_id": value}}]},
            "extra": {"error": value, "kind": value, "plan": value, "context_management": value, "timestamp": value},
        }
        for source in ("agent", "system", "user"):
            document = {
                "agent": {"name": "a", "version": "1"},
                "steps": [{**step, "source": source}],
                "extra": {"trace_loss": value},
                "final_metrics": {"extra": {**notes, "source": "gateway"}},
            }
            assert again(document)["steps"][0]["source"] == source
