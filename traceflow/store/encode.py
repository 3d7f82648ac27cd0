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

from . import columns as at
from .rows import DURATION, INPUT, MARKS, NEW_ROW, PIECE, PIECE_INSIDE, PIECE_STRING, TIMESTAMP
from .schema import microseconds

__all__ = ["TITLE_LENGTH", "encode"]

TITLE_LENGTH = 256

_FRAGMENTS = {name: orjson.Fragment(mark.encode()) for name, mark in MARKS.items()}
_TIMESTAMP, _DURATION, _INPUT, _PIECE = (orjson.Fragment(mark.encode()) for mark in (TIMESTAMP, DURATION, INPUT, PIECE))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1
_KNOWN = frozenset(TYPES)
_CHUNKS = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})
_DEEPEST = 400  # levels of an event: the interpreter's own bound differs by version, and compiled code has none
_FEW = 16  # pieces that are compared one by one; a text is hashed only where there are more
_FACTS = frozenset({"timestamp", "extra", "_prompt"})  # they are no text, or it has been cut out
_NESTED = frozenset({dict, list})
_Row = list[Any]
_dumps = orjson.dumps


def _columns(names: dict[str, str]) -> dict[str, tuple[int, orjson.Fragment]]:
    """For each key its column's place in a row, and the column's mark in `rest`."""
    return {key: (getattr(at, name.upper()), _FRAGMENTS[name]) for key, name in names.items()}


_SESSION_ID, _MODEL, _MESSAGE_ID, _PARENT_TOOL_CALL_ID = (
    _FRAGMENTS[name] for name in ("session_id", "model", "message_id", "parent_tool_call_id")
)
_TOKENS = _columns(
    {"promptTokens": "prompt_tokens", "completionTokens": "completion_tokens", "cachedTokens": "cached_tokens"}
)
_AGENT_ID, _EXIT_CODE, _TITLE, _COST = (_FRAGMENTS[name] for name in ("agent_id", "exit_code", "title", "cost_usd"))


class _Pieces:
    """The strings that were cut out of one event, each once."""

    __slots__ = ("_index", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._index: dict[str, int] | None = None

    def number(self, text: str) -> int | None:
        """Which piece this string is, or None."""
        texts = self.texts
        if len(texts) <= _FEW:
            return texts.index(text) if text in texts else None
        index = self._index
        if index is None:
            index = self._index = {}
        for number in range(len(index), len(texts)):
            index.setdefault(texts[number], number)
        return index.get(text)

    def cut(self, text: str) -> Any:
        """The mark of this string in `rest`; the string becomes a piece if it is none yet."""
        if not text:
            return text
        texts = self.texts
        if not texts:
            texts.append(text)
            return _FIRST_PIECE
        number = self.number(text)
        if number is None:
            number = len(texts)
            texts.append(text)
        return _piece(number)

    def known(self, text: str) -> Any:
        """The mark of a string that is a piece already, else the string."""
        number = self.number(text) if text else None
        return text if number is None else _piece(number)

    def next(self, text: str) -> Any:
        """The mark of this string in `raw_input`, where pieces stand in order."""
        if not text:
            return text
        self.texts.append(text)
        return _PIECE


@lru_cache(maxsize=256)
def _piece(number: int) -> orjson.Fragment:
    return orjson.Fragment(f"{PIECE_STRING}{number}{PIECE_STRING}".encode())


_FIRST_PIECE = _piece(0)


def encode(event: Event | TraceLine, seq: int, new: list[Any] = NEW_ROW) -> list[Any]:
    """The row of an event, in the order of the columns, made of a copy of `new`; the step is the caller's to set.

    NaN and infinite numbers become null, lone surrogates U+FFFD. Raises TraceflowError invalid_input for data
    that is no JSON or nested beyond what can be written.
    """
    try:
        try:
            return _encode(event.type, event.data, seq, new.copy())
        except TypeError:  # integers of 2**64 and more, surrogates, more than 250 levels
            return _encode(event.type, _tame(event.data, 0), seq, new.copy())
    except RecursionError:
        raise TraceflowError("invalid_input", f"event {seq} ({event.type[:40]}) is nested too deeply") from None
    except TypeError as error:
        raise TraceflowError("invalid_input", f"event {seq} ({event.type[:40]}) is no JSON: {error}") from None


def _encode(kind: str, data: dict[str, Any], seq: int, row: _Row) -> _Row:
    row[at.SEQ] = seq
    row[at.TYPE] = kind
    out = data.copy()
    if (name := data.get("sessionId")).__class__ is str:  # one after the other: a loop is a third slower
        row[at.SESSION_ID], out["sessionId"] = name, _SESSION_ID
    if (name := data.get("model")).__class__ is str:
        row[at.MODEL], out["model"] = name, _MODEL
    if (name := data.get("messageId")).__class__ is str:
        row[at.MESSAGE_ID], out["messageId"] = name, _MESSAGE_ID
    if (name := data.get("parentToolCallId")).__class__ is str:
        row[at.PARENT_TOOL_CALL_ID], out["parentToolCallId"] = name, _PARENT_TOOL_CALL_ID
    time, extra = data.get("timestamp"), data.get("extra")
    if time.__class__ is str:
        row[at.TIMESTAMP], out["timestamp"] = _timestamp(time) if len(time) < _LONG else (microseconds(time), time)
    if extra.__class__ is dict and not _EXTRA.isdisjoint(extra):
        out["extra"] = _extra(row, extra)
    if row[at.AGENT_ID] is None:
        row[at.AGENT_ID] = row[at.PARENT_TOOL_CALL_ID]
    update = data.get("update")
    if kind in _CHUNKS and update.__class__ is dict and len(update) == 2 and "_prompt" not in data:
        content = update.get("content")
        if content.__class__ is dict and len(content) == 2 and "type" in content and "sessionUpdate" in update:
            text = content.get("text")
            if text.__class__ is str and text:  # most chunks are just that
                row[at.TEXT] = text
                out["update"] = {**update, "content": {**content, "text": _FIRST_PIECE}}
                row[at.REST] = _dumps(out).decode()
                return row
    _cut_texts(kind, data, update, row, out)
    row[at.REST] = _dumps(out).decode()
    return row


def _cut_texts(kind: str, data: dict[str, Any], update: Any, row: _Row, out: dict[str, Any]) -> None:
    """Cut the texts of an event out, and the columns of its update.

    A surrogate in a text stays until the column is made, where U+FFFD takes its place: to look for one here would take
    as long as to write the text.
    """
    pieces = _Pieces()
    if kind in _KNOWN:
        if update.__class__ is dict:
            out["update"] = _update(row, update, pieces)  # before the prompt: pieces of an input are the first
    else:  # nothing is known of it, so all its strings are its text
        for key, value in data.items():
            if key == "update" and value.__class__ is dict:
                out[key] = {k: v if k == "sessionUpdate" else _cut_all(v, pieces.cut) for k, v in value.items()}
            elif out[key] is value and (value.__class__ is str or value.__class__ is dict) and key not in _FACTS:
                out[key] = _cut_all(value, pieces.cut)
    prompt = data.get("_prompt")
    if prompt.__class__ is dict and prompt.get("text").__class__ is str:
        out["_prompt"] = {**prompt, "text": pieces.cut(prompt["text"])}
    texts = pieces.texts
    if len(texts) == 1:
        row[at.TEXT] = texts[0]
    elif texts:
        row[at.TEXT] = "\n".join(texts)
        row[at.TEXT_PARTS] = list(accumulate([len(text) + 1 for text in texts[:-1]]))


_TWO = {f"{n:02d}": n * 1_000_000 for n in range(60)}  # seconds as they are written -> microseconds
_THREE = {f"{n:03d}": n for n in range(1000)}


_LONG = 40  # characters that no time has: nothing so long is remembered


@lru_cache(maxsize=1024)  # the events of one record have its time
def _timestamp(text: str) -> tuple[int | None, Any]:
    """Microseconds since 1970, and the mark of the column or, where that would not give it back, the text.

    Nearly all times are written like `2026-03-04T05:06:07Z`, with three or six digits more and no more than needed:
    12:00:00.000Z does not come back from a number.
    """
    minute, second, length = _minute(text[:17]), _TWO.get(text[17:19]), len(text)
    if minute is None or second is None or text[-1] != "Z":
        return microseconds(text), text
    if length == 20:
        return minute + second, _TIMESTAMP
    thousandths = _THREE.get(text[20:23])
    millionths = 0 if length == 24 else _THREE.get(text[23:26]) if length == 27 else None
    if thousandths is None or millionths is None or text[19] != ".":
        return microseconds(text), text
    exact = millionths if length == 27 else thousandths
    return minute + second + thousandths * 1000 + millionths, _TIMESTAMP if exact else text


_is_minute = re.compile("[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:").fullmatch


@lru_cache(maxsize=1024)
def _minute(text: str) -> int | None:
    """Microseconds since 1970 of `2026-03-04T05:06:`, or None where the calendar has no such minute."""
    if not _is_minute(text) or text[11:13] > "23":  # later versions of Python take 24:00 for the next day
        return None
    try:
        delta = datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC) - _EPOCH
    except ValueError:
        return None
    return (delta.days * 86_400 + delta.seconds) * 1_000_000


_EXTRA = frozenset(
    {
        *("agentId", "exitCode", "durationMs", "delta", "injected", "stepName", "compaction"),
        *("abandoned", "copied", "retried"),
    }
)


def _extra(row: _Row, extra: dict[str, Any]) -> dict[str, Any]:
    out = dict(extra)
    for key, value in extra.items():
        if key not in _EXTRA:
            continue
        kind = value.__class__
        if key == "exitCode":
            if kind is int and _INT_MIN <= value <= _INT_MAX:
                row[at.EXIT_CODE] = value
                out[key] = _EXIT_CODE
        elif key == "durationMs":
            if kind is int and abs(value) < 1 << 53:
                row[at.DURATION_MS] = float(value)
                out[key] = _DURATION
            elif kind is float and value == value and abs(value) < 1e300:
                row[at.DURATION_MS] = value
        elif key == "agentId":
            if kind is str:
                row[at.AGENT_ID] = value
                out[key] = _AGENT_ID
        elif key == "delta":
            row[at.DELTA] = True if value else None
        elif key == "injected":
            row[at.INJECTED] = value if kind is str else ("other" if value else None)
        elif key == "stepName":
            row[at.STEP_NAME] = value if kind is str else None
        elif key == "compaction":
            row[at.COMPACTION] = True if value or value == {} else None
        elif key == "abandoned":
            row[at.ABANDONED] = True if value else None
        elif key == "copied":
            row[at.COPIED] = True if value else None
        elif key == "retried":
            row[at.RETRIED] = True if value else None
    return out


def _update(row: _Row, update: dict[str, Any], pieces: _Pieces) -> dict[str, Any]:
    out = update.copy()
    given = update.get("rawInput")
    if given is not None:
        row[at.RAW_INPUT] = _dumps(_cut_all(given, pieces.next)).decode()
        out["rawInput"] = _INPUT
    for key, value in update.items():
        lies = _UPDATE.get(key)
        if lies.__class__ is tuple:
            if value.__class__ is str:
                row[lies[0]] = value
                out[key] = lies[1]
        elif lies is not None:
            out[key] = lies(row, value, pieces)
    return out


def _title(row: _Row, title: Any, pieces: _Pieces) -> Any:
    if title.__class__ is not str:
        return title
    row[at.TITLE] = title[:TITLE_LENGTH]
    if len(title) <= TITLE_LENGTH:
        return _TITLE
    if title[0] == title[-1] == "`":  # a long command in backticks stands in the text already
        number = pieces.number(title[1:-1])
        if number is not None:
            return orjson.Fragment(f'"`{PIECE_INSIDE}{number}{PIECE_INSIDE}`"'.encode())
    return title


def _usage(row: _Row, usage: Any, _: _Pieces) -> Any:
    if usage.__class__ is not dict:
        return usage
    out = usage.copy()
    for key, (column, mark) in _TOKENS.items():
        count = usage.get(key)
        if count.__class__ is int and _INT_MIN <= count <= _INT_MAX:
            row[column] = count
            out[key] = mark
    cost = usage.get("costUsd")
    if cost.__class__ is float and cost == cost and abs(cost) < 1e300:
        row[at.COST_USD] = cost
        out["costUsd"] = _COST
    elif cost.__class__ is int and abs(cost) < 1 << 53:
        row[at.COST_USD] = float(cost)
    return out


def _also(column: int, kind: type) -> Callable[[_Row, Any, _Pieces], Any]:
    """For what fills a column and stays in `rest` all the same."""

    def fill(row: _Row, value: Any, _: _Pieces) -> Any:
        if value.__class__ is kind:
            row[column] = value
        return value

    return fill


def _message(row: _Row, message: Any, pieces: _Pieces) -> Any:
    return pieces.cut(message) if message.__class__ is str and row[at.TYPE] == "error" else message


def _known(_: _Row, value: Any, pieces: _Pieces) -> Any:
    return _cut_all(value, pieces.known) if pieces.texts else value


def _entries(_: _Row, entries: Any, pieces: _Pieces) -> Any:
    return [_content(entry, pieces) for entry in entries] if entries.__class__ is list else entries


def _blocks(_: _Row, content: Any, pieces: _Pieces) -> Any:
    return _content(content, pieces)


def _content(value: Any, pieces: _Pieces, deepest: int = _DEEPEST) -> Any:
    """A content block, or a list of them, with its texts cut out; other strings stay.

    Raises RecursionError for one of more levels than `deepest`.
    """
    if not deepest:
        raise RecursionError
    if value.__class__ is list:
        return [_content(item, pieces, deepest - 1) for item in value]
    if value.__class__ is not dict:
        return value
    out = value.copy()
    if len(value) == 2 and "type" in value:  # most blocks are a text
        if (text := value.get("text")).__class__ is str:
            out["text"] = pieces.cut(text)
            return out
        if (inner := value.get("content")).__class__ is dict:
            out["content"] = _content(inner, pieces, deepest - 1)
            return out
    for key, item in value.items():
        if key == "type":
            continue
        if item.__class__ is str:
            if key in _CUT:
                out[key] = pieces.cut(item)
            elif key == "path":
                out[key] = pieces.known(item)
        elif key == "content":
            out[key] = _content(item, pieces, deepest - 1)
    return out


_CUT = frozenset({"text", "newText", "oldText", "content"})


# What becomes of a member of `update`: text that has a column, or a function that fills the columns and returns what
# stays in `rest`. Others stay as they are.
_UPDATE: dict[str, Any] = {
    **_columns({"toolCallId": "tool_call_id", "toolName": "tool_name", "kind": "kind", "status": "status"}),
    "title": _title,
    "content": _blocks,
    "usage": _usage,
    "locations": _known,
    "rawOutput": _known,
    "entries": _entries,
    "scope": _also(at.SCOPE, str),
    "source": _also(at.USAGE_SOURCE, str),
    "message": _message,
    "fatal": _also(at.FATAL, bool),
}


def _cut_all(value: Any, cut: Callable[[str], Any], deepest: int = _DEEPEST) -> Any:
    """A value with all its strings cut out. Raises RecursionError for one of more levels than `deepest`."""
    if not deepest:
        raise RecursionError
    kind, deepest = value.__class__, deepest - 1
    if kind is dict:
        return {
            k: cut(v) if v.__class__ is str else _cut_all(v, cut, deepest) if v.__class__ in _NESTED else v
            for k, v in value.items()
        }
    if kind is list:
        return [
            cut(v) if v.__class__ is str else _cut_all(v, cut, deepest) if v.__class__ in _NESTED else v for v in value
        ]
    return cut(value) if kind is str else value


def _tame(value: Any, depth: int) -> Any:
    """The value with what orjson refuses made acceptable; integers keep their digits."""
    if depth > _DEEPEST:
        raise RecursionError
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
