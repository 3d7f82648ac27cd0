"""What the user says about runs: scores and recorded exceptions, by session id, file name or path.

Nothing here is guessed: a name that fits no run or several is an error, and so is a score that is no number.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from traceflow_formats.errors import TraceflowError
from traceflow_formats.times import normal_time

__all__ = ["match_runs", "read_exceptions", "read_rewards"]

T = TypeVar("T")
Rewards = dict[str, int | float]

_MAX_FILE = 64 << 20
_INTEGER = re.compile(r"[+-]?[0-9]{1,300}").fullmatch
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?").fullmatch
_EXCEPTION_KEYS = ("exception_type", "exception_message", "exception_traceback", "occurred_at")


def read_rewards(path: Path) -> dict[str, Rewards]:
    """The scores in a file: run name -> {reward name: number}.

    JSON: `{"RUN": 1, "OTHER RUN": {"reward": 0.5, "style": 1}}`; null is no score. CSV: the run in the first column,
    scores in the others under their headings; without a heading the second column is `reward`. An empty cell is no
    score. Raises TraceflowError("invalid_input") naming the entry.
    """
    text = _text(path)
    if path.suffix.lower() == ".csv":
        entries = _csv(path, text)
    else:
        entries = [(name, value if isinstance(value, dict) else {"reward": value}) for name, value in _json(path, text)]
    found: dict[str, Rewards] = {}
    for name, values in entries:
        if name in found:
            raise _bad(path, f"{name!r} stands twice")
        found[name] = {key: _number(path, name, item) for key, item in values.items() if item is not None}
    return {name: rewards for name, rewards in found.items() if rewards}


def read_exceptions(path: Path) -> dict[str, dict[str, Any]]:
    """The recorded exceptions in a JSON file: run name -> Harbor's `exception_info`, kept as it is written.

    Raises TraceflowError("invalid_input") for an entry without one of its four keys.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, value in _json(path, _text(path)):
        lacking = [key for key in _EXCEPTION_KEYS if not isinstance(value, dict) or not isinstance(value.get(key), str)]
        if lacking:
            raise _bad(path, f"{name!r} is no recorded exception: {', '.join(lacking)} missing or no text")
        try:
            normal_time(value["occurred_at"])
        except ValueError as error:
            raise _bad(path, f"{name!r}: occurred_at: {error}") from None
        if name in found:
            raise _bad(path, f"{name!r} stands twice")
        found[name] = value
    return found


def match_runs(path: Path, given: Mapping[str, T], runs: Sequence[Iterable[str]]) -> dict[int, T]:
    """What is given for each run, by its position; `runs` holds the names that each run goes by.

    Raises TraceflowError("invalid_input") naming the entries that fit no run, or more than one, or the same one.
    """
    index: dict[str, set[int]] = {}
    for at, names in enumerate(runs):
        for name in names:
            index.setdefault(name, set()).add(at)
    unknown = [name for name in given if name not in index]
    if unknown:
        shown = ", ".join(unknown[:10]) + (", ..." if len(unknown) > 10 else "")
        raise _bad(path, f"{len(unknown)} of {len(given)} names fit no run: {shown}", unknown=unknown[:100])
    found: dict[int, T] = {}
    for name, value in given.items():
        fitting = index[name]
        if len(fitting) > 1:
            raise _bad(path, f"{name!r} fits {len(fitting)} runs; use the session id or the path", name=name)
        (at,) = fitting
        if at in found:
            raise _bad(path, f"{name!r} names a run that another entry names too", name=name)
        found[at] = value
    return found


def _text(path: Path) -> str:
    if path.stat().st_size > _MAX_FILE:
        raise _bad(path, f"over {_MAX_FILE} bytes")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(path, f"no UTF-8 at byte {error.start}") from None


def _json(path: Path, text: str) -> list[tuple[str, Any]]:
    """The members of the object in a file, one that stands twice included."""
    members: Callable[[list[tuple[str, Any]]], Any] = _Members
    try:
        value = json.loads(text, object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        raise _bad(path, f"no JSON: {error}") from None
    if not isinstance(value, _Members):
        raise _bad(path, "not an object of run names")
    return [(name, item.as_dict(path) if isinstance(item, _Members) else item) for name, item in value.pairs]


class _Members:
    """A JSON object whose members may stand twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs

    def as_dict(self, path: Path) -> dict[str, Any]:
        found = {k: v.as_dict(path) if isinstance(v, _Members) else v for k, v in self.pairs}
        if len(found) < len(self.pairs):
            raise _bad(path, f"a name stands twice among {', '.join(k for k, _ in self.pairs)}")
        return found


def _csv(path: Path, text: str) -> list[tuple[str, dict[str, Any]]]:
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if any(row)]
    except csv.Error as error:
        raise _bad(path, f"no CSV: {error}") from None
    if not rows:
        return []
    headings = [cell.strip() for cell in rows[0]]
    if len(headings) == 2 and _decimal(headings[1]) is not None:
        headings = ["", "reward"]
    else:
        rows = rows[1:]
    if len(headings) < 2 or not all(headings[1:]) or len(set(headings[1:])) < len(headings) - 1:
        raise _bad(path, "the first line must name the scores: session,reward")
    entries = []
    for number, row in enumerate(rows, 1):
        if len(row) != len(headings):
            raise _bad(path, f"row {number} has {len(row)} cells, the heading {len(headings)}")
        cells = {key: cell.strip() for key, cell in zip(headings[1:], row[1:], strict=True)}
        entries.append((row[0].strip(), {key: _decimal(cell, cell) for key, cell in cells.items() if cell}))
    return entries


def _decimal(text: str, otherwise: str | None = None) -> int | float | str | None:
    if _INTEGER(text):
        return int(text)
    return float(text) if _DECIMAL(text) else otherwise


def _number(path: Path, name: str, value: Any) -> int | float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return value
        except OverflowError:  # an integer beyond every float
            pass
    raise _bad(path, f"the score of {name!r} is no finite number: {str(value)[:60]!r}")


def _bad(path: Path, why: str, **details: Any) -> TraceflowError:
    return TraceflowError("invalid_input", f"{path}: {why}", path=str(path), **details)
