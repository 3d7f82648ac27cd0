"""Faults that broke other people's tools: the trajectory and its totals are the ones worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import traceflow

CASES = Path(__file__).parents[2] / "fixtures" / "cases"

# case, file: sources of the steps (u user, a agent, s system), prompt, completion and cached tokens, cost
TABLE: list[tuple[str, str, str, int | None, int | None, int | None, float | None]] = [
    ("01", "session.jsonl", "uaa", 2215, 47, 2100, None),
    ("02", "session.jsonl", "ua", 24425, 418, 22137, None),
    ("03", "a-no-request-id.jsonl", "ua", 100, 9, 0, None),
    ("03", "b1-constant-id.jsonl", "uaua", 300, 30, 0, None),
    ("03", "b2-constant-id.jsonl", "ua", 300, 30, 0, None),
    ("04", "11111111-1111-4111-8111-111111111111.jsonl", "uaa", 110, 11, 0, None),
    ("06", "session.jsonl", "uauasua", 6, 6, 0, None),
    ("07", "session.jsonl", "uaua", 30, 3, 0, None),
    ("09", "session.jsonl", "uasua", 130, 13, 0, None),
    ("09", "live-stream.jsonl", "s", None, None, None, None),
    ("10", "session.jsonl", "uaua", 30, 3, 0, None),
    ("11", "22222222-2222-4222-8222-222222222222.jsonl", "uaua", 25, 2, 0, None),
    ("13", "session.jsonl", "uaua", 10, 1, 0, None),
    ("14", "stdout.jsonl", "aa", 300, 30, 0, 0.03),
    ("14", "killed-no-result.jsonl", "a", 50, None, 0, None),
    ("15", "stdout.txt", "a", 7, 2, 0, 0.5),
    ("16", "torn-tail.jsonl", "uu", None, None, None, None),
    ("16", "torn-middle.jsonl", "uuu", None, None, None, None),
    ("22", "utf16le.jsonl", "uu", None, None, None, None),
    ("27", "session.jsonl", "uuuuua", 1, 1, 0, None),
    ("29", "session.jsonl", "ua", 8, 2, 0, None),
    ("31", "session.jsonl", "uaa", 3, 2, 0, None),
    ("33", "user-only.jsonl", "u", None, None, None, None),
    ("36", "claude.jsonl", "uaua", 30, 3, 0, None),
    ("36", "codex.jsonl", "uaua", 300, 15, 50, None),
    ("37", "opencode-messages.jsonl", "aaaa", 40, 4, 0, 0.25),
    ("39", "rollout.jsonl", "uaaa", 3100, 300, 2500, None),
    ("40", "parent.jsonl", "uaa", 2500, 30, 900, None),
    ("40", "child-replay.jsonl", "uaaua", 300, 5, 100, None),
    ("40", "child-inherited.jsonl", "ua", 400, 7, 100, None),
    ("40", "child-fresh.jsonl", "ua", 500, 8, 0, None),
    ("41", "rollout.jsonl", "ua", 117231, 225, 115584, None),
    ("43", "rollout.jsonl", "uaa", 100, 9, 0, None),
    ("43", "rollout-both.jsonl", "ua", 100, 9, 0, None),
    ("44", "rollout.jsonl", "uasa", 2200, 67, 800, None),
    ("46", "rollout.jsonl", "sssua", None, None, None, None),
    ("49", "session.json", "ua", 1050, 320, 600, None),
    ("49", "qwen.jsonl", "ua", 1000, 320, 600, None),
    ("55", "message.json", "a", 66231, 192, 65856, 0.02),
    ("55", "inclusive-fork.json", "a", 69000, 1000, 60000, None),
    ("57", "good.jsonl", "aa", 2080, 50, 2000, 0.5),
]


def document(case: str, name: str) -> dict[str, Any]:
    (folder,) = CASES.glob(f"{case}-*")
    value: dict[str, Any] = traceflow.convert(folder / name)
    return value


@pytest.mark.parametrize(("case", "name", "sources", "prompt", "completion", "cached", "cost"), TABLE)
def test_steps_and_totals(
    case: str, name: str, sources: str, prompt: Any, completion: Any, cached: Any, cost: Any
) -> None:
    found = document(case, name)
    totals = found["final_metrics"]
    assert "".join(step["source"][0] for step in found["steps"]) == sources
    named = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd")
    assert [totals.get(key) for key in named] == [prompt, completion, cached, cost]


def test_a_rewound_branch_is_counted_apart() -> None:
    extra = document("07", "session.jsonl")["final_metrics"]["extra"]
    assert extra["including_abandoned"]["prompt_tokens"] == 42
    assert extra["including_abandoned"]["completion_tokens"] == 4


def test_a_subagent_is_embedded_and_referenced_by_its_trajectory() -> None:
    found = document("04", "11111111-1111-4111-8111-111111111111.jsonl")
    (child,) = found["subagent_trajectories"]
    (result,) = found["steps"][1]["observation"]["results"]
    assert result["source_call_id"] == "toolu_T"
    assert result["subagent_trajectory_ref"][0]["trajectory_id"] == child["trajectory_id"]
    assert found["final_metrics"]["extra"]["including_subagents"]["prompt_tokens"] == 130
    assert found["final_metrics"]["extra"]["including_subagents"]["completion_tokens"] == 13


def test_an_api_error_is_a_step_without_a_model_call() -> None:
    step = document("13", "session.jsonl")["steps"][3]
    assert (step["source"], step["llm_call_count"], step["extra"]["is_api_error"]) == ("agent", 0, True)
    assert step["extra"]["error"]["kind"] == "rate_limit"
    assert "metrics" not in step


def test_pictures_are_parts_and_other_data_is_named(tmp_path: Path) -> None:
    results = document("26", "session.jsonl")["steps"][1]["observation"]["results"]
    assert len(results) == 3
    assert "iVBOR" not in str(results)
    assert "application/pdf" in str(results[1]["content"])
    assert "image/svg+xml" in str(results[1]["content"])
    assert not results[2].get("content")


def test_surrogates_and_nul_come_out_as_valid_text() -> None:
    first, second = document("20", "session.jsonl")["steps"]
    assert first["message"] == "cut \ufffd end, ok \U0001f600"
    assert second["tool_calls"][0]["arguments"] == {"k\ufffd": "\ufffd"}
    (result,) = document("19", "session.jsonl")["steps"][1]["observation"]["results"]
    assert (len(result["content"]), result["content"].count("\0")) == (9, 3)


def test_times_are_utc_or_absent() -> None:
    times = [step.get("timestamp") for step in document("34", "session.jsonl")["steps"]]
    assert times == [
        "2026-03-04T05:06:07.891Z", None, None, None, "2026-03-04T05:06:07Z", "2026-03-04T05:06:07.891Z",
        "2026-03-04T05:06:07.500Z", "2026-03-04T05:06:07Z", "2026-03-04T05:06:07Z", "2026-03-04T05:06:07Z", None, None,
    ]  # fmt: skip


def test_a_model_switch_is_on_the_step() -> None:
    found = document("36", "codex.jsonl")
    assert found["agent"]["model_name"] == "gpt-5.2-codex"
    assert [s.get("model_name") for s in found["steps"] if s["source"] == "agent"] == ["gpt-5.2-codex", "gpt-5-mini"]


def test_calls_and_results_meet_though_ids_repeat() -> None:
    found = [
        (step["tool_calls"][0]["arguments"], step["observation"]["results"][0]["content"])
        for step in document("31", "session.jsonl")["steps"][1:]
    ]
    assert found == [({"path": "."}, "here"), ({"path": "/"}, "root")]
