"""Writing the Parquet tables of a job: values made to fit their columns, rows gathered into row groups.

Row groups hold 1,024 rows, or fewer where those are over 16 MiB, and one page per column, so that a reader can go
to a block of events by its number and a writer needs little memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from traceflow_formats import jsontext
from traceflow_formats.text import clean_text, clean_value

from .footers import MAGIC, WINDOW, Footer
from .manifest import StoredObject
from .schema import TABLES, Column, arrow_schema, microseconds

__all__ = ["GROUP_BYTES", "GROUP_ROWS", "JSON_COLUMNS", "Hashing", "TableWriter", "fit_row", "fit_value"]

GROUP_ROWS = 1024
GROUP_BYTES = 16 << 20
_BUFFER = 1 << 18
_LEVELS = {"events": 1}  # what packs hold as well: 3 would take 7% less room, and a third longer to write
_LEVEL = 3
_ZEROS = 64 << 20
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
JSON_COLUMNS = frozenset({"unknown_types", "warnings", "step_results", "extra"})


class TableWriter:
    """One table of a job, written as batches come. `stream` is the open object, `each` sees every row group, and
    `described` what Parquet says of the next ones that are written."""

    def __init__(
        self,
        table: str,
        stream: BinaryIO,
        each: Callable[[pa.RecordBatch], None] | None = None,
        described: Callable[[pq.FileMetaData], None] | None = None,
    ) -> None:
        self.name = f"{table}.parquet"
        self.schema = arrow_schema(table)
        self.rows = 0
        self._table = table
        self._each = each
        self._described = described
        self._out = Hashing(stream)
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._footer = Footer(*_empty_footer(table))
        self._begin()

    def _begin(self) -> None:
        """Begin a Parquet writer, where the one before it has ended."""
        self._groups, self._first_row = 0, self.rows
        self._metadata: list[pq.FileMetaData] = []
        # a column writes four small pieces per row group; they are gathered before they come back to Python
        self._buffered = pa.BufferedOutputStream(pa.PythonFile(self._out, "w"), _BUFFER)
        self._writer = _parquet_writer(self._table, self._buffered, self._metadata)
        if self._out.size:
            self._go_on()

    def _go_on(self) -> None:
        """Bring a new Parquet writer to where the file stands.

        It begins at 0 and writes its mark. Then zeros are written for the rest of what is in the file, and all of it is
        passed over. They are memory that nobody touches.
        """
        self._out.passed_over = self._out.size
        left = self._out.size - len(MAGIC)
        zeros = pa.py_buffer(bytes(min(left, _ZEROS)))
        while left:
            left -= self._buffered.write(zeros.slice(0, min(left, _ZEROS)))

    def add(self, batch: pa.RecordBatch) -> None:
        """Take in a batch; full row groups are written."""
        if not batch.num_rows:
            return
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_rows >= GROUP_ROWS or self._pending_bytes >= GROUP_BYTES:
            self._write(GROUP_ROWS if self._pending_bytes < GROUP_BYTES else 1)

    def _write(self, at_least: int) -> None:
        """Write row groups as long as that many rows are left."""
        batches = self._pending
        whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)  # a column in pieces is slow to write
        done = 0
        while whole.num_rows - done >= at_least:
            group = whole.slice(done, GROUP_ROWS)
            if self._groups == WINDOW and self._footer.joins:
                self._end_window()
                self._begin()
            self._writer.write_batch(group, row_group_size=GROUP_ROWS)
            if self._each is not None:
                self._each(group)
            done += group.num_rows
            self.rows += group.num_rows
            self._groups += 1
        left = whole.slice(done)
        self._pending = [left] if left.num_rows else []
        self._pending_rows, self._pending_bytes = left.num_rows, left.nbytes

    def _end_window(self) -> None:
        """End the Parquet writer; its footer is kept for the end."""
        self._buffered.flush()
        self._out.held = bytearray()
        self._end_writer()
        footer, self._out.held = self._out.held, None
        length = int.from_bytes(footer[-8:-4], "little")
        self._footer.add(bytes(footer[-8 - length : -8]), self.rows - self._first_row, self._groups)
        self._out.write(footer[: -8 - length])

    def _end_writer(self) -> None:
        self._writer.close()
        self._buffered.flush()
        if self._described is not None:
            self._described(self._metadata[-1])

    def finish(self) -> StoredObject:
        """Write what is left and the footer; the stream stays open for its owner to close."""
        if self._pending:
            self._write(1)
        if self._footer:
            self._end_window()
            for piece in self._footer.pieces():
                self._out.write(piece)
        else:
            self._end_writer()
        return StoredObject(self.name, self._out.size, self._out.digest.hexdigest(), self.rows)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._out.size

    def drop(self) -> None:
        """Let go of the Parquet writer without writing: it would end its file when it is collected."""
        self._out.dropped = True
        with contextlib.suppress(pa.ArrowException, OSError, RuntimeError):  # the last: of a footer that is not there
            self._writer.close()
        with contextlib.suppress(pa.ArrowException, OSError):
            self._buffered.close()


def _parquet_writer(table: str, sink: pa.NativeFile, metadata: list[pq.FileMetaData]) -> pq.ParquetWriter:
    columns, level = TABLES[table], _LEVELS.get(table, _LEVEL)
    return pq.ParquetWriter(
        sink,
        arrow_schema(table),
        compression={leaf: "zstd" if c.packed else "none" for c in columns for leaf in _leaves(c.name, c.type)},
        compression_level={leaf: level for c in columns if c.packed for leaf in _leaves(c.name, c.type)},
        version="2.6",
        data_page_version="1.0",
        data_page_size=1 << 30,  # one page per column and row group
        write_batch_size=GROUP_ROWS,
        use_dictionary=[c.name for c in columns if c.dictionary],
        column_encoding={"text": "PLAIN"} if table == "events" else None,
        write_statistics=[c.name for c in columns if c.statistics],
        write_page_checksum=True,
        store_schema=False,
        metadata_collector=metadata,
    )


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """The names that Parquet has for a column of this type."""
    if pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.{kind.value_field.name}", kind.value_type)
    elif pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            field = kind.field(number)
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path


@functools.cache
def _empty_footer(table: str) -> tuple[bytes, int]:
    """The footer of a table without rows, and how many columns Parquet has for it."""
    sink = pa.BufferOutputStream()
    metadata: list[pq.FileMetaData] = []
    _parquet_writer(table, sink, metadata).close()
    return bytes(sink.getvalue())[len(MAGIC) : -8], metadata[0].num_columns


class TableObject:
    """A table whose object is open until the job is committed or dropped."""

    def __init__(
        self,
        table: str,
        opened: AbstractContextManager[BinaryIO],
        each: Callable[[pa.RecordBatch], None] | None = None,
        described: Callable[[pq.FileMetaData], None] | None = None,
    ) -> None:
        self._opened = opened
        self.table = TableWriter(table, opened.__enter__(), each, described)

    def finish(self) -> StoredObject:
        made = self.table.finish()
        self._opened.__exit__(None, None, None)
        return made

    def drop(self) -> None:
        self.table.drop()
        with contextlib.suppress(RuntimeError, OSError):
            self._opened.__exit__(RuntimeError, RuntimeError("dropped"), None)


class Hashing:
    """A stream for a Parquet writer that digests what passes."""

    closed = False

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0
        self.dropped = False
        self.passed_over = 0  # bytes to come that are not written
        self.held: bytearray | None = None  # where there is one, what comes is kept in it

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        if self.dropped:
            return count
        if self.held is not None:
            self.held += data
            return count
        if self.passed_over:
            data = memoryview(data)[self.passed_over :]
            self.passed_over -= count - len(data)
        self._stream.write(data)
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        return count

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


# -- values ------------------------------------------------------------------------------------------------


def fit_row(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with every column of the table, each value as its column takes it.

    Times may be datetimes, ISO texts or microseconds since 1970; JSON columns take objects; `rewards` takes a
    mapping or pairs of name and value. What a column cannot hold (an integer over 64 bits, an infinite number, a
    time that is none) becomes null. Raises KeyError for a name that is no column, ValueError for a missing value
    that must not be null.
    """
    rules, empty, needed = _rules(table)
    if not row.keys() <= rules.keys():
        raise KeyError(f"{table} has no column {', '.join(sorted(row.keys() - rules.keys()))}")
    out = empty.copy()
    for name, value in row.items():
        if value is not None:
            out[name] = rules[name](value)
    for name in needed:
        if out[name] is None:
            raise ValueError(f"{table}.{name} must not be null")
    return out


_Rule = Callable[[Any], Any]
_known_rules: dict[str, tuple[tuple[Column, ...], tuple[dict[str, _Rule], dict[str, None], list[str]]]] = {}


def _rules(table: str) -> tuple[dict[str, _Rule], dict[str, None], list[str]]:
    """For each column of a table how a value is made to fit it; a row without values; what must not be null."""
    columns = TABLES[table]
    known = _known_rules.get(table)
    if known is None or known[0] is not columns:
        rules = {
            c.name: _json if c.name in JSON_COLUMNS else _rewards if c.name == "rewards" else _rule(c.type)
            for c in columns
        }
        found = rules, dict.fromkeys(rules), [c.name for c in columns if not c.null]
        known = _known_rules[table] = columns, found
    return known[1]


def _json(value: Any) -> str | None:
    return jsontext.canonical(clean_value(value)[0]).decode() if value else None


def _rewards(value: Any) -> list[dict[str, Any]]:
    return [_reward(*pair) for pair in (value.items() if isinstance(value, Mapping) else value)]


def fit_value(kind: pa.DataType, value: Any) -> Any:
    """The value as a column of that type takes it, null where it cannot hold it."""
    return None if value is None else _rule(kind)(value)


@functools.cache
def _rule(kind: pa.DataType) -> _Rule:
    """How a value, not null, is made to fit a type."""
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_integer(kind):
        bound = 1 << (kind.bit_width - 1)
        return lambda value: value if isinstance(value, int) and -bound <= value < bound else None
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_timestamp(kind):
        return _time
    if pa.types.is_list(kind):
        rule = _rule(kind.value_type)
        return lambda value: [None if item is None else rule(item) for item in value]
    raise AssertionError(f"no rule for {kind}")


def _text(value: Any) -> str:
    text = value if value.__class__ is str else str(value)
    return text if text.isascii() else clean_text(text)[0]


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _reward(name: str, value: Any) -> dict[str, Any]:
    number = _number(value) if isinstance(value, int | float) else None
    text = None
    if number is None:
        text = clean_text(value)[0] if isinstance(value, str) else jsontext.canonical(clean_value(value)[0]).decode()
    return {"name": clean_text(name)[0], "value": number, "text": text}


def _time(value: Any) -> int | None:
    if isinstance(value, str):
        return microseconds(value)
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=UTC)
        delta = moment - _EPOCH
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    return value if isinstance(value, int) else None


def rows_to_batch(table: str, rows: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """Fitted rows as an Arrow batch."""
    schema = arrow_schema(table)
    found = list(rows)
    return pa.RecordBatch.from_arrays(
        [pa.array([row[field.name] for row in found], field.type) for field in schema], schema=schema
    )
