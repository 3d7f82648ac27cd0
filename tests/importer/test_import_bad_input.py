"""Input that is no job, as the command meets it: one line, the right exit code, nothing written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from job_builder import HARBOR_JOBS, new_store, tar_gz, write_job_folder, write_trial_folder

COMMAND = [sys.executable, "-m", "traceflow", "import"]


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **env}
    )


def no_such_path(at: Path) -> Path:
    return at / "absent"


def empty_folder(at: Path) -> Path:
    (at / "empty").mkdir()
    return at / "empty"


def trial_folder(at: Path) -> Path:
    return next(iter(write_job_folder(at / "run", 1).glob("task-*")))


def empty_file(at: Path) -> Path:
    (at / "empty.tar.gz").touch()
    return at / "empty.tar.gz"


def text_file(at: Path) -> Path:
    (at / "notes.txt").write_text("no archive\n")
    return at / "notes.txt"


def folder_for_a_file(at: Path) -> Path:
    job = write_job_folder(at / "run", 1)
    (job / "result.json").unlink()
    (job / "result.json").mkdir()
    return job


def unreadable_result(at: Path) -> Path:
    job = write_job_folder(at / "run", 1)
    (job / "result.json").write_text('{"id": "x", broken')
    return job


def unreadable_trial(at: Path) -> Path:
    job = write_job_folder(at / "run", 1)
    write_trial_folder(job, "bad__0000000")
    (job / "bad__0000000" / "result.json").write_text('{"task_name": ')
    return job


def torn_archive(at: Path) -> Path:
    archive = tar_gz(write_job_folder(at / "run", 2), at / "run.tar.gz")
    archive.write_bytes(archive.read_bytes()[:-200])
    return archive


BAD = [
    (no_such_path, "not_found", "no such file or folder"),
    (empty_folder, "not_a_job_dir", "no config.json and no result.json"),
    (trial_folder, "not_a_job_dir", "the folder of one trial"),
    (empty_file, "invalid_archive", ""),
    (text_file, "invalid_archive", ""),
    (folder_for_a_file, "not_a_job_dir", "result.json in it is no file"),
    (unreadable_result, "invalid_job", "result.json"),
    (unreadable_trial, "invalid_trial", "bad__0000000/result.json"),
    (torn_archive, "invalid_archive", ""),
]


@pytest.mark.parametrize(("make", "code", "says"), BAD, ids=[make.__name__ for make, _, _ in BAD])
def test_bad_input_is_one_line_and_nothing_is_written(
    make: Callable[[Path], Path], code: str, says: str, tmp_path: Path
) -> None:
    store = new_store(tmp_path)
    done = run(str(make(tmp_path)), "--store", store.url)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error[{code}]: ")
    assert says in line
    assert list(store.backend.objects("jobs")) == []


def test_an_unreadable_record_names_its_file_and_the_byte(tmp_path: Path) -> None:
    done = run(str(unreadable_trial(tmp_path)), "--store", str(tmp_path / "store"), "--json")
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "invalid_trial"
    assert "byte" in error["message"] or "line" in error["message"]


def test_several_sources_are_outcomes_of_their_own_in_their_order(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    jobs = HARBOR_JOBS
    done = run(
        str(jobs / "smoke"), str(tmp_path / "absent"), str(jobs / "dunder"), str(jobs / "smoke"), "--store", store
    )
    assert done.returncode == 1
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["smoke", "dunder"]
    assert [line.split(":")[0] for line in done.stderr.splitlines() if line.startswith("error")] == [
        "error[not_found]",
        "error[job_already_uploaded]",
    ]


def test_all_jobs_of_a_folder_and_lines_in_order(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_job_folder(tmp_path / "jobs" / name, 1, job_id=None)
    write_trial_folder(tmp_path / "jobs" / "one", "x__0000000")
    (tmp_path / "jobs" / "one" / "x__0000000" / "result.json").unlink()
    done = subprocess.run(
        [*COMMAND, "--all", str(tmp_path / "jobs"), "--store", str(tmp_path / "store")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [
        "imported",
        "skipped[trial_incomplete]:",
        "imported",
    ]
    assert lines[0].endswith("scored 1 of 1 trial(s)")


def test_limits_are_set_by_option_and_environment_and_printed(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 1)
    store = str(tmp_path / "store")
    for done in (
        run(str(job), "--store", store, "--limit", "unpacked_bytes=100"),
        run(str(job), "--store", store, TRACEFLOW_LIMIT_UNPACKED_BYTES="100"),
    ):
        assert done.returncode == 1
        assert done.stderr.startswith("error[upload_too_large]: ")
        assert "unpacked_bytes" in done.stderr
    refused = run(str(job), "--store", store, "--limit", "no_such=1")
    assert refused.stderr.startswith("error[invalid_input]: ")
    table = subprocess.run(
        [sys.executable, "-m", "traceflow", "limits", "--limit", "file_bytes=1GiB"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert table[0] == "limit\tvalue\tover it\twhat it bounds"
    assert any(line.startswith("file_bytes\t1 GiB\ttrial_too_large\t") for line in table)


def test_a_dry_run_makes_no_store(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 2)
    done = run(str(job), "--store", str(tmp_path / "store"), "--dry-run")
    assert done.returncode == 0
    assert done.stdout.startswith("would import run as ")
    assert not (tmp_path / "store").exists()


NOBODY = 65534


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_files_that_may_not_be_read_and_a_store_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.getuid() and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    job = write_job_folder(tmp_path / "run", 1)
    secret = job / "task-0__0000000" / "result.json"
    secret.chmod(0o600)
    open_store = tmp_path / "open"
    open_store.mkdir(mode=0o777)
    open_store.chmod(0o777)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)

    def as_nobody(store: Path) -> subprocess.CompletedProcess[str]:
        code = (
            "import os, sys; os.setgid(65534); os.setuid(65534)\n"
            "from traceflow.cli import run; sys.exit(run(sys.argv[1:]))"
        )
        command = [sys.executable, "-c", code, "import", str(job), "--store", str(store)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")

    unread = as_nobody(open_store)
    if "ModuleNotFoundError" in unread.stderr or "can't open" in unread.stderr:
        pytest.skip("nobody may not read the package itself")
    assert (unread.returncode, unread.stdout) == (1, "")
    (line,) = unread.stderr.splitlines()
    assert line.startswith("error[io_error]: ")
    assert "result.json: permission denied" in line
    assert not any((open_store / "jobs").rglob("*"))
    secret.chmod(0o644)
    unwritten = as_nobody(closed)
    assert unwritten.returncode == 1
    (line,) = unwritten.stderr.splitlines()
    assert line.startswith("error[io_error]: ")
    assert list(closed.iterdir()) == []
