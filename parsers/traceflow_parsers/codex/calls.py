"""The model calls of a codex thread: where one ends and the next begins, and what each one used.

A call ends at its `token_usage_record` (0.154 on), before that at a `token_count` whose total changed. The same
`token_count` is written again without a call, and beside the records it only repeats them: the two are never
added. Up to 0.4x a `token_count` stands before the items of its call, since then after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..contract import Line
from ..emit import Emitter
from .stdout import token_counts

__all__ = ["ModelCalls"]

Usage = dict[str, Any]
_COUNTS = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")


class ModelCalls:
    """The calls of one thread. `speak` names the call that is speaking, the other methods say what came between."""

    def __init__(self, emit: Emitter) -> None:
        self.inherits = False  # the thread begins with another one's history
        self.stated: Usage | None = None  # the total that the thread states, so far
        self._emit = emit
        self._number = 0
        self._current: str | None = None
        self._answered = False
        self._summing_up = False
        self._summary_counted = False
        self._counts_first: bool | None = None  # does the usage stand before the items of its call?
        self._loose: tuple[Usage, dict[str, Any]] | None = None  # the usage of a call that has said nothing
        self._total: tuple[Any, ...] | None = None
        self._recorded: tuple[Any, ...] | None = None  # what the last token_usage_record said
        self._response: str | None = None

    def speak(self, of_tool: bool = False) -> str:
        """The id of the call that is speaking.

        What the model says after a result is a new call, with or without a count between them. Not so where the
        counts stand first, and not for a tool that comes whole (`of_tool`), with its result: those may be parallel.
        """
        if self._current is not None and not (self._answered and not self._counts_first and not of_tool):
            return self._current
        self.end()
        loose = self._loose if self._counts_first else None
        if loose is None:
            self.count_loose()
        self._loose = None
        self._number += 1
        self._current = call = f"call-{self._number}"
        if loose is not None:
            self._count(*loose, call)
        return call

    def answered(self) -> None:
        """A tool has returned something."""
        self._answered = self._current is not None

    def summing_up(self) -> None:
        """The call that is speaking writes a compaction summary."""
        self._summing_up = True

    def end(self) -> None:
        """Whatever the model says next is another call."""
        self._current = None
        self._answered = self._summing_up = False

    def count_loose(self, compaction: bool | None = None) -> None:
        """Count the call that has said nothing, if there is one."""
        loose, self._loose = self._loose, None
        if loose is not None:
            self._number += 1
            self._count(*loose, f"call-{self._number}", compaction)

    def compacted(self) -> bool:
        """The history was replaced by a summary. False where the call that wrote it is not counted anywhere."""
        counted = self._summary_counted or self._loose is not None or self._emit.copied
        self.count_loose(compaction=True)
        self._summary_counted = False
        self.end()
        return counted

    def usage_record(self, payload: dict[str, Any], time: Callable[[], str | None], model: str | None) -> Line:
        """A `token_usage_record`: the end of one model call."""
        usage, response = payload.get("usage"), payload.get("response_id")
        if not isinstance(usage, dict):
            return Line.PARSED
        if not isinstance(response, str):
            response = None
        elif response == self._response:
            return Line.DUPLICATE
        self._response = response
        self._recorded = _key(usage)
        self._counts_first = False
        thread = payload.get("thread_token_usage")
        if isinstance(thread, dict):
            self.stated = thread
        self._border(usage, {"time": time(), "model": model, "requestId": response})
        return Line.PARSED

    def token_count(self, payload: dict[str, Any], time: Callable[[], str | None], model: str | None) -> Line:
        """A `token_count` event: the end of a model call if it counts what was not counted before."""
        info = payload.get("info")
        if not isinstance(info, dict):
            return Line.PARSED
        total = _counts(info.get("total_token_usage"))
        last = _counts(info.get("last_token_usage"))
        key = _key(total if total is not None else last)
        if key == self._total:
            return Line.DUPLICATE
        before, self._total = self._total, key
        if self._recorded is not None:
            if self._current is None or last is None or _key(last) == self._recorded:
                return Line.DUPLICATE
        else:
            self.stated = total
        usage = last if last else _difference(total, before)
        if not (usage and (_number(usage, "input_tokens") or _number(usage, "output_tokens"))):
            return Line.PARSED  # a total that was taken over, or codex's own estimate
        fresh = self._number == 0 and self._current is None
        if fresh and self.inherits and not self._emit.copied and key != _key(usage):
            return Line.PARSED  # a fork begins with its parent's last count
        if self._counts_first is None:
            self._counts_first = fresh
        self._border(usage, {"time": time(), "model": model})
        return Line.PARSED

    def _border(self, usage: Usage, facts: dict[str, Any]) -> None:
        if self._current is not None and not self._counts_first:
            self._count(usage, facts, self._current, self._summing_up or None)
            self._summary_counted = self._summing_up
        else:
            self.count_loose()
            self._loose = usage, facts
        self.end()

    def _count(self, usage: Usage, facts: dict[str, Any], call: str, compaction: bool | None = None) -> None:
        if not self._emit.copied:  # the original counts it
            self._emit.usage(token_counts(usage), call, compaction=compaction, **facts)


def _counts(value: Any) -> Usage | None:
    return value if isinstance(value, dict) else None


def _number(usage: Usage, key: str) -> int:
    value = usage.get(key)
    return value if type(value) is int else 0


def _key(usage: Usage | None) -> tuple[Any, ...]:
    """What tells one count from another. `total_tokens` is not in it: it moves when codex estimates."""
    if usage is None:
        return ()
    get = usage.get
    return get("input_tokens"), get("cached_input_tokens"), get("output_tokens"), get("reasoning_output_tokens")


def _difference(total: Usage | None, before: tuple[Any, ...] | None) -> Usage | None:
    if total is None:
        return None
    old = dict(zip(_COUNTS, before or (), strict=False))
    return {name: _number(total, name) - _number(old, name) for name in _COUNTS if type(total.get(name)) is int}
