"""The traces of many trials of one job, one after the other, from one open table.

Trials share row groups; a reader that goes through them in order reads each row group once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from traceflow_formats.trace import TraceLine

from .backend import Backend
from .decode import DECODED, decode_batch
from .manifest import Manifest
from .reading import open_for_arrow, reading
from .rowgroups import RowGroups
from .schema import EVENTS

__all__ = ["TraceReader"]

_TABLE = "events.parquet"


class TraceReader:
    """An open table of events; use it as a context."""

    def __init__(self, backend: Backend, job: Manifest) -> None:
        self._backend, self._job = backend, job
        self._held: tuple[int, pa.Table | None] = -1, None

    def __enter__(self) -> TraceReader:
        with self._reading():
            self._stream = open_for_arrow(self._backend, self._job.path(_TABLE))
            try:
                self._groups = RowGroups(self._stream, len(EVENTS))
                there = set(self._groups.names)
            except BaseException:
                self._stream.close()
                raise
        self._columns = [name for name in DECODED if name in there]
        return self

    def __exit__(self, *exception: Any) -> None:
        self._held = -1, None
        self._groups.close()
        self._stream.close()

    def trace(self, trial: Mapping[str, Any]) -> Iterator[TraceLine]:
        """The events of a trial (a row of `Store.trials`), exactly as they were stored."""
        offset, count = trial["event_offset"], trial["n_events"] or 0
        if offset is None or not count:
            return
        for number, start, stop in self._groups.of_rows(offset, count):
            yield from decode_batch(self._group(number).slice(start, stop - start))

    def _group(self, number: int) -> pa.Table:
        held, table = self._held
        if held != number or table is None:
            self._held = -1, None
            with self._reading():
                table = self._groups.read(number, self._columns)
            self._held = number, table
        return table

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._backend, self._job, _TABLE)
