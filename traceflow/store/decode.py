"""From rows back to their events; see `rows` for how they lie there.

Most events of a trace share a handful of `rest` values. Such a one is read once into its shape: the JSON with null
where a mark stands, and the places of the marks. An event is that JSON, read anew, with its own values in those places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import TraceLine

from .rows import DURATION, INPUT, MARKS, PIECE, PIECE_STRING, TIMESTAMP, EventRow

__all__ = ["DECODED", "decode", "decode_batch", "input_of", "pieces_of"]

DECODED = (
    "seq", "type", "trial_id", "rest", "text", "text_parts", "raw_input", "timestamp", "duration_ms", *MARKS,
)  # fmt: skip
"""The columns that an event is rebuilt from."""

_AT = {name: number for number, name in enumerate(DECODED)}
_SEQ, _TYPE, _TRIAL, _REST, _TEXT, _PARTS, _RAW_INPUT, _TIME, _MILLIS = range(9)
_PIECES = len(DECODED)  # of a row: the pieces of its text
_PIECE, _PIECE_STRING = PIECE.encode(), PIECE_STRING.encode()
_MARK = re.compile(rb"([\x01-\x08\x0e-\x18\x1d\x1e](?:[0-9]+[\x1d\x1e])?)")
_IN_BACKTICKS = re.compile(rb'"`(\x1e[0-9]+\x1e)`"')  # the only string that a mark stands in
_AS_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CACHED = 1024  # characters of a rest that many events may share

_Row = tuple[Any, ...]  # the values of DECODED, and the pieces
_Getter = Callable[[_Row], Any]


def decode(row: EventRow) -> TraceLine:
    """The event of a row. Raises TraceflowError store_corrupt where the row is not what `encode` makes."""
    return _line((*_VALUES(row), pieces_of(row.text, row.text_parts)))


_VALUES = attrgetter(*DECODED)


def decode_batch(batch: pa.RecordBatch | pa.Table) -> Iterable[TraceLine]:
    """The events of rows read from events.parquet; columns that the file lacks are null."""
    present = set(batch.schema.names)
    columns: list[list[Any]] = []
    for name in DECODED:
        values = batch.column(name) if name in present else None
        if values is None or values.null_count == batch.num_rows:
            columns.append([None] * batch.num_rows)
        else:
            chunks = values.chunks if isinstance(values, pa.ChunkedArray) else [values]
            if name == "timestamp":  # as numbers; a cast would load all of Arrow's functions
                chunks = [chunk.view(pa.int64()) for chunk in chunks]
            columns.append([value for chunk in chunks for value in chunk.to_pylist()])
    return map(_line, zip(*columns, map(pieces_of, columns[_TEXT], columns[_PARTS]), strict=True))


def _line(row: _Row) -> TraceLine:
    try:
        return TraceLine(row[_SEQ], row[_TYPE], _filled(row[_REST], row))
    except (ValueError, LookupError, TypeError) as error:
        raise TraceflowError(
            "store_corrupt", f"event {row[_SEQ]} of trial {row[_TRIAL]} cannot be rebuilt: {error!r}"
        ) from None


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
    return _filled(raw_input, (*[None] * _PIECES, pieces_of(text, parts)))


# -- JSON with marks -------------------------------------------------------------------------------------------


class _Shape(NamedTuple):
    """A JSON text in brackets with null for its marks, whether it needs the exact reader, and by container (the keys
    that lead to it) what goes where."""

    json: bytes
    exact: bool
    places: tuple[tuple[tuple[Any, ...], tuple[tuple[Any, _Getter], ...]], ...]


def _filled(text: str, row: _Row) -> Any:
    """The value of a JSON text with marks (a `rest` or a `raw_input`)."""
    if len(text) > _CACHED or not _seen_before(text):
        return _written_out(text, row)
    shape = _shape(text)
    value = orjson.loads(shape.json) if not shape.exact else jsontext.loads(shape.json, exact=True)
    for path, slots in shape.places:
        at = value
        for key in path:
            at = at[key]
        for key, getter in slots:
            at[key] = getter(row)
    return value[0]


def _seen_before(text: str) -> bool:
    """Whether it is worth a shape. Only hashes are kept: an accident makes one shape too many."""
    mark = hash(text)
    if mark in _seen:
        return True
    if len(_seen) >= 8192:
        _seen.clear()
    _seen.add(mark)
    return False


_seen: set[int] = set()


def _written_out(text: str, row: _Row) -> Any:
    """The same for a text that no other event shares: the values as JSON in the place of the marks."""
    parts, getters = _split(text.encode())
    at = 1
    for getter in getters:
        value = getter(row)
        parts[at] = orjson.dumps(value) if value.__class__ is str else jsontext.dumps(value)
        at += 2
    raw_input = row[_RAW_INPUT]
    exact = _long_number(text) or (raw_input is not None and _long_number(raw_input))
    return jsontext.loads(b"".join(parts), exact=exact)


def _long_number(text: str) -> bool:
    """Whether there are 19 digits in a row: a number of which only the exact reader may keep all."""
    return b"0000000000000000000" in text.encode().translate(_AS_ZEROS)


@lru_cache(maxsize=4096)
def _shape(text: str) -> _Shape:
    parts, getters = _split(text.encode())
    name = "mark"
    while name in text:
        name += "_"
    marked = b"".join(b'"%s%d"' % (name.encode(), at // 2) if at % 2 else part for at, part in enumerate(parts))
    places: dict[tuple[Any, ...], list[tuple[Any, _Getter]]] = {}
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), [jsontext.loads(marked)])]
    while waiting:
        path, value = waiting.pop()
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(item, dict | list):
                waiting.append(((*path, key), item))
            elif isinstance(item, str) and item.startswith(name):
                places.setdefault(path, []).append((key, getters[int(item[len(name) :])]))
    plain = b"".join(b"null" if at % 2 else part for at, part in enumerate(parts))
    ordered = tuple((path, tuple(slots)) for path, slots in places.items())
    return _Shape(b"[%s]" % plain, _long_number(text), ordered)


def _split(text: bytes) -> tuple[list[bytes], list[_Getter]]:
    """Text and marks in turn, and what gives the value of each mark."""
    if b"\x1e" in text:
        text = _IN_BACKTICKS.sub(rb"\1", text)
    parts = _MARK.split(text)
    getters: list[_Getter] = []
    pieces = 0  # of a call's input: each mark is the next one
    for mark in parts[1::2]:
        getter = _GETTERS.get(mark)
        if getter is not None:
            getters.append(getter)
        elif mark == _PIECE:
            getters.append(_piece(pieces))
            pieces += 1
        else:
            number = int(mark[1:-1])
            getters.append(_piece(number) if mark[:1] == _PIECE_STRING else _in_backticks(number))
    return parts, getters


def _piece(number: int) -> _Getter:
    return lambda row: row[_PIECES][number]


def _in_backticks(number: int) -> _Getter:
    return lambda row: f"`{row[_PIECES][number]}`"


def _input(row: _Row) -> Any:
    return _filled(row[_RAW_INPUT], row)


def _duration(row: _Row) -> int:
    return int(row[_MILLIS])


def _timestamp(row: _Row) -> str:
    minutes, micros = divmod(row[_TIME], 60_000_000)
    seconds, micros = divmod(micros, 1_000_000)
    if not micros:
        return f"{_minute(minutes)}{seconds:02d}Z"
    if micros % 1000:
        return f"{_minute(minutes)}{seconds:02d}.{micros:06d}Z"
    return f"{_minute(minutes)}{seconds:02d}.{micros // 1000:03d}Z"


@lru_cache(maxsize=256)  # neighbours often stand in one minute
def _minute(minutes: int) -> str:
    return (_EPOCH + timedelta(minutes=minutes)).isoformat()[:17]


_GETTERS: dict[bytes, _Getter] = {
    TIMESTAMP.encode(): _timestamp,
    DURATION.encode(): _duration,
    INPUT.encode(): _input,
    **{mark.encode(): itemgetter(_AT[name]) for name, mark in MARKS.items()},
}
