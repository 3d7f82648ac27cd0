"""A job's records, and what a job claims in sum."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    DatasetRef,
    JobRecord,
    TrialRecord,
    TrialSums,
    Usage,
    read_job,
    read_job_lock,
    read_trial,
    reported_totals,
    totals_differ,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
JOBS = FIXTURES / "harbor" / "jobs"
CASES = FIXTURES / "cases"


def job_at(folder: Path) -> JobRecord:
    return read_job((folder / "config.json").read_bytes(), (folder / "result.json").read_bytes())


def trials_of(folder: Path) -> list[TrialRecord]:
    return [read_trial(path.read_bytes()) for path in sorted(folder.glob("*/result.json"))]


def test_a_finished_job() -> None:
    job = job_at(JOBS / "traj")
    assert job.id == json.loads((JOBS / "traj" / "result.json").read_bytes())["id"]
    assert (job.name, job.n_total_trials, job.n_attempts) == ("traj", 8, 2)
    assert job.usage == Usage(3444, 1920, 324, 0.019200000000000005)
    assert job.finished_at is not None
    assert job.local_times
    assert job.warnings == ()


def test_a_job_that_was_cut_short_has_no_end() -> None:
    job = job_at(JOBS / "aborted")
    assert (job.finished_at, job.n_total_trials, job.usage) == (None, 12, Usage())
    assert job.updated_at == "2026-11-30T12:10:55.277834Z"
    assert job.warnings == ()


def test_the_datasets_that_a_config_names() -> None:
    config = {"datasets": [{"name": "ds", "version": "1.0"}, {"path": "/x/ds"}, {"name": "r", "ref": "sha256:ab"}]}
    assert read_job(json.dumps(config).encode(), b"{}").datasets == (
        DatasetRef("ds", "1.0", None, None),
        DatasetRef(None, None, None, "/x/ds"),
        DatasetRef("r", None, "sha256:ab", None),
    )
    assert job_at(JOBS / "big").datasets == (DatasetRef(None, None, None, "/home/agent/evals/tasks/ds"),)


def test_the_smallest_records_of_a_job() -> None:
    job = read_job(b"{}", b"{}")
    assert (job.id, job.name, job.started_at, job.datasets, job.warnings) == (None, None, None, (), ())


@pytest.mark.parametrize(
    ("config", "result", "code", "message"),
    [
        (None, b"{}", "not_a_job_dir", "no config.json at the root"),
        (b"{}", None, "not_a_job_dir", "no result.json at the root"),
        (None, None, "not_a_job_dir", "no config.json and no result.json at the root"),
        (b"{", b"{}", "invalid_job", "config.json is no JSON: "),
        (b"{}", b"[1]", "invalid_job", "result.json holds a list"),
        (b"{}", b"", "invalid_job", "result.json is empty"),
    ],
)
def test_a_folder_that_is_no_job(config: bytes | None, result: bytes | None, code: str, message: str) -> None:
    with pytest.raises(TraceflowError) as caught:
        read_job(config, result)
    assert caught.value.code == code
    assert caught.value.message.startswith(message)


def test_the_folder_of_one_trial_is_no_job() -> None:
    folder = JOBS / "smoke" / "hello__rz7Z8xn"
    with pytest.raises(TraceflowError, match="folder of one trial: give the job folder above it") as caught:
        job_at(folder)
    assert caught.value.code == "not_a_job_dir"


def test_case_59_a_job_without_records_or_trials() -> None:
    case = CASES / "59-harbor-missing-partial-results"
    job = job_at(case / "j")
    assert (job.n_total_trials, job.finished_at, job.local_times) == (6, None, False)
    with pytest.raises(TraceflowError) as caught:
        read_job((case / "empty-job" / "config.json").read_bytes(), None)
    assert caught.value.code == "not_a_job_dir"


def test_a_lock_may_name_trials_that_never_started() -> None:
    lock = read_job_lock((JOBS / "aborted" / "lock.json").read_bytes())
    assert lock.harbor_version == "0.26.0"
    assert len(lock.trials) == 12
    assert all(trial.digest is not None for trial in lock.trials)
    assert len({trial.digest for trial in lock.trials}) == 12
    with pytest.raises(TraceflowError, match="is no JSON"):
        read_job_lock(b"{]")


# -- totals ----------------------------------------------------------------------------------------------


def test_the_totals_that_a_job_of_harbor_reports_are_those_of_its_trials() -> None:
    job, trials = job_at(JOBS / "traj"), trials_of(JOBS / "traj")
    assert reported_totals(job, TrialSums(trials)).as_dict() == {
        "cost_usd": 0.019200000000000005,
        "n_input_tokens": 3444,
        "n_cache_tokens": 1920,
        "n_output_tokens": 324,
        "n_trials_reporting": 8,
    }
    assert totals_differ(job, TrialSums(trials)) == []


def test_case_60_a_job_without_totals_reports_the_sum_of_its_trials() -> None:
    folder = CASES / "60-harbor-exception-with-reward" / "j"
    totals = reported_totals(job_at(folder), TrialSums(trials_of(folder)))
    assert (totals.n_input_tokens, totals.n_cache_tokens, totals.n_output_tokens) == (400, 160, 40)
    assert totals.cost_usd == pytest.approx(0.4)
    assert totals.n_trials_reporting == 4


def test_totals_that_nobody_reported_are_null() -> None:
    folder = JOBS / "smoke"
    assert set(reported_totals(job_at(folder), TrialSums(trials_of(folder))).as_dict().values()) == {None, 0}


@pytest.mark.parametrize(
    ("stats", "differ"),
    [({"n_input_tokens": 100, "cost_usd": 0.1}, 0), ({"n_input_tokens": 99}, 1), ({"cost_usd": 0.2}, 1), ({}, 0)],
)
def test_totals_that_do_not_add_up_are_said(stats: dict[str, Any], differ: int) -> None:
    path = CASES / "59-harbor-missing-partial-results" / "j" / "t1__aaaaaaa" / "result.json"
    job = read_job(b"{}", json.dumps({"stats": stats}).encode())
    found = totals_differ(job, TrialSums([read_trial(path.read_bytes())]))
    assert [warning.code for warning in found] == ["totals_differ"] * differ
