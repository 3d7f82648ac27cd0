"""The files of a job in the order of their paths, row group by row group, so that a million of them take no memory.

`files.parquet` is written in that order and has the least and the greatest path of each row group, so a folder or a
trial is found without reading the others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .backend import Backend
from .manifest import Manifest
from .reading import FileRow, as_file_row, fitted, open_table, reading
from .schema import arrow_schema

__all__ = ["FileTable"]

_CACHED = 4  # row groups


class FileTable:
    """An open table of files; use it as a context."""

    def __init__(self, backend: Backend, job: Manifest) -> None:
        self._backend, self._job = backend, job
        self._context: AbstractContextManager[pq.ParquetFile] = open_table(backend, job, "files")
        self._cache: dict[tuple[int, tuple[str, ...] | None], pa.Table] = {}
        self._schema = arrow_schema("files")

    def __enter__(self) -> FileTable:
        self._file = self._context.__enter__()
        self._ranges = _path_ranges(self._file)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._cache.clear()
        self._context.__exit__(None, None, None)  # what failed in the block is not for the table to explain

    def rows(self, prefix: str = "") -> Iterator[FileRow]:
        """The files whose path begins with `prefix`, in the order of their paths' bytes."""
        for table in self._tables(prefix, None):
            yield from map(as_file_row, table.to_pylist())

    def table(self, prefix: str, columns: Sequence[str]) -> pa.Table:
        """Some columns of the files whose path begins with `prefix`, in that order."""
        names = list(columns)
        read = tuple(dict.fromkeys(("path", *names)))  # the prefix is one of the path
        found = [table.select(names) for table in self._tables(prefix, read)]
        schema = pa.schema([self._schema.field(name) for name in names])
        return pa.concat_tables(found) if found else schema.empty_table()

    def find(self, path: str) -> FileRow | None:
        """The file with exactly this path."""
        for table in self._tables(path, None):
            for row in table.slice(0, 1).to_pylist():  # the path itself comes before all that begin with it
                return as_file_row(row) if row["path"] == path else None
        return None

    def _tables(self, prefix: str, columns: tuple[str, ...] | None) -> Iterator[pa.Table]:
        if self._ranges is None:
            table = self._whole(columns)
            yield _beginning_with(table, prefix)
            return
        for number, (least, greatest) in enumerate(self._ranges):
            if greatest < prefix:
                continue
            if least > prefix and not least.startswith(prefix):
                return
            table = self._group(number, columns)
            if not (least.startswith(prefix) and greatest.startswith(prefix)):
                table = _beginning_with(table, prefix)
            if table.num_rows:
                yield table

    def _group(self, number: int, columns: tuple[str, ...] | None) -> pa.Table:
        key = number, columns
        found = self._cache.pop(key, None)
        if found is None:
            with self._reading():
                found = self._fitted(self._file.read_row_group(number, columns=self._present(columns)), columns)
        self._cache[key] = found
        if len(self._cache) > _CACHED:
            del self._cache[next(iter(self._cache))]
        return found

    def _whole(self, columns: tuple[str, ...] | None) -> pa.Table:
        """The table in order, of a job whose table is in none."""
        with self._reading():
            table = self._fitted(self._file.read(), None).sort_by("path")
        return table if columns is None else table.select(list(columns))

    def _reading(self) -> AbstractContextManager[None]:
        return reading(self._backend, self._job, "files.parquet")

    def _present(self, columns: tuple[str, ...] | None) -> list[str]:
        there = set(self._file.schema_arrow.names)
        return [name for name in columns or self._schema.names if name in there]

    def _fitted(self, table: pa.Table, columns: tuple[str, ...] | None) -> pa.Table:
        return fitted(table, self._schema, list(columns or self._schema.names))


def _beginning_with(table: pa.Table, prefix: str) -> pa.Table:
    """The rows of a table in order whose path begins with the prefix. (Arrow's filters take longer to be imported.)"""
    paths = table.column("path").to_pylist()
    start = bisect_left(paths, prefix)
    return table.slice(start, bisect_right(paths, prefix, start, key=lambda path: path[: len(prefix)]) - start)


def _path_ranges(file: pq.ParquetFile) -> list[tuple[str, str]] | None:
    """The least and the greatest path of each row group; None where they overlap or are not known."""
    column = next(i for i in range(file.metadata.num_columns) if file.metadata.schema.column(i).path == "path")
    ranges: list[tuple[str, str]] = []
    for number in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(number).column(column).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        least, greatest = statistics.min, statistics.max
        if not isinstance(least, str) or not isinstance(greatest, str) or (ranges and least <= ranges[-1][1]):
            return None
        ranges.append((least, greatest))
    return ranges
