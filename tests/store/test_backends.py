"""Every backend keeps the contract that the store relies on."""

from __future__ import annotations

import uuid
from pathlib import Path

import fsspec
import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.store.backend import LocalBackend
from traceflow.store.open import backend_for
from traceflow.store.remote import FsspecBackend
from traceflow.store.testing import BackendContract


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
