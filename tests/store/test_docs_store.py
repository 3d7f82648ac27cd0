"""docs/store.md lists the columns as they are written, and the marks that events are cut with."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pyarrow as pa
import pytest

from traceflow.store import Store
from traceflow.store.dataset_schema import TASKS
from traceflow.store.rows import DURATION, INPUT, MARKS, TIMESTAMP
from traceflow.store.schema import TABLES
from traceflow.store.testing import write_job

COLUMNS = {**TABLES, "tasks": TASKS}
DOCS = (Path(__file__).parents[2] / "docs" / "store.md").read_text()


def kind(found: pa.DataType) -> str:
    if pa.types.is_list(found):
        return f"list of {kind(found.value_type)}"
    if pa.types.is_struct(found):
        return "{" + ", ".join(f"{f.name} {kind(f.type)}" for f in found) + "}"
    return "timestamp us, UTC" if pa.types.is_timestamp(found) else str(found)


@pytest.mark.parametrize("table", list(COLUMNS))
def test_the_page_lists_every_column_with_its_type_and_meaning(table: str) -> None:
    section = DOCS.split(f"### {table}.parquet\n")[1].split("\n### ")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", section, re.MULTILINE)
    expected = [(c.name, kind(c.type) + ("" if c.null else ", required"), c.doc) for c in COLUMNS[table]]
    assert listed == expected


def test_the_page_names_the_mark_of_every_column() -> None:
    found: dict[str, str] = {}
    for first, last, meaning in re.findall(r"^\| U\+(\w{4})(?: \.\.\. U\+(\w{4}))? \| (.+) \|$", DOCS, re.MULTILINE):
        names = re.findall(r"`(\w+)`", meaning)
        numbers = range(int(first, 16), int(last or first, 16) + 1)
        found |= {chr(number): name for number, name in zip(numbers, names, strict=False)}
    expected = {mark: name for name, mark in MARKS.items()}
    expected |= {TIMESTAMP: "timestamp", DURATION: "duration_ms", INPUT: "raw_input"}
    assert found == expected


def test_a_manifest_has_the_keys_that_the_page_shows(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    write_job(store, "j", [])
    written = orjson.loads(store.backend.read_bytes("jobs/j/manifest.json"))
    shown = orjson.loads(DOCS.split("```json\n")[1].split("```")[0])
    assert list(written) == list(shown)
    assert list(written["objects"][0]) == list(shown["objects"][0])
