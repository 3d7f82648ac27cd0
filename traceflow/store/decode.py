"""From a row back to its event; see `rows` for how it lies there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import TraceLine

from .rows import DURATION, INPUT, MARKS, PIECE, PIECE_INSIDE, PIECE_STRING, TIMESTAMP, EventRow
from .schema import EVENTS

__all__ = ["decode", "decode_batch", "input_of", "pieces_of"]

_MARK = re.compile("([\x01-\x08\x0e-\x18]|\x1d[0-9]+\x1d|\x1e[0-9]+\x1e)")
_COLUMNS = {mark: name for name, mark in MARKS.items()}
_LONG_NUMBER = re.compile("[0-9]{19}").search
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CACHED = 2048  # characters of a rest that many events may share
_NAMES = tuple(column.name for column in EVENTS)


def decode(row: EventRow) -> TraceLine:
    """The event of a row. Raises TraceflowError store_corrupt where the row is not what `encode` makes."""
    try:
        parts, exact = _parts(row.rest) if len(row.rest) <= _CACHED else _split(row.rest)
        filled = list(parts)
        pieces = pieces_of(row.text, row.text_parts)
        for at in range(1, len(parts), 2):
            filled[at] = _value(parts[at], row, pieces)
        if row.raw_input is not None:
            exact = exact or _LONG_NUMBER(row.raw_input) is not None
        data = jsontext.loads("".join(filled), exact=exact)
    except (ValueError, LookupError, TypeError) as error:
        raise TraceflowError(
            "store_corrupt", f"event {row.seq} of trial {row.trial_id} cannot be rebuilt: {error!r}"
        ) from None
    return TraceLine(row.seq, row.type, data)


def _split(rest: str) -> tuple[tuple[str, ...], bool]:
    """Text and marks in turn, and whether it holds numbers that only the exact reader takes."""
    return tuple(_MARK.split(rest)), _LONG_NUMBER(rest) is not None


_parts = lru_cache(maxsize=1024)(_split)


def _value(mark: str, row: EventRow, pieces: list[str]) -> str:
    """The JSON text that a mark stands for."""
    name = _COLUMNS.get(mark)
    if name is not None:
        return orjson.dumps(getattr(row, name)).decode()
    kind = mark[0]
    if kind == TIMESTAMP:
        return f'"{_time_text(row.timestamp)}"'
    if kind == PIECE_STRING:
        return orjson.dumps(pieces[int(mark[1:-1])]).decode()
    if kind == INPUT:
        return _filled(row.raw_input, pieces)
    if kind == DURATION:
        return str(int(row.duration_ms))  # type: ignore[arg-type]
    if kind == PIECE_INSIDE:
        return orjson.dumps(pieces[int(mark[1:-1])]).decode()[1:-1]
    raise ValueError(f"a mark {mark!r}")


def _filled(raw_input: str | None, pieces: list[str]) -> str:
    """The JSON of a call's input: each mark in it is the next piece."""
    if raw_input is None:
        raise ValueError("no input")
    first, *others = raw_input.split(PIECE)
    out = [first]
    for piece, text in zip(pieces, others, strict=False):
        out += (orjson.dumps(piece).decode(), text)
    if len(pieces) < len(others):
        raise ValueError("fewer pieces than the input has strings")
    return "".join(out)


def pieces_of(text: str, parts: list[int] | None) -> list[str]:
    """The pieces of a row's text: parts are where each but the first begins, after a line feed."""
    if parts is None:
        return [text] if text else []
    starts = [0, *parts]
    return [text[start : end - 1] for start, end in zip(starts, [*parts, len(text) + 1], strict=True)]


def input_of(raw_input: str | None, text: str, parts: list[int] | None) -> Any:
    """A tool call's input from the columns `raw_input`, `text` and `text_parts`; None where it has none."""
    if raw_input is None:
        return None
    return jsontext.loads(_filled(raw_input, pieces_of(text, parts)), exact=_LONG_NUMBER(raw_input) is not None)


def _time_text(moment: int | None) -> str:
    if moment is None:
        raise ValueError("no timestamp")
    time = _EPOCH + timedelta(microseconds=moment)
    base = f"{time.year:04d}-{time.month:02d}-{time.day:02d}T{time.hour:02d}:{time.minute:02d}:{time.second:02d}"
    if not time.microsecond:
        return base + "Z"
    if time.microsecond % 1000:
        return f"{base}.{time.microsecond:06d}Z"
    return f"{base}.{time.microsecond // 1000:03d}Z"


def decode_batch(batch: pa.RecordBatch | pa.Table) -> Iterable[TraceLine]:
    """The events of rows read from events.parquet; columns that the file lacks are null."""
    present = set(batch.schema.names)
    columns: list[Any] = []
    for name in _NAMES:
        if name not in present:
            columns.append([None] * batch.num_rows)
            continue
        values = batch.column(name)
        if values.null_count == batch.num_rows:
            columns.append([None] * batch.num_rows)
            continue
        columns.append((values.cast(pa.int64()) if name == "timestamp" else values).to_pylist())
    for values in zip(*columns, strict=True):
        yield decode(EventRow(*values))
