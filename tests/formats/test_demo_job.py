"""The fixture job `demo` is what its script makes of the recordings, and its records say what those say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from traceflow_formats.harbor import (
    TrialRecord,
    TrialSums,
    outcome_of,
    read_job,
    read_job_lock,
    read_manifest,
    read_reward_folder,
    read_trial,
    read_trial_lock,
    reported_totals,
    totals_differ,
    trial_cost,
)
from traceflow_formats.harbor.layout import in_upload, trace_files, trial_folders
from traceflow_formats.tasks import content_digest, read_task, task_checksum

FIXTURES = Path(__file__).parents[2] / "fixtures"
DEMO = FIXTURES / "jobs" / "demo"
TASKS = FIXTURES / "tasks"


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def trials() -> dict[str, TrialRecord]:
    paths = sorted(DEMO.glob("*/result.json"))
    return {path.parent.name: read_trial(path.read_bytes(), f"{path.parent.name}/result.json") for path in paths}


def test_the_script_makes_the_same_bytes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(FIXTURES / "jobs" / "make_demo.py"), str(tmp_path / "demo")], check=True)
    assert files_below(tmp_path / "demo") == files_below(DEMO)


def test_it_is_small_and_holds_only_what_harbor_uploads() -> None:
    files = files_below(DEMO)
    assert sum(map(len, files.values())) < 1_000_000
    assert [name for name in files if not in_upload(name)] == []
    assert trial_folders(files).incomplete == trial_folders(files).other == ()


@pytest.mark.parametrize(
    ("name", "status", "primary", "valid", "tokens", "cost"),
    [
        ("delegate__aB3dE5f", "SCORED", 1.0, True, (10518, 9000, 189), 0.010433249999999998),
        ("fragile__wX6yZ8A", "INDETERMINATE", None, False, (190, 0, 20), 0.0009074999999999999),
        ("relay__bC4dE6g", "SCORED", 0.5, True, (2684, 2000, 82), 0.004033500000000001),
        ("toolbox__hJ5kL7m", "UNSCORED", None, False, (3333, 3000, 63), None),
        ("tour__kM7nP9q", "SCORED", 0.0, True, (37116, 36000, 267), None),
        ("tour__nQ8rS3t", "CANCELLED", None, False, (None, None, None), None),
        ("tour__rS2tU4v", "SCORED", 0.5, True, (37602, 36000, 216), 0.0192105),
    ],
)
def test_its_trials(
    name: str,
    status: str,
    primary: float | None,
    valid: bool,
    tokens: tuple[int | None, int | None, int | None],
    cost: float | None,
) -> None:
    record = trials()[name]
    outcome = outcome_of(record)
    assert record.warnings == ()
    assert (outcome.status, outcome.primary, outcome.reward_valid) == (status, primary, valid)
    assert (record.usage.n_input_tokens, record.usage.n_cache_tokens, record.usage.n_output_tokens) == tokens
    assert trial_cost(record).usd == cost


def test_the_tokens_are_those_that_the_harness_counted() -> None:
    for name in ("delegate__aB3dE5f", "tour__rS2tU4v", "fragile__wX6yZ8A"):
        lines = (DEMO / name / "agent" / "claude-code.txt").read_text().splitlines()
        (end,) = [row for row in map(json.loads, lines) if row["type"] == "result"]
        (counted,) = end["modelUsage"].values()
        usage = trials()[name].usage
        assert usage.n_input_tokens == sum(
            counted[key] for key in ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
        )
        assert (usage.n_cache_tokens, usage.n_output_tokens) == (
            counted["cacheReadInputTokens"],
            counted["outputTokens"],
        )
        assert usage.cost_usd == end["total_cost_usd"]


def test_the_job_adds_up() -> None:
    job = read_job((DEMO / "config.json").read_bytes(), (DEMO / "result.json").read_bytes())
    records = trials().values()
    assert job.warnings == ()
    assert totals_differ(job, TrialSums(records)) == []
    assert reported_totals(job, TrialSums(records)).as_dict() == {
        "cost_usd": 0.03458475,
        "n_input_tokens": 91443,
        "n_cache_tokens": 86000,
        "n_output_tokens": 837,
        "n_trials_reporting": 6,
    }
    assert (job.id, job.name, job.n_total_trials) == ("a31db0bc-ee63-5485-a6b5-46cebbf3a208", "demo", 7)
    assert [(d.name, d.version) for d in job.datasets] == [("demo", "1.0")]
    assert {record.job_id for record in records} == {job.id}


def test_the_locks_name_the_tasks_beside_it() -> None:
    locks = [read_trial_lock(path.read_bytes()) for path in sorted(DEMO.glob("*/lock.json"))]
    planned = read_job_lock((DEMO / "lock.json").read_bytes()).trials
    assert len(locks) == len(planned) == 7
    for name, record in trials().items():
        lock = read_trial_lock((DEMO / name / "lock.json").read_bytes())
        task = TASKS / str(lock.task_name)
        assert lock.digest == content_digest(task)
        assert record.task_checksum == task_checksum(task)
        assert (record.task_name, lock.task_version) == (read_task(task).name, "1.0.0")
    assert {lock.digest for lock in planned} == {lock.digest for lock in locks}


@pytest.mark.parametrize("task", sorted(path.name for path in TASKS.iterdir()))
def test_its_tasks_are_valid(task: str) -> None:
    found = read_task(TASKS / task)
    assert found.problems == ()
    assert (found.name, found.version) == (f"demo/{task}", "1.0.0")


def test_every_file_of_an_agent_comes_from_a_recording() -> None:
    recorded = set(files_below(FIXTURES / "recordings").values())
    agents = [name for name in files_below(DEMO) if "/agent/" in name]
    assert len(agents) == 23
    assert [name for name in agents if (DEMO / name).read_bytes() not in recorded] == []


@pytest.mark.parametrize(
    ("folder", "harness", "sessions", "stdout"),
    [
        ("delegate__aB3dE5f/agent", "claude-code", 7, "claude-code.txt"),
        ("tour__kM7nP9q/agent", "codex", 1, "codex.txt"),
        ("relay__bC4dE6g/steps/first/agent", "claude-code", 1, "claude-code.txt"),
        ("relay__bC4dE6g/steps/second/agent", "claude-code", 0, "claude-code.txt"),
    ],
)
def test_where_its_traces_are(folder: str, harness: str, sessions: int, stdout: str) -> None:
    found = trace_files(files_below(DEMO / folder))
    assert [session.harness for session in found.sessions] == [harness] * sessions
    assert found.stdout == (stdout,)


def test_the_verifiers_files_say_what_the_records_say() -> None:
    for name, record in trials().items():
        if record.rewards and not record.steps:
            assert read_reward_folder(DEMO / name / "verifier").rewards.values == record.rewards.values
    artifacts = read_manifest((DEMO / "tour__rS2tU4v" / "artifacts" / "manifest.json").read_bytes()).items
    assert [(a.source, a.status) for a in artifacts] == [
        ("/logs/artifacts", "empty"),
        ("/srv/app/hello.txt", "ok"),
        ("/srv/app/report.txt", "failed"),
    ]
