"""The catalog saves time and never changes an answer."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from traceflow.query import sql
from traceflow.store import Manifest, Store, stored_row
from traceflow.store.catalog import GONE, LATEST, Pointer, is_due
from traceflow.store.seal import sealed
from traceflow.store.testing import chunk, write_job


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """A store whose listing tells what changed, and one where writers say so."""
    scheme = "" if request.param == "local" else "local://"
    made = Store.open(f"{scheme}{tmp_path}/store", create=True)
    assert made.backend.stamped == (request.param == "local")
    return made


def job(store: Store, number: int, trials: int = 2, reward: float = 0.5) -> Manifest:
    rows = [
        ({"trial_id": f"t{number}-{n}", "trial_name": f"name-{n}", "reward": reward}, [chunk("agent", f"{number} {n}")])
        for n in range(trials)
    ]
    return write_job(store, f"job-{number:04}", rows, job={"original_job_name": f"nightly {number}"})


def replaced(store: Store, old: Manifest, reward: float) -> Manifest:
    """The job with other rewards."""
    with store.rewriter(old, keep=("events", "files")) as writer:
        for row in store.trials(old):
            writer.add_trial({**stored_row(row), "reward": reward})
        return writer.commit(job=old.job)


def answers(store: Store) -> dict[str, Any]:
    """All that goes through the catalog."""
    found: dict[str, Any] = {
        "jobs": store.jobs(),
        "trials": [(m.job_id, rows) for m, rows in store.all_trials()],
        "names": [(m.job_id, rows) for m, rows in store.all_trials(columns=["trial_name", "reward"])],
        "info": replace(store.info(), cache=None),
    }
    for query in (
        "SELECT * FROM jobs",
        "SELECT * FROM trials ORDER BY job_id, trial_id",
        "SELECT * FROM rewards ORDER BY ALL",
        'SELECT t.trial_name, e."text" FROM trials t JOIN events e USING (job_id, trial_id) ORDER BY ALL',
    ):
        found[query] = sql(store, query).fetchall()
    return found


def without_catalog(store: Store) -> dict[str, Any]:
    """The same of a copy that has none."""
    folder = Path(store.url.removeprefix("local://"))
    other = folder.with_name("copy")
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(folder, other)
    shutil.rmtree(other / "catalog", ignore_errors=True)
    found = answers(Store.open(store.url.replace(str(folder), str(other))))
    return found | {"info": replace(found["info"], url=store.url)}


def knows(store: Store) -> list[str]:
    return list(store.listing().known)


def test_a_store_with_a_catalog_answers_as_one_without(store: Store) -> None:
    jobs = [job(store, n, trials=n) for n in range(5)]
    assert knows(store) == []
    before = answers(store)
    made = store.compact()
    assert (made.jobs, made.read, made.trials) == (5, 5, 10)
    assert knows(store) == [j.job_id for j in jobs]
    assert answers(store) == before == without_catalog(store)
    assert store.trial("t4-3")["trial_name"] == "name-3"
    assert store.verify(contents=True).problems == []


def test_jobs_that_are_new_gone_or_replaced_since_are_read_themselves(store: Store) -> None:
    jobs = [job(store, n) for n in range(6)]
    store.compact()
    job(store, 7)
    store.delete_job(jobs[1])
    replaced(store, jobs[2], reward=0.25)
    store.delete_job(jobs[3])
    job(store, 3, trials=1, reward=1.0)  # an id that is used again
    assert knows(store) == ["job-0000", "job-0004", "job-0005"]
    found = answers(store)
    assert found == without_catalog(store)
    rewards = dict(sql(store, "SELECT job_id, max(reward) FROM trials GROUP BY 1").fetchall())
    assert rewards["job-0002"] == 0.25
    assert rewards["job-0003"] == 1.0
    assert "job-0001" not in rewards
    made = store.compact()
    assert (made.jobs, made.read) == (6, 3)
    assert knows(store) == [j.job_id for j in store.jobs()]
    assert answers(store) == found
    assert store.verify(contents=True).problems == []


def test_a_job_whose_replacement_did_not_happen_is_still_right(store: Store) -> None:
    old = job(store, 1)
    store.compact()
    first, second = (store.rewriter(old, keep=("trials", "events", "files")) for _ in range(2))
    first.commit(job={"name": "first"})
    with pytest.raises(Exception, match="changed by another process"):
        second.commit(job={"name": "second"})
    assert store.job("job-0001").job["name"] == "first"
    assert answers(store) == without_catalog(store)
    store.compact()
    assert answers(store) == without_catalog(store)


@pytest.mark.parametrize(
    "what", ["folder", "latest", "cut", "other", "jobs gone", "jobs cut", "trials gone", "trials cut"]
)
def test_a_catalog_that_is_gone_or_damaged_changes_no_answer(store: Store, what: str) -> None:
    for n in range(4):
        job(store, n)
    store.compact()
    before = answers(store)
    folder = Path(store.url.removeprefix("local://"), "catalog")
    objects = {path.name.partition("-")[0]: path for path in folder.iterdir()}
    latest = folder / "latest.json"
    if what == "folder":
        shutil.rmtree(folder)
    elif what == "latest":
        latest.unlink()
    elif what == "cut":
        latest.write_bytes(latest.read_bytes()[:50])
    elif what == "other":
        value = json.loads(latest.read_bytes())
        del value["sha256"]
        latest.write_bytes(sealed({**value, "version": 2}))
    elif what.endswith("gone"):
        objects[what.split()[0]].unlink()
    else:
        path = objects[what.split()[0]]
        path.write_bytes(path.read_bytes()[:-20])
    opened = Store.open(store.url)
    assert answers(opened) == before
    assert bool(opened.verify().problems) == (what not in ("folder", "latest"))
    opened.compact()
    assert opened.verify().problems == []
    assert answers(Store.open(store.url)) == before


def test_verify_finds_a_catalog_that_says_something_else(store: Store) -> None:
    job(store, 1)
    job(store, 2)
    store.compact()
    folder = Path(store.url.removeprefix("local://"), "catalog")
    for path in folder.glob("*-*"):
        good = path.read_bytes()
        data = bytearray(good)
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        (problem,) = store.verify().problems
        assert (problem.job_id, problem.name) == ("catalog", path.name)
        path.write_bytes(good)
    assert store.verify().problems == []


def test_gc_removes_catalogs_that_no_longer_stand(store: Store) -> None:
    old = job(store, 1)
    store.compact()
    first = Pointer.read(store.backend)
    assert first is not None
    new = replaced(store, old, 0.75)
    marks = [o.name for o in store.backend.objects(GONE)]
    assert marks == ([] if store.backend.stamped else [f"{GONE}/{old.job_id}.{old.revision}"])
    assert not any(name.startswith("catalog/") for name in store.gc(minutes=0).removed), "the mark is in use"
    store.compact()
    removed = {f"catalog/{first.jobs.name}", f"catalog/{first.trials.name}", *marks}
    assert store.gc().removed == [], "an hour is left to those who read it"
    assert set(store.gc(minutes=0).removed) == removed
    assert knows(store) == [new.job_id]
    assert store.verify().problems == []


def test_it_is_made_when_many_jobs_have_come_since(store: Store) -> None:
    first = job(store, 0)
    folder = Path(store.url.removeprefix("local://"), "jobs")
    for n in range(1, 102):  # the same job under other ids: what counts is their number
        manifest = {**first.as_value(), "job_id": f"job-{n:04}"}
        (folder / f"job-{n:04}").mkdir()
        (folder / f"job-{n:04}" / "manifest.json").write_text(json.dumps(manifest))
    assert not store.compact_if_due()
    job(store, 200)
    assert is_due(store.backend)
    assert store.compact_if_due()
    assert {"job-0000", "job-0200"} <= set(knows(store))


def test_makers_and_readers_at_the_same_time_agree(store: Store) -> None:
    jobs = [job(store, n) for n in range(8)]
    failures: list[BaseException] = []
    done = threading.Event()

    def run(work: Any) -> None:
        try:
            while not done.is_set():
                work()
        except BaseException as error:
            failures.append(error)

    def read() -> None:
        opened = Store.open(store.url)
        rewards = dict(sql(opened, "SELECT job_id, count(*) FROM trials GROUP BY 1").fetchall())
        assert rewards == {j.job_id: 2 for j in jobs}

    threads = [
        threading.Thread(target=run, args=(work,)) for work in (store.compact, Store.open(store.url).compact, read)
    ]
    for thread in threads:
        thread.start()
    for n in range(6):
        jobs[n] = replaced(store, jobs[n], n / 10)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    store.compact()
    found = dict(sql(store, "SELECT job_id, max(reward) FROM trials GROUP BY 1").fetchall())
    assert [found[j.job_id] for j in jobs] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5]


def test_a_store_without_a_catalog_is_not_written_to_by_readers(store: Store) -> None:
    job(store, 1)
    names = [o.name for o in store.backend.objects("")]
    answers(store)
    store.verify()
    assert [o.name for o in store.backend.objects("")] == names
    assert not store.backend.exists(LATEST)
