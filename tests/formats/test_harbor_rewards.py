"""Rewards: which shapes count, which one is the primary, and what a verifier's files say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.harbor import Rewards, outcome_of, parse_reward_files, read_reward_folder, read_trial
from traceflow_formats.harbor.rewards import MAX_REWARD_FILE

CASES = Path(__file__).parents[2] / "fixtures" / "cases"
SHAPES = CASES / "62-harbor-reward-shapes" / "j"
BARE: dict[str, Any] = {
    **dict.fromkeys(("task_name", "trial_name", "trial_uri", "task_checksum"), ""),
    **{key: {} for key in ("task_id", "config", "agent_info")},
}


@pytest.mark.parametrize(
    ("folder", "primary", "status", "warned"),
    [
        ("t0__rw00000", -0.5, "SCORED", []),
        ("t1__rw00001", 0.5, "SCORED", ["reward_coerced"]),
        ("t2__rw00002", 1.0, "SCORED", ["reward_coerced"]),
        ("t3__rw00003", None, "INDETERMINATE", ["bad_reward"]),
        ("t4__rw00004", None, "INDETERMINATE", ["bad_reward"]),
        ("t5__rw00005", None, "INDETERMINATE", []),
        ("t6__rw00006", None, "SCORED", []),
        ("t7__rw00007", 0.7, "SCORED", []),
        ("t8__rw00008", 0.9, "SCORED", []),
        ("t9__rw00009", 7, "SCORED", []),
        ("t90__rwnan00", None, "INDETERMINATE", ["bad_reward"]),
        ("t91__rwinf00", None, "INDETERMINATE", ["bad_reward"]),
        ("t92__rwscal0", None, "INDETERMINATE", ["bad_reward"]),
        ("t93__rwdup00", 1.0, "SCORED", ["duplicate_json_key"]),
    ],
)
def test_case_62_every_shape_of_a_reward(folder: str, primary: float | None, status: str, warned: list[str]) -> None:
    record = read_trial((SHAPES / folder / "result.json").read_bytes(), f"{folder}/result.json")
    outcome = outcome_of(record)
    assert (outcome.primary, outcome.status) == (primary, status)
    assert type(outcome.primary) is type(primary)
    assert [warning.code for warning in record.warnings] == warned
    assert all(math.isfinite(value) for value in outcome.rewards.values())


def test_case_62_the_mean_over_the_primaries() -> None:
    found = [outcome_of(read_trial(path.read_bytes())).primary for path in sorted(SHAPES.glob("*/result.json"))]
    primaries = [value for value in found if value is not None]
    assert len(found) == 14
    assert sum(primaries) / len(primaries) == pytest.approx(1.5142857)


def test_case_62_names_keep_their_case_and_their_number() -> None:
    two = outcome_of(read_trial((SHAPES / "t6__rw00006" / "result.json").read_bytes()))
    assert (two.rewards, two.metrics, two.primary_key) == ({"a": 0.2, "b": 0.4}, {"a": 0.2, "b": 0.4}, None)
    cased = outcome_of(read_trial((SHAPES / "t9__rw00009" / "result.json").read_bytes()))
    assert (cased.rewards, cased.metrics) == ({"reward": 7, "Reward": 0.1}, {"Reward": 0.1})
    many = outcome_of(read_trial((SHAPES / "t8__rw00008" / "result.json").read_bytes()))
    assert len(many.rewards) == 61


@pytest.mark.parametrize(
    ("rewards", "values", "primary", "warned"),
    [
        ('{"reward": 3}', {"reward": 3}, 3, []),
        ('{"reward": null, "a": 1}', {"a": 1}, None, ["bad_reward"]),
        ('{"a": 1, "b": [1]}', {"a": 1}, None, ["bad_reward"]),
        ('{"reward": false}', {"reward": 0.0}, 0.0, ["reward_coerced"]),
        ('{"reward": " 1e-1 "}', {"reward": 0.1}, 0.1, ["reward_coerced"]),
        ('{"reward": "NaN"}', {}, None, ["bad_reward"]),
        ('{"reward": "1_0"}', {}, None, ["bad_reward"]),
        ('{"reward": "1e999"}', {}, None, ["bad_reward"]),
        ('{"reward": "[REDACTED]"}', {}, None, ["redacted_value"]),
        ('{"reward": -Infinity}', {}, None, ["bad_reward"]),
        ('{"reward": 1' + "0" * 400 + "}", {}, None, ["bad_reward"]),
        ('{"reward": 9007199254740993}', {"reward": 9007199254740993}, 9007199254740993, []),
        ("[1]", {}, None, ["bad_reward"]),
        ("null", {}, None, []),
        ("{}", {}, None, []),
    ],
)
def test_the_table_of_what_counts_as_a_reward(
    rewards: str, values: dict[str, float], primary: float | None, warned: list[str]
) -> None:
    text = json.dumps({**BARE, "verifier_result": {"rewards": "HERE"}}).replace('"HERE"', rewards)
    record = read_trial(text.encode())
    assert record.rewards.values == values
    assert record.rewards.primary == primary
    assert [warning.code for warning in record.warnings] == warned
    assert record.reward_valid is bool(values)


# -- files of a verifier ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "values", "source", "problem"),
    [
        ("a", {"reward": 0.25}, "reward.json", None),
        ("b", {"reward": 0.75}, "reward.json", None),
        ("c", {}, "reward.json", "bad_reward"),
        ("d", {"reward": 1.0}, "reward.txt", None),
        ("e", {}, "reward.txt", "reward_empty"),
        ("f", {}, "reward.txt", "bad_reward"),
        ("g", {}, "reward.txt", "bad_reward"),
    ],
)
def test_case_63_reward_files(folder: str, values: dict[str, float], source: str, problem: str | None) -> None:
    found = read_reward_folder(CASES / "63-harbor-reward-files" / folder / "verifier")
    assert (found.rewards.values, found.source, found.problem) == (values, source, problem)
    assert bool(found.message) is (problem is not None)


def test_case_63_a_huge_file_is_never_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "reward.txt").open("wb") as stream:
        stream.write(b"1")
        stream.truncate(200 << 20)
    found = read_reward_folder(tmp_path)
    assert (found.problem, found.rewards) == ("too_large", Rewards({}))
    assert found.message == f"reward.txt is larger than {MAX_REWARD_FILE} bytes"


@pytest.mark.parametrize(
    ("json_file", "text_file", "values", "problem"),
    [
        (None, None, {}, "reward_missing"),
        (b"", b"1", {}, "reward_empty"),
        (b'{"a": 1, "b": 2.5}', b"1", {"a": 1, "b": 2.5}, None),
        (b"{}", None, {}, "bad_reward"),
        (b"true", None, {}, "bad_reward"),
        (b'{"reward": "1"}', None, {}, "bad_reward"),
        (b'{"reward": 1, "x": null}', None, {"reward": 1}, "bad_reward"),
        (b"NaN", None, {}, "bad_reward"),
        (b"[1]", None, {}, "bad_reward"),
        (None, b"3", {"reward": 3.0}, None),
        (None, b"-1.5e-3\n", {"reward": -0.0015}, None),
        (None, b"1 2", {}, "bad_reward"),
        (None, b"0x10", {}, "bad_reward"),
        (None, b"inf", {}, "bad_reward"),
        (None, "١".encode(), {}, "bad_reward"),
        (None, b"\xff", {}, "bad_reward"),
    ],
)
def test_one_bad_value_spoils_a_file(
    json_file: bytes | None, text_file: bytes | None, values: dict[str, float], problem: str | None
) -> None:
    found = parse_reward_files(json_file, text_file)
    assert found.problem == problem
    assert found.rewards.values == ({} if problem else values)


def test_a_link_is_no_reward_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("1")
    (tmp_path / "reward.txt").symlink_to(tmp_path / "elsewhere")
    assert read_reward_folder(tmp_path).problem == "reward_missing"
