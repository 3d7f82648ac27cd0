"""Codex files that broke other tools, each with its right value (see the expected.md beside each case)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.codex import HARNESS
from traceflow_parsers.testing import check_events

CASES = Path(__file__).parents[2] / "fixtures" / "cases"


def events_of(path: Path) -> list[Event]:
    events = list(HARNESS.session_at(path).parse())
    check_events(events)
    return events


def counts(events: list[Event]) -> list[dict[str, Any]]:
    calls = [event.data["update"] for event in events if event.type == "usage"]
    return [update["usage"] for update in calls if update["scope"] == "call"]


def total(events: list[Event]) -> tuple[int, int, int]:
    used = counts(events)
    return tuple(sum(c[key] for c in used) for key in ("promptTokens", "cachedTokens", "completionTokens"))  # type: ignore[return-value]


def extra(event: Event) -> dict[str, Any]:
    return event.data.get("extra") or {}


def texts(events: list[Event], *types: str) -> list[str]:
    return [text_of(event) for event in events if event.type in types]


def test_33_a_header_alone_is_claimed_and_says_nothing() -> None:
    source = HARNESS.session_at(CASES / "33-empty-and-header-only-sessions/codex-only-meta.jsonl")
    parse = source.parse()
    assert list(parse) == []
    assert parse.report.lines.parsed == 1
    assert parse.report.version == "0.98.0"
    assert parse.report.session_id == source.session_id == "019c0000-0000-7000-8000-000000000001"


def test_36_each_call_has_the_model_of_its_turn() -> None:
    events = events_of(CASES / "36-model-switch-mid-session/codex.jsonl")
    said = {text_of(e): (e.data["model"], e.data["messageId"]) for e in events if e.type == "agent_message_chunk"}
    usage = {e.data["messageId"]: e for e in events if e.type == "usage" and e.data["update"]["scope"] == "call"}
    assert said["x"][0] == "gpt-5.2-codex"
    assert said["y"][0] == "gpt-5-mini"
    first, second = usage[said["x"][1]], usage[said["y"][1]]
    assert (first.data["model"], second.data["model"]) == ("gpt-5.2-codex", "gpt-5-mini")
    assert first.data["update"]["usage"]["promptTokens"] == 100
    assert second.data["update"]["usage"] == {
        "promptTokens": 200,
        "cachedTokens": 50,
        "completionTokens": 10,
        "extra": {"reasoning_output_tokens": 0, "total_tokens": 210},
    }


def test_39_a_count_that_is_written_again_is_no_call() -> None:
    events = events_of(CASES / "39-codex-token-count-reemitted/rollout.jsonl")
    assert len(counts(events)) == 3
    assert total(events) == (3100, 2500, 300)
    assert sum(usage["extra"]["reasoning_output_tokens"] for usage in counts(events)) == 90


def test_40_what_a_fork_copied_is_marked_and_counted_once(tmp_path: Path) -> None:
    folder = CASES / "40-codex-fork-and-subagent-replay"
    sources = HARNESS.sessions_in(folder)
    assert [source.path.name for source in sources] == ["child-inherited.jsonl", "child-replay.jsonl", "parent.jsonl"]
    every = [list(source.parse()) for source in sources]
    inherited, replay, parent = every
    assert total(inherited) == (400, 100, 7)
    assert total(replay) == (300, 100, 5)
    fresh = [event for event in parent if extra(event).get("agentId")]
    assert total(fresh) == (500, 0, 8)
    assert total([event for event in parent if event not in fresh]) == (2500, 900, 30)
    joined = [event for events in every for event in events]
    assert len(counts(joined)) == 5
    assert total(joined) == (3700, 1100, 50)
    copied = [event for event in replay if extra(event).get("copied")]
    assert [text_of(event) for event in copied] == ["hi", "p1", "p2"]
    assert len({event.data["messageId"] for event in copied[1:]}) == 2
    assert not [event for event in (*inherited, *parent) if extra(event).get("copied")]


def test_40_a_replay_is_known_without_its_parent_by_the_moment_it_was_written(tmp_path: Path) -> None:
    for name in ("child-replay.jsonl", "child-fresh.jsonl", "child-inherited.jsonl"):
        shutil.copy(CASES / "40-codex-fork-and-subagent-replay" / name, tmp_path)
    marked = {
        source.path.name: [text_of(event) for event in source.parse() if extra(event).get("copied")]
        for source in HARNESS.sessions_in(tmp_path)
    }
    assert marked == {"child-fresh.jsonl": [], "child-inherited.jsonl": [], "child-replay.jsonl": ["hi", "p1", "p2"]}


def test_41_cached_and_reasoning_are_parts_of_the_counts() -> None:
    (usage,) = counts(events_of(CASES / "41-codex-cached-and-reasoning-are-subsets/rollout.jsonl"))
    assert usage == {
        "promptTokens": 117231,
        "cachedTokens": 115584,
        "completionTokens": 225,
        "extra": {"reasoning_output_tokens": 53, "total_tokens": 117456},
    }


def test_43_events_stand_in_where_there_are_no_items() -> None:
    events = events_of(CASES / "43-codex-item-completed-envelope/rollout.jsonl")
    assert texts(events, "prompt") == ["hello"]
    (call,) = [event.data["update"] for event in events if event.type == "tool_call"]
    assert (call["title"], call["kind"], call["rawInput"]) == ("`ls`", "execute", {"command": "ls"})
    (result,) = [event for event in events if event.type == "tool_call_update"]
    assert text_of(result) == "a.txt"
    assert extra(result)["exitCode"] == 0
    assert texts(events, "agent_message_chunk") == ["done"]
    assert total(events) == (100, 0, 9)


def test_43_events_that_repeat_items_count_once() -> None:
    events = events_of(CASES / "43-codex-item-completed-envelope/rollout-both.jsonl")
    assert texts(events, "prompt", "user_message_chunk") == ["hello"]
    assert texts(events, "agent_message_chunk") == ["done"]
    assert total(events) == (100, 0, 9)


def test_44_the_records_count_every_call_the_compaction_too() -> None:
    events = events_of(CASES / "44-codex-token-usage-record-and-compaction/rollout.jsonl")
    assert len(counts(events)) == 3
    assert total(events) == (2200, 800, 67)
    (summing_up,) = [event for event in events if extra(event).get("compaction") is True]
    assert summing_up.data["update"]["usage"]["promptTokens"] == 900
    assert extra(summing_up)["requestId"] == "resp_c"
    (summary,) = [event for event in events if isinstance(extra(event).get("compaction"), dict)]
    assert text_of(summary) == "summary text"
    assert texts(events, "agent_message_chunk") == ["x", "y"]


def test_46_what_the_harness_put_in_is_no_prompt() -> None:
    events = events_of(CASES / "46-codex-injected-context-as-user/rollout.jsonl")
    assert texts(events, "prompt") == ["fix the bug"]
    injected = [extra(event)["injected"] for event in events if event.type == "user_message_chunk"]
    assert injected == ["developer", "agents_md", "environment_context"]
    assert texts(events, "agent_message_chunk") == ["done"]


@pytest.mark.parametrize(
    "name", ["36-model-switch-mid-session/codex.jsonl", "39-codex-token-count-reemitted/rollout.jsonl"]
)
def test_the_total_of_the_thread_is_the_sum_of_its_calls(name: str) -> None:
    events = events_of(CASES / name)
    (run,) = [e.data["update"]["usage"] for e in events if e.type == "usage" and e.data["update"]["scope"] == "run"]
    assert (run["promptTokens"], run["cachedTokens"], run["completionTokens"]) == total(events)
