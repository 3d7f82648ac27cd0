"""What Harbor and the platform write beside a trial's trace: kept, readable, and told where it is odd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job_builder import (
    DEMO,
    HARBOR_JOBS,
    JOB_ID,
    assert_clean,
    claude_rows,
    contents,
    export_sha,
    new_store,
    write_job_folder,
    write_trial_folder,
)
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from traceflow.importer import import_job
from traceflow.importer.reparse import reparse_job
from traceflow.importer.stale import PARSERS, StaleTrial, stale_trials
from traceflow.importer.workers import Workers
from traceflow.limits import Limits
from traceflow.store import Store

SESSION = "5e55105e-0000-4000-8000-000000000001"


def extra_of(store: Store, trial: str) -> dict[str, object]:
    found = store.trial(trial)["extra"]
    return dict(jsontext.loads(found.encode())) if found else {}


def codes(warnings: list[dict[str, object]]) -> list[object]:
    return [warning["code"] for warning in warnings]


# -- reviews -----------------------------------------------------------------------------------------------------


def test_the_results_of_analyze_are_readable_in_its_job_and_in_its_trials(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    report = import_job(store, HARBOR_JOBS / "analyze-traj")
    reviews = store.job(report.job_id).job["reviews"]
    assert {review["file"] for review in reviews} == {"analysis.json"}
    assert all(review["trial_name"] and review["checks"] for review in reviews)
    for row in store.trials(store.job(report.job_id)):
        review = extra_of(store, row["trial_id"])["review"]
        assert isinstance(review, dict)
        assert review["file"] == "artifacts/analysis.json"
        assert all(check["outcome"] for check in review["checks"].values())


def test_the_results_of_check_are_readable(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    report = import_job(store, HARBOR_JOBS / "check-ds")
    reviews = store.job(report.job_id).job["reviews"]
    assert {review["task_name"] for review in reviews} == {"fails", "gated"}
    names = {name for review in reviews for name in review["checks"]}
    assert names
    for row in store.trials(store.job(report.job_id)):
        review = extra_of(store, row["trial_id"])["review"]
        assert isinstance(review, dict)
        assert set(review["checks"]) <= names


def test_a_review_that_cannot_be_read_is_a_warning_and_is_kept_as_a_file(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 1)
    (job / "task-0__0000000" / "analysis.json").write_text("{")
    (job / "analysis.json").write_text("[]")
    store = new_store(tmp_path)
    report = import_job(store, job)
    assert "bad_review" in codes(report.warnings)
    with store.open_file(store.job(JOB_ID), "task-0__0000000/analysis.json") as stream:
        assert stream.read() == b"{"


# -- platform downloads, user agents, retries ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "cost", "at_least"),
    [("measured", 0.25, None), ("measured_provisional", None, 0.25), ("assumed_cap", None, None)],
)
def test_a_platform_download_states_its_money(
    source: str, cost: float | None, at_least: float | None, tmp_path: Path
) -> None:
    job = write_job_folder(tmp_path / "run", 0, x_evolve={"jobId": "j1"})
    evolve = json.dumps({"gateway": {"cost_usd": 0.25, "tokens": {}, "spend_source": source}}).encode()
    rows = claude_rows(SESSION, 2)
    files = {
        "evolve.json": evolve,
        f"agent/.claude/projects/-app/{SESSION}.jsonl": rows,
        f"agent/sessions/projects/-app/{SESSION}.jsonl": rows,
    }
    write_trial_folder(job, "a__0000000", files, verifier_result={"rewards": {"reward": 1}})
    store = new_store(tmp_path)
    import_job(store, job)
    row = store.trial("a__0000000")
    assert (row["cost_usd"], row["spend_source"]) == (cost, source)
    assert extra_of(store, "a__0000000").get("cost_at_least_usd") == at_least
    assert row["n_model_calls"] == 2  # the session stands twice and counts once
    assert store.job(JOB_ID).job["x_evolve"] == {"jobId": "j1"}


def test_simulated_users_and_earlier_attempts_are_kept_and_said(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 2)
    folder = job / "task-0__0000000" / "user-agent"
    folder.mkdir()
    (folder / "trajectory.json").write_text('{"agent": {"name": "u", "version": "1"}, "steps": []}')
    (folder / "claude-code.txt").write_text("x")
    for attempt in ("retry-1", "retry-2"):
        shutil.copytree(job / "task-1__0000001", job / "_retries" / "task-1__0000001" / attempt)
    store = new_store(tmp_path)
    report = import_job(store, job)
    assert report.trials == 2
    assert extra_of(store, "task-0__0000000")["user_agent"] == {"files": 2, "trajectory": "user-agent/trajectory.json"}
    assert extra_of(store, "task-1__0000001")["earlier_attempts"] == 2
    assert store.file(store.job(JOB_ID), "_retries/task-1__0000001/retry-2/result.json").trial_id is None


def test_trials_without_ids_locks_and_names_of_agents_are_taken_as_they_are(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 0, job_id=None)
    write_trial_folder(job, "a__0000000", id=None, agent_info={"name": "my.module:Agent", "version": ""})
    write_trial_folder(job, "b__0000000", id="same", verifier_result={"rewards": {"reward": 1}})
    write_trial_folder(job, "c__0000000", id="same", verifier_result={"rewards": {"x": 1, "y": 0.5}})
    (job / "a__0000000" / "trial.log").write_bytes(b"key: [REDACTED]\n\xff\xfe")
    first, second = new_store(tmp_path / "a"), new_store(tmp_path / "b")
    report = import_job(first, job)
    assert import_job(second, job).job_id == report.job_id  # of the content, not of the moment
    rows = {row["trial_name"]: row for row in first.trials(first.job(report.job_id))}
    assert rows["a__0000000"]["agent"] == "my.module:Agent"
    assert rows["a__0000000"]["status"] == "UNSCORED"
    assert len({row["trial_id"] for row in rows.values()}) == 3
    assert "duplicate_trial_id" in codes(report.warnings)
    assert rows["c__0000000"]["reward"] is None
    assert {r["name"] for r in rows["c__0000000"]["rewards"]} == {"x", "y"}


def test_redacted_numbers_make_a_trajectory_a_problem_of_its_trial_alone(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 1)
    bad = b'{"agent": {"name": "a", "version": "1"}, "steps": [{"step_id": : [REDACTED], "source": "user"}]}'
    write_trial_folder(job, "bad__0000000", {"agent/trajectory.json": bad})
    store = new_store(tmp_path)
    report = import_job(store, job)
    assert report.trials == 2
    assert store.trial("bad__0000000")["n_events"] == 0
    assert any(code in ("invalid_trajectory", "unrecognized_trace") for code in codes(report.warnings))


# -- skipped trials ------------------------------------------------------------------------------------------------


def test_an_oversized_or_unreadable_trial_is_skipped_with_its_code_and_the_rest_lands(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 2)
    write_trial_folder(job, "big__0000000", {"agent/x.bin": b"x" * 30_000})
    write_trial_folder(job, "doc__0000000", {"agent/trajectory.json": b" " * 15_000})
    write_trial_folder(job, "bad__0000000")
    (job / "bad__0000000" / "result.json").write_text("{")
    (job / "loose.bin").write_bytes(b"x" * 30_000)
    limits = Limits(file_bytes=20_000, atif_bytes=10_000)
    store = new_store(tmp_path)
    with pytest.raises(TraceflowError) as caught:
        import_job(store, job, limits=limits)
    assert caught.value.code == "invalid_trial"
    assert "bad__0000000/result.json" in caught.value.message
    assert store.job_ids() == []
    report = import_job(store, job, limits=limits, skip_invalid=True)
    assert {s["trial"]: s["code"] for s in report.skipped} == {
        "bad__0000000": "invalid_trial",
        "big__0000000": "trial_too_large",
        "doc__0000000": "trial_too_large",
    }
    assert report.trials == 2
    paths = {file.path for file in store.files(store.job(JOB_ID))}
    assert "bad__0000000/result.json" in paths
    assert not any(path.startswith(("big__", "doc__", "loose")) for path in paths)
    assert any(w["code"] == "file_passed_over" and "loose.bin" in str(w["message"]) for w in report.warnings)
    assert_clean(store)


def test_a_job_log_over_the_bound_refuses_the_job(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 1)
    (job / "job.log").write_bytes(b"x" * 30_000)
    with pytest.raises(TraceflowError, match="raise the limit `file_bytes`") as caught:
        import_job(new_store(tmp_path), job, limits=Limits(file_bytes=20_000))
    assert caught.value.code == "upload_too_large"


# -- again ---------------------------------------------------------------------------------------------------------


def test_the_same_files_under_another_id_are_a_warning_that_names_the_job(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    job = write_job_folder(tmp_path / "first", 1, job_id=None)
    known = import_job(store, job)
    assert "same_content" not in codes(known.warnings)
    store.delete_job(store.job(known.job_id))
    # an id that the record does not hold: the same files, stored under a name of their own
    with store.writer("other") as writer:
        digest = import_job(new_store(tmp_path / "x"), job) and Store.open(str(tmp_path / "x" / "store")).jobs()[0]
        writer.commit({"original_job_name": "elsewhere", "tree_sha256": digest.job["tree_sha256"]})
    report = import_job(store, job)
    (warning,) = [w for w in report.warnings if w["code"] == "same_content"]
    assert "elsewhere (other)" in str(warning["message"])


def test_a_job_that_is_there_is_refused_and_replaced_when_asked(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    job = write_job_folder(tmp_path / "run", 2)
    import_job(store, job)
    with pytest.raises(TraceflowError) as caught:
        import_job(store, job)
    assert caught.value.code == "job_already_uploaded"
    assert caught.value.details["existing_job_id"] == JOB_ID
    write_trial_folder(job, "more__0000000", verifier_result={"rewards": {"reward": 1}})
    old = store.job(JOB_ID)
    report = import_job(store, job, replace=True)
    assert (report.trials, report.as_dict()["replaced"]) == (3, True)
    assert len(store.trials(store.job(JOB_ID))) == 3
    assert [row["trial_name"] for row in store.trials(old)] == ["task-0__0000000", "task-1__0000001"]  # still readable
    assert store.verify(contents=True).problems == []


def test_a_replacement_that_fails_leaves_the_job_as_it_was(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    job = write_job_folder(tmp_path / "run", 2)
    import_job(store, job)
    before = contents(store, JOB_ID)
    (job / "task-1__0000001" / "result.json").write_text("nothing")
    with pytest.raises(TraceflowError):
        import_job(store, job, replace=True)
    assert contents(store, JOB_ID) == before
    assert_clean(store)


@pytest.mark.parametrize("count", [1, 2])
def test_parsing_a_stored_job_anew_gives_what_the_import_gave(count: int, tmp_path: Path) -> None:
    store = new_store(tmp_path)
    job = write_job_folder(tmp_path / "run", 3)
    write_trial_folder(job, "broken__0000000")
    (job / "broken__0000000" / "result.json").unlink()
    for source in (DEMO, job):
        job_id = import_job(store, source).job_id
        before, export = contents(store, job_id), export_sha(store, job_id, tmp_path)
        with Workers(count) as workers:
            reparse_job(store, store.job(job_id), workers=workers)
        assert contents(store, job_id) == before
        assert export_sha(store, job_id, tmp_path) == export
        assert store.job(job_id).parsers["traceflow"]
    assert store.verify(contents=True).problems == []


def test_parsing_anew_takes_in_what_a_better_parser_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path)
    job = write_job_folder(tmp_path / "run", 2)
    with monkeypatch.context() as older:
        older.setattr("traceflow.importer.trial_trace.HARNESSES", ())  # a version that knew no harness
        import_job(store, job)
    assert store.trial("task-0__0000000")["n_events"] == 0
    report = reparse_job(store, store.job(JOB_ID))
    assert report.trials == 2
    assert store.trial("task-0__0000000")["n_model_calls"] == 3


def test_a_trial_whose_parser_is_a_newer_one_is_stale_until_it_is_parsed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path)
    job = write_job_folder(tmp_path / "run", 1)
    write_trial_folder(job, "silent__0000000")
    trace = b'{"seq":1,"type":"prompt","data":{"_prompt":{"text":"go"}}}\n'
    write_trial_folder(job, "traced__0000000", {"agent/trace-parsed.jsonl": trace})
    write_trial_folder(job, "unfinished__0000000")
    (job / "unfinished__0000000" / "result.json").unlink()
    with monkeypatch.context() as older:
        older.setattr("traceflow.importer.job.PARSERS", {**PARSERS, "claude-code": "0"})
        import_job(store, job)
    assert stale_trials(store, store.job(JOB_ID)) == [
        StaleTrial("silent__0000000", None, None, None),  # the new version may find its trace
        StaleTrial("task-0__0000000", "claude-code", "0", PARSERS["claude-code"]),
    ]
    reparse_job(store, store.job(JOB_ID))
    assert store.job(JOB_ID).parsers == PARSERS
    assert stale_trials(store, store.job(JOB_ID)) == []


def test_a_job_of_before_parsers_had_versions_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path)
    with monkeypatch.context() as older:
        older.setattr("traceflow.importer.job.PARSERS", {"traceflow": "0.1.0"})
        import_job(store, write_job_folder(tmp_path / "run", 1))
    (trial,) = stale_trials(store, store.job(JOB_ID))
    assert (trial.parser, trial.parsed_with) == ("claude-code", None)
