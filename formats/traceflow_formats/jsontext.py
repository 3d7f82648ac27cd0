"""JSON in and out: one tolerant reader, one canonical writer, one pretty writer.

The reader takes what harnesses really write: NaN and Infinity, integers of any size, lone surrogates and bytes
that are no UTF-8. orjson reads almost every line; what it refuses or would round is read again by the standard
library. The canonical writer decides every digest and every derived byte: changing it changes them all.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import orjson

from .text import clean_value

__all__ = [
    "MAX_DEPTH",
    "Repairs",
    "canonical",
    "dumps",
    "flat",
    "loads",
    "loads_repaired",
    "pretty",
    "rounded",
    "too_deep",
]

_CANONICAL = orjson.OPT_SORT_KEYS
_ROUNDED = 9.2e18
MAX_DEPTH = 200  # orjson reads 1,024 levels and writes 254; a value of a line ends up inside a few more


@dataclass(slots=True)
class Repairs:
    """What had to be mended to make a text valid: counts, for the warnings of a report."""

    surrogates: int = 0
    invalid_utf8: int = 0


def loads(data: bytes | str, *, exact: bool = False) -> Any:
    """The value of a JSON text; NaN and Infinity are read. Lone surrogates stay in the strings.

    Integers of 2**64 and more come back as floats, unless `exact` asks for the slower reader that keeps them.
    Raises ValueError for anything that is no JSON (RecursionError never escapes).
    """
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    if not exact:
        try:
            return orjson.loads(raw)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(raw.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        raise ValueError(f"invalid UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def loads_repaired(raw: bytes, repairs: Repairs) -> Any:
    """The value of a JSON text that orjson refused: bytes that are no UTF-8 and lone surrogates become U+FFFD.

    Both are counted in `repairs`. Raises ValueError when no JSON is left after that.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        text = raw.decode("utf-8", "replace")
        repairs.invalid_utf8 += text.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if too_deep(value):
        raise ValueError("nested too deeply")
    value, replaced = clean_value(value)
    repairs.surrogates += replaced
    return value


def rounded(value: Any) -> bool:
    """Whether a value that orjson read may hold an integer that lost digits: a whole float of 2**63 or more."""
    if value.__class__ is float:
        return abs(value) >= _ROUNDED and value.is_integer()
    if value.__class__ is not dict and value.__class__ is not list:
        return False
    parents = [value]  # grows while it is read: orjson reads what is nested deeper than Python can recurse
    for parent in parents:
        for item in parent.values() if parent.__class__ is dict else parent:
            kind = item.__class__
            if kind is dict or kind is list:
                parents.append(item)
            elif kind is float and abs(item) >= _ROUNDED and item.is_integer():
                return True
    return False


def flat(value: dict[str, Any]) -> bool:
    """Whether an object holds text, whole numbers and flags only: such a value is neither too deep nor rounded."""
    for item in value.values():
        kind = item.__class__
        if kind is dict or kind is list or kind is float:
            return False
    return True


def too_deep(value: Any, levels: int = MAX_DEPTH) -> bool:
    """Whether a value is nested more deeply than it could be written again; found without recursion."""
    level = [value] if value.__class__ is dict or value.__class__ is list else []
    for _ in range(levels):
        deeper = []
        for parent in level:
            for item in parent.values() if parent.__class__ is dict else parent:
                kind = item.__class__
                if kind is dict or kind is list:
                    deeper.append(item)
        if not deeper:
            return False
        level = deeper
    return bool(level)


def canonical(value: Any) -> bytes:
    """The one canonical form: UTF-8, keys sorted by code point, no spaces, NaN and Infinity as null.

    Integers beyond 64 bits keep their digits. The value must hold valid Unicode only.
    """
    try:
        return orjson.dumps(value, option=_CANONICAL)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(
            _finite(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
        ).encode("utf-8")


def dumps(value: Any) -> bytes:
    """Compact JSON in the order of the keys as they stand; otherwise as `canonical`."""
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8")


def pretty(value: Any) -> bytes:
    """Two-space JSON with a final line feed, keys as they stand: for files that people open."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    except (TypeError, orjson.JSONEncodeError):
        text = json.dumps(_finite(value), ensure_ascii=False, indent=2, allow_nan=False)
        return text.encode("utf-8") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value
