"""Any bytes and any JSON in any field give a record or a TraceflowError, and never a number that is not finite."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    TrialSums,
    evolve_of,
    outcome_of,
    parse_reward_files,
    read_analysis,
    read_check_result,
    read_evolve,
    read_job,
    read_job_lock,
    read_manifest,
    read_trial,
    read_trial_config,
    read_trial_lock,
    reported_totals,
    trial_cost,
)

EXAMPLES = Path(__file__).parents[2] / "fixtures" / "harbor" / "examples"
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["[REDACTED]", "NaN", "1e999", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00"])
    | st.sampled_from([10**400, -1, 2**63, 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found.extend(paths_of(item, (*path, key)))
    return found


NEEDED: dict[str, type] = {
    **dict.fromkeys(("task_name", "trial_name", "trial_uri", "task_checksum"), str),
    **dict.fromkeys(("task_id", "config", "agent_info"), dict),
}
FULL: dict[str, Any] = {
    **json.loads((EXAMPLES / "trial.result.multistep.json").read_bytes()),
    **json.loads((EXAMPLES / "trial.result.error.json").read_bytes()),
    "agent_result": {"n_input_tokens": 1, "cost_usd": 0.1, "model_usage": {"m": {"n_input_tokens": 1}}},
    "x_evolve": {"spentUsd": 1, "spendSource": "measured"},
    "started_at": "2026-01-01T00:00:00Z",
    "verifier": {"started_at": None},
}
FULL["exception_info"]["policy_override"] = {"has_valid_reward": True}


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(paths_of(FULL)), value=VALUES)
def test_any_value_in_any_field_of_a_trial(path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(json.dumps(FULL))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    data = json.dumps(document).encode()
    if len(path) == 1 and not isinstance(value, NEEDED.get(path[0], object)):
        with pytest.raises(TraceflowError) as caught:
            read_trial(data)
        assert caught.value.details["wrong_type"] == [path[0]]
        return
    record = read_trial(data)
    outcome, cost = outcome_of(record), trial_cost(record)
    totals = reported_totals(read_job(b"{}", b"{}"), TrialSums([record])).as_dict()
    for number in [*outcome.rewards.values(), cost.usd, cost.at_least_usd, *totals.values()]:
        assert number is None or math.isfinite(number)


@settings(max_examples=200, deadline=None)
@given(
    document=st.dictionaries(
        st.sampled_from(["stats", "id", "datasets", "trials", "results", "checks", "gateway"]), VALUES
    )
)
def test_any_value_in_the_other_records(document: dict[str, Any]) -> None:
    data = json.dumps(document).encode()
    read_job(data, data)
    read_job_lock(data)
    read_trial_lock(json.dumps({"task": document}).encode())
    read_trial_config(data)
    read_analysis(data)
    read_check_result(data)
    read_manifest(json.dumps([document, *document.values()]).encode())
    read_evolve(data)
    evolve_of(document)
    parse_reward_files(data, None)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes(data: bytes) -> None:
    parse_reward_files(data, None)
    parse_reward_files(None, data)
    for read in (read_trial, read_trial_lock, read_trial_config, read_analysis, read_evolve, read_manifest):
        with contextlib.suppress(TraceflowError):
            read(data)


@pytest.mark.parametrize("cut", range(0, 1193, 7))
def test_a_record_that_is_cut_off_names_its_end(cut: int) -> None:
    data = (EXAMPLES / "trial.result.json").read_bytes()
    assert len(data) == 1193
    with pytest.raises(TraceflowError) as caught:
        read_trial(data[:cut], "t/result.json")
    assert caught.value.code == "invalid_trial"
    assert caught.value.details["byte"] <= cut
