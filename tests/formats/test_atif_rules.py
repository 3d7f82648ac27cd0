"""Each rule of ATIF at its edge: what Harbor 0.26 accepts we accept, what it refuses we refuse, saying where.

`tests/interop` runs the same documents through Harbor itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError
from traceflow_formats.atif import problems, strict_problems, validate_strict
from traceflow_formats.atif.models import Trajectory
from traceflow_formats.errors import TraceflowError

ATIF = Path(__file__).parents[2] / "fixtures" / "atif"
ROWS: list[dict[str, Any]] = orjson.loads((ATIF / "rules.json").read_bytes())


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_rule(row: dict[str, Any]) -> None:
    found = problems(row["document"])
    assert (not found) == row["accepted"], found
    try:
        Trajectory.model_validate(row["document"])
    except ValidationError:
        assert not row["accepted"], "the model agrees"
    else:
        assert row["accepted"], "the model agrees"


def document(steps: list[dict[str, Any]], **root: Any) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": steps, **root}


def test_every_fault_is_listed_with_its_place() -> None:
    steps: list[Any] = [
        {"step_id": 1, "source": "user", "message": "x", "timestamp": "yesterday"},
        {"step_id": 3, "source": "agent", "message": [{"type": "text"}], "reward": 1},
        {"step_id": 3, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": 5, "function_name": "f"}]},
        "no step",
        {"step_id": 5, "source": "system", "message": "", "metrics": {}, "model_name": "m"},
    ]
    child = {"agent": {"name": "a"}, "steps": []}
    found = problems(document(steps, schema_version="ATIF-v9", subagent_trajectories=[child]))
    assert [problem.where for problem in found] == [
        "trajectory.schema_version",
        "trajectory.steps.0.timestamp",
        "trajectory.steps.1.message.parts.0",
        "trajectory.steps.1.reward",
        "trajectory.steps.1.step_id",
        "trajectory.steps.2.tool_calls.0.tool_call_id",
        "trajectory.steps.2.tool_calls.0.arguments",
        "trajectory.steps.3",
        "trajectory.steps.4",
        "trajectory.subagent_trajectories.0.agent.version",
        "trajectory.subagent_trajectories.0.steps",
        "trajectory.subagent_trajectories.0",
    ]
    assert "'ATIF-v9'" in found[0].message
    assert "model_name" in found[8].message
    assert "metrics" in found[8].message


STEP = {"step_id": 1, "source": "agent", "message": "m"}
WRITTEN = document([STEP], final_metrics={"total_steps": 1})


def test_what_we_write_is_held_to_more() -> None:
    assert strict_problems(WRITTEN) == []
    ref = {"observation": {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "nowhere"}]}]}}
    for worse in (
        {**WRITTEN, "schema_version": "ATIF-v1.6"},
        {**WRITTEN, "final_metrics": {"total_steps": 2}},
        {**WRITTEN, "final_metrics": {"total_steps": 1, "total_prompt_tokens": -1}},
        {**WRITTEN, "steps": [{**STEP, "step_id": "1"}]},
        {**WRITTEN, "steps": [{**STEP, "step_id": True}]},
        {**WRITTEN, "steps": [{**STEP, "is_copied_context": "yes"}]},
        {**WRITTEN, "steps": [{**STEP, "metrics": {"prompt_tokens": -1}}]},
        {**WRITTEN, "steps": [{**STEP, **ref}]},
    ):
        assert strict_problems(worse), worse
        with pytest.raises(TraceflowError) as caught:
            validate_strict(worse)
        assert caught.value.code == "invalid_trajectory"
        assert caught.value.details["problems"]


def test_depth_of_subagents_is_bounded() -> None:
    def nested(depth: int) -> dict[str, Any]:
        made = document([STEP], trajectory_id="k")
        for _ in range(depth):
            made = document([STEP], trajectory_id="k", subagent_trajectories=[made])
        return made

    assert problems(nested(32)) == []
    assert [str(problem) for problem in problems(nested(200)) if "nested" in problem.message]
