"""A store of every released version is kept, and every reader gives of it what that version gave."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats import jsontext

import traceflow
from traceflow.query import grep_counts

STORES = Path(__file__).parents[2] / "fixtures" / "stores"
VERSIONS = sorted(path.name for path in STORES.iterdir())


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[traceflow.Store, dict[str, Any]]:
    """The store, a copy so that nothing can write to it, and what its version answered."""
    folder = STORES / request.param
    shutil.copytree(folder / "store", tmp_path / "store")
    return traceflow.open(str(tmp_path / "store")), json.loads((folder / "expected.json").read_text())


def test_the_first_version_is_kept() -> None:
    assert "0.1.0" in VERSIONS


def test_its_jobs_are_whole(kept: tuple[traceflow.Store, dict[str, Any]]) -> None:
    store, expected = kept
    report = store.verify(contents=True)
    assert report.problems == []
    assert (report.objects, report.contents) == (expected["objects"], expected["contents"])
    (job,) = store.jobs()
    found = {
        "name": job.job["original_job_name"],
        **{key: job.job[key] for key in ("n_trials", "n_scored", "n_skipped")},
        "n_events": job.rows("events"),
        "n_files": job.rows("files"),
        "size": job.size,
    }
    assert found == expected["job"]


def test_its_views_give_what_they_gave(kept: tuple[traceflow.Store, dict[str, Any]]) -> None:
    store, expected = kept
    for query, rows in expected["sql"].items():
        assert [list(row) for row in store.sql(query).fetchall()] == rows, query


def test_its_traces_are_the_same_bytes(kept: tuple[traceflow.Store, dict[str, Any]]) -> None:
    store, expected = kept
    for name, digest in expected["traces"].items():
        lines = (
            jsontext.dumps({"seq": line.seq, "type": line.type, "data": line.data}) + b"\n"
            for line in store.trace(store.trial(name))
        )
        assert hashlib.sha256(b"".join(lines)).hexdigest() == digest, name


@pytest.mark.parametrize("use_index", [True, False])
def test_grep_finds_what_it_found_by_its_index_and_by_a_scan(
    kept: tuple[traceflow.Store, dict[str, Any]], use_index: bool
) -> None:
    store, expected = kept
    for pattern, counts in expected["grep"].items():
        found = grep_counts(store, pattern, use_index=use_index)
        assert {trial.trial_name: trial.matches for trial in found} == counts, pattern


def test_search_finds_what_it_found(kept: tuple[traceflow.Store, dict[str, Any]]) -> None:
    store, expected = kept
    for words, names in expected["search"].items():
        assert [found.hit.trial_name for found in store.search(words)] == names, words


def test_what_was_imported_comes_out_the_same(kept: tuple[traceflow.Store, dict[str, Any]], tmp_path: Path) -> None:
    store, expected = kept
    (job,) = store.jobs()
    made = store.export(job, tmp_path / "job.tar.gz", original=True)
    assert made.as_dict().items() >= expected["original"].items()
    for row in store.files(job):
        if row.packed is not None:
            with store.open_file(job, row) as stream:
                assert hashlib.sha256(stream.read()).hexdigest() == row.sha256


def test_it_can_be_parsed_anew_and_taken_out_of_the_store(kept: tuple[traceflow.Store, dict[str, Any]]) -> None:
    store, expected = kept
    (job,) = store.jobs()
    assert store.reparse(job).trials == expected["job"]["n_trials"]
    assert store.verify(contents=True).problems == []
    store.delete_job(store.job(job.job_id))
    assert store.jobs() == []
