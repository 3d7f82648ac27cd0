"""From an event to its row; see `rows` for how it lies there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from typing import Any

import orjson
from traceflow_formats.errors import TraceflowError
from traceflow_formats.text import clean_text
from traceflow_formats.trace import TYPES, Event, TraceLine

from .rows import DURATION, INPUT, MARKS, PIECE, PIECE_INSIDE, PIECE_STRING, TIMESTAMP, EventRow
from .schema import microseconds

__all__ = ["TITLE_LENGTH", "encode"]

TITLE_LENGTH = 256

_FRAGMENTS = {name: orjson.Fragment(mark.encode()) for name, mark in MARKS.items()}
_TIMESTAMP, _DURATION, _INPUT, _PIECE = (orjson.Fragment(mark.encode()) for mark in (TIMESTAMP, DURATION, INPUT, PIECE))
_TIME = re.compile(
    r"([0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]):([0-5][0-9])(?:\.([0-9]{3}(?:[0-9]{3})?))?Z"
).fullmatch
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_KNOWN = frozenset(TYPES)
_TOP = {
    "sessionId": "session_id",
    "model": "model",
    "messageId": "message_id",
    "parentToolCallId": "parent_tool_call_id",
}
_UPDATE = {"toolCallId": "tool_call_id", "toolName": "tool_name", "kind": "kind", "status": "status"}
_TOKENS = {"promptTokens": "prompt_tokens", "completionTokens": "completion_tokens", "cachedTokens": "cached_tokens"}


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
        return _piece(number)

    def known(self, text: str) -> Any:
        """The mark of a string that is a piece already, else the string."""
        return self.cut(text) if text in self.index else text

    def next(self, text: str) -> Any:
        """The mark of this string in `raw_input`, where pieces stand in order."""
        if not text:
            return text
        self.index.setdefault(text, len(self.all))
        self.all.append(text)
        return _PIECE


@lru_cache(maxsize=256)
def _piece(number: int) -> orjson.Fragment:
    return orjson.Fragment(f"{PIECE_STRING}{number}{PIECE_STRING}".encode())


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
                name = _TOP[key]
                setattr(row, name, value)
                value = _FRAGMENTS[name]
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
    match = _TIME(text)
    minute = _minute(match[1]) if match else None
    if match is None or minute is None:
        row.timestamp = microseconds(text)
        return text
    fraction = match[3]
    row.timestamp = minute + int(match[2]) * 1_000_000
    if fraction is not None:
        row.timestamp += int(fraction) * (1000 if len(fraction) == 3 else 1)
        if fraction.endswith("000"):
            return text  # as precise as it is written: 12:00:00.000Z does not come back from a number
    return _TIMESTAMP


@lru_cache(maxsize=1024)
def _minute(text: str) -> int | None:
    """Microseconds since 1970 of `2026-03-04T05:06`, or None where the calendar has no such minute."""
    try:
        if text[11:13] > "23":  # later versions of Python take 24:00 for the next day
            return None
        delta = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
    except ValueError:
        return None
    return (delta.days * 86_400 + delta.seconds) * 1_000_000


def _extra(row: EventRow, extra: dict[str, Any]) -> dict[str, Any]:
    out = dict(extra)
    for key, value in extra.items():
        kind = value.__class__
        if key == "agentId":
            if kind is str:
                row.agent_id = value
                out[key] = _FRAGMENTS["agent_id"]
        elif key == "exitCode":
            if kind is int and _INT_MIN <= value <= _INT_MAX:
                row.exit_code = value
                out[key] = _FRAGMENTS["exit_code"]
        elif key == "durationMs":
            if kind is int and abs(value) < 1 << 53:
                row.duration_ms = float(value)
                out[key] = _DURATION
            elif kind is float and value == value and abs(value) < 1e300:
                row.duration_ms = value
        elif key == "delta":
            row.delta = True if value else None
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
        out["rawInput"] = _INPUT
    for key, value in update.items():
        kind = value.__class__
        if kind is str:
            if key in _UPDATE:
                name = _UPDATE[key]
                setattr(row, name, value)
                out[key] = _FRAGMENTS[name]
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
        return _FRAGMENTS["title"]
    if title[0] == title[-1] == "`":  # a long command in backticks stands in the text already
        number = pieces.index.get(title[1:-1])
        if number is not None:
            return orjson.Fragment(f'"`{PIECE_INSIDE}{number}{PIECE_INSIDE}`"'.encode())
    return title


def _usage(row: EventRow, usage: dict[str, Any]) -> dict[str, Any]:
    out = dict(usage)
    for key, value in usage.items():
        kind = value.__class__
        if key in _TOKENS:
            if kind is int and _INT_MIN <= value <= _INT_MAX:
                name = _TOKENS[key]
                setattr(row, name, value)
                out[key] = _FRAGMENTS[name]
        elif key == "costUsd":
            if kind is float and value == value and abs(value) < 1e300:
                row.cost_usd = value
                out[key] = _FRAGMENTS["cost_usd"]
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
