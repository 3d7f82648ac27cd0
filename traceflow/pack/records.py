"""Harbor's records for packed runs: what Harbor 0.26 needs to load them, and of facts only what is known.

An official record may have an empty `task_id` and `config`; Harbor's own models refuse both, so they name the task
here as a path, which is how Harbor names a task that is in no registry. Checksums, locks, durations of phases and
logs are not made up: what nobody measured is absent, and so is `started_at` where no source has a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from traceflow_formats.harbor import reward_valid

__all__ = ["PackedRun", "agent_name", "job_config", "job_result", "trial_config", "trial_result"]

_HARBOR_NAMES = {"qwen-code": "qwen-coder"}


@dataclass(frozen=True, slots=True)
class PackedRun:
    """What is known of one run. Times are ISO 8601 in UTC; tokens include cached ones and those of subagents."""

    id: UUID
    task: str
    trial: str
    agent: str
    version: str = ""
    model: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None
    rewards: dict[str, int | float] | None = None
    exception: dict[str, Any] | None = None


def agent_name(harness: str) -> str:
    """Harbor's name of a harness."""
    return _HARBOR_NAMES.get(harness, harness)


def job_config(name: str, runs: Sequence[PackedRun]) -> dict[str, Any]:
    """The config.json of a job. Agents are named because Harbor takes a job without them for its oracle's."""
    agents: list[dict[str, Any]] = []
    for run in runs:
        if (agent := _agent(run)) not in agents:
            agents.append(agent)
    return {"job_name": name, "agents": agents}


def trial_config(run: PackedRun, job: UUID) -> dict[str, Any]:
    """The config.json of a trial, which stands in its result too."""
    return {"task": {"path": run.task}, "trial_name": run.trial, "agent": _agent(run), "job_id": str(job)}


def trial_result(run: PackedRun, job: UUID) -> dict[str, Any]:
    """The result.json of a trial: the seven keys that an upload needs, then what is known."""
    info: dict[str, Any] = {"name": run.agent, "version": run.version}
    if run.model is not None:
        info["model_info"] = {"name": run.model}
    result: dict[str, Any] = {
        "id": str(run.id),
        "task_name": run.task,
        "trial_name": run.trial,
        "trial_uri": "",
        "task_id": {"path": run.task},
        "task_checksum": "",
        "config": trial_config(run, job),
        "agent_info": info,
    }
    if usage := _usage([run]):
        result["agent_result"] = usage
    if run.rewards:
        result["verifier_result"] = {"rewards": run.rewards}
    if run.exception is not None:
        result["exception_info"] = run.exception
    return result | _times(run.started_at, run.finished_at)


def job_result(job: UUID, runs: Sequence[PackedRun]) -> dict[str, Any]:
    """The result.json of a job, with the statistics that Harbor keeps: the sums over its trials, and the scores."""
    started = sorted(run.started_at for run in runs if run.started_at is not None)
    finished = sorted(run.finished_at for run in runs if run.finished_at is not None)
    stats: dict[str, Any] = {
        "n_completed_trials": len(runs),
        "n_errored_trials": sum(run.exception is not None for run in runs),
        "n_cancelled_trials": sum(kind == "CancelledError" for run in runs for kind, _ in _exceptions(run)),
        "evals": _evals(runs),
    }
    return {
        "id": str(job),
        **_times(started[0] if started else None, finished[-1] if len(finished) == len(runs) else None),
        "n_total_trials": len(runs),
        "stats": stats | _usage(runs),
    }


def _agent(run: PackedRun) -> dict[str, Any]:
    return {"name": run.agent} if run.model is None else {"name": run.agent, "model_name": run.model}


def _times(started: str | None, finished: str | None) -> dict[str, str]:
    times = {"started_at": started, "finished_at": finished}
    return {name: time for name, time in times.items() if time is not None}


def _usage(runs: Sequence[PackedRun]) -> dict[str, Any]:
    """The sums over the runs that state a number; what none of them states is absent."""
    found: dict[str, Any] = {}
    for name in ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd"):
        values = [value for run in runs if (value := getattr(run, name)) is not None]
        if values:
            found[name] = sum(values)
    return found


def _evals(runs: Sequence[PackedRun]) -> dict[str, Any]:
    """Harbor's statistics per agent and model. Its key ends with the dataset, `adhoc` where there is none."""
    groups: dict[str, list[PackedRun]] = {}
    for run in runs:
        groups.setdefault("__".join(filter(None, (run.agent, run.model, "adhoc"))), []).append(run)
    return {key: _stats(group) for key, group in sorted(groups.items())}


def _exceptions(run: PackedRun) -> list[tuple[str, None]]:
    return [] if run.exception is None else [(run.exception["exception_type"], None)]


def _stats(runs: Sequence[PackedRun]) -> dict[str, Any]:
    scored = [run for run in runs if reward_valid(bool(run.rewards), _exceptions(run))]
    names = sorted({name for run in scored for name in run.rewards or ()})
    means = {name: sum((run.rewards or {}).get(name, 0) for run in scored) / len(scored) for name in names}
    rewards: dict[str, dict[str, list[str]]] = {}
    for run in scored:
        for name, value in (run.rewards or {}).items():
            rewards.setdefault(name, {}).setdefault(str(float(value)), []).append(run.trial)
    exceptions: dict[str, list[str]] = {}
    for run in runs:
        for kind, _ in _exceptions(run):
            exceptions.setdefault(kind, []).append(run.trial)
    return {
        "n_trials": len(scored),
        "n_errors": sum(run.exception is not None for run in runs),
        "metrics": ([{"mean": means[names[0]]}] if len(names) == 1 else [means]) if names else [],
        "reward_stats": rewards,
        "exception_stats": exceptions,
    }
