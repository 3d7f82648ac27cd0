"""Harbor's own loader and viewer open what we pack.

Runs where TRACEFLOW_HARBOR_PYTHON names a Python that has Harbor 0.26.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

PYTHON = os.environ.get("TRACEFLOW_HARBOR_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="TRACEFLOW_HARBOR_PYTHON names no Python with Harbor 0.26")
INPUTS = runpy.run_path(str(Path(__file__).parents[1] / "pack" / "pack_inputs.py"))

OPEN = """
import json, sys
from pathlib import Path
from fastapi.testclient import TestClient
from harbor.models.trajectories import Trajectory
from harbor.upload.uploader import _load_job_from_disk
from harbor.viewer.server import create_app
folder = Path(sys.argv[1])
found = {}
with TestClient(create_app(folder)) as viewer:
    listed = {row["name"]: row for row in viewer.get("/api/jobs").json()["items"]}
    for job in sorted(folder.iterdir()):
        loaded = len(_load_job_from_disk(job)[2]) if listed[job.name]["id"] else None
        rows = viewer.get(f"/api/jobs/{job.name}/trials").json()["items"]
        found[job.name] = {"listed": listed[job.name], "loaded": loaded, "trials": []}
        for row in rows:
            place = f"/api/jobs/{job.name}/trials/{row['name']}"
            result, trajectory = viewer.get(place), viewer.get(place + "/trajectory")
            Trajectory.model_validate(trajectory.json())
            steps = [step["source"] for step in trajectory.json()["steps"]]
            found[job.name]["trials"].append({"row": row, "status": result.status_code, "steps": steps})
json.dump(found, sys.stdout)
"""


def harbor_opens(jobs: Path) -> dict[str, Any]:
    """What Harbor's viewer shows of a folder of jobs, each trajectory read by Harbor's own model."""
    assert PYTHON is not None
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
    done = subprocess.run([PYTHON, "-c", OPEN, str(jobs)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_sessions_of_every_harness_open_with_their_steps(tmp_path: Path) -> None:
    pack, recordings = INPUTS["pack"], INPUTS["RECORDINGS"]
    for folder in sorted(recordings.iterdir()):
        pack(folder, tmp_path / folder.name)
    for name, job in harbor_opens(tmp_path).items():
        assert job["listed"]["n_total_trials"] == job["loaded"] == len(job["trials"]) > 0, name
        for trial in job["trials"]:
            assert trial["status"] == 200
            assert trial["row"]["agent_name"]
            assert {"user", "agent"} <= set(trial["steps"])


def test_scores_prompts_and_totals_are_shown(tmp_path: Path) -> None:
    pack, sdk_log, stdout = INPUTS["pack"], INPUTS["sdk_log"], INPUTS["stdout"]
    log, scores = tmp_path / "log.jsonl", tmp_path / "scores.json"
    log.write_bytes(sdk_log("claude", stdout(INPUTS["AGENTS"]["claude"])))
    given = (scores, {"evolve-0123456789abcdef": {"reward": 1}})
    pack(log, tmp_path / "jobs" / "job", rewards=given, system_prompt="Be brief.", task="hello")
    job = harbor_opens(tmp_path / "jobs")["job"]
    (trial,) = job["trials"]
    assert trial["row"]["reward"] == 1
    assert trial["row"]["task_name"] == "hello"
    assert (trial["row"]["input_tokens"], trial["row"]["cached_input_tokens"]) == (1602, 36000)
    assert trial["steps"][:2] == ["system", "user"]
    assert list(job["listed"]["evals"].values()) == [{"metrics": [{"mean": 1.0}]}]


def test_a_job_without_times_still_shows_its_trials(tmp_path: Path) -> None:
    INPUTS["pack"](INPUTS["RECORDINGS"] / "codex-0.171.0/basic/stdout.jsonl", tmp_path / "job")
    job = harbor_opens(tmp_path)["job"]
    assert job["listed"]["started_at"] is None
    assert [trial["status"] for trial in job["trials"]] == [200]
