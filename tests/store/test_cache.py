"""What is kept on this machine of stores elsewhere."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from traceflow.query.matching import grep
from traceflow.store import Store
from traceflow.store.cache import Cache, open_cache
from traceflow.store.remote import FsspecBackend
from traceflow.store.testing import chunk, write_job


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACEFLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_is_kept_is_found_again_until_it_is_cleared(folder: Path) -> None:
    cache = open_cache()
    assert cache is not None
    assert cache.find("a") is None
    kept = cache.keep("a", b"12345")
    assert kept is not None
    assert kept == cache.find("a")
    assert kept.read_bytes() == b"12345"
    assert (cache.info().files, cache.info().size) == (1, 5)
    assert cache.clear().size == 5
    assert cache.find("a") is None


@pytest.mark.parametrize("word", ["off", "0", "", "OFF"])
def test_it_can_be_switched_off(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEFLOW_CACHE", word)
    assert open_cache() is None


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, limit=1000)
    for n in range(64):
        path = cache.keep(f"old {n}", b"x" * 100)
        assert path is not None
        os.utime(path, (n, n))
    assert cache.find("old 3") is not None, "using it makes it young"
    cache.keep("new", b"x" * 100)
    assert cache.info().size <= 1000
    assert cache.find("old 3") is not None
    assert cache.find("new") is not None
    assert cache.find("old 4") is None


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    cache = Cache(tmp_path / "file" / "below")
    assert cache.keep("a", b"1") is None
    assert cache.find("a") is None
    assert cache.info().files == 0


def keep_many(folder: Path, number: int) -> None:
    cache = Cache(folder, limit=40_000)
    for n in range(300):
        key = f"key {n % 50}"
        cache.keep(key, key.encode() * 200)
        key = f"key {(n * 7 + number) % 50}"
        path = cache.find(key)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile, since there was too much
                assert path.read_bytes() == key.encode() * 200


def test_processes_share_it_and_see_whole_files(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=keep_many, args=(tmp_path, n)) for n in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert not [path for path in files(tmp_path) if path.name.startswith(".")]


def test_indexes_and_tables_of_a_store_elsewhere_are_kept_and_the_rest_is_not(folder: Path, tmp_path: Path) -> None:
    store = Store.open(f"local://{tmp_path}/store", create=True)
    job = write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", "words")])], {"a": b"x"})
    backend = store.backend
    assert isinstance(backend, FsspecBackend)
    assert store.trials(job)[0]["trial_id"] == "t"
    (trials,) = files(folder)
    assert trials.read_bytes() == backend.read_bytes(job.path("trials.parquet"))
    backend.read_range(job.path("events.grep"), 0, 8)
    assert len(files(folder)) == 2
    for name in ("events.parquet", "files.parquet", "pack-0000.bin"):
        backend.read_range(job.path(name), 0, 8)
    store.job("j")
    assert len(files(folder)) == 2
    info = store.info().cache
    assert info is not None
    assert (info.folder, info.files) == (str(folder), 2)


def test_an_object_that_is_made_anew_under_its_name_is_read_anew(folder: Path, tmp_path: Path) -> None:
    store = Store.open(f"local://{tmp_path}/store", create=True)
    job = write_job(store, "j", [])
    name = job.path("search/words.parquet")
    for data in (b"first", b"second, and longer"):
        with store.backend.create(name) as stream:
            stream.write(data)
        assert store.backend.read_range(name, 0, 100) == data


def test_objects_are_fetched_ahead(folder: Path, tmp_path: Path) -> None:
    store = Store.open(f"local://{tmp_path}/store", create=True)
    jobs = [write_job(store, f"j{n}", [({"trial_id": "t"}, [chunk("agent", "words")])]) for n in range(5)]
    names = [(job.path(o.name), o.size) for job in jobs for o in job.objects if o.name == "events.grep"]
    store.backend.prefetch(names)
    assert sorted(path.stat().st_size for path in files(folder)) == sorted(size for _, size in names)
    store.backend.prefetch(names)
    assert len(files(folder)) == 5


def test_grep_fetches_all_indexes_at_once_and_reads_blocks_side_by_side(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(f"local://{tmp_path}/store", create=True)
    jobs = [write_job(store, f"j{n}", [({"trial_id": "t"}, [chunk("agent", f"word {n}")])]) for n in range(8)]
    asked: list[list[str]] = []
    threads: set[int] = set()
    read_ranges = FsspecBackend.read_ranges

    def watched(backend: FsspecBackend, ranges: Iterable[tuple[str, int, int]]) -> list[bytes]:
        found = list(ranges)
        asked.append([name for name, _, _ in found])
        threads.add(threading.get_ident())
        time.sleep(0.01)  # as a network would
        return read_ranges(backend, found)

    monkeypatch.setattr(FsspecBackend, "read_ranges", watched)
    assert [hit.text for hit in grep(Store.open(store.url), "word")] == [f"word {n}" for n in range(8)]
    assert asked[0] == [job.path("events.grep") for job in sorted(jobs, key=lambda job: job.job_id)]
    assert len(threads) > 1
    asked.clear()
    assert next(grep(Store.open(store.url), "word 3", limit=1)).text == "word 3"
    assert not [name for names in asked for name in names if name.endswith("events.grep")], "they are kept"


def test_verify_looks_at_the_store_and_not_at_a_copy(folder: Path, tmp_path: Path) -> None:
    store = Store.open(f"local://{tmp_path}/store", create=True)
    job = write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", "words")])])
    store.trials(job)
    path = tmp_path / "store" / job.path("trials.parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    (problem,) = store.verify().problems
    assert problem.name == "trials.parquet"
