"""One JSON record of Harbor, read leniently: a syntax error has its place, everything else is values and warnings.

Harbor writes its records with pydantic, platforms and scrubbers rewrite them. So the reader takes NaN and
Infinity, integers of any size, a byte order mark, bytes that are no UTF-8 and keys that stand twice, says what it
mended, and refuses only what is no JSON object.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..errors import TraceflowError
from ..text import clean_value
from ..times import normal_time

__all__ = ["REDACTED", "Fields", "Notes", "RecordWarning", "decimal", "read_json", "read_object"]

REDACTED = "[REDACTED]"  # what Harbor writes over a known secret
_BOM = b"\xef\xbb\xbf"
_ESCAPED = re.compile("[\udc80-\udcff]")  # bytes that were no UTF-8, as surrogateescape holds them
_NUMBER = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_NOTES_KEPT = 100
_DIGITS = 400  # a number with more digits is beyond every float


class RecordWarning(NamedTuple):
    """Something odd in a record that stops nothing: a stable code, and a message that names the place."""

    code: str
    message: str


@dataclass(slots=True)
class Notes:
    """The warnings of one record, in the order they arose; the first hundred are kept."""

    path: str = ""
    kept: list[RecordWarning] = field(default_factory=list)

    def warn(self, code: str, message: str) -> None:
        if len(self.kept) < _NOTES_KEPT:
            self.kept.append(RecordWarning(code, f"{self.path}: {message}" if self.path else message))


def read_object(data: bytes, notes: Notes, code: str) -> dict[str, Any]:
    """The JSON object that a record file holds. Raises TraceflowError(code) naming file, byte, line and column."""
    value = read_json(data, notes, code)
    if not isinstance(value, dict):
        raise TraceflowError(code, f"{notes.path} holds {_kind(value)}, a record is an object", path=notes.path)
    return value


def read_json(data: bytes, notes: Notes, code: str) -> Any:
    """The JSON value of a file. A key that stands twice keeps its last value; what was mended is in `notes`.

    Raises TraceflowError(code) naming file, byte, line and column.
    """
    start = len(_BOM) if data.startswith(_BOM) else 0
    if not data[start:].strip():
        raise TraceflowError(code, f"{notes.path} is empty", path=notes.path, byte=0, line=1)
    text = data[start:].decode("utf-8", "surrogateescape")
    twice: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            counts = Counter(name for name, _ in items)
            twice.extend(name for name in found if counts[name] > 1)
        return found

    try:
        try:
            value = json.loads(text, object_pairs_hook=pairs)
        except json.JSONDecodeError as error:
            raise _syntax_error(text, error, start, notes.path, code) from None
        except ValueError:  # Python 3.11 refuses integers of more than 4,300 digits
            twice.clear()
            value = json.loads(text, object_pairs_hook=pairs, parse_int=_long_integer)
        if not text.isascii() or "\\u" in text:
            value, replaced = clean_value(value)
            if bad_bytes := len(_ESCAPED.findall(text)):
                notes.warn("invalid_utf8", f"{bad_bytes} bytes that are no UTF-8 became U+FFFD")
            if replaced > bad_bytes:
                notes.warn("lone_surrogate", f"{replaced - bad_bytes} lone surrogates became U+FFFD")
    except RecursionError:
        raise TraceflowError(code, f"{notes.path} is nested too deeply", path=notes.path) from None
    for name in twice:
        notes.warn("duplicate_json_key", f"the key {name[:80]!r} stands twice in one object, the last value counts")
    return value


def _syntax_error(text: str, error: json.JSONDecodeError, start: int, path: str, code: str) -> TraceflowError:
    at = error.pos
    said = error.msg[:1].lower() + error.msg[1:]
    if text.startswith(REDACTED, max(at - 1, 0)):  # the reader stops behind the bracket
        at = max(at - 1, 0)
        said = f"{REDACTED} stands where a value belongs (a scrubber replaced it)"
    elif at >= len(text.rstrip()):
        said += "; the file ends inside the document"
    byte = start + len(text[:at].encode("utf-8", "surrogateescape"))
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return TraceflowError(
        code,
        f"{path} is no JSON: {said} at byte {byte} (line {line}, column {column})",
        path=path,
        byte=byte,
        line=line,
        column=column,
    )


def _long_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def decimal(text: str) -> float | None:
    """The number that a text spells in plain decimal digits, or None (no inf, nan, hex, underscores)."""
    return float(text) if _NUMBER.fullmatch(text) else None


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one JSON object by type. What is absent or null is None; what has another type is None and noted.

    Numbers that stand in strings are taken and noted, as pydantic takes them.
    """

    raw: dict[str, Any]
    notes: Notes
    where: str = ""

    def name(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is None or isinstance(value, str):
            return value
        self._wrong(key, value, "a string")
        return None

    def filled(self, key: str) -> str | None:
        """The text, or None where it is empty."""
        return self.text(key) or None

    def flag(self, key: str) -> bool | None:
        value = self.raw.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(key, value, "a boolean")
        return None

    def count(self, key: str) -> int | None:
        """A whole number of zero or more, below 2**63."""
        value = self._number(key)
        if value is None:
            return None
        if isinstance(value, float) and not value.is_integer():
            self.notes.warn("bad_number", f"{self.name(key)} is {value}, a count is whole")
            return None
        if not 0 <= value < 2**63:
            self.notes.warn("bad_number", f"{self.name(key)} is {value:.6g}, which is no count")
            return None
        return int(value)

    def money(self, key: str) -> float | None:
        """An amount of US dollars, zero or more."""
        value = self._number(key)
        if value is None:
            return None
        if value < 0:
            self.notes.warn("bad_number", f"{self.name(key)} is {value:.6g}, a cost is not negative")
            return None
        return float(value)

    def time(self, key: str, *, naive_is_known: bool = False) -> str | None:
        """The time as ISO 8601 in UTC. A time without a zone is taken as UTC, and noted unless that is known."""
        value = self.raw.get(key)
        try:
            text, naive = normal_time(value)
        except (ValueError, OverflowError):
            self.notes.warn("bad_time", f"{self.name(key)} is no time: {str(value)[:40]!r}")
            return None
        if naive and not naive_is_known:
            self.notes.warn("naive_time", f"{self.name(key)} has no zone, it was taken as UTC")
        return text

    def nested(self, key: str) -> Fields | None:
        value = self.raw.get(key)
        if value is None:
            return None
        if isinstance(value, dict):
            return Fields(value, self.notes, self.name(key))
        self._wrong(key, value, "an object")
        return None

    def inside(self, key: str) -> Fields:
        """The object at a key, an empty one where there is none."""
        return self.nested(key) or Fields({}, self.notes, self.name(key))

    def each(self, key: str) -> Iterator[Fields]:
        """The objects of a list; an item that is none is noted and passed over."""
        value = self.raw.get(key)
        if value is None:
            return
        if not isinstance(value, list):
            self._wrong(key, value, "a list")
            return
        for index, item in enumerate(value):
            place = f"{self.name(key)}[{index}]"
            if isinstance(item, dict):
                yield Fields(item, self.notes, place)
            else:
                self.notes.warn("wrong_type", f"{place} is {_kind(item)}, expected an object")

    def _number(self, key: str) -> int | float | None:
        value = self.raw.get(key)
        if isinstance(value, str):
            if value == REDACTED:
                self.notes.warn("redacted_value", f"{self.name(key)} was replaced by a scrubber")
                return None
            if (read := decimal(value)) is not None:
                self.notes.warn("coerced_number", f"{self.name(key)} is the string {value[:40]!r}")
                value = read
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._wrong(key, value, "a number")
            return None
        if not _finite(value):
            self.notes.warn("non_finite_number", f"{self.name(key)} is not finite")
            return None
        return value

    def _wrong(self, key: str, value: object, expected: str) -> None:
        self.notes.warn("wrong_type", f"{self.name(key)} is {_kind(value)}, expected {expected}")


def _finite(value: int | float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
