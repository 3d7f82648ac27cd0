"""The files of a job in the order of their paths, row group by row group, so that a million of them take no memory.

`files.parquet` is written in that order and has the least and the greatest path of each row group, so a folder or a
trial is found without reading the others.
"""

from __future__ import annotations

import re
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
_EVERYTHING = [("", chr(0x10FFFF))]  # the range of paths of a table that is in no order: it is one group
_Columns = tuple[str, ...] | None


class FileTable:
    """An open table of files; use it as a context."""

    def __init__(self, backend: Backend, job: Manifest) -> None:
        self._backend, self._job = backend, job
        self._context: AbstractContextManager[pq.ParquetFile] = open_table(backend, job, "files")
        self._cache: dict[tuple[int, _Columns], tuple[pa.Table, list[str]]] = {}
        self._schema = arrow_schema("files")

    def __enter__(self) -> FileTable:
        self._file = self._context.__enter__()
        ranges = _path_ranges(self._file)
        self._ordered = ranges is not None
        self._ranges = _EVERYTHING if ranges is None else ranges
        return self

    def __exit__(self, *exception: Any) -> None:
        self._cache.clear()
        self._context.__exit__(None, None, None)  # what failed in the block is not for the table to explain

    def rows(self, prefix: str = "") -> Iterator[FileRow]:
        """The files whose path begins with `prefix`, in the order of their paths' bytes."""
        for number in self._groups(prefix):
            table, paths = self._group(number, None)
            start = bisect_left(paths, prefix)
            yield from map(as_file_row, table.slice(start, _end(paths, prefix) - start).to_pylist())

    def table(self, prefix: str, columns: Sequence[str]) -> pa.Table:
        """Some columns of the files whose path begins with `prefix`, in that order."""
        names = list(columns)
        numbers = self._groups(prefix)
        if not numbers:
            return pa.schema([self._schema.field(name) for name in names]).empty_table()
        table = self._read(numbers, tuple(dict.fromkeys(("path", *names))))
        least, greatest = (self._group(number, ("path",))[1] for number in (numbers[0], numbers[-1]))
        start = bisect_left(least, prefix)
        over = len(greatest) - _end(greatest, prefix)
        return table.slice(start, table.num_rows - start - over).select(names)

    def paths(self, prefix: str, holding: re.Pattern[bytes]) -> Iterator[str]:
        """The paths that begin with `prefix`, without those of row groups in whose paths nothing of the kind stands."""
        for chunk in self.table(prefix, ("path",)).column("path").chunks:
            if holding.search(chunk.buffers()[2] or b""):
                yield from chunk.to_pylist()

    def find(self, path: str) -> FileRow | None:
        """The file with exactly this path."""
        for number in self._groups(path)[:1]:
            table, paths = self._group(number, None)
            row = bisect_left(paths, path)
            if row < len(paths) and paths[row] == path:
                return as_file_row(table.slice(row, 1).to_pylist()[0])
        return None

    def children(
        self, folder: str, after: str = "", columns: Sequence[str] = ("path",)
    ) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """What lies directly in a folder (`a/b/`), in the order of the paths: a file's name and these columns of it, a
        folder's name and None. What a folder holds is passed over unread. `after` begins with what follows that name.
        """
        wanted = tuple(dict.fromkeys(("path", *columns)))
        at = folder + after
        number = -1
        while (following := bisect_left(self._ranges, at, number + 1, key=_greatest)) < len(self._ranges):
            number = following
            table, paths = self._group(number, wanted)
            row, rows = bisect_left(paths, at), None
            while row < len(paths):
                path = paths[row]
                if not path.startswith(folder):
                    return
                name, slash, _ = path[len(folder) :].partition("/")
                if slash:
                    yield name, None
                    at = f"{folder}{name}0"  # the character that follows the slash
                    row = bisect_left(paths, at, row)
                    continue
                rows = rows or table.to_pylist()
                yield name, rows[row]
                row += 1
            at = max(at, paths[-1] + "\0")

    def _groups(self, prefix: str) -> range:
        """The row groups that may hold paths that begin so."""
        first = bisect_left(self._ranges, prefix, key=_greatest)
        return range(first, bisect_right(self._ranges, prefix, first, key=lambda ends: ends[0][: len(prefix)]))

    def _group(self, number: int, columns: _Columns) -> tuple[pa.Table, list[str]]:
        """A row group, and its paths."""
        key = number, columns
        found = self._cache.pop(key, None)
        if found is None:
            table = self._read(range(number, number + 1), columns)
            found = table, table.column("path").to_pylist()
        self._cache[key] = found
        if len(self._cache) > _CACHED:
            del self._cache[next(iter(self._cache))]
        return found

    def _read(self, numbers: range, columns: _Columns) -> pa.Table:
        """Row groups; all of them in order, where the table is in none."""
        with reading(self._backend, self._job, "files.parquet"):
            there = set(self._file.schema_arrow.names)
            names = list(columns or self._schema.names)
            present = [name for name in names if name in there]
            if self._ordered:
                return fitted(self._file.read_row_groups(list(numbers), columns=present), self._schema, names)
            return fitted(self._file.read(columns=present).sort_by("path"), self._schema, names)


def _greatest(ends: tuple[str, str]) -> str:
    return ends[1]


def _end(paths: list[str], prefix: str) -> int:
    """Where paths in order no longer begin with a prefix. (Arrow's own searches take longer to be imported.)"""
    return bisect_right(paths, prefix, key=lambda path: path[: len(prefix)])


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
