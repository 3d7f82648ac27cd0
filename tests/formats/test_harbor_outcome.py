"""Outcomes: rewards decide first, then four exception names, then what the verifier said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.harbor import (
    STATUSES,
    Cost,
    Evolve,
    TrialRecord,
    outcome_of,
    read_evolve,
    read_trial,
    trial_cost,
)

CASES = Path(__file__).parents[2] / "fixtures" / "cases"
BARE: dict[str, Any] = {
    **dict.fromkeys(("task_name", "trial_name", "trial_uri", "task_checksum"), ""),
    **{key: {} for key in ("task_id", "config", "agent_info")},
}


def trial(**fields: Any) -> TrialRecord:
    return read_trial(json.dumps({**BARE, **fields}).encode())


def failed(name: str) -> dict[str, Any]:
    return {"exception_type": name, "exception_message": "", "exception_traceback": ""}


SCORE = {"rewards": {"reward": 1}}


@pytest.mark.parametrize(
    ("fields", "status", "exception"),
    [
        ({"verifier_result": SCORE}, "SCORED", None),
        ({"verifier_result": SCORE, "exception_info": failed("ScoringError")}, "SCORED", "ScoringError"),
        ({"exception_info": failed("ScoringError")}, "SCORING_ERROR", "ScoringError"),
        ({"exception_info": failed("InfrastructureError")}, "INFRASTRUCTURE_ERROR", "InfrastructureError"),
        ({"exception_info": failed("ApiUsageLimitError")}, "BUDGET", "ApiUsageLimitError"),
        ({"exception_info": failed("CancelledError")}, "CANCELLED", "CancelledError"),
        ({"exception_info": failed("AgentTimeoutError")}, "INDETERMINATE", "AgentTimeoutError"),
        ({"verifier_result": {}, "exception_info": failed("CancelledError")}, "CANCELLED", "CancelledError"),
        ({"verifier_result": {}}, "INDETERMINATE", None),
        ({"verifier_result": {"rewards": None}}, "INDETERMINATE", None),
        ({"verifier_result": {"rewards": {}}}, "INDETERMINATE", None),
        ({"verifier_result": None}, "UNSCORED", None),
        ({}, "UNSCORED", None),
        ({"step_results": []}, "UNSCORED", None),
        (
            {"step_results": [{"step_name": "a", "exception_info": failed("CancelledError")}]},
            "CANCELLED",
            "CancelledError",
        ),
        (
            {
                "step_results": [
                    {"step_name": "a", "exception_info": failed("AgentTimeoutError")},
                    {"step_name": "b", "exception_info": failed("ApiUsageLimitError")},
                ]
            },
            "BUDGET",
            "ApiUsageLimitError",
        ),
        (
            {
                "exception_info": failed("ScoringError"),
                "step_results": [{"step_name": "a", "exception_info": failed("CancelledError")}],
            },
            "SCORING_ERROR",
            "ScoringError",
        ),
        # A step's reward is no reward of the trial: Harbor had not put the trial's together.
        ({"step_results": [{"step_name": "a", "verifier_result": SCORE}]}, "INDETERMINATE", None),
    ],
)
def test_statuses(fields: dict[str, Any], status: str, exception: str | None) -> None:
    outcome = outcome_of(trial(**fields))
    assert (outcome.status, outcome.exception_type) == (status, exception)
    assert outcome.status in STATUSES


def test_case_60_exceptions_beside_rewards() -> None:
    job = CASES / "60-harbor-exception-with-reward" / "j"
    records = [read_trial(path.read_bytes()) for path in sorted(job.glob("*/result.json"))]
    outcomes = [outcome_of(record) for record in records]
    scored = [o for o in outcomes if o.status == "SCORED"]
    assert [o.primary for o in outcomes] == [1.0, 0.0, 1.0, None, None]
    assert sum(o.primary or 0 for o in scored) / len(scored) == pytest.approx(0.6667, abs=1e-4)
    assert sum(1 for o in outcomes if o.exception_type) == 3
    assert sum(1 for o in scored if o.exception_type) == 2
    assert [(o.status, o.exception_type) for o in outcomes if o.primary is None] == [
        ("INDETERMINATE", "EnvironmentStartTimeoutError"),
        ("INDETERMINATE", None),
    ]
    clean = [o.primary for o in scored if o.exception_type is None]
    assert clean == [1.0]
    assert sum(o.primary or 0 for o in outcomes) / len(outcomes) == pytest.approx(0.4)
    assert [o.reward_valid for o in outcomes] == [True, True, True, False, False]
    assert sum(r.usage.n_input_tokens or 0 for r in records) == 400


# -- money -----------------------------------------------------------------------------------------------

PAID = {"agent_result": {"cost_usd": 0.5}}


@pytest.mark.parametrize(
    ("fields", "evolve", "cost"),
    [
        (PAID, None, Cost(0.5, None, "agent_result")),
        ({}, None, Cost()),
        ({"x_evolve": {"spentUsd": 0.7, "spendSource": "measured"}}, None, Cost(0.7, None, "x_evolve", "measured")),
        (
            {"x_evolve": {"spentUsd": 0.7, "spendSource": "measured_provisional"}},
            None,
            Cost(None, 0.7, "x_evolve", "measured_provisional"),
        ),
        # Under assumed_cap stands a number that nobody measured, in agent_result as well.
        (
            {**PAID, "x_evolve": {"spentUsd": 0, "spendSource": "assumed_cap"}},
            None,
            Cost(None, None, "x_evolve", "assumed_cap"),
        ),
        ({**PAID, "x_evolve": {"spentUsd": 9, "spendSource": "guess"}}, None, Cost(None, None, "x_evolve", "guess")),
        ({**PAID, "x_evolve": {"spentUsd": 9}}, None, Cost(0.5, None, "agent_result")),
        ({**PAID, "x_evolve": {"spendSource": "measured"}}, None, Cost(0.5, None, "agent_result")),
        (PAID, {"gateway": {"cost_usd": 0.6, "spend_source": "measured"}}, Cost(0.6, None, "evolve.json", "measured")),
        (
            {"x_evolve": {"spentUsd": 0.7, "spendSource": "measured"}},
            {"gateway": {"cost_usd": 0.6, "spend_source": "measured_provisional"}},
            Cost(None, 0.6, "evolve.json", "measured_provisional"),
        ),
        (PAID, {"gateway": None}, Cost(0.5, None, "agent_result")),
        (PAID, {}, Cost(0.5, None, "agent_result")),
        (PAID, {"gateway": {"cost_usd": "[REDACTED]", "spend_source": "measured"}}, Cost(0.5, None, "agent_result")),
    ],
)
def test_what_a_trial_cost(fields: dict[str, Any], evolve: dict[str, Any] | None, cost: Cost) -> None:
    spent: Evolve | None = None if evolve is None else read_evolve(json.dumps(evolve).encode())
    assert trial_cost(trial(**fields), spent) == cost
