"""The copied history at the start of a codex thread: where it ends.

A forked subagent (0.17x) says at which ordinal its own history starts. A fork does not: what it copied is found
by comparing it with the thread it came from, or, where that file is missing, by the moment it was written in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
from traceflow_formats import jsontext
from traceflow_formats.times import epoch_us, normal_time

from ..lines import file_lines

__all__ = ["History", "copied_items", "read_records"]

_SAYS = ("message", "reasoning", "function_call", "custom_tool_call", "local_shell_call")
_BURST = 25_000  # microseconds: a copy is written at once, a model takes longer


class History:
    """Says of each record of a thread whether it is copied."""

    def __init__(self, copied_items: int = 0) -> None:
        self.copied = False
        self.inherits = copied_items > 0  # the thread goes on with another one's history, copied or not
        self._left = copied_items
        self._own_from: int | None = None

    def meta(self, payload: dict[str, Any]) -> None:
        """The thread's own session_meta."""
        start = payload.get("subagent_history_start_ordinal")
        if type(start) is int and start > 0:
            self._own_from = start
        if self._own_from is not None or payload.get("forked_from_id") is not None:
            self.inherits = True

    def at(self, record: dict[str, Any], kind: str, payload: dict[str, Any]) -> bool:
        """Whether this record is copied; called once for each record, in order."""
        if kind == "session_meta":
            return self.copied
        if self._own_from is not None:
            ordinal = record.get("ordinal")
            self.copied = isinstance(ordinal, int) and ordinal < self._own_from
        elif kind == "response_item":
            self.copied = self._left > 0
            self._left -= 1
        elif self._left > 0:
            self.copied = True
        elif kind == "turn_context" or payload.get("type") in ("task_started", "turn_started"):
            self.copied = False  # a turn is new; a count after the last copied item belongs to that
        return self.copied


def copied_items(path: Path, parent: Path | None) -> int:
    """How many of the first items of a fork are its parent's; 0 where it starts afresh.

    They are those that the parent's file holds in the same order, or else those written in one moment with the
    fork. Either way a copy holds something that a model said: context that every thread is given is none.
    """
    if parent is not None and parent != path:
        count, said = 0, False
        for own, other in zip(_items(path), _items(parent), strict=False):
            if own != other:
                break
            count, said = count + 1, said or _is_said(own)
        if said:
            return count
    return _burst(path)


def read_records(path: Path, wanted: Callable[[bytes], bool] | None = None) -> Iterator[dict[str, Any]]:
    """The records of a rollout, of the lines that are wanted; what is no JSON object is passed over."""
    for line in file_lines(path):
        if wanted is not None and not wanted(line):
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            try:
                record = jsontext.loads_repaired(line[max(line.find(b"{"), 0) :], jsontext.Repairs())
            except ValueError:
                continue
        if isinstance(record, dict):
            yield record


def _items(path: Path) -> Iterator[dict[str, Any]]:
    for record in read_records(path, lambda line: b"response_item" in line):
        payload = record.get("payload")
        if record.get("type") == "response_item" and isinstance(payload, dict):
            yield payload


def _is_said(item: dict[str, Any]) -> bool:
    return item.get("type") in _SAYS and item.get("role", "assistant") == "assistant"


def _burst(path: Path) -> int:
    count, said = 0, False
    before: int | None = None
    for record in read_records(path):
        if record.get("type") == "session_meta":
            continue
        try:
            time = epoch_us(normal_time(record.get("timestamp"))[0] or "")
        except (ValueError, OverflowError):
            time = None
        if time is None or (before is not None and not 0 <= time - before <= _BURST):
            break
        before = time
        payload = record.get("payload")
        if record.get("type") == "response_item" and isinstance(payload, dict):
            count, said = count + 1, said or _is_said(payload)
    return count if said else 0
