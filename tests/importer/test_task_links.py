"""Task links: three steps in their order, six reasons, never by name alone; at import, and again later."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest
from task_folders import FIXTURES, harbor_tasks, make_task
from traceflow_formats.errors import TraceflowError
from traceflow_formats.tasks import content_digest

from traceflow.importer import add_dataset, import_job, relink_job
from traceflow.importer.links import FLAG, HASH, RECORD, KnownTask, Link, Linker, Rollup
from traceflow.query import sql
from traceflow.store import Store

JOBS = FIXTURES / "harbor" / "jobs"
DEMO = FIXTURES / "jobs" / "demo"
REASONS = {
    "hash_mismatch",
    "task_not_in_dataset",
    "no_task_digest",
    "no_hash_match",
    "no_dataset_named",
    "dataset_ambiguous",
}

A1 = KnownTask("a@1", "org/t", "t", "sha256:1")
A2 = KnownTask("a@2", "org/t", "t", "sha256:2")
B1 = KnownTask("b@1", "other", "o", "sha256:1")
TWIN = KnownTask("a@1", "copy", "copy", "sha256:1")


@pytest.mark.parametrize(
    ("step", "tasks", "named", "name", "digest", "expected"),
    [
        # -d: by name, and the content must be the same
        (FLAG, [A1], False, "org/t", "sha256:1", Link(FLAG, "a@1", "org/t")),
        (FLAG, [A1], False, "t", "sha256:1", Link(FLAG, "a@1", "org/t")),
        (FLAG, [A1, A2], False, "org/t", "sha256:2", Link(FLAG, "a@2", "org/t")),
        (FLAG, [A1], False, "org/t", "sha256:9", "hash_mismatch"),
        (FLAG, [A1], False, "org/t", None, "no_task_digest"),
        (FLAG, [A1], False, "another", "sha256:1", "task_not_in_dataset"),
        (FLAG, [A1], False, "another", None, "task_not_in_dataset"),
        (FLAG, [], False, "org/t", "sha256:1", "task_not_in_dataset"),
        (FLAG, [A1, A1._replace(dataset="c@1")], False, "t", "sha256:1", ("a@1", "c@1")),
        # the job's own record: by content within those datasets
        (RECORD, [A1], True, "org/t", "sha256:1", Link(RECORD, "a@1", "org/t")),
        (RECORD, [A1], True, "renamed", "sha256:1", Link(RECORD, "a@1", "org/t")),
        (RECORD, [A1], True, "org/t", "sha256:9", "hash_mismatch"),
        (RECORD, [A1], True, "t", "sha256:9", "hash_mismatch"),
        (RECORD, [A1], True, "another", "sha256:9", "task_not_in_dataset"),
        (RECORD, [A1], True, "org/t", None, "no_task_digest"),
        (RECORD, [A1, B1], True, "org/t", "sha256:1", ("a@1", "b@1")),
        # all datasets, by content
        (HASH, [A1, A2], False, "org/t", "sha256:2", Link(HASH, "a@2", "org/t")),
        (HASH, [A2, B1], False, "org/t", "sha256:1", Link(HASH, "b@1", "other")),
        (HASH, [A1, A2], False, "org/t", "sha256:9", "no_hash_match"),
        (HASH, [], False, "org/t", "sha256:1", "no_hash_match"),
        (HASH, [A1, B1], False, "org/t", "sha256:1", ("a@1", "b@1")),
        (HASH, [A1], False, "another", None, "no_task_digest"),
        (HASH, [A1], True, "org/t", None, "no_task_digest"),
        (HASH, [A1], False, "org/t", None, "no_dataset_named"),
        (HASH, [A1], False, "", None, "no_task_digest"),
        # one content under two names in one dataset is no ambiguity
        (HASH, [A1, TWIN], False, "copy", "sha256:1", Link(HASH, "a@1", "copy")),
        (HASH, [TWIN, A1], False, "neither", "sha256:1", Link(HASH, "a@1", "copy")),
    ],
)
def test_each_decision(
    step: str,
    tasks: list[KnownTask],
    named: bool,
    name: str,
    digest: str | None,
    expected: Link | str | tuple[str, ...],
) -> None:
    found = Linker(step, tasks, named).link(name, digest)
    if isinstance(expected, str):
        expected = Link("none", reason=expected)
    elif not isinstance(expected, Link):
        expected = Link("none", reason="dataset_ambiguous", candidates=expected)
    assert found == expected
    assert found.reason is None or found.reason in REASONS
    assert Linker(step, reversed(tasks), named).link(name, digest) == found


def test_a_name_is_never_enough() -> None:
    for step in (FLAG, RECORD, HASH):
        for digest in (None, "sha256:9"):
            for named in (True, False):
                assert Linker(step, [A1, A2, B1], named).link("org/t", digest).dataset is None


def test_rows_by_task_add_up() -> None:
    linked = Link(HASH, "a@1", "t")
    links = Rollup()
    links.add("t", linked)
    links.add("t", Link("none", reason="no_task_digest"))
    links.add("t", Link("none", reason="dataset_ambiguous", candidates=("a@1", "b@1")))
    links.add("s", Link("none", reason="no_hash_match"))
    assert links.counts == {"dataset_ambiguous": 1, "linked": 1, "no_hash_match": 1, "no_task_digest": 1}
    assert links.rows() == [
        {
            "task_name": "s",
            "n_trials": 1,
            "n_linked": 0,
            "n_unlinked": 1,
            "linked_by": "none",
            "datasets": [],
            "link_reasons": {"no_hash_match": 1},
            "candidates": [],
        },
        {
            "task_name": "t",
            "n_trials": 3,
            "n_linked": 1,
            "n_unlinked": 2,
            "linked_by": "task_hash",
            "datasets": ["a@1"],
            "link_reasons": {"dataset_ambiguous": 1, "no_task_digest": 1},
            "candidates": ["a@1", "b@1"],
        },
    ]
    assert (Rollup().rows(), Rollup().counts) == ([], {})


# -- imports -------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "store"), create=True)


def links(store: Store, job_id: str) -> list[tuple[Any, ...]]:
    """How each trial is linked, by name."""
    rows = store.trials(store.job(job_id))
    names = ("trial_name", "linked_by", "dataset", "link_reason", "candidates")
    return sorted(tuple(row[name] for name in names) for row in rows)


def small_job(folder: Path, digests: dict[str, str | None], datasets: list[dict[str, str]] | None = None) -> Path:
    """A job of one trial per task, with the digest in its lock, or no lock."""
    job_id = str(uuid.uuid5(uuid.NAMESPACE_URL, str(folder)))
    for name, digest in digests.items():
        trial = folder / f"{name}__aaaaaaa"
        trial.mkdir(parents=True)
        result: dict[str, Any] = dict.fromkeys(("trial_uri", "task_checksum"), "")
        result |= {"task_name": name, "trial_name": trial.name, "task_id": {}, "config": {}, "agent_info": {}}
        (trial / "result.json").write_text(json.dumps(result))
        if digest is not None:
            (trial / "lock.json").write_text(json.dumps({"task": {"name": name, "digest": digest}}))
    (folder / "config.json").write_text(json.dumps({"job_name": folder.name, "datasets": datasets or []}))
    (folder / "result.json").write_text(json.dumps({"id": job_id}))
    return folder


@pytest.mark.parametrize("job", ["smoke", "aborted", "big"])
def test_every_trial_of_harbors_jobs_links_to_its_task(store: Store, tmp_path: Path, job: str) -> None:
    tasks = harbor_tasks(tmp_path)
    add_dataset(store, tasks / "ds", "ds", "1.0")
    report = import_job(store, JOBS / job)
    assert report.trials > 0
    assert report.task_links == {"linked": report.trials}
    manifest = store.job(report.job_id)
    for row in store.trials(manifest):
        if row["status"] == "SKIPPED":
            assert (row["linked_by"], row["dataset"]) == ("none", None)
            continue
        assert (row["linked_by"], row["dataset"], row["link_reason"]) == ("task_hash", "ds@1.0", None)
    assert sum(row["n_linked"] for row in manifest.job["task_links"]) == report.trials
    assert manifest.job["link_counts"] == {"linked": report.trials}
    query = "SELECT count(*) FROM trials t JOIN tasks k ON k.dataset = t.dataset AND k.digest = t.task_digest"
    assert sql(store, query).fetchall() == [(report.trials,)]


def test_trials_without_a_lock_do_not_link_by_their_names(store: Store, tmp_path: Path) -> None:
    add_dataset(store, harbor_tasks(tmp_path) / "ds", "ds", "1.0")
    plain = import_job(store, JOBS / "traj")  # of this job the fixture has no locks
    assert plain.task_links == {"no_dataset_named": 8}
    assert dict(relink_job(store, store.job(plain.job_id), ["ds@1.0"]).link_counts) == {"no_task_digest": 8}


def test_the_demo_job_links_by_the_dataset_that_it_names(store: Store) -> None:
    add_dataset(store, FIXTURES / "tasks", "demo", "1.0")
    report = import_job(store, DEMO)
    assert report.task_links == {"linked": 7}
    assert {row[1:3] for row in links(store, report.job_id)} == {("job_dataset_record", "demo@1.0")}


def test_each_reason_at_import(store: Store, tmp_path: Path) -> None:
    first, second = make_task(tmp_path / "a" / "first"), make_task(tmp_path / "a" / "second", "Other.\n")
    shutil.copytree(second, make_task(tmp_path / "b" / "third", "Third.\n").parent / "second")
    for name in ("a", "b"):
        add_dataset(store, tmp_path / name, name, "1")
    digests = {name: content_digest(path) for name, path in (("first", first), ("second", second))}
    unknown = "sha256:" + "0" * 64
    trials = {"first": digests["first"], "second": digests["second"], "changed": unknown, "third": None, "lone": None}

    by_hash = import_job(store, small_job(tmp_path / "by-hash", trials))
    assert links(store, by_hash.job_id) == [
        ("changed__aaaaaaa", "none", None, "no_hash_match", None),
        ("first__aaaaaaa", "task_hash", "a@1", None, None),
        ("lone__aaaaaaa", "none", None, "no_task_digest", None),
        ("second__aaaaaaa", "none", None, "dataset_ambiguous", ["a@1", "b@1"]),
        ("third__aaaaaaa", "none", None, "no_dataset_named", None),
    ]

    trials = {"first": unknown, "second": digests["second"], "lone": unknown, "third": None}
    by_record = import_job(store, small_job(tmp_path / "by-record", trials, [{"name": "a", "version": "1"}]))
    assert links(store, by_record.job_id) == [
        ("first__aaaaaaa", "none", None, "hash_mismatch", None),
        ("lone__aaaaaaa", "none", None, "task_not_in_dataset", None),
        ("second__aaaaaaa", "job_dataset_record", "a@1", None, None),
        ("third__aaaaaaa", "none", None, "no_task_digest", None),
    ]

    by_flag = import_job(store, small_job(tmp_path / "by-flag", trials, [{"name": "a"}]), datasets=["b"])
    assert links(store, by_flag.job_id) == [
        ("first__aaaaaaa", "none", None, "task_not_in_dataset", None),
        ("lone__aaaaaaa", "none", None, "task_not_in_dataset", None),
        ("second__aaaaaaa", "dataset_flag", "b@1", None, None),
        ("third__aaaaaaa", "none", None, "no_task_digest", None),
    ]
    assert by_flag.task_links == {"linked": 1, "no_task_digest": 1, "task_not_in_dataset": 2}


@pytest.mark.parametrize(
    ("named", "linked_by"),
    [
        ([{"name": "a", "version": "1"}], "job_dataset_record"),
        ([{"name": "a", "ref": "1"}], "job_dataset_record"),
        ([{"name": "a"}], "job_dataset_record"),
        ([{"name": "a", "version": "2"}], "task_hash"),  # not registered: as if none were named
        ([{"name": "z"}, {"name": "a"}], "job_dataset_record"),
        ([{"path": "somewhere/a"}], "task_hash"),  # a path is no name
        ([], "task_hash"),
    ],
)
def test_a_dataset_that_the_record_names_counts_when_it_is_registered(
    store: Store, tmp_path: Path, named: list[dict[str, str]], linked_by: str
) -> None:
    task = make_task(tmp_path / "a" / "t")
    add_dataset(store, tmp_path / "a", "a", "1")
    report = import_job(store, small_job(tmp_path / "j", {"t": content_digest(task)}, named))
    assert links(store, report.job_id) == [("t__aaaaaaa", linked_by, "a@1", None, None)]


def test_an_unknown_dataset_refuses_after_the_duplicate_and_before_the_trials(store: Store, tmp_path: Path) -> None:
    job = small_job(tmp_path / "j", {"t": None})
    (job / "t__aaaaaaa" / "result.json").write_text("{broken")
    make_task(tmp_path / "a" / "t")
    add_dataset(store, tmp_path / "a", "a", "1")
    for wanted, code in (("z", "dataset_not_found"), ("a@9", "dataset_version_not_found"), ("a", "invalid_trial")):
        with pytest.raises(TraceflowError) as caught:
            import_job(store, job, datasets=[wanted])
        assert caught.value.code == code
        assert list(store.backend.objects("jobs")) == []
    import_job(store, DEMO)
    with pytest.raises(TraceflowError) as caught:
        import_job(store, DEMO, datasets=["z"])
    assert caught.value.code == "job_already_uploaded"


# -- again, later --------------------------------------------------------------------------------------------


def test_a_dataset_that_is_added_later_links_after_a_relink(store: Store) -> None:
    report = import_job(store, DEMO)
    assert report.task_links == {"no_hash_match": 7}
    before = store.job(report.job_id)
    traces = [list(store.trace(row)) for row in store.trials(before)]
    add_dataset(store, FIXTURES / "tasks", "demo", "1.0")

    done = relink_job(store, before)
    assert (done.changed, dict(done.link_counts)) == (7, {"linked": 7})
    after = store.job(report.job_id)
    assert after.revision != before.revision
    assert {row[1:] for row in links(store, report.job_id)} == {("job_dataset_record", "demo@1.0", None, None)}
    assert after.job["link_counts"] == after.report["task_links"] == {"linked": 7}
    assert sum(row["n_linked"] for row in after.job["task_links"]) == 7

    other = ("linked_by", "dataset", "link_reason", "candidates")
    for old, new in zip(store.trials(before), store.trials(after), strict=True):
        assert {k: v for k, v in old.items() if k not in other} == {k: v for k, v in new.items() if k not in other}
    assert [list(store.trace(row)) for row in store.trials(after)] == traces
    assert store.verify(contents=True).problems == []


def test_a_relink_says_what_an_import_would_say_now(store: Store, tmp_path: Path) -> None:
    tasks = harbor_tasks(tmp_path)
    early = import_job(store, JOBS / "big")
    add_dataset(store, tasks / "ds", "ds", "1")
    add_dataset(store, tasks / "hello", "hello", "1")
    for flags in ((), ("ds",), ("hello",), ("hello@1", "ds@1"), ()):
        relink_job(store, store.job(early.job_id), flags)
        relinked = store.job(early.job_id)
        other = Store.open(f"memory://{uuid.uuid4().hex}", create=True)
        for name in ("ds", "hello"):
            add_dataset(other, tasks / name, name, "1")
        imported = import_job(other, JOBS / "big", datasets=flags)
        assert links(store, early.job_id) == links(other, imported.job_id)
        assert relinked.job["task_links"] == other.job(imported.job_id).job["task_links"]
        assert relinked.report["task_links"] == imported.task_links
    assert relinked.job["link_counts"]["dataset_ambiguous"] == 2  # the two trials of hello


def test_a_relink_that_changes_nothing_writes_nothing(store: Store) -> None:
    add_dataset(store, FIXTURES / "tasks", "demo", "1.0")
    job = store.job(import_job(store, DEMO).job_id)
    assert relink_job(store, job).changed == 0
    assert store.job(job.job_id) == job


def test_links_go_when_their_dataset_is_gone(store: Store) -> None:
    dataset = add_dataset(store, FIXTURES / "tasks", "demo", "1.0").dataset
    job_id = import_job(store, DEMO).job_id
    store.delete_dataset(dataset)
    assert {row[2] for row in links(store, job_id)} == {"demo@1.0"}
    assert relink_job(store, store.job(job_id)).changed == 7
    assert {row[1:4] for row in links(store, job_id)} == {("none", None, "no_hash_match")}
    with pytest.raises(TraceflowError, match="no dataset 'demo'"):
        relink_job(store, store.job(job_id), ["demo"])


def test_skipped_trials_stay_skipped(store: Store, tmp_path: Path) -> None:
    report = import_job(store, JOBS / "aborted")
    add_dataset(store, harbor_tasks(tmp_path) / "ds", "ds", "1")
    relink_job(store, store.job(report.job_id))
    rows = {row["trial_name"]: row for row in store.trials(store.job(report.job_id))}
    assert rows["hello__bkeWQk7"]["status"] == "SKIPPED"
    assert (rows["hello__bkeWQk7"]["linked_by"], rows["hello__bkeWQk7"]["link_reason"]) == ("none", None)
    assert rows["fails__dWeuojH"]["dataset"] == "ds@1"
