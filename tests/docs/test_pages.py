"""The guides tell the truth: each is followed from its first command to its last, on a terminal, and what it prints is
what the page and its pictures show.

To write the pages and draw the pictures anew after a change: TRACEFLOW_WRITE_DOCS=1 pytest tests/docs/test_pages.py
"""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pages import Session, blocks_of, broken_at, comparable, written
from pictures import picture, text_of_picture
from terminal import COLUMNS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PICTURES = DOCS / "pictures"
CAPTURED = ROOT / "fixtures" / "jobs" / "captured"
PAGES = ("guide-upload.md", "guide-analytics.md", "guide-conversion.md", "files.md")
WRITE = bool(os.environ.get("TRACEFLOW_WRITE_DOCS"))


@pytest.mark.parametrize("name", PAGES)
def test_a_newcomer_sees_what_the_page_shows(name: str, fresh: Path, tmp_path: Path) -> None:
    page = (DOCS / name).read_text()
    blocks = blocks_of(page)
    assert len(blocks) == len(re.findall(r"^```(?:sh|python)", page, re.M)) >= 8
    session = Session(tmp_path, ROOT / "fixtures", fresh / "bin")
    printed = {}
    for block in blocks:
        shown = session.run(block)
        assert shown.code == block.code, f"{block.body}\n{shown.text}"
        if block.picture:
            drawn = PICTURES / f"{block.picture}.svg"
            if WRITE:
                drawn.write_text(picture(shown.commands, COLUMNS, block.picture))
            now = broken_at(shown.typed, COLUMNS)
            assert comparable(text_of_picture(drawn.read_text())) == comparable(now), block.picture
        elif block.text is not None:
            printed[block] = shown.text
            if not WRITE:
                assert comparable(block.text) == comparable(shown.text), block.body
    if WRITE:
        (DOCS / name).write_text(written(page, printed))


def test_every_picture_is_on_one_page_and_loads_nothing() -> None:
    shown = [block.picture for name in PAGES for block in blocks_of((DOCS / name).read_text()) if block.picture]
    assert sorted(shown) == sorted(path.stem for path in PICTURES.iterdir())
    for path in PICTURES.iterdir():
        svg = path.read_text()
        assert re.findall(r"https?://[^\"' )]+", svg) == ["http://www.w3.org/2000/svg"], (
            "no font, no image from elsewhere"
        )
        assert "url(" not in svg
        assert re.search(r"font: 20px/[\d.]+px [^;]*monospace;", svg)


@pytest.mark.parametrize("name", PAGES)
def test_links_of_the_page_lead_somewhere(name: str) -> None:
    page = (DOCS / name).read_text()
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page):
        assert (DOCS / target).exists(), target
    assert f"docs/{name}" in (ROOT / "README.md").read_text(), "the README leads to it"


def test_the_job_with_a_capture_is_what_its_script_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, CAPTURED.with_name("make_captured.py"), tmp_path / "made"], check=True, timeout=60)

    def tree(folder: Path) -> dict[str, bytes]:
        found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        return {name: gzip.decompress(data) if name.endswith(".gz") else data for name, data in found.items()}

    assert tree(tmp_path / "made") == tree(CAPTURED)
