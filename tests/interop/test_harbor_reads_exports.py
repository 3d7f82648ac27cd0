"""Harbor's own job loader, `harbor view` and archive builder take an extracted export, and its archive is the same job.

Runs where TRACEFLOW_HARBOR_PYTHON names a Python that has Harbor 0.26 (it needs Python 3.12 or newer, so it is
not among our own dependencies).
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from traceflow.archive import scan, unpack
from traceflow.export import export_job
from traceflow.store import Manifest, Store

PYTHON = os.environ.get("TRACEFLOW_HARBOR_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="TRACEFLOW_HARBOR_PYTHON names no Python with Harbor 0.26")

_jobs = runpy.run_path(str(Path(__file__).parents[1] / "export" / "export_jobs.py"))
HARBOR_JOBS: list[Path] = [path for path in _jobs["JOBS"] if "harbor" in path.parts or path.name == "demo"]
imported, members_of = _jobs["imported"], _jobs["members_of"]
SAME = (
    "trial_id", "trial_name", "task_name", "task_digest", "agent", "model", "status", "reward", "rewards",
    "n_events", "n_steps", "n_tool_calls", "prompt_tokens", "completion_tokens", "cost_usd", "exception_type",
)  # fmt: skip

SCRIPT = """
import json, sys
from pathlib import Path
from harbor.upload.uploader import _create_job_archive_file, _load_job_from_disk

job, archive = Path(sys.argv[1]), Path(sys.argv[2])
_, _, results, _ = _load_job_from_disk(job)
found = {"loaded": sorted(result.trial_name for result in results)}
found["packed"] = all((job / name / "lock.json").exists() for name in found["loaded"])
if found["packed"]:  # Harbor packs no trial without its lock
    _create_job_archive_file(job, archive)
print(json.dumps(found))
"""


def environment() -> dict[str, str]:
    return {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}


def harbor_reads(job: Path, archive: Path) -> dict[str, Any]:
    assert PYTHON is not None
    command = [PYTHON, "-W", "ignore", "-c", SCRIPT, str(job), str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(store: Store, job: Manifest) -> list[dict[str, Any]]:
    return [{name: row[name] for name in SAME} for row in store.trials(job) if row["skipped_code"] is None]


@pytest.mark.parametrize("source", HARBOR_JOBS, ids=lambda path: path.name)
def test_harbor_loads_an_export_and_its_archive_is_the_same_job(source: Path, tmp_path: Path) -> None:
    store, job = imported(source, tmp_path / "store")
    name = export_job(store, job, tmp_path / "out.tar.gz").name
    unpack(tmp_path / "out.tar.gz", tmp_path / "jobs", scan(tmp_path / "out.tar.gz"))
    found = harbor_reads(tmp_path / "jobs" / name, tmp_path / "rebuilt.tar.gz")

    trials = rows(store, job)
    assert found["loaded"] == sorted(row["trial_name"] for row in trials)
    assert found["packed"] == all((source / name / "lock.json").exists() for name in found["loaded"])
    if not found["packed"]:
        return
    again_store, again = imported(tmp_path / "rebuilt.tar.gz", tmp_path / "again")
    assert again.job_id == job.job_id
    assert rows(again_store, again) == trials


# -- harbor view -------------------------------------------------------------------------------------------------

_SHOWN_BYTES = 1 << 20  # the viewer shows no larger text
_SHOWN = (".json", ".jsonl", ".txt", ".log")


@contextlib.contextmanager
def harbor_view(folder: Path) -> Iterator[Callable[[str], bytes]]:
    """A real `harbor view` of a folder of jobs, and how a path of it is fetched."""
    assert PYTHON is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [PYTHON, "-c", "from harbor.cli.main import app; app()"]
    options = ["--jobs", "--no-build", "--host", "127.0.0.1", "--port", str(port)]
    with (
        (folder.parent / "view.log").open("w+") as log,
        subprocess.Popen([*command, "view", str(folder), *options], stdout=log, stderr=log, env=environment()) as view,
    ):

        def get(path: str) -> bytes:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{quote(path, safe='/?=')}", timeout=60) as answer:
                data: bytes = answer.read()
                return data

        try:
            for _ in range(600):
                with contextlib.suppress(OSError):
                    get("/api/health")
                    break
                assert view.poll() is None, (folder.parent / "view.log").read_text()
                time.sleep(0.1)
            yield get
        finally:
            view.terminate()


@pytest.mark.parametrize("several", [False, True], ids=["fixtures", "more"])
def test_harbor_view_shows_every_trial_and_file_of_every_export(tmp_path: Path, several: bool) -> None:
    sources = [path for path in HARBOR_JOBS if (_jobs["FIXTURES"] in path.parents) is not several]
    if not sources:
        pytest.skip("TRACEFLOW_HARBOR_JOBS names no more jobs")
    folders: list[dict[str, tuple[Store, Manifest, dict[str, tuple[int, bytes]]]]] = []
    for number, source in enumerate(sources):
        store, job = imported(source, tmp_path / f"store-{number}")
        archive = tmp_path / f"{number}.tar.gz"
        name = export_job(store, job, archive).name
        at = next((at for at, jobs in enumerate(folders) if name not in jobs), len(folders))
        if at == len(folders):  # another state of a job that is there
            folders.append({})
        folders[at][name] = store, job, members_of(archive)
        with tarfile.open(archive) as tar:
            tar.extractall(tmp_path / f"jobs-{at}", filter="data")
    for at, exported in enumerate(folders):
        with harbor_view(tmp_path / f"jobs-{at}") as get:
            listed = {item["name"] for item in json.loads(get("/api/jobs?page_size=100"))["items"]}
            assert listed == set(exported)
            for name, (store, job, members) in exported.items():
                shown = json.loads(get(f"/api/jobs/{name}/trials?page_size=100"))["items"]
                trials = store.trials(job)  # with the unfinished ones, which have no result to be shown
                assert {row["name"] for row in shown} == {row["trial_name"] for row in trials}
                for trial in (row for row in trials if row["skipped_code"] is None):
                    assert_trial_is_shown(get, f"/api/jobs/{name}/trials/{trial['trial_name']}", trial, members)


def assert_trial_is_shown(
    get: Callable[[str], bytes], base: str, trial: dict[str, Any], members: dict[str, tuple[int, bytes]]
) -> None:
    own = f"{trial['trial_name']}/"
    files = {path.removeprefix(own): data for path, (_, data) in members.items() if path.startswith(own)}
    assert json.loads(get(base))["trial_name"] == trial["trial_name"]
    listed = {item["path"]: item for item in json.loads(get(f"{base}/files"))}
    assert {path for path, item in listed.items() if not item["is_dir"]} == set(files)
    for path, data in files.items():
        assert listed[path]["size"] == len(data)
        if path.endswith(_SHOWN) and len(data) <= _SHOWN_BYTES:
            assert get(f"{base}/files/{path}") == data, path
    trajectories = [path for path in files if path.endswith("agent/trajectory.json")]
    for path in trajectories:
        step = path.split("/")[1] if path.startswith("steps/") else None
        shown = json.loads(get(f"{base}/trajectory{f'?step={step}' if step else ''}"))
        assert len(shown["steps"]) == len(json.loads(files[path])["steps"])
    assert bool(trajectories) or not trial["n_steps"]
