"""`store verify` notices one changed byte in every kind of object."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError

import traceflow
from traceflow.store.testing import call, chunk, prompt, result, write_job

FIXTURES = Path(__file__).parents[2] / "fixtures"
KINDS = {
    "jobs/j/manifest.json": "j",
    "trials.parquet": "j",
    "events.parquet": "j",
    "files.parquet": "j",
    "events.grep": "j",
    "pack-0000.bin": "j",
    "datasets/demo/1/manifest.json": "demo@1",
    "datasets/demo/1/tasks.parquet": "demo@1",
    "datasets/demo/1/pack-0000.bin": "demo@1",
    "catalog/latest.json": "catalog",
    "catalog/jobs-": "catalog",
    "catalog/trials-": "catalog",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> traceflow.Store:
    store = traceflow.open(tmp_path_factory.mktemp("stores") / "store", create=True)
    events = [prompt("Look"), call("c", "Bash", {"command": "ls"}), result("c", "a.py b.py"), chunk("agent", "Done")]
    write_job(
        store, "j", [({"trial_id": "t", "reward": 1.0}, events)], {"a": b"x" * 1000, "t/b": b"y"}, {"name": "one"}
    )
    store.add_dataset(FIXTURES / "tasks", "demo", "1")
    store.compact()
    assert store.verify(contents=True).problems == []
    return store


def test_every_kind_of_object_is_tried(whole: traceflow.Store) -> None:
    names = [found.name for found in whole.backend.objects("") if found.name != "store.json"]
    assert len(names) == len(KINDS)
    assert all(any(kind in name for kind in KINDS) for name in names)


@pytest.mark.parametrize("kind", KINDS)
def test_one_changed_byte_is_noticed(whole: traceflow.Store, kind: str) -> None:
    (name,) = (
        found.name
        for found in whole.backend.objects("")
        if kind in found.name and ("/" in kind or found.name.startswith("jobs/"))
    )
    path = Path(whole.url, name)
    good, mode = path.read_bytes(), path.stat()
    rnd = random.Random(kind)
    try:
        for at in [0, len(good) - 1, *(rnd.randrange(len(good)) for _ in range(12))]:
            data = bytearray(good)
            data[at] ^= 1 << rnd.randrange(7)
            path.write_bytes(data)
            problems = whole.verify().problems
            assert KINDS[kind] in {problem.job_id for problem in problems}, (at, good[at], data[at])
    finally:
        path.write_bytes(good)
        os.utime(path, ns=(mode.st_atime_ns, mode.st_mtime_ns))
    assert whole.verify().problems == []


def test_the_store_itself_is_not_opened_when_its_format_is_changed(whole: traceflow.Store) -> None:
    path = Path(whole.url, "store.json")
    good = path.read_bytes()
    try:
        for at in (good.index(b"traceflow"), good.index(b"1"), 0):
            data = bytearray(good)
            data[at] ^= 2
            path.write_bytes(data)
            with pytest.raises(TraceflowError) as caught:
                traceflow.open(whole.url)
            assert caught.value.code in ("store_corrupt", "store_version")
    finally:
        path.write_bytes(good)


def test_a_manifest_that_lost_its_digest_is_noticed_and_one_of_the_first_version_has_none(tmp_path: Path) -> None:
    store = traceflow.open(tmp_path / "store", create=True)
    write_job(store, "j", [])
    path = tmp_path / "store" / "jobs" / "j" / "manifest.json"
    body, _, _ = path.read_bytes().rpartition(b',\n  "sha256"')
    path.write_bytes(body + b"\n}\n")
    assert store.verify().problems == []
    path.write_bytes(body + b',\n  "sha255": "' + b"0" * 64 + b'"\n}\n')
    (problem,) = store.verify().problems
    assert (problem.job_id, problem.name) == ("j", "manifest.json")
