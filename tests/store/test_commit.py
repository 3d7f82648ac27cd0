"""Killed, crowded out and out of space: the store stays readable, and a repeat gives the whole job."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.store import Store, local_files
from traceflow.store.testing import chunk, write_job

JOB = "11111111-1111-4111-8111-111111111111"

IMPORTER = f"""
import io, random, sys
from traceflow.store import Store
from traceflow.store.testing import chunk
store = Store.open(sys.argv[1], create=True)
print("ready", flush=True)
with store.writer({JOB!r}) as writer:
    for n in range(40):
        data = random.Random(n).randbytes(200_000)
        writer.add_file(f"t{{n}}/log", io.BytesIO(data), trial_id=f"t{{n}}")
        writer.add_events(f"t{{n}}", (chunk("agent", f"{{n}} {{i}} " + data[:50].hex()) for i in range(200)))
        writer.add_trial({{"trial_id": f"t{{n}}", "trial_name": f"t{{n}}"}})
    writer.commit()
print("done", flush=True)
"""


def written(folder: Path) -> int:
    """Bytes below a folder that is being written to."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it got its name meanwhile
            size += path.stat().st_size if path.is_file() else 0
    return size


def run_importer(store: Path, kill_at: int | None = None) -> int:
    """Run it in a process of its own; with a size, kill it when it has written so many bytes. Its exit code."""
    folder = store / "jobs" / JOB
    process = subprocess.Popen([sys.executable, "-c", IMPORTER, str(store)], stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while kill_at is not None and process.poll() is None:
            if written(folder) >= kill_at:
                process.kill()
                break
        process.communicate()
    return process.returncode


def read_all(store: Store) -> tuple[list[object], list[object]]:
    """Everything that the job gives, by way of the readers."""
    job = store.job(JOB)
    events = [list(store.trace(trial)) for trial in store.trials(job)]
    contents = [store.contents(job).read(f.packed) for f in store.files(job) if f.packed is not None]
    return [*events], [*contents]


def test_a_writer_that_is_killed_at_any_time_leaves_a_readable_store_and_a_repeat_is_a_clean_import(
    tmp_path: Path,
) -> None:
    clean = tmp_path / "clean"
    assert run_importer(clean) == 0
    expected = read_all(Store.open(str(clean)))
    seen = set()
    kept = chunk("agent", "kept")
    for kill_at in (0, 3_000_000, 7_900_000):
        path = tmp_path / f"store-{kill_at}"
        write_job(Store.open(str(path), create=True), "before", [({"trial_id": "t"}, [kept])])
        killed = run_importer(path, kill_at) == -signal.SIGKILL
        store = Store.open(str(path))
        committed = JOB in store.job_ids()
        seen.add((killed, committed))
        assert store.verify(contents=True).problems == []
        before = store.trial("t", store.job("before"))
        assert [line.data for line in store.trace(before)] == [kept.data]
        if not committed:
            assert run_importer(path) == 0
        assert read_all(store) == expected
        store.gc(minutes=0)
        names = [o.name for o in store.backend.objects("jobs")]
        folders = {name.split("/")[2] for name in names if name.startswith(f"jobs/{JOB}/")}
        assert folders == {"manifest.json", store.job(JOB).revision}
    assert (True, False) in seen, "no attempt was killed in the middle"


def commit_at_once(url: str, number: int, barrier: multiprocessing.synchronize.Barrier, told: object) -> None:
    """A writer in a process of its own that commits when all are ready."""
    writer = Store.open(url).writer(JOB)
    writer.add_events("t", [chunk("agent", f"writer {number}")])
    writer.add_trial({"trial_id": "t", "trial_name": "t"})
    barrier.wait()
    try:
        writer.commit()
        told.put((number, "won"))  # type: ignore[attr-defined]
    except TraceflowError as error:
        told.put((number, error.code))  # type: ignore[attr-defined]


def test_of_writers_that_commit_in_the_same_moment_one_wins(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    spawn = multiprocessing.get_context("spawn")
    barrier, told = spawn.Barrier(3), spawn.Queue()
    processes = [spawn.Process(target=commit_at_once, args=(store.url, n, barrier, told)) for n in range(3)]
    for process in processes:
        process.start()
    results = dict(told.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    assert sorted(results.values()) == ["job_already_uploaded", "job_already_uploaded", "won"]
    winner = next(number for number, outcome in results.items() if outcome == "won")
    (line,) = store.trace(store.trial("t"))
    assert line.data["update"]["content"]["text"] == f"writer {winner}"
    assert store.gc(minutes=0).removed == []  # the losers took everything away


FULL = """
import io, os, random, resource, signal, sys
from traceflow.store import Store
from traceflow_formats.errors import TraceflowError
store = Store.open(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with store.writer("full") as writer:
        for n in range(10):
            writer.add_file(f"f{n}", io.BytesIO(random.Random(n).randbytes(100_000)))
        writer.commit()
except TraceflowError as error:
    print(error.code, "|", error.message)
"""


def test_a_write_that_the_system_refuses_is_an_error_in_words_and_nothing_is_left(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    write_job(store, "before", [({"trial_id": "t"}, [chunk("agent", "kept")])])
    done = subprocess.run([sys.executable, "-c", FULL, store.url], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("io_error | job full could not be written to ")
    assert "File too large" in done.stdout
    assert store.job_ids() == ["before"]
    assert [o.name for o in store.backend.objects("jobs/full")] == []
    assert store.verify(contents=True).problems == []


@pytest.mark.parametrize("after", range(0, 60, 3))
def test_a_full_disk_at_any_write_is_an_error_in_words_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Every system call that writes to the store fails from the n-th on, as on a disk that is full."""
    store = Store.open(str(tmp_path / "store"), create=True)
    left = after
    sync = os.fsync

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(28, "No space left on device")

    class Disk:
        def __init__(self, stream: object) -> None:
            self._stream = stream

        def write(self, data: bytes) -> int:
            count()
            return self._stream.write(data)  # type: ignore[attr-defined, no-any-return]

        def __getattr__(self, name: str) -> object:
            return getattr(self._stream, name)

        def __enter__(self) -> Disk:
            return self

        def __exit__(self, *_: object) -> None:
            self._stream.close()  # type: ignore[attr-defined]

    def full_sync(handle: int) -> None:
        count()
        sync(handle)

    open_new = local_files._open_new
    monkeypatch.setattr(local_files, "_open_new", lambda path: Disk(open_new(path)))
    monkeypatch.setattr(os, "fsync", full_sync)
    events = [chunk("agent", f"words {n}") for n in range(1500)]
    try:
        write_job(store, JOB, [({"trial_id": "t"}, events)], {"a": b"a" * 1000, "b": b"b"})
        failed = None
    except TraceflowError as error:
        failed = error
    monkeypatch.undo()
    assert store.verify(contents=True).problems == []
    if failed is None:
        assert store.job_ids() == [JOB]
        return
    assert failed.code == "io_error"
    assert "No space left on device" in failed.message
    assert "make room" in failed.message
    assert store.job_ids() == []
    assert list(store.backend.objects("jobs")) == []
    write_job(store, JOB, [({"trial_id": "t"}, events)])
    assert len(list(store.trace(store.trial("t")))) == 1500
