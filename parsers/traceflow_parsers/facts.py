"""Values of a harness's records that are taken over as they stand: counts, and the small facts beside a text."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Any

import orjson
from traceflow_formats import jsontext

from .report import Report

__all__ = ["as_dict", "as_list", "as_text", "count", "facts", "plain_input", "tool_input"]

_LONGEST = 256  # a longer string is text, and text stands in the content
_MOST = 60
_NUMBERS = frozenset((int, float, bool))


def as_dict(value: object) -> dict[str, Any]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The value where it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: object) -> str | None:
    """The value where it is a string that is not empty."""
    return value if isinstance(value, str) and value else None


def count(value: object) -> int | None:
    """A number of tokens: a whole number from 0 on, else None. A count is right or absent, never mended."""
    if type(value) is int:
        return value if value >= 0 else None
    if type(value) is float and 0 <= value < 2**53 and value.is_integer():
        return int(value)
    return None


def facts(value: object, skip: Collection[str] = ()) -> dict[str, Any] | None:
    """The numbers, flags and short strings of an object, nested one level; None where there are none.

    The texts of a result stand in its content, so long strings and lists are left out here.
    """
    if not isinstance(value, dict) or not value:
        return None
    kept: dict[str, Any] = {}
    for key, item in value.items() if len(value) <= _MOST else islice(value.items(), _MOST):
        if key in skip:
            continue
        kind = item.__class__
        if kind is str:
            if 0 < len(item) <= _LONGEST:
                kept[key] = item
        elif kind in _NUMBERS:
            kept[key] = item
        elif kind is dict and (inner := _small(item)):
            kept[key] = inner
    return kept or None


def _small(value: dict[str, Any]) -> dict[str, Any]:
    """The members of an object that are small facts themselves."""
    return {
        key: item
        for key, item in islice(value.items(), _MOST)
        if item.__class__ in _NUMBERS or (item.__class__ is str and 0 < len(item) <= _LONGEST)
    }


def tool_input(arguments: object, report: Report) -> Any:
    """What a call was given: the object of a JSON text, the text itself where it holds none, else the value.

    Lone surrogates that were hidden in the text's escapes are replaced and counted in the report.
    """
    if not isinstance(arguments, str):
        return arguments
    if (plain := plain_input(arguments)) is not None:
        return plain
    if not arguments.strip():
        return {}
    raw = arguments.encode()
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        repairs = jsontext.Repairs()
        try:
            value = jsontext.loads_repaired(raw, repairs)
        except ValueError:
            return arguments
        report.warn("lone_surrogate", "lone surrogates were replaced by U+FFFD", repairs.surrogates)
    if not isinstance(value, dict | list) or jsontext.too_deep(value):
        return arguments
    return jsontext.loads(raw, exact=True) if jsontext.rounded(value) else value


def plain_input(arguments: str) -> dict[str, Any] | None:
    """What a call was given, as nearly all are: an object of text, whole numbers and flags. None for any other."""
    try:
        value = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    return value if type(value) is dict and jsontext.flat(value) else None
