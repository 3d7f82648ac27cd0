"""What an import takes: folders, archives of each kind, bare and wrapped, and URLs; the result is the same."""

from __future__ import annotations

import http.server
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import fsspec
import pytest
from job_builder import (
    DEMO,
    HARBOR_JOBS,
    JOB_ID,
    assert_clean,
    contents,
    export_sha,
    new_store,
    tar_gz,
    tar_plain,
    tar_zst,
    write_job_folder,
    write_trial_folder,
    zip_of,
)
from traceflow_formats.errors import TraceflowError

from traceflow.importer import import_job
from traceflow.importer.incoming import jobs_below, source_name
from traceflow.limits import Limits

ALL_JOBS = [DEMO, *sorted(path for path in HARBOR_JOBS.iterdir() if path.is_dir())]


@pytest.mark.parametrize("job", ALL_JOBS, ids=lambda path: path.name)
def test_a_job_imports_as_folder_tar_gz_and_zip_with_the_same_result(job: Path, tmp_path: Path) -> None:
    sources = [job, tar_gz(job, tmp_path / f"{job.name}.tar.gz"), zip_of(job, tmp_path / f"{job.name}.zip")]
    found = []
    for number, source in enumerate(sources):
        store = new_store(tmp_path / str(number))
        report = import_job(store, source)
        assert_clean(store)
        found.append((contents(store, report.job_id), export_sha(store, report.job_id, tmp_path / str(number))))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "pack",
    [
        tar_gz,
        partial(tar_gz, top=""),
        partial(tar_gz, top="another name"),
        tar_plain,
        tar_zst,
        zip_of,
        partial(zip_of, top=""),
    ],
    ids=["tar.gz", "tar.gz bare", "tar.gz renamed", "tar", "tar.zst", "zip", "zip bare"],
)
def test_archives_of_each_kind_and_root(pack: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 2)
    store, other = new_store(tmp_path / "a"), new_store(tmp_path / "b")
    import_job(store, job)
    import_job(other, pack(job, tmp_path / "packed"))  # content, not the name, says what it is
    assert contents(store, JOB_ID) == contents(other, JOB_ID)


def test_a_folder_around_a_job_is_entered(tmp_path: Path) -> None:
    write_job_folder(tmp_path / "around" / "run", 1)
    store = new_store(tmp_path)
    assert import_job(store, tmp_path / "around").trials == 1
    assert store.file(store.job(JOB_ID), "task-0__0000000/result.json").size > 0


def test_a_folder_of_jobs_is_refused_with_a_hint(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_job_folder(tmp_path / "jobs" / name, 1)
    with pytest.raises(TraceflowError, match="it holds 2 jobs: name them, or add --all") as caught:
        import_job(new_store(tmp_path), tmp_path / "jobs")
    assert caught.value.code == "not_a_job_dir"
    (tmp_path / "jobs" / "notes.txt").write_text("x")
    tar_gz(tmp_path / "jobs" / "one", tmp_path / "jobs" / "three.tgz")
    (tmp_path / "jobs" / "empty").mkdir()
    assert [path.name for path in jobs_below(tmp_path / "jobs")] == ["one", "three.tgz", "two"]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/a/run.tar.gz", "run"),
        ("/a/run/", "run"),
        ("https://user:secret@host/x/run.tar.zst?key=1", "run"),
        ("s3://bucket/run.zip", "run"),
        ("run.with.dots", "run.with.dots"),
    ],
)
def test_a_job_without_a_name_is_called_as_its_source(source: str, name: str) -> None:
    assert source_name(source) == name


# -- URLs ------------------------------------------------------------------------------------------------------


class _Server(http.server.BaseHTTPRequestHandler):
    """Serves one body. With `cut` a connection ends after so many bytes; `sized` says the length beforehand."""

    body = b""
    cut: int | None = None
    sized = True
    ranges: list[str | None] = []  # noqa: RUF012 - of the class: what was asked for

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        data = self.body[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", '"one"')
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        if self.sized:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data if self.cut is None else data[: self.cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[_Server], str]]:
    handler = type("Handler", (_Server,), {"ranges": []})
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{running.server_address[1]}/run.tar.gz?token=secret"
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.mark.parametrize(("cut", "sized"), [(None, True), (None, False), (2000, True)])
def test_a_url_is_fetched_resumed_where_it_breaks_and_imported(
    cut: int | None, sized: bool, server: tuple[type[_Server], str], tmp_path: Path
) -> None:
    handler, url = server
    job = write_job_folder(tmp_path / "run", 4)
    handler.body, handler.cut, handler.sized = tar_gz(job, tmp_path / "x").read_bytes(), cut, sized
    store, other = new_store(tmp_path / "a"), new_store(tmp_path / "b")
    told: list[tuple[int, str]] = []
    import_job(store, url, progress=lambda amount, word: told.append((amount, word)))
    import_job(other, job)
    assert contents(store, JOB_ID) == contents(other, JOB_ID)
    assert any(word.startswith("fetching") for _, word in told)
    assert (len(handler.ranges) > 1) == (cut is not None)


def test_a_url_over_the_bound_is_refused_and_the_secret_is_not_shown(
    server: tuple[type[_Server], str], tmp_path: Path
) -> None:
    handler, url = server
    handler.body = b"x" * 5000
    store = new_store(tmp_path)
    with pytest.raises(TraceflowError) as caught:
        import_job(store, url, limits=Limits(archive_bytes=1000))
    assert caught.value.code == "upload_too_large"
    assert "secret" not in str(caught.value)
    assert list(store.backend.objects("jobs")) == []


def test_a_folder_and_an_archive_of_another_file_system(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 2)
    memory = fsspec.filesystem("memory")
    memory.put(str(job), "/import-test/run", recursive=True)
    memory.put(str(tar_gz(job, tmp_path / "x")), "/import-test/run.tar.gz")
    plain = new_store(tmp_path / "plain")
    import_job(plain, job)
    for number, url in enumerate(("memory://import-test/run", "memory://import-test/run.tar.gz")):
        store = new_store(tmp_path / str(number))
        import_job(store, url)
        assert contents(store, JOB_ID) == contents(plain, JOB_ID)
    memory.rm("/import-test", recursive=True)


def test_nothing_of_a_fetch_or_an_archive_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    job = write_job_folder(tmp_path / "run", 2)
    archive = tar_gz(job, tmp_path / "run.tar.gz")
    store = new_store(tmp_path)
    import_job(store, archive)
    with pytest.raises(TraceflowError, match="in the store already"):
        import_job(store, archive.as_uri())
    assert list(spool.iterdir()) == []


# -- progress and dry runs -------------------------------------------------------------------------------------


def test_progress_is_told_every_byte_and_every_trial(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 3)
    told: list[tuple[int, str]] = []
    import_job(new_store(tmp_path), job, progress=lambda amount, word: told.append((amount, word)))
    assert sum(amount for amount, _ in told) == sum(p.stat().st_size for p in job.rglob("*") if p.is_file())
    assert [word for _, word in told if word.startswith("trial ")] == [
        f"trial {n + 1} of 3: task-{n}__{n:07d}" for n in range(3)
    ]


def test_a_dry_run_says_what_would_land_and_writes_nothing(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 3)
    write_trial_folder(job, "broken__0000000")
    (job / "broken__0000000" / "result.json").unlink()
    store = new_store(tmp_path)
    before = sorted(p for p in tmp_path.rglob("*"))
    dry = import_job(store, job, dry_run=True)
    assert sorted(p for p in tmp_path.rglob("*")) == before
    wet = import_job(store, job)
    assert {**wet.as_dict(), "dry_run": True} == dry.as_dict()
    assert [s["code"] for s in dry.skipped] == ["trial_incomplete"]


def test_an_import_of_a_folder_does_not_change_it(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 2)
    copy = shutil.copytree(job, tmp_path / "copy")
    import_job(new_store(tmp_path), job)
    assert {p.relative_to(job): p.read_bytes() for p in job.rglob("*") if p.is_file()} == {
        p.relative_to(copy): p.read_bytes() for p in copy.rglob("*") if p.is_file()
    }
