"""The traces of many trials of one job, one after the other, from one open table.

Trials share row groups; a reader that goes through them in order reads each row group once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from traceflow_formats.trace import TraceLine

from .backend import Backend
from .decode import DECODED, decode_batch
from .manifest import Manifest
from .reading import groups_of, open_table, reading

__all__ = ["TraceReader"]


class TraceReader:
    """An open table of events; use it as a context."""

    def __init__(self, backend: Backend, job: Manifest) -> None:
        self._backend, self._job = backend, job
        self._context: AbstractContextManager[pq.ParquetFile] = open_table(backend, job, "events")
        self._held: tuple[int, pa.Table | None] = -1, None

    def __enter__(self) -> TraceReader:
        self._file = self._context.__enter__()
        there = set(self._file.schema_arrow.names)
        self._columns = [name for name in DECODED if name in there]
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held = -1, None
        self._context.__exit__(None, None, None)

    def trace(self, trial: Mapping[str, Any]) -> Iterator[TraceLine]:
        """The events of a trial (a row of `Store.trials`), exactly as they were stored."""
        offset, count = trial["event_offset"], trial["n_events"] or 0
        if offset is None or not count:
            return
        for number, start, stop in groups_of(self._file, offset, count):
            yield from decode_batch(self._group(number).slice(start, stop - start))

    def _group(self, number: int) -> pa.Table:
        held, table = self._held
        if held != number or table is None:
            with reading(self._backend, self._job, "events.parquet"):
                table = self._file.read_row_group(number, self._columns, use_threads=False)
            self._held = number, table
        return table
