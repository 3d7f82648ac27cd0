"""Worker processes: the result does not depend on their number, and none is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from job_builder import (
    DEMO,
    JOB_ID,
    assert_clean,
    claude_rows,
    contents,
    export_sha,
    new_store,
    write_job_folder,
    write_trial_folder,
)
from traceflow_formats.errors import TraceflowError

from traceflow.importer import import_job
from traceflow.importer.workers import Workers, usable_cpus


def test_the_result_is_the_same_whatever_the_number_of_workers(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 40, turns=2)
    write_trial_folder(job, "zz-large__0000000", {"agent/sessions/projects/-a/s.jsonl": claude_rows("s", 700)})
    write_trial_folder(job, "zz-none__0000000")
    found = []
    for count in (1, 2):
        store = new_store(tmp_path / str(count))
        with Workers(count) as workers:
            report = import_job(store, job, workers=workers)
            demo = import_job(store, DEMO, workers=workers)  # the same processes serve the next job
        assert report.trials == 42
        assert_clean(store)
        digests = [export_sha(store, job_id, tmp_path / str(count)) for job_id in (JOB_ID, demo.job_id)]
        found.append((contents(store, JOB_ID), contents(store, demo.job_id), digests))
    assert found[0] == found[1]
    assert multiprocessing.active_children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux alone")
@pytest.mark.parametrize("thread", [False, True])
def test_workers_are_forks_unless_a_thread_would_be_missing_in_them(thread: bool, tmp_path: Path) -> None:
    """In a process of its own: the one that tests has threads."""
    job = write_job_folder(tmp_path / "run", 12)
    script = tmp_path / "run.py"
    script.write_text(
        "import multiprocessing, sys, threading\nfrom pathlib import Path\n"
        "from traceflow.importer import import_job\nfrom traceflow.importer.workers import Workers\n"
        "from traceflow.store import Store\n"
        "if __name__ == '__main__':\n"
        "    done = threading.Event()\n"
        f"    if {thread}: threading.Thread(target=done.wait).start()\n"
        "    with Workers(2) as workers:\n"
        "        report = import_job(Store.open(sys.argv[2], create=True), sys.argv[1], workers=workers)\n"
        "        kinds = {type(child).__name__ for child in multiprocessing.active_children()}\n"
        "    done.set()\n"
        "    print(report.trials, *kinds)\n"
    )
    command = [sys.executable, "-W", "error", str(script), str(job), str(tmp_path / "store")]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert told == ["12", "SpawnProcess" if thread else "ForkProcess"]


def test_workers_are_started_for_large_jobs_only() -> None:
    assert not Workers(1).worth(1000, 1 << 40)
    assert not Workers(4).worth(1, 1 << 40)
    assert Workers(4).worth(2, 10)
    assert not Workers(4, always=False).worth(100, 1 << 20)
    assert Workers(4, always=False).worth(2, 1 << 30)
    assert Workers(4, always=False).worth(10_000, 0)
    assert 1 <= usable_cpus() <= 8


def test_a_worker_that_is_killed_ends_the_import_in_words(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 150, turns=2)
    store = new_store(tmp_path)

    def kill(amount: int, word: str) -> None:
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

    with Workers(2) as workers:
        with pytest.raises(TraceflowError, match="run it again with --jobs 1") as caught:
            import_job(store, job, workers=workers, progress=kill)
        assert caught.value.code == "io_error"
        assert store.job_ids() == []
        assert_clean(store)
        assert import_job(store, job, workers=workers).trials == 150  # new workers are started


COMMAND = [sys.executable, "-m", "traceflow", "import", "--jobs", "2"]


def children_of(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at the processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_worker_outlives_an_import_that_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 600, turns=3)
    store = new_store(tmp_path)
    process = subprocess.Popen(
        [*COMMAND, str(job), "--store", store.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while (
        len(children := children_of(process.pid)) < 2
    ):  # where they are no forks there is one more, of multiprocessing
        assert process.poll() is None, "it was done before it could be ended"
        time.sleep(0.02)
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does: all of them are told
    else:
        process.send_signal(number)
    _, errors = process.communicate()
    if number is signal.SIGKILL:
        assert process.returncode == -9
    else:
        assert process.returncode == 130
        assert errors.decode().strip().splitlines() == ["interrupted; nothing half done is left behind"]
        assert list(store.backend.objects("jobs")) == []
    deadline = time.monotonic() + 20
    while not all(map(gone, children)):
        assert time.monotonic() < deadline, "a worker is still there"
        time.sleep(0.05)
    assert store.job_ids() == []
    assert store.verify(contents=True).problems == []
