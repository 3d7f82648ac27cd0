"""A large table is written by several Parquet writers in turn, and is the file that one of them would have written."""

from __future__ import annotations

import gc
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from traceflow.store import tables
from traceflow.store.footers import WINDOW
from traceflow.store.grep_build import GrepIndexWriter
from traceflow.store.tables import TableWriter


def batch_of(table: str, number: int, rows: int) -> pa.RecordBatch:
    """Rows that differ between row groups, with a value in every column that takes texts or numbers."""
    schema = tables.arrow_schema(table)
    values = {"string": f"text {number}", "int64": number, "int32": number, "bool": False, "double": number / 2}
    columns = [pa.array([values.get(str(field.type))] * rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def written(table: str, groups: int) -> tuple[bytes, list[int]]:
    """The bytes of a table, and the row groups of which its writer told at a time."""
    out = io.BytesIO()
    told: list[int] = []
    writer = TableWriter(table, out, None, lambda metadata: told.append(metadata.num_row_groups))
    for number in range(groups):
        writer.add(batch_of(table, number, 1024 if number < groups - 1 else 7))
    stored = writer.finish()
    assert (stored.size, stored.rows) == (len(out.getvalue()), 1024 * (groups - 1) + 7)
    return out.getvalue(), told


@pytest.mark.parametrize("table", ["events", "files", "trials"])
@pytest.mark.parametrize("groups", [1, WINDOW, WINDOW + 1, 3 * WINDOW + 2])
def test_the_file_is_the_one_of_a_single_writer(table: str, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, told = written(table, groups)
    assert (len(told), sum(told)) == (-(-groups // WINDOW), groups)
    monkeypatch.setattr(tables, "WINDOW", 1 << 40)
    assert found == written(table, groups)[0]
    assert pq.ParquetFile(io.BytesIO(found)).metadata.num_row_groups == groups


def held() -> int:
    return sum(isinstance(each, pq.FileMetaData) for each in gc.get_objects())


def test_what_parquet_says_of_a_window_is_let_go_of_at_once() -> None:
    """Metadata of Arrow are large, and the command line looks for what refers to itself only now and then."""
    index = GrepIndexWriter(io.BytesIO())
    writer = TableWriter("events", io.BytesIO(), None, index.described)
    gc.collect()
    gc.disable()
    try:
        before = held()
        for number in range(5 * WINDOW + 1):
            writer.add(batch_of("events", number, 1024))
        writer.finish()
        assert held() <= before + 1, "that of the last window"
    finally:
        gc.enable()


def test_a_table_that_is_dropped_amid_its_row_groups_writes_no_more() -> None:
    out = io.BytesIO()
    writer = TableWriter("events", out)
    for number in range(WINDOW + 1):
        writer.add(batch_of("events", number, 1024))
    size = len(out.getvalue())
    writer.drop()
    assert len(out.getvalue()) == size
