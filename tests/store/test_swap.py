"""Another revision in the place of a job: what is kept stays byte for byte, and of two writers one is told."""

from __future__ import annotations

import io
import multiprocessing
import os
import uuid
from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.query import sql
from traceflow.store import Manifest, Store, stored_row
from traceflow.store.testing import chunk, prompt, usage, write_job

JOB = "11111111-1111-4111-8111-111111111111"


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = str(tmp_path / "store") if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return Store.open(url, create=True)


def small_job(store: Store) -> Manifest:
    row = {
        "trial_id": "t1",
        "task_name": "a/b",
        "rewards": {"reward": 1, "words": "good", "flag": None, "nested": {"x": [1]}},
        "warnings": [{"code": "x", "count": 2, "message": "\N{SNOWMAN}"}],
        "extra": {"big": 12345678901234567890, "f": 0.1},
        "candidates": ["a", "b"],
        "started_at": "2026-01-02T03:04:05.123456Z",
        "status": "SCORED",
        "agent_s": 0.1,
        "incomplete": False,
        "linked_by": "none",
        "link_reason": "no_hash_match",
    }
    trials = [(row, [prompt("do"), chunk("agent", "done"), usage(10, 2)]), ({"trial_id": "t2"}, [prompt("not")])]
    return write_job(store, JOB, trials, {"t1/a": b"a" * 1000, "t2/b": b"b"}, {"original_job_name": "small"})


def relink(store: Store, job: Manifest, dataset: str) -> Manifest:
    with store.rewriter(job, keep=("events", "files")) as writer:
        for row in store.trials(job):
            writer.add_trial(stored_row({**row, "dataset": dataset}))
        return writer.commit(job.job, job.report, job.parsers)


def test_a_row_that_is_not_changed_is_stored_as_it_was(store: Store) -> None:
    job = small_job(store)
    with store.rewriter(job, keep=("events", "files")) as writer:
        for row in store.trials(job):
            writer.add_trial(stored_row(row))
        again = writer.commit(job.job, job.report, job.parsers)
    assert again.revision != job.revision
    assert {o.name: o.sha256 for o in again.objects} == {o.name: o.sha256 for o in job.objects}
    assert (again.counts, again.job, again.previous) == (job.counts, job.job, (job.revision,))


def test_kept_tables_and_packs_are_carried_and_the_job_reads_as_before(store: Store) -> None:
    job = small_job(store)
    traces = [[(e.seq, e.data) for e in store.trace(t)] for t in store.trials(job)]
    again = relink(store, job, "d@1")
    assert store.job(JOB) == again
    assert [t["dataset"] for t in store.trials(again)] == ["d@1", "d@1"]
    assert [[(e.seq, e.data) for e in store.trace(t)] for t in store.trials(again)] == traces
    assert store.open_file(again, "t1/a").read() == b"a" * 1000
    assert store.verify(contents=True).problems == []
    assert sql(store, "SELECT count(*) FROM events").fetchall() == [(4,)]
    assert sql(store, "SELECT DISTINCT dataset FROM trials").fetchall() == [("d@1",)]


def test_a_rewrite_without_keeping_replaces_everything(store: Store) -> None:
    job = small_job(store)
    with store.rewriter(job) as writer:
        writer.add_file("new", io.BytesIO(b"new"))
        writer.add_events("t9", [prompt("other")])
        writer.add_trial({"trial_id": "t9", "trial_name": "t9"})
        again = writer.commit({"original_job_name": "other"})
    assert [t["trial_id"] for t in store.trials(again)] == ["t9"]
    assert [f.path for f in store.files(again)] == ["new"]
    assert store.verify(contents=True).problems == []


def test_new_events_can_be_written_over_kept_files(store: Store) -> None:
    job = small_job(store)
    with store.rewriter(job, keep=("files",)) as writer:
        for row in store.trials(job):
            writer.add_events(row["trial_id"], [prompt("one"), chunk("agent", row["trial_id"])])
            writer.add_trial(stored_row(row))
        with pytest.raises(ValueError, match="the files are kept"):
            writer.add_file("x", io.BytesIO(b""))
        again = writer.commit(job.job)
    assert [[e.type for e in store.trace(t)] for t in store.trials(again)] == [["prompt", "agent_message_chunk"]] * 2
    assert store.verify(contents=True).problems == []


def test_the_old_revision_can_be_read_until_gc_and_a_young_one_stays(store: Store) -> None:
    job = small_job(store)
    again = relink(store, job, "d@1")
    assert store.contents(job).read(store.files(job)[0].packed) == b"a" * 1000  # type: ignore[arg-type]
    assert store.gc(minutes=60).removed == []
    assert [name for name in store.gc(minutes=0).removed if name.startswith("jobs/")] == [job.folder]
    assert store.backend.folders(f"jobs/{JOB}") == [again.revision]
    assert store.verify(contents=True).problems == []


def test_an_old_object_that_was_carried_just_now_counts_as_young(tmp_path: Path) -> None:
    """gc may run while a rewriter, or a reader of the old revision, is at work."""
    store = Store.open(str(tmp_path / "store"), create=True)
    job = small_job(store)
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))
    with store.rewriter(job, keep=("trials", "events", "files")) as writer:
        assert store.gc(minutes=60).removed == []
        writer.commit(job.job)
    assert store.gc(minutes=60).removed == []
    assert store.verify(contents=True).problems == []


def test_what_is_not_committed_leaves_nothing(store: Store) -> None:
    job = small_job(store)
    before = sorted(o.name for o in store.backend.objects("jobs"))
    with store.rewriter(job, keep=("events", "files")) as writer:
        writer.add_trial({"trial_id": "x", "trial_name": "x"})
    assert sorted(o.name for o in store.backend.objects("jobs")) == before
    assert store.job(JOB) == job


def test_a_delete_takes_the_former_revisions_along(store: Store) -> None:
    job = relink(store, relink(store, small_job(store), "d@1"), "d@2")
    assert len(store.backend.folders(f"jobs/{JOB}")) == 3
    store.delete_job(job)
    assert list(store.backend.objects("jobs")) == []


def test_a_rewriter_of_a_revision_that_is_gone_is_told(store: Store) -> None:
    job = small_job(store)
    late = store.rewriter(job, keep=("trials", "events", "files"))
    again = relink(store, job, "d@1")
    with pytest.raises(TraceflowError) as caught:
        late.commit(job.job)
    assert caught.value.code == "store_conflict"
    with pytest.raises(TraceflowError) as caught:
        store.rewriter(job)
    assert caught.value.code == "store_conflict"
    assert store.job(JOB) == again
    late = store.rewriter(again, keep=("trials", "events", "files"))
    store.delete_job(again)
    with pytest.raises(TraceflowError) as caught:
        late.commit(job.job)
    assert caught.value.code == "job_not_found"
    with pytest.raises(TraceflowError) as caught:
        store.rewriter(again)
    assert caught.value.code == "job_not_found"
    assert list(store.backend.objects("jobs")) == []


def swap_at_once(url: str, number: int, barrier: multiprocessing.synchronize.Barrier, told: object) -> None:
    """A rewriter in a process of its own that commits when all are ready."""
    store = Store.open(url)
    job = store.job(JOB)
    writer = store.rewriter(job, keep=("trials", "events", "files"))
    barrier.wait()
    try:
        writer.commit({"winner": number})
        told.put((number, "won"))  # type: ignore[attr-defined]
    except TraceflowError as error:
        told.put((number, error.code))  # type: ignore[attr-defined]


def test_of_rewriters_that_commit_in_the_same_moment_one_wins(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    job = small_job(store)
    spawn = multiprocessing.get_context("spawn")
    barrier, told = spawn.Barrier(4), spawn.Queue()
    processes = [spawn.Process(target=swap_at_once, args=(store.url, n, barrier, told)) for n in range(4)]
    for process in processes:
        process.start()
    results = dict(told.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(results.values()) == ["store_conflict"] * 3 + ["won"]
    again = store.job(JOB)
    assert again.job == {"winner": next(n for n, said in results.items() if said == "won")}
    assert again.previous == (job.revision,)
    assert store.verify(contents=True).problems == []
    assert store.gc(minutes=0).removed == [job.folder]  # the losers took everything away
