"""A large table is read a window of row groups at a time, and gives what Arrow gives with the whole footer."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traceflow_formats.trace import Event

from traceflow.store import Store
from traceflow.store.rowgroups import RowGroups
from traceflow.store.schema import EVENTS
from traceflow.store.testing import chunk, write_job

COLUMNS = ["seq", "type", "text", "timestamp", "rest"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The events of a job in over 300 row groups, as our own writer makes them."""
    folder = tmp_path_factory.mktemp("store")
    store = Store.open(str(folder), create=True)
    events: list[Event] = [chunk("agent", f"words {n}") for n in range(1024 * 300 + 7)]
    job = write_job(store, "job", [({"trial_id": "t"}, events)])
    return folder / job.path("events.parquet")


def test_every_row_group_is_what_arrow_reads(table: Path) -> None:
    whole = pq.ParquetFile(table)
    with pa.OSFile(str(table)) as stream:
        groups = RowGroups(stream, len(EVENTS))
        assert len(groups._parts) == 3  # so the footer was cut
        assert groups.names == whole.schema_arrow.names
        assert groups.starts[-1] == whole.metadata.num_rows
        for number in (0, 1, 127, 128, 255, 256, whole.num_row_groups - 1):
            assert groups.read(number, COLUMNS).equals(whole.read_row_group(number, COLUMNS))


def test_the_rows_of_a_trial_are_found(table: Path) -> None:
    with pa.OSFile(str(table)) as stream:
        groups = RowGroups(stream, len(EVENTS))
        assert groups.of_rows(0, 10) == [(0, 0, 10)]
        assert groups.of_rows(1000, 1048) == [(0, 1000, 1024), (1, 0, 1024)]
        assert groups.of_rows(1024, 1) == [(1, 0, 1)]
        assert groups.of_rows(1024 * 300, 7) == [(300, 0, 7)]


def test_a_footer_of_another_sort_is_read_as_a_whole(table: Path, tmp_path: Path) -> None:
    narrow = pq.read_table(table, columns=COLUMNS)
    pq.write_table(narrow, tmp_path / "narrow.parquet", row_group_size=1024)
    with pa.OSFile(str(tmp_path / "narrow.parquet")) as stream:
        groups = RowGroups(stream, len(EVENTS))
        assert groups._parts == []
        assert groups.read(200, ["text"]).equals(narrow.slice(200 * 1024, 1024).select(["text"]))
        assert groups.of_rows(200 * 1024 + 5, 1) == [(200, 5, 6)]
