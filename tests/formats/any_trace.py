"""Traces of any shape, for property tests: the vocabulary of events with odd values, missing ids, mixed agents."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from traceflow_formats.trace import Event, TraceLine

__all__ = ["TRACES"]

IDS = st.sampled_from(["a", "b", "c", ""])
TEXT = st.one_of(st.sampled_from(["", "x", "two\n\nlines"]), st.text(max_size=5))
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 2**70), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=4,
)
IMAGE = st.fixed_dictionaries(
    {"type": st.just("image")},
    optional={
        "data": st.sampled_from(["", "aGk=", "not base64!"]),
        "mimeType": st.sampled_from(["image/png", "image/svg+xml", "", "IMAGE/PNG"]),
        "uri": st.sampled_from(["https://h/a.png", "file:///x", "data:image/png;base64,aGk="]),
    },
)
BLOCK = st.one_of(st.builds(lambda text: {"type": "text", "text": text}, TEXT), IMAGE, JSON)
ITEM = st.one_of(
    st.builds(lambda block: {"type": "content", "content": block}, BLOCK),
    st.just({"type": "diff", "path": "p", "oldText": None, "newText": "n"}),
    BLOCK,
)
COUNT = st.one_of(
    st.integers(0, 50), st.integers(0, 50), st.sampled_from([-1, 2.0, 0.25, None, "7", 2**80, float("nan")])
)
USAGE = st.fixed_dictionaries(
    {},
    optional={
        "promptTokens": COUNT,
        "completionTokens": COUNT,
        "cachedTokens": COUNT,
        "costUsd": COUNT,
        "extra": st.one_of(JSON, st.just({"includingSubagents": {"promptTokens": 3}})),
    },
)
ODD = st.one_of(JSON, st.just({"logprobs": [0.5], "prompt_token_ids": ["x"]}))


def _maybe(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), value)


UPDATES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "user_message_chunk": st.fixed_dictionaries({"content": BLOCK}),
    "agent_message_chunk": st.fixed_dictionaries({"content": BLOCK}),
    "agent_thought_chunk": st.fixed_dictionaries({"content": BLOCK}),
    "tool_call": st.fixed_dictionaries(
        {"toolCallId": IDS},
        optional={
            "toolName": TEXT,
            "title": TEXT,
            "rawInput": st.one_of(JSON, st.sampled_from(['{"a": 1}', "[1]", "{broken"])),
            "status": st.sampled_from(["pending", "completed"]),
        },
    ),
    "tool_call_update": st.fixed_dictionaries(
        {"toolCallId": IDS},
        optional={
            "status": st.sampled_from(["completed", "failed", "in_progress", "?"]),
            "content": st.lists(ITEM, max_size=3),
            "rawOutput": JSON,
        },
    ),
    "plan": st.fixed_dictionaries({"entries": JSON}),
    "usage": st.fixed_dictionaries(
        {"scope": st.sampled_from(["call", "call", "run"]), "usage": st.one_of(USAGE, USAGE, JSON)},
        optional={"source": st.just("gateway")},
    ),
    "error": st.fixed_dictionaries({"message": TEXT, "fatal": st.booleans()}),
    "trace_loss": st.fixed_dictionaries(
        {"reason": st.sampled_from(["truncated_tail", "malformed_line"]), "count": JSON}
    ),
    "harness_event": st.fixed_dictionaries({"payload": JSON}),
}
EXTRA = st.fixed_dictionaries(
    {},
    optional={
        "agentId": st.sampled_from(["child", "grandchild", "a"]),
        "abandoned": st.sampled_from([False, False, False, True]),
        "copied": st.sampled_from([False, False, True]),
        "retried": st.booleans(),
        "delta": st.booleans(),
        "injected": st.sampled_from(["skills", "", True]),
        "compaction": st.sampled_from([True, {"trigger": "auto"}, {}]),
        "stepName": st.sampled_from(["first", "second"]),
        "llmCallCount": st.sampled_from([0, 1, 3, -1, "x"]),
        "reasoningEffort": st.sampled_from(["high", 0.5, True]),
        "stopReason": TEXT,
        "errorKind": TEXT,
        "error": st.sampled_from(["rate_limit", {"x": 1}]),
        "isApiError": st.booleans(),
        "exitCode": st.integers(0, 2),
        "harness": TEXT,
        "harnessVersion": TEXT,
        "subagentRefs": st.sampled_from([[], [{"trajectory_path": "t.json"}], [{"trajectory_path": 5}], "x"]),
        "trajectory": st.sampled_from([{"notes": "n", "extra": {"k": 1}}, {"notes": 4, "tool_definitions": [3]}, []]),
        "atif": ODD,
    },
)
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "sessionId": TEXT | ODD,
        "timestamp": st.sampled_from(["2026-01-01T00:00:00.000Z", "yesterday", "2026-13-01T00:00:00Z", 5]),
        "model": st.sampled_from(["m1", "m2"]),
        "messageId": st.sampled_from(["m1", "m2", "m3"]),
        "parentToolCallId": IDS,
        "extra": EXTRA,
    },
)


LIKELY = ("agent_message_chunk", "tool_call", "tool_call_update", "usage")


@st.composite
def events(draw: st.DrawFn) -> Event | TraceLine:
    kind = draw(st.sampled_from([*LIKELY, "prompt", *UPDATES]))
    beside: dict[str, Any] = {"messageId": draw(st.sampled_from(["m1", "m2", "m3"]))} if kind in LIKELY else {}
    if draw(st.booleans()):
        beside |= draw(BESIDE)
    elif draw(st.integers(0, 3)) == 0:
        beside = {}
    if kind == "prompt":
        prompt = draw(st.one_of(st.builds(lambda t: {"text": t}, TEXT), st.just({"text": "s", "role": "system"}), JSON))
        return Event(kind, {"_prompt": prompt, **beside})
    return Event(kind, {"update": {"sessionUpdate": kind, **draw(UPDATES[kind])}, **beside})


TRACES = st.one_of(st.lists(events(), max_size=4), st.lists(events(), min_size=8, max_size=30))
