"""Imports that are killed, run out of disk, lose their source or meet another one: the store verifies clean after
each, and a repeat succeeds."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from job_builder import JOB_ID, assert_clean, contents, export_sha, new_store, write_job_folder
from traceflow_formats.errors import TraceflowError

from traceflow.importer import import_job
from traceflow.importer.workers import Workers
from traceflow.store import Store

KILLS = int(os.environ.get("TRACEFLOW_TEST_KILLS", "8"))

# Imports a job and kills itself at the n-th step, a step being a file or trial that is done or a call that makes
# something durable: these are the places between which the store can be in different states.
SUICIDE = """
import os, signal, sys
from pathlib import Path
from traceflow.importer import import_job
from traceflow.store import Store
store, job, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
count = 0
def step():
    global count
    count += 1
    if count == left:
        os.kill(os.getpid(), signal.SIGKILL)
def counted(call):
    def wrapped(*args, **kwargs):
        step()
        result = call(*args, **kwargs)
        step()
        return result
    return wrapped
opened = Store.open(store)
for name in ("fsync", "link", "unlink", "mkdir", "rename", "replace"):
    setattr(os, name, counted(getattr(os, name)))
import_job(opened, Path(job), progress=lambda amount, word: step())
print(count)
"""


def run_suicide(store: Store, job: Path, at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SUICIDE, store.url, str(job), str(at)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_an_import_that_is_killed_anywhere_leaves_a_clean_store_and_a_repeat_is_the_same(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 4, turns=2)
    other = write_job_folder(tmp_path / "other", 1, job_id="22222222-2222-4222-8222-222222222222")
    clean = new_store(tmp_path / "clean")
    import_job(clean, other)
    steps = int(run_suicide(clean, job, -1).stdout)
    expected, export = contents(clean, JOB_ID), export_sha(clean, JOB_ID, tmp_path)
    dice = random.Random(7)
    late = steps - 3  # about the commit
    points = [late, *(dice.randrange(1, steps + 1) for _ in range(KILLS - 1))]
    for number, point in enumerate(points):
        store = new_store(tmp_path / str(number))
        import_job(store, other)
        assert run_suicide(store, job, point).returncode == -signal.SIGKILL
        assert store.verify(contents=True).problems == []
        assert len(store.trials(store.job("other"))) == 1
        if JOB_ID not in store.job_ids():
            import_job(store, job)
        assert contents(store, JOB_ID) == expected
        assert export_sha(store, JOB_ID, tmp_path) == export
        store.gc(minutes=0)
        assert_clean(store)


# -- the disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    point = tmp_path / "small"
    point.mkdir()
    if os.getuid() != 0 or sys.platform != "linux":
        pytest.skip("only root on Linux can mount a small file system")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(point)], check=False)
    if mounted.returncode:
        pytest.skip("this system lets nobody mount a small file system")
    yield point
    subprocess.run(["umount", str(point)], check=True)


def test_a_full_disk_is_one_error_and_what_was_there_stays(small_disk: Path, tmp_path: Path) -> None:
    store = Store.open(str(small_disk / "store"), create=True)
    import_job(store, write_job_folder(tmp_path / "first", 1, job_id="22222222-2222-4222-8222-222222222222"))
    job = write_job_folder(tmp_path / "run", 2)
    (job / "noise.bin").write_bytes(random.Random(1).randbytes(3 << 20))
    with pytest.raises(TraceflowError, match="No space left on device") as caught:
        import_job(store, job)
    assert caught.value.code == "io_error"
    assert [m.job["original_job_name"] for m in store.jobs()] == ["first"]
    assert_clean(store)
    assert not list(small_disk.rglob("*.partial"))
    (job / "noise.bin").unlink()
    assert import_job(store, job).trials == 2


# -- the source ----------------------------------------------------------------------------------------------------


def grow(path: Path) -> None:
    with path.open("ab") as out:
        out.write(b"\n")


def rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [grow, rewrite, Path.unlink], ids=["grows", "is rewritten", "vanishes"])
@pytest.mark.parametrize("which", ["trial.log", "agent/sessions/projects/-app/s.jsonl"])
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_source_that_changes_while_it_is_read_is_refused(
    change: Callable[[Path], Any], which: str, when: str, tmp_path: Path
) -> None:
    job = write_job_folder(tmp_path / "run", 3)
    path = job / "task-2__0000002" / which
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"type":"user"}\n')
    store = new_store(tmp_path)
    word = "config.json" if when == "early" else "trial 3 of 3: task-2__0000002"
    done: list[bool] = []

    def progress(amount: int, said: str) -> None:
        if said == word and not done:
            done.append(True)
            change(path)

    with pytest.raises(TraceflowError, match="changed while it was read") as caught:
        import_job(store, job, progress=progress)
    assert caught.value.code == "io_error"
    assert done
    assert store.job_ids() == []
    assert_clean(store)
    assert import_job(store, job).trials == 3


# Imports a job and takes a permission away half way. Root may do everything, so it becomes nobody first: after one
# import, by which all is loaded that an interpreter in root's home folder keeps from others.
REVOKE = """
import os, sys
from pathlib import Path
from traceflow_formats.errors import TraceflowError
from traceflow.importer import import_job
from traceflow.store import Store
root, which = Path(sys.argv[1]), sys.argv[2]
job, store = root / "run", Store.open(str(root / "store"), create=True)
import_job(Store.open(str(root / "first"), create=True), job)
assert store.verify(contents=True).problems == [] and not store.gc(minutes=0).removed
if os.getuid() == 0:
    for path in (root, *root.rglob("*")):
        os.chown(path, 65534, 65534)
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
folder, left = (job / "task-2__0000002", 0) if which == "source" else (root / "store" / "jobs", 0o555)
def revoke(amount, word):
    if word.startswith("trial 2"):
        for path in (folder, *(path for path in folder.glob("*") if which == "store")):
            path.chmod(left)
try:
    import_job(store, job, progress=revoke)
except (PermissionError, TraceflowError) as error:
    print(getattr(error, "code", "PermissionError"), "Permission denied" in str(error))
for path in (folder, *(path for path in folder.glob("*") if which == "store")):
    path.chmod(0o755)
assert store.job_ids() == []
problems = store.verify(contents=True).problems
store.gc(minutes=0)
print(problems, store.gc(minutes=0, dry_run=True).removed)
print(import_job(store, job).trials, store.verify(contents=True).problems)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; those of pytest are the user's own."""
    folder = Path(tempfile.mkdtemp(prefix="traceflow-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of POSIX")
@pytest.mark.parametrize(("which", "told"), [("source", "PermissionError True"), ("store", "io_error True")])
def test_a_permission_that_is_lost_half_way_ends_the_import_and_a_repeat_succeeds(
    which: str, told: str, open_folder: Path
) -> None:
    write_job_folder(open_folder / "run", 3)
    command = [sys.executable, "-c", REVOKE, str(open_folder), which]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [told, "[] []", "3 []"]


def test_an_interrupt_anywhere_leaves_nothing(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 3)
    told: list[str] = []
    import_job(new_store(tmp_path / "x"), job, progress=lambda amount, word: told.append(word))
    store = new_store(tmp_path)

    def interrupt_at(number: int) -> Callable[[int, str], None]:
        left = [number]

        def progress(amount: int, word: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        return progress

    for number in range(0, len(told), 3):
        with pytest.raises(KeyboardInterrupt):
            import_job(store, job, progress=interrupt_at(number))
        assert list(store.backend.objects("jobs")) == []
    assert import_job(store, job).trials == 3


# -- each other ----------------------------------------------------------------------------------------------------


def test_of_two_imports_of_one_job_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 5)
    store = new_store(tmp_path)
    barrier = threading.Barrier(2)
    outcomes: list[str] = []

    def run() -> None:
        met: list[bool] = []

        def progress(amount: int, word: str) -> None:
            if not met:
                met.append(True)
                barrier.wait(60)  # both have seen that the job is not there

        try:
            import_job(Store.open(store.url), job, progress=progress)
            outcomes.append("imported")
        except TraceflowError as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["imported", "job_already_uploaded"]
    assert len(store.trials(store.job(JOB_ID))) == 5
    assert_clean(store)


def test_a_spool_that_is_full_ends_the_import_in_words(small_disk: Path, tmp_path: Path) -> None:
    """The rows that workers hand over lie in a spool, which may be full as well."""
    job = write_job_folder(tmp_path / "run", 6, turns=1500)
    store = new_store(tmp_path)
    before = os.environ.get("TMPDIR")
    os.environ["TMPDIR"] = str(small_disk)
    tempfile.tempdir = None
    try:
        with Workers(2) as workers, pytest.raises((OSError, TraceflowError), match="No space left on device"):
            import_job(store, job, workers=workers)
    finally:
        tempfile.tempdir = None
        os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)
    assert store.job_ids() == []
    assert_clean(store)
    assert list(small_disk.iterdir()) == []
