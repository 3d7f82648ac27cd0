"""`export` on the command line: several jobs, and checking an archive against the store."""

from __future__ import annotations

import hashlib
import json
import runpy
import tarfile
from pathlib import Path
from typing import Any

import pytest

from traceflow.cli import run
from traceflow.export import export_job, find_job, verify_archive
from traceflow.store import Manifest, Store

_jobs = runpy.run_path(str(Path(__file__).with_name("export_jobs.py")))
FIXTURES: Path = _jobs["FIXTURES"]
imported = _jobs["imported"]


@pytest.fixture
def smoke(tmp_path: Path) -> tuple[Store, Manifest]:
    return imported(FIXTURES / "harbor" / "jobs" / "smoke", tmp_path / "store")


def told(store: Store, archive: Path) -> list[tuple[str, str]]:
    checked = verify_archive(store, find_job(store, archive), archive)
    assert not (checked.exact and checked.problems)
    return [(p["path"], p["message"]) for p in checked.problems]


@pytest.mark.parametrize("original", [False, True])
def test_an_archive_of_ours_is_exact(smoke: tuple[Store, Manifest], tmp_path: Path, original: bool) -> None:
    store, job = smoke
    export_job(store, job, tmp_path / "a.tar.gz", original=original)
    checked = verify_archive(store, find_job(store, tmp_path / "a.tar.gz"), tmp_path / "a.tar.gz")
    assert (checked.exact, checked.original, checked.problems) == (True, original, [])


def repacked(source: Path, target: Path, **changed: bytes | None) -> None:
    """The archive as another program packs it, with contents changed (None: left out)."""
    import io

    with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
        for info in reversed(old.getmembers()):
            data = old.extractfile(info).read()  # type: ignore[union-attr]
            content = changed.get(info.name.rpartition("/")[2].replace(".", "_"), data)
            if content is None:
                continue
            info.size, info.mtime = len(content), 1_700_000_000
            new.addfile(info, io.BytesIO(content))


def test_the_same_files_packed_otherwise_are_no_problem(smoke: tuple[Store, Manifest], tmp_path: Path) -> None:
    store, job = smoke
    export_job(store, job, tmp_path / "a.tar.gz")
    repacked(tmp_path / "a.tar.gz", tmp_path / "b.tar.gz")
    checked = verify_archive(store, job, tmp_path / "b.tar.gz")
    assert (checked.exact, checked.problems) == (False, [])


def test_what_differs_is_named(smoke: tuple[Store, Manifest], tmp_path: Path) -> None:
    store, job = smoke
    export_job(store, job, tmp_path / "a.tar.gz")
    repacked(tmp_path / "a.tar.gz", tmp_path / "b.tar.gz", trial_log=b"other", reward_txt=None)
    found = {path.rpartition("/")[2]: message for path, message in told(store, tmp_path / "b.tar.gz")}
    assert found == {
        "trial.log": "its content is not that of the store",
        "reward.txt": "it is missing in the archive",
    }


def test_one_byte_of_the_store_is_noticed_by_both_checks(smoke: tuple[Store, Manifest], tmp_path: Path) -> None:
    store, job = smoke
    export_job(store, job, tmp_path / "a.tar.gz")
    pack = Path(store.url) / job.path("pack-0000.bin")
    data = bytearray(pack.read_bytes())
    row = next(row for row in store.files(job) if row.path.endswith("trial.log"))
    assert row.packed is not None
    data[row.packed.offset + row.packed.length // 2] ^= 0x10
    pack.write_bytes(data)
    assert [problem.name for problem in store.verify(job).problems] == ["pack-0000.bin"]
    assert any(path == row.path for path, _ in told(store, tmp_path / "a.tar.gz"))
    assert run(["export", "--verify", str(tmp_path / "a.tar.gz"), "--store", store.url]) == 1


def test_a_table_that_was_tampered_with_is_noticed(smoke: tuple[Store, Manifest], tmp_path: Path) -> None:
    store, job = smoke
    export_job(store, job, tmp_path / "a.tar.gz")
    table = Path(store.url) / job.path("files.parquet")
    data = bytearray(table.read_bytes())
    data[len(data) // 3] ^= 0x10
    table.write_bytes(data)
    assert run(["export", "--verify", str(tmp_path / "a.tar.gz"), "--store", store.url]) == 1
    assert [problem.name for problem in store.verify(job).problems] == ["files.parquet"]


def test_several_jobs_go_to_one_folder_with_their_digests(tmp_path: Path, capfdbinary: Any) -> None:
    store, _ = imported(FIXTURES / "harbor" / "jobs" / "smoke", tmp_path / "store")
    imported(FIXTURES / "harbor" / "jobs" / "traj", tmp_path / "store")
    out = tmp_path / "out"
    assert run(["export", "--all", "-o", str(out), "--store", store.url, "--json"]) == 0
    printed = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert sorted(path.name for path in out.iterdir()) == ["SHA256SUMS", "smoke.tar.gz", "traj.tar.gz"]
    lines = (out / "SHA256SUMS").read_text().splitlines()
    sums = dict(reversed(line.split("  ")) for line in lines if not line.startswith("#"))
    assert sums == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in out.glob("*.tar.gz")}
    assert {p["archive_sha256"] for p in printed} == set(sums.values())
    assert all(p["encoder"].startswith("deflate-") for p in printed)
    assert run(["export", "smoke", "traj", "-o", str(tmp_path / "named"), "--store", store.url]) == 0
    assert (tmp_path / "named" / "SHA256SUMS").read_text() == "\n".join(lines) + "\n"


def test_jobs_of_one_name_do_not_overwrite_each_other(tmp_path: Path) -> None:
    store, _ = imported(FIXTURES / "harbor" / "jobs" / "smoke", tmp_path / "store")
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text('{"job_name": "smoke"}')
    (other / "result.json").write_text(
        '{"id": "11111111-2222-4333-8444-555555555555", "n_total_trials": 0, "stats": {}}'
    )
    imported(other, tmp_path / "store")
    assert run(["export", "--all", "-o", str(tmp_path / "out"), "--store", store.url]) == 0
    names = sorted(path.name for path in (tmp_path / "out").glob("*.tar.gz"))
    assert names == sorted(f"smoke-{job_id[:8]}.tar.gz" for job_id in store.job_ids())


@pytest.mark.parametrize(
    "words", [["smoke", "--all"], [], ["smoke", "traj"], ["--all"], ["--verify", "x", "--all"]], ids=" ".join
)
def test_what_does_not_go_together_is_a_usage_error(smoke: tuple[Store, Manifest], words: list[str]) -> None:
    assert run(["export", *words, "--store", smoke[0].url]) in (1, 2)
