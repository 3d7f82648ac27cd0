"""Folders are removed whole, whatever is in them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from traceflow import files
from traceflow.files import remove_tree


def test_a_folder_is_removed_in_several_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_AT_ONCE", 7)
    for number in range(30):
        (tmp_path / "a" / f"b{number % 5}" / f"c{number}").mkdir(parents=True)
        (tmp_path / "a" / f"b{number % 5}" / f"f{number}").write_text("x")
    remove_tree(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []
    remove_tree(tmp_path / "a")  # gone already


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "a" / "nowhere").symlink_to("nothing")
    remove_tree(tmp_path / "a")
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]
