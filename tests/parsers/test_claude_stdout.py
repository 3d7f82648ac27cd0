"""Claude Code's stdout: failures, partial messages, several runs, other output formats."""

from __future__ import annotations

import json
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.claude_code.stdout import ClaudeStdout
from traceflow_parsers.testing import check_events, run

INIT = {
    "type": "system",
    "subtype": "init",
    "session_id": "s",
    "model": "m",
    "tools": [],
    "claude_code_version": "2.1.0",
}


def said(words: str, message_id: str = "msg_1", **more: Any) -> dict[str, Any]:
    message = {"id": message_id, "role": "assistant", "model": more.pop("model", "m"),
               "content": [{"type": "text", "text": words}],
               "usage": {"input_tokens": more.pop("asked", 10), "output_tokens": 1}}  # fmt: skip
    return {"type": "assistant", "message": message, "session_id": "s", **more}


def ended(prompt: int = 10, output: int = 5, **more: Any) -> dict[str, Any]:
    return {
        "type": "result", "subtype": "success", "is_error": False, "session_id": "s", "num_turns": 1, "duration_ms": 7,
        "total_cost_usd": 0.5, "usage": {"input_tokens": prompt, "output_tokens": output}, "result": "done", **more,
    }  # fmt: skip


def stream(event: dict[str, Any]) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "session_id": "s", "parent_tool_use_id": None}


def parse(*records: Any) -> tuple[list[Event], ClaudeStdout]:
    parser = ClaudeStdout()
    events = run(parser, b"".join(json.dumps(record).encode() + b"\n" for record in records))
    check_events(events)
    return events, parser


def errors(events: list[Event]) -> list[tuple[str, bool]]:
    return [(e.data["update"]["message"], e.data["update"]["fatal"]) for e in events if e.type == "error"]


def total(events: list[Event]) -> dict[str, Any]:
    (usage,) = [e.data["update"]["usage"] for e in events if e.data.get("update", {}).get("scope") == "run"]
    return usage


FAILED = said("API Error: 500 x", "u-1", model="<synthetic>", error="server_error")


@pytest.mark.parametrize(
    ("records", "want"),
    [
        ([FAILED, ended(is_error=True, result="API Error: 500 x")], [("API Error: 500 x", True)]),
        ([FAILED, ended(is_error=True, result="")], [("API Error: 500 x", True)]),
        ([FAILED, said("better"), ended()], [("API Error: 500 x", False)]),
        ([FAILED], [("API Error: 500 x", True)]),
        ([ended(subtype="error_max_turns", result=None)], [("error_max_turns", True)]),
        ([ended(subtype="error_during_execution", is_error=True, errors=["a", "b"], result=None)], [("a\nb", True)]),
        ([said("No response requested.", model="<synthetic>"), ended()], []),
        ([said("fine"), ended()], []),
    ],
)
def test_failures_are_said_once(records: list[Any], want: list[tuple[str, bool]]) -> None:
    events, _ = parse(INIT, *records)
    assert errors(events) == want
    assert not any("API Error" in text_of(e) for e in events if e.type == "agent_message_chunk")


def test_a_subagents_failure_is_its_own_and_not_fatal() -> None:
    events, _ = parse(INIT, {**FAILED, "parent_tool_use_id": "T"}, said("on"), ended())
    (error,) = [e for e in events if e.type == "error"]
    assert (error.data["update"]["fatal"], error.data["extra"]["agentId"]) == (False, "T")


def test_the_facts_of_a_run() -> None:
    events, parser = parse(INIT, said("x"), ended(stop_reason="end_turn"))
    assert events[-1].data["extra"] == {"durationMs": 7, "numTurns": 1, "stopReason": "end_turn", "subtype": "success"}
    assert total(events) == {"promptTokens": 10, "completionTokens": 5, "costUsd": 0.5}
    assert (parser.report.version, parser.report.session_id) == ("2.1.0", "s")


def test_an_unknown_cost_is_absent() -> None:
    for cost in (None, "0.1", -1):
        assert "costUsd" not in total(parse(INIT, said("x"), ended(total_cost_usd=cost))[0])


def test_models_on_the_side_are_no_subagents() -> None:
    models = {"big": {"inputTokens": 10, "outputTokens": 5}, "small": {"inputTokens": 3, "cacheReadInputTokens": 4}}
    everyone = {"promptTokens": 17, "completionTokens": 5, "cachedTokens": 4}
    alone, _ = parse(INIT, said("x"), ended(modelUsage=models))
    assert total(alone)["extra"] == {"includingSideCalls": everyone}
    helped, _ = parse(INIT, said("y", "msg_2", parent_tool_use_id="T"), said("x"), ended(modelUsage=models))
    assert total(helped)["extra"] == {"includingSubagents": everyone}
    same, _ = parse(INIT, said("x"), ended(modelUsage={"big": {"inputTokens": 10, "outputTokens": 5}}))
    assert "extra" not in total(same)


@pytest.mark.parametrize(
    ("records", "prompt", "cost"),
    [
        # One process, several turns: each result counts from the start, with or without an init between them.
        ([INIT, said("a"), ended(10), said("b", "msg_2"), ended(20)], 20, 0.5),
        ([INIT, said("a"), ended(10), INIT, said("b", "msg_2"), ended(20)], 20, 0.5),
        # Several processes, a log of each after the other: each result counts its own run.
        ([INIT, said("a"), ended(10), INIT, said("b", "msg_2", asked=30), ended(30)], 40, 1.0),
        ([INIT, said("a"), ended(10), INIT, said("b", "msg_2", asked=30), ended(30), INIT, ended(0)], 40, 1.5),
    ],
)
def test_totals_of_several_results(records: list[Any], prompt: int, cost: float) -> None:
    events, _ = parse(*records)
    assert (total(events)["promptTokens"], total(events)["costUsd"]) == (prompt, cost)


def test_a_cost_that_one_of_the_runs_lacks_is_not_known() -> None:
    events, _ = parse(INIT, said("a"), ended(10, total_cost_usd=None), INIT, said("b", "msg_2", asked=30), ended(30))
    assert "costUsd" not in total(events)


def test_one_result_object_holds_the_answer() -> None:
    events, _ = parse(ended())
    assert [(e.type, text_of(e)) for e in events[:1]] == [("agent_message_chunk", "done")]
    assert total(events)["costUsd"] == 0.5


BEGUN = {"id": "msg_1", "model": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}
PARTIAL = [
    INIT,
    stream({"type": "message_start", "message": BEGUN}),
    stream({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    stream({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half "}}),
    stream({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a word"}}),
]  # fmt: skip


def test_a_run_that_was_killed_within_a_block_keeps_what_had_come() -> None:
    events, parser = parse(*PARTIAL)
    assert text_of(events[0]) == "half a word"
    assert events[0].data["extra"]["partial"] is True
    assert events[0].data["messageId"] == "msg_1"
    assert events[1].data["update"]["usage"] == {"promptTokens": 9, "extra": {"output_tokens": 1}}
    assert parser.report.incomplete


def test_partial_messages_add_no_text_and_bring_the_real_usage() -> None:
    delta = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"input_tokens": 9, "output_tokens": 40},
    }
    events, _ = parse(*PARTIAL, said("half a word", asked=9), stream(delta), stream({"type": "message_stop"}), ended())
    assert [text_of(e) for e in events if e.type == "agent_message_chunk"] == ["half a word"]
    (call,) = [e for e in events if e.data.get("update", {}).get("scope") == "call"]
    assert call.data["update"]["usage"] == {"promptTokens": 9, "completionTokens": 40}
    assert call.data["extra"] == {"stopReason": "end_turn"}


def test_prompts_that_are_replayed_and_text_that_is_synthetic() -> None:
    def user(words: str, **more: Any) -> dict[str, Any]:
        return {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": words}]},
                "session_id": "s", **more}  # fmt: skip

    events, _ = parse(
        INIT,
        user("please", isReplay=True),
        user("<local-command-stdout>Compacted</local-command-stdout>", isReplay=True),
        user("Continue.", isSynthetic=True),
    )
    kinds = [(e.type, e.data.get("extra", {}).get("injected")) for e in events]
    assert kinds == [("prompt", None), ("user_message_chunk", "command_output"), ("user_message_chunk", "meta")]


def test_types_that_are_not_known_are_counted() -> None:
    _, parser = parse(INIT, {"type": "telepathy"}, {"type": "system", "subtype": "telepathy"}, ended())
    assert parser.report.unknown_types == {"system": 1, "telepathy": 1}
    assert parser.report.lines.parsed == 2
