"""A trial's records as a row of the trials table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from traceflow_formats.harbor import Cost, Outcome, Timing, TrialRecord
from traceflow_formats.times import epoch_us

from ..store import Totals

__all__ = ["skipped_row", "trial_row"]

_PHASES = {
    "environment_setup": "environment_setup_s",
    "agent_setup": "agent_setup_s",
    "agent_execution": "agent_s",
    "verifier": "verifier_s",
}


def trial_row(
    trial_id: str,
    name: str,
    record: TrialRecord,
    outcome: Outcome,
    cost: Cost,
    totals: Totals,
    report: Mapping[str, Any] | None,
    link: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """The columns of an imported trial. `name` is its folder's, `link` the columns of its task link, `facts` what
    else its files say."""
    exception = record.exception or (record.exceptions[-1] if record.exceptions else None)
    row: dict[str, Any] = {
        "trial_id": trial_id,
        "trial_name": name,
        "task_name": record.task_name,
        "source": record.source,
        "agent": record.agent_name,
        "agent_version": record.agent_version,
        "model": record.model_name,
        "provider": record.model_provider,
        "status": outcome.status,
        "reward": outcome.primary,
        "reward_valid": outcome.reward_valid,
        "rewards": dict(outcome.rewards),
        "exception_type": exception.type if exception else None,
        "exception_message": exception.message if exception else None,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "spend_source": cost.spend_source,
        "reported_prompt_tokens": record.usage.n_input_tokens,
        "reported_completion_tokens": record.usage.n_output_tokens,
        "reported_cached_tokens": record.usage.n_cache_tokens,
        "reported_cost_usd": record.usage.cost_usd,
        "step_results": _step_results(record),
        "extra": _extra(record, cost, facts),
        **{column: _seconds(record.phases.get(phase)) for phase, column in _PHASES.items()},
        **totals.as_row(),
        **_trace_columns(report),
        **link,
    }
    if cost.spend_source is not None or cost.usd is not None:
        row["cost_usd"] = cost.usd  # the records' word; a lower bound or a cap is no cost
    return row


def skipped_row(trial_id: str, name: str, code: str, message: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a trial that was not taken in; `config` is what its own config.json says."""
    return {
        "trial_id": trial_id,
        "trial_name": name,
        "status": "SKIPPED",
        "skipped_code": code,
        "skipped_message": message,
        "linked_by": "none",
        **config,
    }


def _trace_columns(report: Mapping[str, Any] | None) -> dict[str, Any]:
    if report is None or "lines" not in report:
        problems = (report or {}).get("problems")
        return {"warnings": problems} if problems else {}
    lines = report["lines"]
    return {
        "trace_source": report["source"],
        "trace_harness": report["harness"],
        "trace_version": report["version"],
        "trace_session_id": report["session_id"],
        **{f"lines_{name}": count for name, count in lines.items()},
        "unknown_types": report["unknown_types"],
        "warnings": [*report["warnings"], *report.get("problems", ())],
        "incomplete": report["incomplete"],
    }


def _seconds(timing: Timing | None) -> float | None:
    if timing is None or timing.started_at is None or timing.finished_at is None:
        return None
    start, end = epoch_us(timing.started_at), epoch_us(timing.finished_at)
    return None if start is None or end is None else (end - start) / 1e6


def _step_results(record: TrialRecord) -> list[dict[str, Any]]:
    found = record.raw.get("step_results")
    return found if isinstance(found, list) else []


def _extra(record: TrialRecord, cost: Cost, facts: Mapping[str, Any]) -> dict[str, Any]:
    known = {
        "task_id": record.task_id,
        "task_checksum": record.task_checksum,
        "trial_uri": record.trial_uri,
        "verifier_environment_mode": record.verifier_environment_mode,
        "x_evolve": record.x_evolve,
        "cost_at_least_usd": cost.at_least_usd,
        "record_id": record.id,
        **facts,
    }
    return {name: value for name, value in known.items() if value not in (None, "", {})}
