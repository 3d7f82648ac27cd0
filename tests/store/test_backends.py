"""Every backend keeps the contract that the store relies on."""

from __future__ import annotations

import os
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.store import Store
from traceflow.store.backend import PARTIAL, Backend
from traceflow.store.local import LocalBackend
from traceflow.store.open import backend_for
from traceflow.store.remote import FsspecBackend
from traceflow.store.testing import BackendContract, chunk, write_job


class TestLocal(BackendContract):
    @pytest.fixture
    def backend(self, tmp_path: Path) -> LocalBackend:
        return LocalBackend(tmp_path / "store")


class TestMemory(BackendContract):
    @pytest.fixture
    def backend(self) -> FsspecBackend:
        return FsspecBackend.open(f"memory://{uuid.uuid4().hex}")


def test_a_path_is_a_local_folder_and_other_urls_are_fsspecs(tmp_path: Path) -> None:
    assert isinstance(backend_for(str(tmp_path)), LocalBackend)
    assert backend_for(f"file://{tmp_path}").url == str(tmp_path)
    assert isinstance(backend_for("memory://x"), FsspecBackend)
    with pytest.raises(TraceflowError) as caught:
        backend_for("nosuch://x")
    assert caught.value.code == "invalid_input"


def test_a_file_system_without_hard_links_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.link", no_links)
    with pytest.raises(TraceflowError, match="no hard links") as caught:
        LocalBackend(tmp_path).put_if_absent("a", b"x")
    assert caught.value.code == "io_error"
    assert list(tmp_path.iterdir()) == []


def test_two_folders_of_one_memory_do_not_meet() -> None:
    first, second = (FsspecBackend.open(f"memory://{uuid.uuid4().hex}/deep") for _ in range(2))
    assert first.put_if_absent("a", b"1")
    assert second.is_empty()
    assert fsspec.filesystem("memory").cat_file(first.url.removeprefix("memory:/") + "/a") == b"1"


class TestWithoutConditionalWrites(BackendContract):
    """A file system of fsspec that has none: writers at once are refused, so that at most one wins."""

    @pytest.fixture
    def backend(self, tmp_path: Path) -> FsspecBackend:
        return FsspecBackend.open(f"local://{tmp_path}/store")

    def test_of_many_writers_one_puts_and_the_others_are_told(self, backend: Backend) -> None:
        def put(number: int) -> str:
            try:
                return "won" if backend.put_if_absent("a/commit", b"writer %d" % number) else "there is one"
            except TraceflowError as error:
                return error.code

        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(put, range(8)))
        assert told.count("won") <= 1
        assert set(told) <= {"won", "there is one", "store_conflict"}
        if "won" not in told:  # each saw another one
            assert backend.put_if_absent("a/commit", b"writer 8")
            told.append("won")
        assert backend.read_bytes("a/commit") == b"writer %d" % told.index("won")
        assert [o.name for o in backend.objects("a")] == ["a/commit"]

    def test_who_is_in_the_middle_of_it_keeps_others_out_and_who_died_there_does_not(
        self, backend: FsspecBackend, tmp_path: Path
    ) -> None:
        other = tmp_path / "store" / "jobs" / "j" / f".manifest.json.0123{PARTIAL}"
        other.parent.mkdir(parents=True)
        other.touch()
        with pytest.raises(TraceflowError, match="has no conditional write to tell which comes first") as caught:
            backend.put_if_absent("jobs/j/manifest.json", b"1")
        assert caught.value.code == "store_conflict"
        assert not backend.exists("jobs/j/manifest.json")
        os.utime(other, (0, 0))
        assert backend.put_if_absent("jobs/j/manifest.json", b"1")

    def test_the_store_says_so(self, backend: FsspecBackend) -> None:
        store = Store.open(backend.url, create=True)
        assert store.info().commit == "no conditional write: writers of one job at the same time are refused"
        job = write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", "words")])])
        left = f"jobs/j/.manifest.json.0123{PARTIAL}"
        with backend.create(left):
            pass
        assert store.gc(minutes=0).removed == [left]
        assert store.verify(contents=True).problems == []
        assert store.job("j") == job


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_scheme_whose_library_is_missing_names_what_brings_it(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)  # what was loaded before
    with pytest.raises(TraceflowError, match=r"pip install 'traceflow\[(s3|gcs)\]'") as caught:
        backend_for(f"{scheme}://bucket/store")
    assert caught.value.code == "invalid_input"
