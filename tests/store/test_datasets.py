"""Datasets in a store: found by name and version, read as they were added, and of two writers one wins."""

from __future__ import annotations

import io
import multiprocessing
import uuid
from pathlib import Path

import orjson
import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.query import sql
from traceflow.store import Dataset, DatasetFile, Store

FACTS = {"added_at": "2026-01-02T03:04:05Z", "added_as": "folder"}


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = str(tmp_path / "store") if request.param == "local" else f"memory://{uuid.uuid4().hex}"
    return Store.open(url, create=True)


def write(store: Store, name: str, version: str, *tasks: str) -> Dataset:
    with store.dataset_writer(name, version) as writer:
        readme = writer.add_content(io.BytesIO(b"about"))
        writer.add_files([DatasetFile("README.md", "file", readme.size, 0o644, readme.sha256, packed=readme)])
        for task in tasks:
            data = f"Do {task}.".encode()
            packed = writer.add_content(io.BytesIO(data))
            files = [
                DatasetFile("instruction.md", "file", len(data), 0o644, packed.sha256, None, True, packed),
                DatasetFile("empty", "directory", 0, 0o755),
                DatasetFile("link", "link", 0, 0o777, target="instruction.md"),
            ]
            row = {"task_name": task, "digest": f"sha256:{task:0>64}", "path": task, "n_steps": 0, "config": {"a": [1]}}
            writer.add_task({**row, "instruction": data.decode(), "keywords": ["x"], "steps": []}, files)
        return writer.commit(FACTS)


def code_of(call: object, *args: object) -> str:
    with pytest.raises(TraceflowError) as caught:
        call(*args)  # type: ignore[operator]
    return caught.value.code


def test_what_was_added_is_read_back(store: Store) -> None:
    added = write(store, "org/ds", "1.0", "b", "a")
    found = store.dataset("org/ds@1.0")
    assert found == added
    assert (found.label, found.n_tasks, found.n_files, found.size) == ("org/ds@1.0", 2, 3, 15)
    assert [t["task_name"] for t in store.tasks(found)] == ["a", "b"]
    task = store.task(found, "b")
    assert (task["dataset"], task["instruction"], task["n_files"], task["size"]) == ("org/ds@1.0", "Do b.", 1, 5)
    files = [DatasetFile.from_dict(row) for row in task["files"]]
    assert [(f.path, f.kind, f.target, f.counted) for f in files] == [
        ("instruction.md", "file", None, True),
        ("empty", "directory", None, False),
        ("link", "link", "instruction.md", False),
    ]
    assert store.open_task_file(found, files[0]).read() == b"Do b."
    assert store.open_task_file(found, found.files[0]).read() == b"about"
    report = store.verify(contents=True)
    assert (report.datasets, report.contents, report.problems) == (1, 3, [])
    assert store.info().datasets == 1


def test_a_version_on_disk_is_a_manifest_a_table_and_packs(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path), create=True)
    write(store, "ds", "1.0", "a")
    below = sorted(p.relative_to(tmp_path).as_posix() for p in (tmp_path / "datasets").rglob("*") if p.is_file())
    assert below == [f"datasets/ds/1.0/{name}" for name in ("manifest.json", "pack-0000.bin", "tasks.parquet")]


def test_the_same_tasks_have_the_same_bytes_and_digest(store: Store) -> None:
    first, second = write(store, "ds", "1", "a", "b"), write(store, "other", "1", "a", "b")
    assert first.objects[1] == second.objects[1]
    assert first.digest == second.digest == write(store, "third", "1", "b", "a").digest
    assert write(store, "ds", "2", "a").digest != first.digest


def test_a_version_is_added_once(store: Store) -> None:
    first = write(store, "ds", "1", "a")
    assert code_of(write, store, "ds", "1", "b") == "dataset_exists"
    assert store.dataset("ds") == first


def test_a_name_without_a_version_needs_one_version(store: Store) -> None:
    assert code_of(store.dataset, "ds") == "dataset_not_found"
    first = write(store, "ds", "1", "a")
    assert store.dataset("ds") == first
    write(store, "ds", "2", "a")
    with pytest.raises(TraceflowError, match="has 2 versions, 1, 2: say which, as in ds@2") as caught:
        store.dataset("ds")
    assert caught.value.code == "invalid_input"
    assert code_of(store.dataset, "ds@3") == "dataset_version_not_found"
    assert code_of(store.dataset, "sd@1") == "dataset_not_found"
    assert code_of(store.task, first, "z") == "task_not_found"


@pytest.mark.parametrize("name", ["", "../x", "a/b/c", "/a", "a/", ".a", "a@b@c", "ä", "a b", "x" * 101, "a/../b"])
def test_a_name_that_leads_elsewhere_is_refused(store: Store, name: str) -> None:
    for version in ("1", "..", "", "a/b", ".hidden"):
        if name == "a/b" and version == "1":
            continue
        assert code_of(store.dataset_writer, name, version) == "invalid_input"
    assert code_of(store.dataset, f"{name}@..") == "invalid_input"


def test_a_deleted_version_is_gone_and_its_name_is_free(store: Store) -> None:
    write(store, "ds", "2", "x")
    store.delete_dataset(write(store, "ds", "1", "a"))
    assert [d.label for d in store.datasets()] == ["ds@2"]
    assert store.gc(minutes=0).removed == []
    assert write(store, "ds", "1", "b").n_tasks == 1
    for dataset in store.datasets():
        store.delete_dataset(dataset)
    assert list(store.backend.objects("datasets")) == []


def test_what_is_not_committed_is_gone_and_a_killed_writer_leaves_a_folder_for_gc(store: Store) -> None:
    with store.dataset_writer("ds", "1") as writer:
        writer.add_content(io.BytesIO(b"x"))
    assert list(store.backend.objects("datasets")) == []
    with store.backend.create("datasets/ds/.rdead/pack-0000.bin") as stream:
        stream.write(b"12345")
    kept = write(store, "ds", "1", "a")
    assert store.gc(minutes=60).removed == []
    report = store.gc(minutes=0)
    assert (report.removed, report.size) == (["datasets/ds/.rdead"], 5)
    assert store.verify(contents=True).problems == []
    assert store.datasets() == [kept]


def test_damage_is_told_with_the_version_it_is_in(store: Store) -> None:
    dataset = write(store, "ds", "1", "a")
    name = f"{dataset.folder}/tasks.parquet"
    store.backend.delete(name)
    with store.backend.create(name) as stream:
        stream.write(b"broken")
    assert code_of(store.tasks, dataset) == "store_corrupt"
    (problem,) = store.verify().problems
    assert (problem.job_id, problem.name) == ("ds@1", "tasks.parquet")
    manifest = "datasets/ds/1/manifest.json"
    for change in ({"revision": "../../x"}, {"name": "other"}, {"objects": [{"name": "../x"}]}, {"files": 3}):
        value = {**orjson.loads(dataset.to_bytes()), **change}
        store.backend.delete(manifest)
        assert store.backend.put_if_absent(manifest, orjson.dumps(value))
        assert code_of(store.dataset, "ds@1") == "store_corrupt"
        assert [p.job_id for p in store.verify().problems] == ["ds@1"]
        assert store.gc(minutes=0).removed == []


def test_the_views_show_datasets_and_tasks(store: Store) -> None:
    write(store, "ds", "1", "a", "b")
    write(store, "ds", "2", "a")
    shown = sql(store, "SELECT dataset, n_tasks, n_files, added_at FROM datasets").fetchall()
    assert [row[:3] for row in shown] == [("ds@1", 2, 3), ("ds@2", 1, 2)]
    query = "SELECT dataset, task_name, config ->> '$.a[0]' AS a, keywords FROM tasks ORDER BY ALL"
    assert sql(store, query).fetchall() == [
        ("ds@1", "a", "1", ["x"]),
        ("ds@1", "b", "1", ["x"]),
        ("ds@2", "a", "1", ["x"]),
    ]


def add_at_once(url: str, number: int, barrier: multiprocessing.synchronize.Barrier, told: object) -> None:
    """A writer in a process of its own that commits when all are ready."""
    store = Store.open(url)
    with store.dataset_writer("ds", "1") as writer:
        packed = writer.add_content(io.BytesIO(f"writer {number}".encode()))
        file = DatasetFile("a", "file", packed.size, 0o644, packed.sha256, None, True, packed)
        writer.add_task({"task_name": "t", "digest": "sha256:0", "path": "t", "n_steps": number}, [file])
        barrier.wait()
        try:
            writer.commit(FACTS)
            told.put((number, "won"))  # type: ignore[attr-defined]
        except TraceflowError as error:
            told.put((number, error.code))  # type: ignore[attr-defined]


def test_of_writers_that_add_a_version_in_the_same_moment_one_wins(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    spawn = multiprocessing.get_context("spawn")
    barrier, told = spawn.Barrier(4), spawn.Queue()
    processes = [spawn.Process(target=add_at_once, args=(store.url, n, barrier, told)) for n in range(4)]
    for process in processes:
        process.start()
    results = dict(told.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(results.values()) == ["dataset_exists"] * 3 + ["won"]
    dataset = store.dataset("ds@1")
    task = store.task(dataset, "t")
    winner = next(number for number, outcome in results.items() if outcome == "won")
    assert task["n_steps"] == winner
    assert store.open_task_file(dataset, DatasetFile.from_dict(task["files"][0])).read() == f"writer {winner}".encode()
    assert store.verify(contents=True).problems == []
    assert store.gc(minutes=0).removed == []
