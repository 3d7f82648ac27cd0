"""Harbor's own job loader, viewer and archive builder take an extracted export, and its archive comes back as the job.

Runs where TRACEFLOW_HARBOR_PYTHON names a Python that has Harbor 0.26 (it needs Python 3.12 or newer, so it is
not among our own dependencies).
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from traceflow.archive import scan, unpack
from traceflow.export import export_job
from traceflow.store import Manifest, Store

PYTHON = os.environ.get("TRACEFLOW_HARBOR_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="TRACEFLOW_HARBOR_PYTHON names no Python with Harbor 0.26")

_jobs = runpy.run_path(str(Path(__file__).parents[1] / "export" / "export_jobs.py"))
HARBOR_JOBS: list[Path] = [path for path in _jobs["JOBS"] if "harbor" in path.parts or path.name == "demo"]
imported = _jobs["imported"]
SAME = (
    "trial_id", "trial_name", "task_name", "task_digest", "agent", "model", "status", "reward", "rewards",
    "n_events", "n_steps", "n_tool_calls", "prompt_tokens", "completion_tokens", "cost_usd", "exception_type",
)  # fmt: skip

SCRIPT = """
import json, sys
from pathlib import Path
from fastapi.testclient import TestClient
from harbor.upload.uploader import _create_job_archive_file, _load_job_from_disk
from harbor.viewer.server import create_app

folder, archive = Path(sys.argv[1]), Path(sys.argv[2])
job = next(path for path in folder.iterdir() if path.is_dir())
_, _, results, _ = _load_job_from_disk(job)
found = {"loaded": sorted(result.trial_name for result in results), "views": {}}
client = TestClient(create_app(folder))
base = f"/api/jobs/{job.name}"
for url in ("/api/jobs", base, f"{base}/trials"):
    answer = client.get(url)
    found["views"][url] = [answer.status_code, answer.json()]
for result in results:
    trial = f"{base}/trials/{result.trial_name}"
    steps = [s.step_name for s in result.step_results or ()]
    steps = [name for name in steps if (job / result.trial_name / "steps" / name).is_dir()]
    for url in (trial, f"{trial}/files", f"{trial}/verifier-output", f"{trial}/artifacts",
                *(f"{trial}/trajectory{query}" for query in ["", *(f"?step={step}" for step in steps)])):
        answer = client.get(url)
        found["views"][url] = [answer.status_code, answer.json()]
found["packed"] = all((job / name / "lock.json").exists() for name in found["loaded"])
if found["packed"]:  # Harbor packs no trial without its lock
    _create_job_archive_file(job, archive)
print(json.dumps(found))
"""


def harbor_reads(folder: Path, archive: Path) -> dict[str, Any]:
    assert PYTHON is not None
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
    command = [PYTHON, "-W", "ignore", "-c", SCRIPT, str(folder), str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(store: Store, job: Manifest) -> list[dict[str, Any]]:
    return [{name: row[name] for name in SAME} for row in store.trials(job) if row["skipped_code"] is None]


@pytest.mark.parametrize("source", HARBOR_JOBS, ids=lambda path: path.name)
def test_harbor_reads_an_export_and_its_archive_is_the_same_job(source: Path, tmp_path: Path) -> None:
    store, job = imported(source, tmp_path / "store")
    name = export_job(store, job, tmp_path / "out.tar.gz").name
    unpack(tmp_path / "out.tar.gz", tmp_path / "jobs", scan(tmp_path / "out.tar.gz"))
    found = harbor_reads(tmp_path / "jobs", tmp_path / "rebuilt.tar.gz")

    trials = rows(store, job)
    assert found["loaded"] == sorted(row["trial_name"] for row in trials)
    assert {url: status for url, (status, _) in found["views"].items() if status != 200} == {}
    for row in store.trials(job):
        if row["skipped_code"] is not None or not row["n_steps"]:
            continue
        base = f"/api/jobs/{name}/trials/{row['trial_name']}"
        documents = [answer for url, (_, answer) in found["views"].items() if url.startswith(f"{base}/trajectory")]
        assert any(document and document["steps"] for document in documents)

    assert found["packed"] == all((source / name / "lock.json").exists() for name in found["loaded"])
    if not found["packed"]:
        return
    again_store, again = imported(tmp_path / "rebuilt.tar.gz", tmp_path / "again")
    assert again.job_id == job.job_id
    assert rows(again_store, again) == trials
