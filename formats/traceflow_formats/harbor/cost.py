"""What a trial cost: what its records state, and how final that is.

Harbor states `agent_result.cost_usd`. Downloads of the Evolve platform add `evolve.json` and `x_evolve`, whose spend
source says what the amount is worth: `measured` is final, `measured_provisional` a lower bound, and under
`assumed_cap` stands a number that nobody measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .document import Fields, Notes, RecordWarning, read_object
from .records import TrialRecord

__all__ = ["NO_COST", "Cost", "Evolve", "evolve_of", "read_evolve", "trial_cost"]

_FINAL, _LOWER_BOUND = "measured", "measured_provisional"


class Evolve(NamedTuple):
    """The platform's word on a trial's spending: `spent_usd` is worth what `spend_source` says."""

    spent_usd: float | None
    spend_source: str | None
    raw: Mapping[str, Any]
    warnings: tuple[RecordWarning, ...] = ()


class Cost(NamedTuple):
    """US dollars: `usd` is final, `at_least_usd` a lower bound; both None is unknown. `source` names the record."""

    usd: float | None = None
    at_least_usd: float | None = None
    source: str | None = None  # agent_result | evolve.json | x_evolve
    spend_source: str | None = None


NO_COST = Cost()


def read_evolve(data: bytes, path: str = "evolve.json") -> Evolve:
    """Read a trial's evolve.json. Raises TraceflowError("invalid_input") for what is no JSON object."""
    notes = Notes(path)
    return _evolve(read_object(data, notes, "invalid_input"), notes)


def evolve_of(x_evolve: Mapping[str, Any] | None) -> Evolve | None:
    """The same facts out of a record's `x_evolve`, or None where it has none."""
    return None if x_evolve is None else _evolve(dict(x_evolve), Notes("x_evolve"))


def _evolve(raw: dict[str, Any], notes: Notes) -> Evolve:
    own = Fields(raw, notes)
    gateway = own.nested("gateway")
    spent: float | None = None
    source: str | None = None
    for place in (gateway, own):  # evolve.json: gateway.cost_usd, gateway.spend_source; x_evolve: the other pair
        if place is None:
            continue
        for amount_key, source_key in (("cost_usd", "spend_source"), ("spentUsd", "spendSource")):
            spent = place.money(amount_key) if spent is None else spent
            source = place.filled(source_key) if source is None else source
    return Evolve(spent, source, raw, tuple(notes.kept))


def trial_cost(trial: TrialRecord, evolve: Evolve | None = None) -> Cost:
    """The cost of a trial. `evolve` is its evolve.json, if it has one.

    The platform's word counts before `agent_result`, evolve.json before `x_evolve`; an amount without a spend
    source is no word. An unknown spend source is not trusted: the cost is null.
    """
    for name, spent in (("evolve.json", evolve), ("x_evolve", evolve_of(trial.x_evolve))):
        if spent is None or spent.spend_source is None:
            continue
        if spent.spend_source == _FINAL:
            if spent.spent_usd is not None:
                return Cost(usd=spent.spent_usd, source=name, spend_source=_FINAL)
            continue
        bound = spent.spent_usd if spent.spend_source == _LOWER_BOUND else None
        return Cost(at_least_usd=bound, source=name, spend_source=spent.spend_source)
    if trial.usage.cost_usd is None:
        return NO_COST
    return Cost(usd=trial.usage.cost_usd, source="agent_result")
