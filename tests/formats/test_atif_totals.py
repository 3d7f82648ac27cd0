"""Totals: right or absent, copied and withdrawn calls apart, subagents beside, no reading added to another."""

from __future__ import annotations

from typing import Any

from trace_events import call, error, gateway, loss, prompt, result, run, says, usage
from traceflow_formats.atif import AtifBuilder, Summary, strict_problems, trajectory
from traceflow_formats.trace import Event, TraceLine


def totals(*events: Event | TraceLine) -> dict[str, Any]:
    document = trajectory(events)
    assert strict_problems(document) == []
    made: dict[str, Any] = document["final_metrics"]
    del made["total_steps"]
    return {name.removeprefix("total_"): value for name, value in made.items()}


def summary(*events: Event | TraceLine) -> Summary:
    builder = AtifBuilder()
    for event in events:
        builder.add(event)
    with builder.finish() as built:
        return built.summary


def test_the_sum_of_the_calls() -> None:
    events = [
        prompt("x"),
        says("a", "m1"),
        usage("m1", 10, 1, 5, 0.1),
        says("b", "m2"),
        call("c", "m2"),
        usage("m2", 20, 2, 0, 0.2),
    ]
    assert totals(*events) == {
        "prompt_tokens": 30,
        "completion_tokens": 3,
        "cached_tokens": 5,
        "cost_usd": 0.3,
        "extra": {"status": "incomplete"},
    }
    assert summary(*events) == Summary(3, 3, 0, 2, 1, 30, 3, 5, 0.3, False, "incomplete")


def test_usage_that_is_said_again_counts_once() -> None:
    repeats = [usage("m1", 10, n, 5, 0.1 * n) for n in (1, 2, 3)]
    assert totals(says("a", "m1"), *repeats) == {
        "prompt_tokens": 10,
        "completion_tokens": 3,
        "cached_tokens": 5,
        "cost_usd": 0.1 * 3,
    }
    far = [e for n in range(200) for e in (says("x", f"m{n}"), usage(f"m{n}", 1, 1, 0))]
    document = trajectory([*far[:60], usage("m20", 1, 7, 0), *far[60:]])
    assert document["final_metrics"]["total_completion_tokens"] == 206


def test_nothing_known_is_null() -> None:
    assert totals(prompt("x"), says("a", "m1")) == {}
    assert totals(prompt("x")) == {}


def test_cost_null_and_zero() -> None:
    """Case 37: priced 0.25 and 0, two calls without a price."""
    events = [
        says("a", "m1"), usage("m1", 1, 1, 0, 0.25), says("b", "m2"), usage("m2", 1, 1, 0, 0),
        says("c", "m3"), usage("m3", 1, 1, 0), says("d", "m4"), usage("m4", 1, 1, 0),
    ]  # fmt: skip
    assert totals(*events) == {
        "prompt_tokens": 4,
        "completion_tokens": 4,
        "cached_tokens": 0,
        "cost_usd": 0.25,
        "extra": {"cost_partial": True, "priced_calls": 2, "unpriced_calls": 2},
    }
    assert summary(*events).cost_partial
    assert totals(says("a", "m1"), usage("m1", 1, 1, 0, 0))["cost_usd"] == 0.0


def test_totals_of_the_source_where_calls_do_not_say() -> None:
    """Case 14: claude's stdout has placeholders for the completion; codex's has nothing per call."""
    placeholder = usage("m1", 300, None, 0, more={"output_tokens": 1})
    assert totals(says("a", "m1"), placeholder, run(300, 30, 0, 0.03)) == {
        "prompt_tokens": 300,
        "completion_tokens": 30,
        "cached_tokens": 0,
        "cost_usd": 0.03,
        "extra": {"source": "run"},
    }
    assert totals(says("a", "m1"), placeholder) == {
        "prompt_tokens": 300,
        "cached_tokens": 0,
        "extra": {"completion_tokens_at_least": 1},
    }
    assert totals(says("a", "m1"), run(7, 2, 1), run(9, 3, 1, cumulative=True)) == {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "cached_tokens": 1,
        "extra": {"source": "run", "cumulative": True},
    }


def test_totals_of_the_source_that_differ_are_told() -> None:
    assert totals(says("a", "m1"), usage("m1", 10, 1, 0), run(15, 1, 0))["extra"] == {"run": {"prompt_tokens": 15}}


def test_known_in_part_is_a_lower_bound() -> None:
    events = [
        says("a", "m1"), usage("m1", 10, 1, 0), call("c", "m2"), result("c", "r"), usage("m2", 20, None, 0),
        says("b", "m3"), usage("m3", 30, 3, 0),
    ]  # fmt: skip
    assert totals(*events) == {"prompt_tokens": 60, "cached_tokens": 0, "extra": {"completion_tokens_at_least": 4}}


def test_a_call_that_was_cut_short_leaves_the_others_counted() -> None:
    whole = [says("a", "m1"), usage("m1", 10, 1, 0)]
    cut = {"prompt_tokens": 10, "completion_tokens": 1, "cached_tokens": 0, "extra": {"calls_without_usage": 1}}
    assert totals(*whole, says("half", "m2")) == cut
    assert totals(*whole, says("half", "m2"), usage("m2", 20, None, 0))["completion_tokens"] == 1
    ended = totals(*whole, call("c", "m2"), result("c", "r"), says("b", "m3"), usage("m3", 5, 5, 0))
    assert "prompt_tokens" not in ended, "a call that ran to its end must have cost something"
    assert ended["extra"]["prompt_tokens_at_least"] == 15


def test_summaries_are_in_the_totals_and_in_no_step() -> None:
    """Case 44."""
    events = [
        says("a", "m1"), usage("m1", 1000, 10, 400), usage("resp_c", 900, 50, 300, compaction=True),
        says("b", "m2"), usage("m2", 300, 7, 100),
    ]  # fmt: skip
    assert totals(*events) == {
        "prompt_tokens": 2200,
        "completion_tokens": 67,
        "cached_tokens": 800,
        "extra": {"compaction": {"calls": 1, "prompt_tokens": 900, "completion_tokens": 50, "cached_tokens": 300}},
    }
    assert summary(*events).model_calls == 2


def test_withdrawn_calls_are_apart() -> None:
    """Case 7: the active branch 30/3, everything on disk 42/4."""
    events = [
        prompt("u1"), says("a1", "m1"), usage("m1", 10, 1, 0),
        says("a2", "m2", abandoned=True), usage("m2", 12, 7, 0, abandoned=True), usage("m2", 12, 1, 0, abandoned=True),
        says("a2b", "m3"), usage("m3", 20, 2, 0),
    ]  # fmt: skip
    assert totals(*events) == {
        "prompt_tokens": 30,
        "completion_tokens": 3,
        "cached_tokens": 0,
        "extra": {"including_abandoned": {"prompt_tokens": 42, "completion_tokens": 4, "cached_tokens": 0}},
    }


def test_copied_history_counts_nothing() -> None:
    """Cases 40 and 66."""
    events = [
        says("old", "m1", copied=True), usage("m1", 100, 10, 40, copied=True), call("c", "m1", copied=True),
        says("new", "m2"), usage("m2", 150, 12, 100),
    ]  # fmt: skip
    assert totals(*events) == {"prompt_tokens": 150, "completion_tokens": 12, "cached_tokens": 100}
    assert summary(*events) == Summary(2, 2, 0, 1, 0, 150, 12, 100)
    document = trajectory(events)
    assert document["steps"][0]["metrics"]["prompt_tokens"] == 100


def kid(message_id: str, *numbers: Any) -> list[Event]:
    return [
        says("k", message_id, agent="kid", parent="task"),
        usage(message_id, *numbers, agent="kid", parent="task"),
    ]


SPAWN = [call("task", "m1"), usage("m1", 10, 1, 5, 0.1)]


def test_subagents_are_beside_the_roots_own_totals() -> None:
    events = [*SPAWN, *kid("k1", 7, 2, 0, 0.01), result("task", "r")]
    assert totals(*events) == {
        "prompt_tokens": 10,
        "completion_tokens": 1,
        "cached_tokens": 5,
        "cost_usd": 0.1,
        "extra": {
            "including_subagents": {"prompt_tokens": 17, "completion_tokens": 3, "cached_tokens": 5, "cost_usd": 0.11}
        },
    }
    assert summary(*events) == Summary(2, 1, 1, 2, 1, 17, 3, 5, 0.11)


def test_a_subagent_that_is_not_counted_leaves_the_whole_unknown() -> None:
    events = [*SPAWN, says("k", "k1", agent="kid", parent="task")]
    assert totals(*events)["extra"]["including_subagents"] == {"cost_usd": 0.1, "cost_partial": True}
    counts = summary(*events)
    assert (counts.prompt_tokens, counts.cost_usd, counts.cost_partial) == (None, 0.1, True)


def test_totals_with_subagents_that_the_source_states() -> None:
    """Claude's and gemini's stdout do not show every call of a subagent, but count them."""
    stated = {"includingSubagents": {"promptTokens": 50, "completionTokens": 9, "cachedTokens": 6}}
    events = [*SPAWN, *kid("k1", 7, None, 0), run(10, 1, 5, 0.3, stated)]
    assert totals(*events)["extra"]["including_subagents"] == {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "cached_tokens": 6,
        "cost_usd": 0.3,
    }
    unseen = totals(says("a", "m1"), run(more=stated))
    assert unseen == {
        "extra": {"including_subagents": {"prompt_tokens": 50, "completion_tokens": 9, "cached_tokens": 6}}
    }


def test_a_gateway_is_the_tokens_and_the_money() -> None:
    lines = [TraceLine(1_000_000_000 + n, *gateway(20, 2, 1, 0.5)) for n in range(2)]
    whole = {"prompt_tokens": 40, "completion_tokens": 4, "cached_tokens": 2, "cost_usd": 1.0}
    alone = totals(says("a", "m1"), usage("m1", 10, 1, 0, 0.1), *lines)
    assert alone == {
        **whole,
        "extra": {
            "source": "gateway",
            "harness": {"prompt_tokens": 10, "completion_tokens": 1, "cached_tokens": 0, "cost_usd": 0.1},
        },
    }
    family = totals(*SPAWN, *kid("k1", 7, 2, 0), *lines)
    assert family["prompt_tokens"] == 10, "a gateway cannot tell the agents apart"
    assert family["extra"]["including_subagents"] == {**whole, "source": "gateway"}


def test_parts_of_a_trial_are_added() -> None:
    def part(name: str, *numbers: Any) -> list[Event]:
        return [says("a", "call-1", stepName=name), run(*numbers, stepName=name)]

    assert totals(*part("first", 10, 1, 0, 0.1), *part("second", 20, 2, 0, 0.2)) == {
        "prompt_tokens": 30,
        "completion_tokens": 3,
        "cached_tokens": 0,
        "cost_usd": 0.3,
        "extra": {"source": "run"},
    }
    half = totals(*part("first", 10, 1), *part("second", 20))
    assert half == {"prompt_tokens": 30, "extra": {"source": "run", "completion_tokens_at_least": 1}}


def test_how_it_ended() -> None:
    retried = error("529", fatal=False, retried=True)
    assert totals(says("a", "m1"), retried, retried) == {"extra": {"retries": 2}}
    assert totals(says("a", "m1"), error("500")) == {"extra": {"status": "error"}}
    assert totals(error("500"), says("a", "m1")) == {}, "it went on"
    assert totals(error("odd", fatal=False)) == {}
    assert totals(says("a", "m1"), loss("truncated_tail")) == {"extra": {"status": "incomplete"}}
    assert totals(says("a", "m1"), loss("malformed_line")) == {}


def test_numbers_that_are_none_are_left_out() -> None:
    odd = usage("m1", -1, 2.0, "5", float("nan"), "x")
    assert trajectory([says("a", "m1"), odd])["steps"][0]["metrics"] == {"completion_tokens": 2}
    nothing = trajectory([says("a", "m1"), usage("m1")])
    assert "metrics" not in nothing["steps"][0]
