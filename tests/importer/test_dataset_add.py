"""Adding a dataset: what is kept of a folder or an archive, and what is refused before anything is kept."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest
from task_folders import FIXTURES, harbor_tasks, make_task
from traceflow_formats.errors import TraceflowError
from traceflow_formats.tasks import content_digest, environment_id, task_checksum

from traceflow.importer import add_dataset
from traceflow.limits import Limits
from traceflow.store import DatasetFile, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "store"), create=True)


def refused(store: Store, path: Path, limits: Limits | None = None) -> TraceflowError:
    """The error of adding it, after which nothing is in the store."""
    with pytest.raises(TraceflowError) as caught:
        add_dataset(store, path, "ds", "1", limits=limits)
    assert store.datasets() == []
    assert list(store.backend.objects("datasets")) == []
    return caught.value


def packed(folder: Path, archive: Path, root: str) -> Path:
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, root or ".")
    return archive


def test_the_tasks_of_harbors_jobs_have_harbors_digests(store: Store, tmp_path: Path) -> None:
    folder = harbor_tasks(tmp_path) / "ds"
    dataset = add_dataset(store, folder, "ds", "1").dataset
    tasks = {row["path"]: row for row in store.tasks(dataset)}
    assert sorted(tasks) == sorted(p.name for p in folder.iterdir())
    for name, row in tasks.items():
        assert row["digest"] == content_digest(folder / name)
        assert row["task_checksum"] == task_checksum(folder / name)
        assert row["environment_id"] == environment_id(folder / name)
    assert tasks["named"]["task_name"] == "demo-org/named-task"
    assert tasks["named"]["task_version"] == "1.2.3"
    assert (tasks["multi"]["instruction"], tasks["multi"]["n_steps"]) == (None, 2)
    assert [step["name"] for step in tasks["multi"]["steps"]] == ["first", "second"]
    assert tasks["hello"]["instruction"] == (folder / "hello" / "instruction.md").read_text()


def test_every_file_is_kept_also_what_no_digest_covers(store: Store, tmp_path: Path) -> None:
    """The vector `ignores`: ignore rules, caches, links to files and folders, files beside the known ones."""
    folder = harbor_tasks(tmp_path) / "ignores"
    dataset = add_dataset(store, folder, "ignores", "1").dataset
    (row,) = store.tasks(dataset)
    files = {f["path"]: DatasetFile.from_dict(f) for f in row["files"]}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            assert (files[name].kind, files[name].target) == ("link", os.readlink(path))  # noqa: PTH115
        elif path.is_file():
            assert store.open_task_file(dataset, files[name]).read() == path.read_bytes()
            assert files[name].mode == path.stat().st_mode & 0o777
    assert sorted(name for name, file in files.items() if file.counted) == [
        "README.md",
        "environment/Dockerfile",
        "environment/build.log",
        "instruction.md",
        "solution/keep/café.txt",
        "solution/link.sh",
        "solution/solve.sh",
        "task.toml",
        "tests/data/keep.bin",
        "tests/test.sh",
    ]
    assert row["digest"] == "sha256:cca121e6683af96042553481357ca9da49e923399aee459be49ff775622b90ea"


def test_what_lies_beside_the_tasks_is_kept_or_said(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "ds"
    make_task(folder / "a")
    (folder / "README.md").write_text("about")
    (folder / "docs").mkdir()
    (folder / ".git").mkdir()
    (folder / "latest").symlink_to("a")
    added = add_dataset(store, folder, "ds", "1")
    assert [f.path for f in added.dataset.files] == ["README.md"]
    assert store.open_task_file(added.dataset, added.dataset.files[0]).read() == b"about"
    assert {w["code"]: w["count"] for w in added.warnings} == {"not_a_task": 2, "file_passed_over": 1}


@pytest.mark.parametrize("root", ["", "ds"])
def test_an_archive_holds_the_same_dataset(store: Store, tmp_path: Path, root: str) -> None:
    folder = FIXTURES / "tasks"
    by_folder = add_dataset(store, folder, "demo", "1").dataset
    by_archive = add_dataset(store, packed(folder, tmp_path / "x.tar.gz", root), "demo", "2").dataset
    assert by_archive.digest == by_folder.digest
    assert (by_archive.n_tasks, by_archive.n_files) == (by_folder.n_tasks, by_folder.n_files)
    assert by_archive.facts["added_as"] == "tar.gz"


def test_an_archive_of_one_task_is_named_by_its_folder_or_by_itself(store: Store, tmp_path: Path) -> None:
    make_task(tmp_path / "one")
    for number, root, expected in (("1", "inner", "inner"), ("2", "", "one")):
        dataset = add_dataset(store, packed(tmp_path / "one", tmp_path / "one.tar.gz", root), "ds", number).dataset
        assert [t["task_name"] for t in store.tasks(dataset)] == [expected]


def test_every_fault_of_every_task_is_listed(store: Store, tmp_path: Path) -> None:
    make_task(tmp_path / "ds" / "good")
    (make_task(tmp_path / "ds" / "a") / "tests" / "test.sh").unlink()
    (make_task(tmp_path / "ds" / "b") / "task.toml").write_text("x = ")
    (tmp_path / "ds" / "b" / "instruction.md").write_bytes(b"\xff")
    error = refused(store, tmp_path / "ds")
    assert error.code == "invalid_input"
    assert [(p["task"], p["path"]) for p in error.details["problems"]] == [
        ("a", "tests/test.sh"),
        ("b", "task.toml"),
        ("b", "environment"),
        ("b", "instruction.md"),
    ]
    assert "4 problem(s) in 2 of 3 task(s)" in error.message
    assert "a/tests/test.sh" in error.message


def test_a_folder_that_is_no_dataset_says_what_it_lacks(store: Store, tmp_path: Path) -> None:
    assert refused(store, tmp_path / "none").code == "not_found"
    (tmp_path / "empty").mkdir()
    assert "no task folder" in refused(store, tmp_path / "empty").message
    make_task(tmp_path / "above" / "ds" / "a")
    assert "did you mean the folder ds in it?" in refused(store, tmp_path / "above").message
    make_task(tmp_path / "half" / "a")
    (make_task(tmp_path / "half" / "b") / "task.toml").unlink()
    assert "no task.toml in b" in refused(store, tmp_path / "half").message
    (tmp_path / "file").write_text("x")
    assert refused(store, tmp_path / "file").code == "invalid_archive"


def test_two_tasks_of_one_name_are_refused(store: Store, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make_task(tmp_path / "ds" / folder, name="org/same")
    assert "a and b are both called 'org/same'" in refused(store, tmp_path / "ds").message


def test_hostile_folders_are_refused_by_name(store: Store, tmp_path: Path) -> None:
    folder = make_task(tmp_path / "ds" / "a")
    secret = tmp_path / "secret"
    secret.write_text("do not copy")
    (folder / "tests" / "out").symlink_to(secret)
    assert "leads out of the task folder" in refused(store, tmp_path / "ds").message
    (folder / "tests" / "out").unlink()

    os.mkfifo(folder / "pipe")
    assert "a/pipe: neither a file nor a folder nor a link" in refused(store, tmp_path / "ds").message
    (folder / "pipe").unlink()

    (folder / "tests" / "loop").symlink_to(".")
    assert "cycle" in refused(store, tmp_path / "ds").message
    (folder / "tests" / "loop").unlink()

    name = os.fsencode(folder / "notes") + b"\xff"
    Path(os.fsdecode(name)).write_text("x")
    assert "its name is no UTF-8" in refused(store, tmp_path / "ds").message
    os.unlink(name)  # noqa: PTH108

    deep = folder / "extra"
    for _ in range(140):
        deep /= "d"
    deep.mkdir(parents=True)
    assert "levels" in refused(store, tmp_path / "ds").message


def test_a_link_out_of_the_folder_that_counts_for_nothing_is_kept_as_a_link(store: Store, tmp_path: Path) -> None:
    folder = make_task(tmp_path / "ds" / "a")
    (tmp_path / "secret").write_text("do not copy")
    (folder / "notes").symlink_to(tmp_path / "secret")
    dataset = add_dataset(store, tmp_path / "ds", "ds", "1").dataset
    (row,) = store.tasks(dataset)
    (link,) = [f for f in row["files"] if f["path"] == "notes"]
    assert (link["kind"], link["target"], link["sha256"]) == ("link", str(tmp_path / "secret"), None)
    assert b"do not copy" not in b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*.bin"))


def test_sizes_over_the_bounds_are_refused(store: Store, tmp_path: Path) -> None:
    make_task(tmp_path / "ds" / "a", data="x" * 5000)
    assert refused(store, tmp_path / "ds", Limits(file_bytes=4000)).code == "upload_too_large"
    assert refused(store, tmp_path / "ds", Limits(unpacked_bytes=4000)).code == "upload_too_large"
    assert refused(store, tmp_path / "ds", Limits(members=3)).code == "upload_too_large"
    archive = packed(tmp_path / "ds", tmp_path / "ds.tar.gz", "ds")
    assert refused(store, archive, Limits(file_bytes=4000)).code == "upload_too_large"
    assert refused(store, archive, Limits(members=3)).code == "upload_too_large"


def test_hostile_archives_are_refused(store: Store, tmp_path: Path) -> None:
    cases = sorted((FIXTURES / "cases" / "71-archive-path-traversal-links-devices").glob("*.tar.gz"))
    assert len(cases) > 10
    for case in cases:
        assert refused(store, case).code in ("invalid_archive", "invalid_input")
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(cases[0].read_bytes()[:60])
    assert refused(store, broken).code == "invalid_archive"


def test_a_task_that_changes_while_it_is_added_is_no_dataset(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_task(tmp_path / "ds" / "a")
    before = content_digest(folder)
    add = type(store.dataset_writer("ds", "0")).add_content

    def slow(self: object, stream: io.BufferedReader) -> object:
        (folder / "tests" / "test.sh").write_text("#!/bin/sh\nexit 1\n")
        return add(self, stream)  # type: ignore[arg-type]

    monkeypatch.setattr("traceflow.store.dataset_writer.DatasetWriter.add_content", slow)
    assert refused(store, tmp_path / "ds").code == "io_error"
    assert content_digest(folder) != before
