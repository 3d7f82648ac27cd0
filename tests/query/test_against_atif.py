"""Steps and totals in the store are those of the ATIF trajectory of the same trace, subagents included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.atif import AtifBuilder, trajectory
from traceflow_formats.trace import Event

from traceflow.query import sql
from traceflow.store import EventEncoder, Store, Totals
from traceflow.store.testing import call, chunk, error, prompt, result, usage, write_job

COUNT = st.integers(0, 1000)


@st.composite
def sessions(draw: st.DrawFn) -> list[Event]:
    """A run with tools and subagents, in which some calls lack their usage, or part of it."""
    events = [prompt("Fix it")]
    if draw(st.booleans()):
        events.append(chunk("user", "cwd: /w", extra={"injected": "environment_context"}))
    for number in range(draw(st.integers(0, 6))):
        agent = draw(st.sampled_from([None, None, "sub-1", "sub-2"]))
        extra: dict[str, Any] = {} if agent is None else {"agentId": agent}
        if draw(st.integers(0, 5)) == 0:
            extra["copied"] = True
        if draw(st.integers(0, 5)) == 0:
            extra["abandoned"] = True
        beside: dict[str, Any] = {"messageId": f"call-{number}", "extra": extra}
        for word in draw(st.lists(st.sampled_from(["words", "", "two\nlines", "\n\n"]), max_size=3)):
            delta = {"delta": True} if draw(st.integers(0, 2)) == 0 else {}
            events.append(chunk("agent", word, messageId=f"call-{number}", extra={**extra, **delta}))
        tools = [f"t{number}-{n}" for n in range(draw(st.integers(0, 2)))]
        events += [call(tool, "Bash", {"command": "ls"}, **beside) for tool in tools]
        for _ in range(draw(st.integers(0, 2))):
            said = usage(draw(COUNT), draw(COUNT), draw(COUNT), cost=draw(st.sampled_from([None, 0.1, 0.25])), **beside)
            if draw(st.integers(0, 4)) == 0:
                del said.data["update"]["usage"]["completionTokens"]
            events.append(said)
        events += [result(tool, "out", **beside) for tool in tools if draw(st.booleans())]
        if draw(st.integers(0, 6)) == 0:
            events.append(error("API Error", draw(st.booleans()), extra=extra))
    if draw(st.booleans()):
        run = usage(draw(COUNT), draw(COUNT), draw(COUNT), scope="run", cost=draw(st.sampled_from([None, 1.5])))
        if draw(st.booleans()):
            run.data["update"]["usage"]["extra"] = {"includingSubagents": {"promptTokens": draw(COUNT)}}
        events.append(run)
    return events


def counted(events: list[Event]) -> Totals:
    encoder = EventEncoder("job", "trial")
    for _ in encoder.rows(events):
        pass
    return encoder.totals()


@settings(max_examples=200, deadline=None)
@given(sessions())
def test_they_are_the_numbers_of_the_trajectory(events: list[Event]) -> None:
    builder = AtifBuilder()
    for event in events:
        builder.add(event)
    with builder.finish() as built:
        expected = built.summary
    found = counted(events)
    assert found.n_events == len(events)
    assert (found.n_steps, found.n_model_calls, found.n_tool_calls) == (
        expected.steps,
        expected.model_calls,
        expected.tool_calls,
    )
    assert (found.prompt_tokens, found.completion_tokens, found.cached_tokens) == (
        expected.prompt_tokens,
        expected.completion_tokens,
        expected.cached_tokens,
    )
    if not expected.cost_partial:
        assert found.cost_usd == expected.cost_usd


def steps_of(document: dict[str, Any], agent: str | None = None) -> list[tuple[Any, ...]]:
    """Agent, number, source, words, reasoning, calls and tokens of every step, subagents after their parent."""
    out: list[tuple[Any, ...]] = []
    for step in document.get("steps", []):
        metrics = step.get("metrics", {})
        out.append(
            (
                agent,
                step["step_id"],
                step["source"],
                step["message"],
                len(step.get("tool_calls", [])),
                metrics.get("prompt_tokens"),
                metrics.get("completion_tokens"),
                bool(step.get("is_copied_context")),
            )
        )
    for child in document.get("subagent_trajectories", []):
        out += steps_of(child, child["trajectory_id"])
    return out


@settings(max_examples=6, deadline=None)
@given(st.lists(sessions(), min_size=1, max_size=30))
def test_steps_are_those_of_the_trajectory(tmp_path_factory: pytest.TempPathFactory, found: list[list[Event]]) -> None:
    store = Store.open(str(tmp_path_factory.mktemp("steps") / "s"), create=True)
    write_job(store, "job", [({"trial_id": f"{n:02d}"}, events) for n, events in enumerate(found)])
    query = """SELECT trial_id, agent_id, step_id, source, message, n_tool_calls, prompt_tokens, completion_tokens,
        copied FROM steps ORDER BY trial_id, agent_id NULLS FIRST, step_id"""
    expected = [
        (f"{number:02d}", *step)
        for number, events in enumerate(found)
        for step in sorted(steps_of(trajectory(events)), key=lambda step: (step[0] or "", step[1]))
    ]
    assert sql(store, query).fetchall() == expected


def test_a_cost_of_which_a_part_is_not_known_is_absent() -> None:
    known, unknown = usage(1, 1, messageId="a", cost=0.1), usage(1, 1, messageId="b")
    both = [chunk("agent", "x", messageId="a"), known, chunk("agent", "y", messageId="b"), unknown]
    assert counted(both[:2]).cost_usd == 0.1
    assert counted(both).cost_usd is None
    assert counted([*both, usage(2, 2, scope="run", cost=0.5)]).cost_usd == 0.5
    gateway = [usage(1, 1, source="gateway", cost=cost) for cost in (0.1, 0.2)]
    assert counted([*both, *gateway]).cost_usd == 0.3
    assert counted([*both, *gateway, usage(1, 1, source="gateway")]).cost_usd is None


def test_sums_of_money_are_exact() -> None:
    events = [
        event
        for n in range(3)
        for event in (chunk("agent", "x", messageId=f"m{n}"), usage(1, 1, messageId=f"m{n}", cost=0.1))
    ]
    assert counted(events).cost_usd == 0.3
