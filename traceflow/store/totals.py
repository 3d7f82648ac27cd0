"""Totals of a trial, counted while its events stream by: steps, calls, tokens, money.

Subagents are included; copied history and withdrawn events are not. When a gateway measured the calls, its lines
are the tokens and the money. Otherwise the tokens are the sum over the model calls as far as every call states
them, else what the source states for the run; nothing is estimated, and the two are never added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from traceflow_formats.steps import Place
from traceflow_formats.trace import Event, TraceLine

from .rows import EventRow

__all__ = ["Totals", "TotalsCounter"]

_FIELDS = ("promptTokens", "completionTokens", "cachedTokens")
_Numbers = tuple[tuple[int | None, int | None, int | None], float | None]  # the three counts, and the cost
_CALLS = frozenset({"agent_message_chunk", "agent_thought_chunk", "tool_call", "plan", "usage"})


@dataclass(frozen=True, slots=True)
class Totals:
    """What the events of one trial add up to; null where it is not known. Names are those of the trial's columns."""

    n_events: int
    n_steps: int
    n_model_calls: int
    n_tool_calls: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None

    def as_row(self) -> dict[str, Any]:
        """The columns of the trial that they fill; `n_events` is the writer's."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "n_events"}


class TotalsCounter:
    """Takes each event of one trial with its row and its step."""

    __slots__ = ("_calls", "_gateway", "_model_calls", "_n", "_run", "_steps", "_tools", "_unnamed")

    def __init__(self) -> None:
        self._n = self._steps = self._model_calls = self._tools = 0
        self._calls: dict[tuple[str | None, ...], _Numbers] = {}  # said again for the same call, the last counts
        self._unnamed: list[_Numbers] = []
        self._gateway: list[_Numbers] = []
        self._run: tuple[_Numbers, dict[str, Any] | None] | None = None

    def add(self, event: Event | TraceLine, row: EventRow, place: Place | None) -> None:
        self._n += 1
        if row.copied or row.abandoned:
            return
        if place is not None and place.opens:
            self._steps += 1
            self._model_calls += row.type in _CALLS
        if row.type == "tool_call":
            self._tools += 1
        elif row.type == "usage":
            self._usage(event, row, place)

    def _usage(self, event: Event | TraceLine, row: EventRow, place: Place | None) -> None:
        numbers = (row.prompt_tokens, row.completion_tokens, row.cached_tokens), row.cost_usd
        if row.usage_source == "gateway":
            self._gateway.append(numbers)
        elif row.scope == "call":
            if row.message_id is None:
                self._unnamed.append(numbers)
            else:
                key = (row.session_id, row.step_name, row.agent_id, row.message_id)
                self._model_calls += place is None and key not in self._calls  # the call that wrote a summary
                self._calls[key] = numbers
        elif row.scope == "run":
            usage = event.data["update"].get("usage")
            extra = usage.get("extra") if isinstance(usage, dict) else None
            whole = extra.get("includingSubagents") if isinstance(extra, dict) else None
            self._run = numbers, whole if isinstance(whole, dict) else None

    def totals(self) -> Totals:
        """The sums so far."""
        calls = self._gateway or [*self._calls.values(), *self._unnamed]
        prompt, completion, cached = (self._tokens(position, calls) for position in range(3))
        return Totals(
            self._n, self._steps, self._model_calls, self._tools, prompt, completion, cached, self._cost(calls)
        )

    def _tokens(self, position: int, calls: list[_Numbers]) -> int | None:
        known = [count for counts, _ in calls if (count := counts[position]) is not None]
        summed = sum(known) if known else None
        if self._gateway or self._run is None:
            return summed
        run, whole = self._run
        stated = run[0][position]
        if whole is not None:
            value = whole.get(_FIELDS[position])
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63:
                return value
        if len(known) == len(calls) and summed is not None:
            return summed
        # some calls lack the number: a log of stdout states the output of a message only when the run is over
        return stated if stated is not None else summed

    def _cost(self, calls: list[_Numbers]) -> float | None:
        costs = [cost for _, cost in calls]
        if not self._gateway and self._run is not None and self._run[0][1] is not None:
            return self._run[0][1]
        if not costs or any(cost is None for cost in costs):
            return None  # part of the money is not the money
        return sum(cost for cost in costs if cost is not None)
