"""Totals of a trial, counted while its events stream by: steps, calls, tokens, money.

They are the numbers of the trial's ATIF trajectory with its subagents, counted by the same rules (`Tally`): copied
history and withdrawn events are left out, a field is the sum over the calls where each states it, else what the
source states for the run, else null. Where a gateway measured the calls, its lines are the tokens and the money.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from traceflow_formats.atif.tally import FIELDS, Sums, Tally, as_metrics, joined, merged, money
from traceflow_formats.steps import Place, is_result
from traceflow_formats.trace import Event, TraceLine

from . import columns as at

__all__ = ["COUNTED", "Totals", "TotalsCounter"]

COUNTED = frozenset({"usage", "tool_call", "tool_call_update"})  # what counts also where it opens no step
_NO_CALL = frozenset({"prompt", "user_message_chunk", "tool_call_update", "error"})  # what opens other steps
_REPEATED = 64  # model calls per agent whose usage may still be said again


class Totals(NamedTuple):
    """What the events of one trial add up to; null where it is not known. Names are those of the trial's columns."""

    n_events: int = 0
    n_steps: int = 0
    n_model_calls: int = 0
    n_tool_calls: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None

    def as_row(self) -> dict[str, Any]:
        """The columns of the trial that they fill; `n_events` is the writer's."""
        return {name: getattr(self, name) for name in self._fields if name != "n_events"}


class _Agent:
    """One agent: the numbers of each part of the trial, and the usage that may be said again."""

    __slots__ = ("said", "steps", "tallies")

    def __init__(self) -> None:
        self.steps = 0
        self.tallies: dict[str | None, Tally] = {}
        self.said: dict[int, dict[str, Any]] = {}

    def tally(self, part: str | None) -> Tally:
        found = self.tallies.get(part)
        if found is None:
            found = self.tallies[part] = Tally()
        return found


def _paired(row: list[Any]) -> bool:
    """Whether the call of a result, or the result of a call, stands before it."""
    return row[at.CALL_SEQ] is not None and row[at.CALL_SEQ] != row[at.SEQ]


class TotalsCounter:
    """Takes the events of one trial, each with its row and its step: those that are `COUNTED`, that open a step or
    that are in none. `events` is how many there are, which the caller counts."""

    def __init__(self) -> None:
        self.events = 0
        self._agents: dict[str | None, _Agent] = {}
        self._gateway = Sums()

    def add(self, event: Event | TraceLine, row: list[Any], place: Place | None) -> None:
        kind = row[at.TYPE]
        if place is None:
            if kind == "usage":
                self._outside(event, row)
            return
        agent = self._agent(place.agent)
        if place.opens:
            agent.steps += 1
            if kind not in _NO_CALL and not row[at.COPIED]:
                self._begins(agent.tally(row[at.STEP_NAME]), event, place.step)
        if row[at.COPIED]:
            return
        if kind == "usage":
            self._usage(agent, event, row, place.step)
        elif kind == "tool_call":
            tally = agent.tally(row[at.STEP_NAME])
            tally.tool_calls += 1
            if _paired(row):  # its result came before it
                tally.answered(place.step)
        elif kind == "tool_call_update" and _paired(row) and is_result(event.data["update"]):
            agent.tally(row[at.STEP_NAME]).answered(place.step)

    def _agent(self, name: str | None) -> _Agent:
        found = self._agents.get(name)
        if found is None:
            found = self._agents[name] = _Agent()
        return found

    def _begins(self, tally: Tally, event: Event | TraceLine, step: int) -> None:
        extra = event.data.get("extra")
        calls = extra.get("llmCallCount") if isinstance(extra, dict) else None
        if type(calls) is not int or calls < 0:
            calls = 1
        if calls:
            tally.begins(step, calls)

    def _usage(self, agent: _Agent, event: Event | TraceLine, row: list[Any], step: int) -> None:
        metrics = as_metrics(event.data["update"].get("usage"))
        if not metrics:
            return
        said = agent.said
        agent.tally(row[at.STEP_NAME]).count(step, metrics, said.get(step))
        said[step] = metrics
        if len(said) > _REPEATED:
            del said[next(iter(said))]

    def _outside(self, event: Event | TraceLine, row: list[Any]) -> None:
        """Usage that is in no step: of a gateway, of the run, of the call that wrote a summary, or withdrawn."""
        update = event.data.get("update")
        metrics = as_metrics(update.get("usage") if isinstance(update, dict) else None)
        if row[at.USAGE_SOURCE] == "gateway":
            self._gateway.add(metrics)
        elif row[at.SCOPE] == "run":
            tally = self._agent(row[at.AGENT_ID]).tally(row[at.STEP_NAME])
            whole = metrics.pop("extra", {}).get("includingSubagents")
            tally.run, tally.run_with_children = metrics, as_metrics(whole)
        elif row[at.COMPACTION] and not (row[at.COPIED] or row[at.ABANDONED]):
            self._agent(row[at.AGENT_ID]).tally(row[at.STEP_NAME]).compaction.add(metrics)

    def totals(self) -> Totals:
        """The sums so far."""
        agents = list(self._agents.values())
        tallies = [tally for agent in agents for tally in agent.tallies.values()]
        found = self._gateway_totals() if self._gateway.calls else self._counted(agents)
        return Totals(
            self.events,
            sum(agent.steps for agent in agents),
            sum(tally.model_calls for tally in tallies),
            sum(tally.tool_calls for tally in tallies),
            **{name: found.get(name) for name in (*FIELDS, "cost_usd")},
        )

    def _gateway_totals(self) -> dict[str, Any]:
        found = self._gateway.stated()
        if self._gateway.priced != self._gateway.calls:
            found.pop("cost_usd", None)  # part of the money is not the money
        return found

    def _counted(self, agents: list[_Agent]) -> dict[str, Any]:
        parts: list[dict[str, Any]] = []
        partly_priced = False
        for agent in agents:
            own, notes = joined([tally.totals() for tally in agent.tallies.values()] or [({}, {})])
            partly_priced |= bool(notes.get("cost_partial"))
            if any(t.model_calls or t.compaction.calls or t.run for t in agent.tallies.values()):
                parts.append(own)
        found = merged(parts)
        main = self._agents.get(None)
        runs = list(main.tallies.values()) if main is not None else []
        if partly_priced:
            found.pop("cost_usd", None)
        elif runs and all("cost_usd" in (tally.run or {}) for tally in runs):
            # what a source states for the run covers subagents that have no price of their own
            found["cost_usd"] = money(part["cost_usd"] for part in parts if "cost_usd" in part)
        return found | merged([tally.run_with_children or {} for tally in runs])
