"""OTLP traces: spans by the conventions for generative AI, their times, and what is said to be lost."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable

import pytest
from otlp_proto import Span, checked_spans
from trace_events import call, error, prompt, result, run, says, thinks, usage, user
from traceflow_formats.atif import AtifBuilder
from traceflow_formats.errors import TraceflowError
from traceflow_formats.losses import Losses
from traceflow_formats.otlp import first_time, write_resource_spans
from traceflow_formats.trace import Event

SECOND = 1_000_000_000
T0 = 1_767_225_600 * SECOND  # 2026-01-01


def at(seconds: float) -> str:
    return f"2026-01-01T00:00:{seconds:06.3f}Z"


def spans_of(events: Iterable[Event], given: str | None = None) -> tuple[list[Span], dict[str, int]]:
    builder = AtifBuilder(times=True)
    for item in events:
        builder.add(item)
    losses, out = Losses(), io.BytesIO()
    with builder.finish() as built:
        count = write_resource_spans(built, out, losses, first_time(built, given))
    spans = checked_spans({"resourceSpans": [json.loads(out.getvalue())]})
    assert len(spans) == count
    return spans, losses.as_dict()


RUN = [
    prompt("Be brief.", role="system", time=at(0), session="s1", harness="codex", harnessVersion="0.171"),
    prompt("Count.", time=at(1)),
    thinks("One command.", "m1", time=at(2), model="gpt-5.5"),
    says("Counting.", "m1", time=at(3), stopReason="tool_use"),
    call("c1", "m1", {"command": "ls"}, name="shell", time=at(3.5)),
    usage("m1", 100, 20, 60, 0.25, more={"reasoning_output_tokens": 5}, time=at(3.5)),
    result("c1", "3", time=at(4.25), status="failed", exitCode=2),
    says("Three.", "m2", time=at(6), model="gpt-5.5"),
]


def test_a_run_is_a_span_for_the_agent_each_model_call_and_each_tool_call() -> None:
    spans, losses = spans_of(RUN)
    chat, tool, last, agent = spans
    assert [span.name for span in spans] == ["chat gpt-5.5", "execute_tool shell", "chat gpt-5.5", "invoke_agent codex"]
    assert [span.kind for span in spans] == [3, 1, 3, 1]
    assert {span.parent for span in (chat, tool, last)} == {agent.id}
    assert agent.parent == ""
    assert {span.trace for span in spans} == {agent.trace}
    assert chat.said | {"gen_ai.input.messages": 0, "gen_ai.output.messages": 0, "gen_ai.system_instructions": 0} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "s1",
        "gen_ai.request.model": "gpt-5.5",
        "gen_ai.response.finish_reasons": ["tool_use"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.reasoning.output_tokens": 5,
        "traceflow.usage.cost_usd": 0.25,
        "gen_ai.input.messages": 0,
        "gen_ai.output.messages": 0,
        "gen_ai.system_instructions": 0,
    }
    assert tool.said == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": "s1",
        "gen_ai.tool.name": "shell",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.arguments": '{"command":"ls"}',
        "gen_ai.tool.call.result": "3",
        "error.type": "_OTHER",
        "process.exit.code": 2,
    }
    assert (tool.error, agent.error) == ("exit code 2", None)
    assert agent.said["gen_ai.agent.version"] == "0.171"
    assert losses == {"input_history": 1, "metrics_extra": 1}


def test_messages_are_the_json_of_the_conventions_and_only_the_new_ones() -> None:
    (chat, _, last, _), _ = spans_of(RUN)
    assert json.loads(chat.said["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(chat.said["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "Count."}]}
    ]
    assert json.loads(chat.said["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "content": "One command."},
                {"type": "text", "content": "Counting."},
                {"type": "tool_call", "id": "c1", "name": "shell", "arguments": {"command": "ls"}},
            ],
            "finish_reason": "tool_use",
        }
    ]
    assert json.loads(last.said["gen_ai.input.messages"]) == [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "3"}]}
    ]


def test_times_are_those_of_the_events() -> None:
    """A model call lasts from its last input to its own last event, a tool call to its result."""
    (chat, tool, last, agent), _ = spans_of(RUN)
    seconds = [((s.start - T0) / SECOND, (s.end - T0) / SECOND) for s in (chat, tool, last, agent)]
    assert seconds == [(1, 3.5), (3.5, 4.25), (4.25, 6), (0, 6)]


def test_a_time_that_the_source_does_not_state_is_its_neighbours_and_counted() -> None:
    spans, losses = spans_of(
        [
            prompt("x"),
            says("one", "m1", time=at(5)),
            call("c1", "m1"),
            result("c1", "r", durationMs=1500),
            call("c2", "m2"),
            result("c2", "r"),
        ]
    )
    seconds = [((s.start - T0) / SECOND, (s.end - T0) / SECOND) for s in spans]
    assert seconds == [(5, 5), (5, 6.5), (6.5, 6.5), (6.5, 6.5), (5, 6.5)]
    assert losses["time_of_neighbour"] == 2  # the prompt and the second call
    assert losses["tool_end"] == 1


def test_nanoseconds_are_kept_and_zones_understood() -> None:
    (chat, _), _ = spans_of(
        [prompt("x", time="2026-01-01T00:00:01.000000001Z"), says("y", "m", time="2026-01-01T02:00:02.123456789+02:00")]
    )
    assert (chat.start - T0, chat.end - T0) == (SECOND + 1, 2 * SECOND + 123_456_789)


def test_a_session_without_any_time_is_refused_unless_one_is_given() -> None:
    events = [prompt("x"), says("y", "m")]
    with pytest.raises(TraceflowError, match="--at TIME") as caught:
        spans_of(events)
    assert caught.value.code == "invalid_trajectory"
    spans, losses = spans_of(events, at(9))
    assert {(span.start, span.end) for span in spans} == {(T0 + 9 * SECOND, T0 + 9 * SECOND)}
    assert losses["time_of_neighbour"] == 2


def test_a_subagent_is_below_the_call_that_spawned_it() -> None:
    spans, _ = spans_of(
        [
            prompt("x", session="s1", harness="claude-code", time=at(0)),
            call("t1", "m1", name="Task", time=at(1)),
            prompt("look", agent="helper", parent="t1", time=at(2)),
            says("found", "k1", agent="helper", parent="t1", time=at(3)),
            result("t1", "found", time=at(4)),
            says("done", "m2", time=at(5)),
        ]
    )
    by_name: dict[str, list[Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    (task,) = by_name["execute_tool Task"]
    root, child = by_name["invoke_agent claude-code"]
    assert (child.parent, child.said["gen_ai.agent.id"], task.parent) == (task.id, "helper", root.id)
    assert task.start <= child.start <= child.end <= task.end


def test_a_subagent_with_the_id_of_its_parent_has_spans_of_its_own() -> None:
    spans, _ = spans_of(
        [
            prompt("x", session="s1", time=at(0)),
            call("t1", "m1", name="Task", time=at(1)),
            says("found", "k1", agent="s1", parent="t1", time=at(2)),
            result("t1", "found", time=at(3)),
        ]
    )
    agents = [span for span in spans if span.name.startswith("invoke_agent")]
    assert [span.said["gen_ai.agent.id"] for span in agents] == ["s1", "s1"]
    assert agents[1].parent == next(span.id for span in spans if span.name == "execute_tool Task")


def test_errors_are_events_and_a_fatal_one_is_the_agents_status() -> None:
    spans, _ = spans_of(
        [
            prompt("x", time=at(0)),
            error("slow down", False, errorKind="rate_limit", time=at(1)),
            says("y", "m1", time=at(2)),
            error("gone", True, time=at(3)),
        ]
    )
    agent = spans[-1]
    assert agent.events == [
        ("exception", {"exception.type": "rate_limit", "exception.message": "slow down"}),
        ("exception", {"exception.type": "_OTHER", "exception.message": "gone"}),
    ]
    assert (agent.error, agent.said["error.type"]) == ("gone", "_OTHER")


def test_totals_of_the_agent_are_those_of_the_run() -> None:
    spans, losses = spans_of(
        [prompt("x", time=at(0)), says("y", "m1", time=at(1)), run(50, 9, 4, 0.5), user("and?", time=at(2))]
    )
    said = spans[-1].said
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    assert [said[f"gen_ai.usage.{name}"] for name in names] == [50, 9, 4]
    assert said["traceflow.usage.cost_usd"] == 0.5
    assert losses == {"input_without_call": 1, "provider_unknown": 1}


def test_copied_history_makes_no_span() -> None:
    spans, losses = spans_of(
        [says("old", "m0", copied=True, time=at(0)), prompt("x", time=at(1)), says("y", "m1", time=at(2))]
    )
    assert [span.name for span in spans] == ["chat", "invoke_agent unknown"]
    assert losses["copied_context"] == 1


def test_ids_are_the_same_each_time_and_differ_between_sessions() -> None:
    first, again = spans_of(RUN)[0], spans_of(RUN)[0]
    assert first == again
    other = spans_of([RUN[0]._replace(data={**RUN[0].data, "sessionId": "s2"}), *RUN[1:]])[0]
    assert not {span.id for span in first} & {span.id for span in other}
