"""Events as rows of events.parquet, and back: `decode(encode(event, seq))` is the event, key order included.

What has a column is cut out of the event's data and a control character stands in its place; the text that is
left is the row's `rest`. JSON never holds a raw control character, so a mark cannot be mistaken for data, and
whatever a foreign trace holds in an unusual place simply stays in `rest`. Since all that varies is in columns,
most events of a trace share a handful of `rest` values, which Parquet stores once.

    U+001D N U+001D   piece N of `text`, as a JSON string
    U+001E N U+001E   piece N of `text`, inside a JSON string
    U+0012            the call's input: `raw_input`, in which U+0001 is the next piece of `text`, from piece 0
    others            the value of one column, see _MARKS

A string that stands twice in an event (a file's content in the input and in the diff) is one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from operator import attrgetter
from typing import Any

import orjson
import pyarrow as pa
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.text import clean_text
from traceflow_formats.times import epoch_us
from traceflow_formats.trace import Event, TraceLine

from .schema import EVENTS, arrow_schema

__all__ = ["TITLE_LENGTH", "EventRow", "decode", "decode_batch", "encode", "input_of", "pieces_of", "to_batch"]

TITLE_LENGTH = 256
PIECE = "\x01"

_TIMESTAMP, _SESSION, _MODEL, _MESSAGE, _PARENT, _AGENT = "\x02", "\x03", "\x04", "\x05", "\x06", "\x07"
_CALL, _TOOL, _KIND, _STATUS, _TITLE, _INPUT = "\x08", "\x0e", "\x0f", "\x10", "\x11", "\x12"
_PROMPT_TOKENS, _COMPLETION_TOKENS, _CACHED_TOKENS, _COST = "\x13", "\x14", "\x15", "\x16"
_EXIT, _DURATION = "\x17", "\x18"

_MARKS: dict[str, str] = {
    _SESSION: "session_id",
    _MODEL: "model",
    _MESSAGE: "message_id",
    _PARENT: "parent_tool_call_id",
    _AGENT: "agent_id",
    _CALL: "tool_call_id",
    _TOOL: "tool_name",
    _KIND: "kind",
    _STATUS: "status",
    _TITLE: "title",
    _PROMPT_TOKENS: "prompt_tokens",
    _COMPLETION_TOKENS: "completion_tokens",
    _CACHED_TOKENS: "cached_tokens",
    _COST: "cost_usd",
    _EXIT: "exit_code",
}
_FRAGMENTS = {mark: orjson.Fragment(mark.encode()) for mark in (*_MARKS, _TIMESTAMP, _DURATION, _INPUT, PIECE)}
_PIECES = [orjson.Fragment(f"\x1d{n}\x1d".encode()) for n in range(64)]
_MARK = re.compile("[\x01-\x08\x0e-\x18]|\x1d([0-9]+)\x1d|\x1e([0-9]+)\x1e")
_TIME = re.compile(
    r"[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9](\.[0-9]{3}(?:[0-9]{3})?)?Z"
).fullmatch
_LONG_NUMBER = re.compile("[0-9]{19}").search
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1

_TOP = {
    "sessionId": ("session_id", _SESSION),
    "model": ("model", _MODEL),
    "messageId": ("message_id", _MESSAGE),
    "parentToolCallId": ("parent_tool_call_id", _PARENT),
}
_UPDATE = {
    "toolCallId": ("tool_call_id", _CALL),
    "toolName": ("tool_name", _TOOL),
    "kind": ("kind", _KIND),
    "status": ("status", _STATUS),
}
_TOKENS = {
    "promptTokens": ("prompt_tokens", _PROMPT_TOKENS),
    "completionTokens": ("completion_tokens", _COMPLETION_TOKENS),
    "cachedTokens": ("cached_tokens", _CACHED_TOKENS),
}
_KNOWN = frozenset(
    {
        "prompt",
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "plan",
        "usage",
        "error",
        "trace_loss",
    }
)


@dataclass(slots=True)
class EventRow:
    """One row of events.parquet, in the order of its columns; what they mean is in `schema.EVENTS`.

    `timestamp` is microseconds since 1970.
    """

    job_id: str = ""
    trial_id: str = ""
    seq: int = 0
    type: str = ""
    timestamp: int | None = None
    session_id: str | None = None
    agent_id: str | None = None
    parent_tool_call_id: str | None = None
    step_id: int | None = None
    step_name: str | None = None
    message_id: str | None = None
    model: str | None = None
    tool_call_id: str | None = None
    call_seq: int | None = None
    tool_name: str | None = None
    kind: str | None = None
    status: str | None = None
    title: str | None = None
    text: str = ""
    text_parts: list[int] | None = None
    raw_input: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    scope: str | None = None
    usage_source: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    fatal: bool | None = None
    injected: str | None = None
    compaction: bool | None = None
    abandoned: bool | None = None
    copied: bool | None = None
    retried: bool | None = None
    rest: str = ""


class _Pieces:
    """The strings that were cut out of one event, each once."""

    __slots__ = ("all", "index")

    def __init__(self) -> None:
        self.all: list[str] = []
        self.index: dict[str, int] = {}

    def cut(self, text: str) -> Any:
        """The mark of this string in `rest`; the string becomes a piece if it is none yet."""
        if not text:
            return text
        number = self.index.get(text)
        if number is None:
            number = self.index[text] = len(self.all)
            self.all.append(text)
        return _PIECES[number] if number < 64 else orjson.Fragment(f"\x1d{number}\x1d".encode())

    def known(self, text: str) -> Any:
        """The mark of a string that is a piece already, else the string."""
        return self.cut(text) if text in self.index else text

    def next(self, text: str) -> Any:
        """The mark of this string in `raw_input`, where pieces stand in order."""
        if not text:
            return text
        self.index.setdefault(text, len(self.all))
        self.all.append(text)
        return _FRAGMENTS[PIECE]


# -- event to row ------------------------------------------------------------------------------------------


def encode(event: Event | TraceLine, seq: int) -> EventRow:
    """The row of an event; job, trial and step are the caller's to set.

    NaN and infinite numbers become null, lone surrogates U+FFFD. Raises TraceflowError invalid_input for data
    that is no JSON or nested beyond what can be written.
    """
    try:
        try:
            return _encode(event.type, event.data, seq)
        except (TypeError, UnicodeEncodeError):  # integers of 2**64 and more, surrogates, more than 250 levels
            return _encode(event.type, _tame(event.data, 0), seq)
    except RecursionError:
        raise TraceflowError("invalid_input", f"event {seq} ({event.type[:40]}) is nested too deeply") from None
    except TypeError as error:
        raise TraceflowError("invalid_input", f"event {seq} ({event.type[:40]}) is no JSON: {error}") from None


def _encode(kind: str, data: dict[str, Any], seq: int) -> EventRow:
    row = EventRow(seq=seq, type=kind)
    pieces = _Pieces()
    known = kind in _KNOWN
    out: dict[str, Any] = {}
    update = data.get("update")
    if known and update.__class__ is dict and update.get("rawInput") is not None:
        row.raw_input = orjson.dumps(_cut_all(update["rawInput"], pieces.next)).decode()  # so its pieces are the first
    for key, value in data.items():
        if value.__class__ is str:
            if key in _TOP:
                name, mark = _TOP[key]
                setattr(row, name, value)
                value = _FRAGMENTS[mark]
            elif key == "timestamp":
                value = _timestamp(row, value)
            elif not known:
                value = pieces.cut(value)
        elif value.__class__ is dict:
            if key == "update":
                value = _update(row, value, pieces) if known else _foreign_update(value, pieces)
            elif key == "extra":
                value = _extra(row, value)
            elif key == "_prompt":
                value = {k: pieces.cut(v) if k == "text" and v.__class__ is str else v for k, v in value.items()}
            elif not known:
                value = _cut_all(value, pieces.cut)
        out[key] = value
    if row.agent_id is None:
        row.agent_id = row.parent_tool_call_id
    row.rest = orjson.dumps(out).decode()
    strings = pieces.all
    if len(strings) == 1:
        row.text = strings[0]
    elif strings:
        row.text = "\n".join(strings)
        row.text_parts = list(accumulate(len(piece) + 1 for piece in strings[:-1]))
    if not row.text.isascii():
        row.text.encode()  # refuses surrogates
    return row


def _timestamp(row: EventRow, text: str) -> Any:
    row.timestamp = moment = _microseconds(text)
    if moment is None:
        return text
    match = _TIME(text)
    if match is None or (match[1] and match[1].endswith("000")):
        return text  # as precise as it is written: 12:00:00.000Z does not come back from a number
    return _FRAGMENTS[_TIMESTAMP]


def _microseconds(text: str) -> int | None:
    try:
        return epoch_us(text)
    except OverflowError:
        return None


def _extra(row: EventRow, extra: dict[str, Any]) -> dict[str, Any]:
    out = dict(extra)
    for key, value in extra.items():
        kind = value.__class__
        if key == "agentId":
            if kind is str:
                row.agent_id = value
                out[key] = _FRAGMENTS[_AGENT]
        elif key == "exitCode":
            if kind is int and _INT_MIN <= value <= _INT_MAX:
                row.exit_code = value
                out[key] = _FRAGMENTS[_EXIT]
        elif key == "durationMs":
            if kind is int and abs(value) < 1 << 53:
                row.duration_ms = float(value)
                out[key] = _FRAGMENTS[_DURATION]
            elif kind is float and value == value and abs(value) < 1e300:
                row.duration_ms = value
        elif key == "injected":
            row.injected = value if kind is str else ("other" if value else None)
        elif key == "stepName":
            row.step_name = value if kind is str else None
        elif key == "compaction":
            row.compaction = True if value or value == {} else None
        elif key == "abandoned":
            row.abandoned = True if value else None
        elif key == "copied":
            row.copied = True if value else None
        elif key == "retried":
            row.retried = True if value else None
    return out


def _update(row: EventRow, update: dict[str, Any], pieces: _Pieces) -> dict[str, Any]:
    out = dict(update)
    if row.raw_input is not None:
        out["rawInput"] = _FRAGMENTS[_INPUT]
    for key, value in update.items():
        kind = value.__class__
        if kind is str:
            if key in _UPDATE:
                name, mark = _UPDATE[key]
                setattr(row, name, value)
                out[key] = _FRAGMENTS[mark]
            elif key == "title":
                out[key] = _title(row, value, pieces)
            elif key == "message" and row.type == "error":
                out[key] = pieces.cut(value)
            elif key == "scope":
                row.scope = value
            elif key == "source":
                row.usage_source = value
        elif key == "content":
            out[key] = _content(value, pieces)
        elif key == "entries":
            out[key] = [_content(entry, pieces) for entry in value] if kind is list else value
        elif key == "locations" or key == "rawOutput":
            if pieces.all:
                out[key] = _cut_all(value, pieces.known)
        elif key == "usage":
            if kind is dict:
                out[key] = _usage(row, value)
        elif key == "fatal" and kind is bool:
            row.fatal = value
    return out


def _title(row: EventRow, title: str, pieces: _Pieces) -> Any:
    row.title = title[:TITLE_LENGTH]
    if len(title) <= TITLE_LENGTH:
        return _FRAGMENTS[_TITLE]
    if title[0] == title[-1] == "`":  # a long command in backticks stands in the text already
        number = pieces.index.get(title[1:-1])
        if number is not None:
            return orjson.Fragment(f'"`\x1e{number}\x1e`"'.encode())
    return title


def _usage(row: EventRow, usage: dict[str, Any]) -> dict[str, Any]:
    out = dict(usage)
    for key, value in usage.items():
        kind = value.__class__
        if key in _TOKENS:
            if kind is int and _INT_MIN <= value <= _INT_MAX:
                name, mark = _TOKENS[key]
                setattr(row, name, value)
                out[key] = _FRAGMENTS[mark]
        elif key == "costUsd":
            if kind is float and value == value and abs(value) < 1e300:
                row.cost_usd = value
                out[key] = _FRAGMENTS[_COST]
            elif kind is int and abs(value) < 1 << 53:
                row.cost_usd = float(value)
    return out


def _content(value: Any, pieces: _Pieces) -> Any:
    """A content block, or a list of them, with its texts cut out; other strings stay."""
    if value.__class__ is list:
        return [_content(item, pieces) for item in value]
    if value.__class__ is not dict:
        return value
    out = dict(value)
    for key, item in value.items():
        if item.__class__ is str:
            if key in ("text", "newText", "oldText", "content"):
                out[key] = pieces.cut(item)
            elif key == "path":
                out[key] = pieces.known(item)
        elif key == "content":
            out[key] = _content(item, pieces)
    return out


def _foreign_update(update: dict[str, Any], pieces: _Pieces) -> dict[str, Any]:
    """Of a type that is not ours nothing is known, so all its strings are its text."""
    return {k: v if k == "sessionUpdate" else _cut_all(v, pieces.cut) for k, v in update.items()}


def _cut_all(value: Any, cut: Callable[[str], Any]) -> Any:
    kind = value.__class__
    if kind is str:
        return cut(value)
    if kind is dict:
        return {key: _cut_all(item, cut) for key, item in value.items()}
    if kind is list:
        return [_cut_all(item, cut) for item in value]
    return value


def _tame(value: Any, depth: int) -> Any:
    """The value with what orjson refuses made acceptable; integers keep their digits."""
    if value.__class__ is int:
        return value if _INT_MIN <= value <= _INT_MAX else orjson.Fragment(str(value).encode())
    if isinstance(value, str):
        return clean_text(value)[0]
    if isinstance(value, dict):
        tamed: Any = {clean_text(str(key))[0]: _tame(item, depth + 1) for key, item in value.items()}
    elif isinstance(value, list | tuple):
        tamed = [_tame(item, depth + 1) for item in value]
    else:
        return value
    return orjson.Fragment(orjson.dumps(tamed)) if depth and depth % 100 == 0 else tamed


# -- row to event ------------------------------------------------------------------------------------------


def decode(row: EventRow) -> TraceLine:
    """The event of a row. Raises TraceflowError store_corrupt where the row is not what `encode` makes."""
    try:
        pieces = pieces_of(row.text, row.text_parts)
        rest = row.rest
        if row.raw_input is not None:
            rest = rest.replace(_INPUT, row.raw_input)
        exact = _LONG_NUMBER(rest) is not None
        used = iter(range(len(pieces)))

        def value(match: re.Match[str]) -> str:
            if match[1] is not None:
                return orjson.dumps(pieces[int(match[1])]).decode()
            if match[2] is not None:
                return orjson.dumps(pieces[int(match[2])]).decode()[1:-1]
            mark = match[0]
            if mark == PIECE:
                return orjson.dumps(pieces[next(used)]).decode()
            if mark == _TIMESTAMP:
                return f'"{_time_text(row.timestamp)}"'
            if mark == _DURATION:
                return str(int(row.duration_ms))  # type: ignore[arg-type]
            return orjson.dumps(getattr(row, _MARKS[mark])).decode()

        data = jsontext.loads(_MARK.sub(value, rest), exact=exact)
    except (ValueError, KeyError, IndexError, TypeError, StopIteration, RuntimeError) as error:
        raise TraceflowError(
            "store_corrupt", f"event {row.seq} of trial {row.trial_id} cannot be rebuilt: {error!r}"
        ) from None
    return TraceLine(row.seq, row.type, data)


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
    pieces = iter(pieces_of(text, parts))
    filled = re.sub(PIECE, lambda _: orjson.dumps(next(pieces)).decode(), raw_input)
    return jsontext.loads(filled, exact=_LONG_NUMBER(raw_input) is not None)


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


# -- many rows ---------------------------------------------------------------------------------------------

_NAMES = tuple(column.name for column in EVENTS)
_VALUES = attrgetter(*_NAMES)
_STRINGS = frozenset(column.name for column in EVENTS if column.type == pa.string())


def to_batch(rows: Iterable[EventRow]) -> pa.RecordBatch:
    """Rows as an Arrow batch of the schema of events."""
    schema = arrow_schema("events")
    columns = list(zip(*map(_VALUES, rows), strict=True)) or [()] * len(_NAMES)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        if values and values[0] is None and values.count(None) == len(values):  # most columns of most batches
            arrays.append(pa.nulls(len(values), field.type))
            continue
        try:
            arrays.append(pa.array(values, field.type))
        except UnicodeEncodeError:  # the last resort: parsers give valid text
            arrays.append(pa.array([v if v is None else clean_text(v)[0] for v in values], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def decode_batch(batch: pa.RecordBatch | pa.Table) -> Iterable[TraceLine]:
    """The events of rows read from events.parquet; columns that the file lacks are null."""
    present = set(batch.schema.names)
    columns: list[Any] = []
    for name in _NAMES:
        if name not in present:
            columns.append([None] * batch.num_rows)
            continue
        values = batch.column(name)
        columns.append((values.cast(pa.int64()) if name == "timestamp" else values).to_pylist())
    for values in zip(*columns, strict=True):
        yield decode(EventRow(*values))
