"""Counts tokens and money, and writes totals that are right or absent.

A field's total is the sum of an agent's own calls where each of them states it; else the total that the source
states for the run; else null, and what is known of it is a lower bound. A call for which the harness wrote no
usage because it was cut short leaves the sum of the others standing, and is counted beside it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

__all__ = ["FIELDS", "Sums", "Tally", "as_metrics", "cost_of", "joined", "merged", "money"]

FIELDS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_NAMES = {"promptTokens": "prompt_tokens", "completionTokens": "completion_tokens", "cachedTokens": "cached_tokens"}
_LARGEST = 1 << 63


def as_metrics(usage: Any) -> dict[str, Any]:
    """The ATIF metrics of a `usage` object; what is no count or no price is left out, other counts are `extra`."""
    out: dict[str, Any] = {}
    if not isinstance(usage, dict):
        return out
    for name, field in _NAMES.items():
        count = usage.get(name)
        if count.__class__ is int:
            if 0 <= count < _LARGEST:
                out[field] = count
        elif count.__class__ is float and count.is_integer() and 0 <= count < _LARGEST:
            out[field] = int(count)
    if "costUsd" in usage and (cost := cost_of(usage)) is not None:
        out["cost_usd"] = cost
    extra = usage.get("extra")
    if isinstance(extra, dict) and extra:
        out["extra"] = extra
    return out


def cost_of(usage: dict[str, Any]) -> float | None:
    """The price that a usage object states, if any."""
    cost = usage.get("costUsd")
    if (cost.__class__ is float or cost.__class__ is int) and 0 <= cost < 1e12:
        return float(cost)
    return None


def money(amounts: Iterable[float]) -> float:
    """The exact decimal sum of prices: 0.1 + 0.2 is 0.3."""
    return float(sum((Decimal(repr(a)) for a in amounts), Decimal()))


class Sums:
    """Sums of metrics, and how many of the calls stated each."""

    __slots__ = ("calls", "cost", "floor", "known", "priced", "tokens")

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = dict.fromkeys(FIELDS, 0)
        self.known = dict.fromkeys(FIELDS, 0)
        self.floor = 0  # completion tokens of calls that state no more than how many there were at some time
        self.cost = Decimal()
        self.priced = 0

    def add(self, metrics: dict[str, Any], sign: int = 1) -> None:
        """Count the metrics of one call, or with sign -1 take them out again."""
        self.calls += sign
        tokens, known = self.tokens, self.known
        for name in FIELDS:
            if (count := metrics.get(name)) is not None:
                tokens[name] += sign * count
                known[name] += sign
        if "completion_tokens" not in metrics and (extra := metrics.get("extra")) is not None:
            # claude prints the count that stood when the message began, under its own name
            begun = extra.get("output_tokens")
            self.floor += sign * begun if type(begun) is int and 0 <= begun < _LARGEST else 0
        if (cost := metrics.get("cost_usd")) is not None:
            self.cost += sign * Decimal(repr(float(cost)))
            self.priced += sign

    def complete(self) -> dict[str, Any]:
        """The fields that every call stated."""
        out: dict[str, Any] = {n: self.tokens[n] for n in FIELDS if self.calls and self.known[n] == self.calls}
        if self.priced and self.priced == self.calls:
            out["cost_usd"] = float(self.cost)
        return out

    def stated(self) -> dict[str, Any]:
        """The fields that any call stated."""
        out: dict[str, Any] = {n: self.tokens[n] for n in FIELDS if self.known[n]}
        if self.priced:
            out["cost_usd"] = float(self.cost)
        return out


class Tally:
    """The numbers of one agent in one part of a trial."""

    def __init__(self) -> None:
        self.model_calls = 0
        self.tool_calls = 0
        self.retries = 0
        self.steps = Sums()
        self.compaction = Sums()  # the calls that wrote summaries: in the totals, in no step
        self.run: dict[str, Any] | None = None  # the totals that the source states
        self.run_with_children: dict[str, Any] | None = None
        self.cumulative = False  # they count earlier runs of the thread
        self.silent: dict[int, bool] = {}  # steps without usage: did one of their calls return?
        self._last = 0  # the last step with a model call
        self._last_usage: dict[str, Any] | None = None  # and what is known of it, unless one of its calls returned

    def begins(self, step: int, calls: int) -> None:
        """A step with a model call (or several) begins; its usage is still to come."""
        self.model_calls += calls
        self.silent[step] = False
        self._last, self._last_usage = step, None

    def count(self, step: int, metrics: dict[str, Any], before: dict[str, Any] | None) -> None:
        """The usage of a step; `before` is what was said of it earlier: the last word counts."""
        if before is not None:
            self.steps.add(before, -1)
        self.steps.add(metrics)
        answered = self.silent.pop(step, False)
        if step == self._last:
            self._last_usage = None if answered else metrics

    def answered(self, step: int) -> None:
        """A call of the step has returned: its model call ran to the end."""
        if step in self.silent:
            self.silent[step] = True
        if step == self._last:
            self._last_usage = None

    def totals(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The totals (fields that are known) and the notes about them."""
        out: dict[str, Any] = {}
        notes: dict[str, Any] = {}
        run = self.run or {}
        from_run = False
        unsaid = sum(self.silent.values())  # calls that ran to their end and say nothing
        calls = self.steps.calls + len(self.silent)
        for name in FIELDS:
            known, count = self.steps.known[name], self.steps.tokens[name]
            apart = self.compaction
            whole = apart.known[name] == apart.calls
            if calls + apart.calls and known == calls and whole:
                out[name] = count + apart.tokens[name]
            elif name in run:
                out[name] = run[name]
                from_run = True
            elif known and known == self.steps.calls - self._broken_off(name) and not unsaid and whole:
                out[name] = count + apart.tokens[name]
                notes["calls_without_usage"] = max(calls - known, notes.get("calls_without_usage", 0))
            elif low := count + apart.tokens[name] + (self.steps.floor if name == "completion_tokens" else 0):
                notes[f"{name}_at_least"] = low
        self._price(out, notes, run, calls)
        if from_run:
            notes["source"] = "run"
        if differing := {n: run[n] for n in FIELDS if n in run and n in out and run[n] != out[n]}:
            notes["run"] = differing  # the source's own totals say something else
        if self.cumulative and (from_run or differing):
            notes["cumulative"] = True
        if self.compaction.calls:
            notes["compaction"] = {"calls": self.compaction.calls, **self.compaction.stated()}
        return out, notes

    def _broken_off(self, name: str) -> bool:
        """Whether the last call was cut short before the harness knew this number."""
        return self._last_usage is not None and name not in self._last_usage

    def _price(self, out: dict[str, Any], notes: dict[str, Any], run: dict[str, Any], calls: int) -> None:
        priced = self.steps.priced + self.compaction.priced
        if "cost_usd" in run:
            out["cost_usd"] = run["cost_usd"]
        elif priced:
            out["cost_usd"] = float(self.steps.cost + self.compaction.cost)
            missing = calls + self.compaction.calls - priced
            if missing:
                notes |= {"cost_partial": True, "priced_calls": priced, "unpriced_calls": missing}


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The sum of several totals; a field that one of them lacks is absent."""
    out: dict[str, Any] = {}
    for name in FIELDS:
        if parts and all(name in part for part in parts):
            out[name] = sum(part[name] for part in parts)
    if parts and all("cost_usd" in part for part in parts):
        out["cost_usd"] = money(part["cost_usd"] for part in parts)
    return out


def joined(parts: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The totals and notes of the parts of a trial as one."""
    if len(parts) == 1:
        return parts[0]
    totals = merged([total for total, _ in parts])
    notes: dict[str, Any] = {}
    for _, more in parts:
        _add_notes(notes, more)
    for name in FIELDS:
        bound = f"{name}_at_least"
        low = sum(total.get(name, more.get(bound, 0)) for total, more in parts)
        notes.pop(bound, None)
        if name not in totals and low:
            notes[bound] = low
    prices = [total["cost_usd"] for total, _ in parts if "cost_usd" in total]
    if prices and "cost_usd" not in totals:
        totals["cost_usd"] = money(prices)
        notes["cost_partial"] = True
    return totals, notes


def _add_notes(notes: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            _add_notes(notes.setdefault(name, {}), value)
        elif isinstance(value, bool | str):
            notes[name] = value
        else:
            notes[name] = notes.get(name, 0) + value
