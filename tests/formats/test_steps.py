"""Which step an event is in: the rules, one trace each."""

from __future__ import annotations

from typing import Any

import pytest
from traceflow_formats.steps import Place, Steps
from traceflow_formats.trace import Event, TraceLine


def event(kind: str, message_id: str | None = None, call: str | None = None, **fields: Any) -> Event:
    """An event; `agent`, `parent`, `status`, `scope`, `source` and everything of `extra` are keywords."""
    update: dict[str, Any] = {"sessionUpdate": kind}
    if call is not None:
        update["toolCallId"] = call
    for key in ("status", "scope", "source", "content"):
        if key in fields:
            update[key] = fields.pop(key)
    data: dict[str, Any] = {"_prompt": {"text": "do it"}} if kind == "prompt" else {"update": update}
    if message_id is not None:
        data["messageId"] = message_id
    if (parent := fields.pop("parent", None)) is not None:
        data["parentToolCallId"] = parent
    if (agent := fields.pop("agent", None)) is not None:
        fields["agentId"] = agent
    if fields:
        data["extra"] = fields
    return Event(kind, data)


PROMPT = event("prompt")


def user(message_id: str | None = None, **extra: Any) -> Event:
    return event("user_message_chunk", message_id, **extra)


def says(message_id: str | None = None, **extra: Any) -> Event:
    return event("agent_message_chunk", message_id, **extra)


def thinks(message_id: str | None = None, **extra: Any) -> Event:
    return event("agent_thought_chunk", message_id, **extra)


def call(call_id: str, message_id: str | None = None, **extra: Any) -> Event:
    return event("tool_call", message_id, call_id, **{"status": "pending", **extra})


def result(call_id: str, **extra: Any) -> Event:
    return event("tool_call_update", None, call_id, **{"status": "completed", **extra})


def usage(message_id: str | None = None, scope: str = "call", **extra: Any) -> Event:
    return event("usage", message_id, scope=scope, **extra)


def plan(message_id: str | None = None) -> Event:
    return event("plan", message_id)


def error(**extra: Any) -> Event:
    return event("error", **extra)


CASES: dict[str, tuple[list[Event], list[int | None]]] = {
    "a model call is its message, thoughts, calls, usage and results": (
        [thinks("m1"), says("m1"), call("a", "m1"), call("b", "m1"), plan("m1"), result("b"), result("a"), usage("m1")],
        [1, 1, 1, 1, 1, 1, 1, 1],
    ),
    "the next messageId is the next step": ([PROMPT, says("m1"), usage("m1"), says("m2")], [1, 2, 2, 3]),
    "a result that comes late belongs to its call": (
        [PROMPT, call("a", "m1"), user(), says("m2"), result("a")],
        [1, 2, 3, 4, 2],
    ),
    "a message goes on after a person spoke": ([PROMPT, says("m1"), user(), call("a", "m1")], [1, 2, 3, 2]),
    "usage of a call that ended some calls ago": ([says("m1"), says("m2"), says("m3"), usage("m1")], [1, 2, 3, 1]),
    "a model call of which only the usage is known": ([PROMPT, usage("m1"), says("m2")], [1, 2, 3]),
    "a call id that repeats stands for the last call": (
        [call("x", "m1"), result("x"), call("x", "m2"), result("x")],
        [1, 1, 2, 2],
    ),
    "the last call with that id which waits gets the result": (
        [call("x", "m1"), call("x", "m2"), result("x"), result("x")],
        [1, 2, 2, 1],
    ),
    "news of a call that runs does not close it": (
        [call("a", "m1"), result("a", status="in_progress"), says("m2"), result("a"), result("a")],
        [1, 1, 2, 1, 2],
    ),
    "an update without status and content does not close it either": (
        [call("a", "m1"), result("a", status=None), says("m2"), result("a", status=None, content=[])],
        [1, 1, 2, 1],
    ),
    "a result without a call is in the last step": ([PROMPT, says("m1"), result("?")], [1, 2, 2]),
    "a result before everything has a step": ([result("?"), PROMPT], [1, 2]),
    "each message of a person is a step": ([PROMPT, user(), user()], [1, 2, 3]),
    "blocks of one message are one step": ([user("u1"), user("u1"), user("u2")], [1, 1, 2]),
    "injected text is a step of its own": (
        [user("u1", injected="skills"), user("u1", injected="skills"), user("u1"), user("u1", compaction={})],
        [1, 1, 2, 3],
    ),
    "prompts are steps": ([PROMPT, PROMPT], [1, 2]),
    "a picture beside a prompt is in its step": ([event("prompt", "u1"), user("u1"), user("u2")], [1, 1, 2]),
    "a picture before the words of its message": ([user("u1"), event("prompt", "u1")], [1, 1]),
    "errors are steps, retried ones are not": ([says("m1"), error(retried=True), error(), says("m1")], [1, None, 2, 1]),
    "what is in no step": (
        [
            says("m1", abandoned=True),
            usage(scope="run"),
            usage("m1", compaction=True),
            usage(source="gateway"),
            event("trace_loss"),
            event("harness_event"),
            says("m2"),
        ],
        [None, None, None, None, None, None, 1],
    ),
    "copied history is never joined to what follows": ([says("m1", copied=True), says("m1")], [1, 2]),
    "the parts of a trial are never joined": (
        [says("call-1", stepName="first"), says("call-1", stepName="second")],
        [1, 2],
    ),
    # -- sources without message ids
    "chunks without ids are one step": ([PROMPT, thinks(), says(), says(), call("a")], [1, 2, 2, 2, 2]),
    "speech after a call is a new model call": ([call("a"), result("a"), says(), call("b")], [1, 1, 2, 2]),
    "speech after a person is a new model call": ([says(), user(), says()], [1, 2, 3]),
    "speech without an id after one with an id": ([says("m1"), says()], [1, 2]),
    "parallel calls are one model call": ([call("a"), call("b"), result("a"), result("b")], [1, 1, 1, 1]),
    "a call after all results is a new model call": ([call("a"), result("a"), call("b")], [1, 1, 2]),
    "a call while another one runs is not": ([call("a"), call("b"), result("a"), call("c")], [1, 1, 1, 1]),
    "usage without an id ends a model call": ([says(), usage(), says(), usage(), usage()], [1, 1, 2, 2, 3]),
    "a plan alone is a model call": ([PROMPT, plan(), says()], [1, 2, 3]),
    "a copy without ids ends where the copy ends": ([says(copied=True), says()], [1, 2]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_step_of_each_event(name: str) -> None:
    events, expected = CASES[name]
    steps = Steps()
    places = [steps.place(e) for e in events]
    assert [p and p.step for p in places] == expected
    seen: set[int] = set()
    for place in places:
        if place is not None:
            assert place.opens == (place.step not in seen), "opens is said exactly at the first event of a step"
            seen.add(place.step)
    assert seen == set(range(1, len(seen) + 1))


def test_agents_are_numbered_apart() -> None:
    steps = Steps()
    events = [
        PROMPT,
        call("a", "m1"),
        user(agent="child", parent="a"),
        says("m1", agent="child", parent="a"),
        says("m1", parent="b"),
        says("m1"),
    ]
    assert [steps.place(e) for e in events] == [
        Place(None, 1, True),
        Place(None, 2, True),
        Place("child", 1, True),
        Place("child", 2, True),
        Place("b", 1, True),
        Place(None, 2, False),
    ]


def test_calls_that_wait_are_counted() -> None:
    steps = Steps()
    events = [
        call("a", "m1"),
        call("b", "m1"),
        call("done", "m1", status="completed"),
        call("copy", "m0", copied=True),
        call("c", "m1", agent="child"),
        result("a"),
        result("a"),
        result("b", status="in_progress"),
        result("done"),
    ]
    for e in events:
        steps.place(e)
    assert steps.unanswered == 2  # b, and the child's c


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"update": None},
        {"update": []},
        {"update": {}, "extra": []},
        {"update": {}, "extra": {"agentId": 5}, "parentToolCallId": {}},
        {"update": {"toolCallId": []}, "messageId": {}},
        {"update": {}, "sessionId": [], "messageId": "m"},
        {"update": {"scope": []}, "extra": {"stepName": [], "copied": 1, "injected": {}}},
    ],
)
def test_odd_events_are_placed_or_left_out(data: dict[str, Any]) -> None:
    steps = Steps()
    count = 0
    for kind in ("prompt", "tool_call", "tool_call_update", "usage", "user_message_chunk", "error", "plan", "x"):
        place = steps.place(TraceLine(1, kind, data))
        if place is not None and place.opens:
            count += 1
            assert place.step == count


def test_ids_that_begin_anew_in_another_session_are_other_calls() -> None:
    steps = Steps()
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}
    places = [
        steps.place(Event("agent_message_chunk", {"update": update, "sessionId": session, "messageId": "call-1"}))
        for session in ("a", "a", "b")
    ]
    assert [place.step for place in places if place is not None] == [1, 1, 2]
