"""What an importer needs of a job's records: config.json, result.json, lock.json; and what the job claims in sum."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import TraceflowError
from .document import Fields, Notes, RecordWarning, read_object
from .records import TrialLock, TrialRecord, Usage, identity_of, trial_lock_of, usage_of

__all__ = [
    "DatasetRef",
    "JobLock",
    "JobRecord",
    "ReportedTotals",
    "TrialSums",
    "read_job",
    "read_job_lock",
    "reported_totals",
    "totals_differ",
]

_TRIAL_MARKS = {"task_name", "trial_name", "task_checksum"}  # keys that a trial's result has and a job's has not
_TOTALS = ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd")


class DatasetRef(NamedTuple):
    """A dataset as a job's config names it: by registry name with version or ref, or by a local path."""

    name: str | None
    version: str | None
    ref: str | None
    path: str | None


class JobRecord(NamedTuple):
    """A job as its config.json and result.json tell it.

    Harbor writes a job's times in local time without a zone: `local_times` says so, and the times then count as
    UTC. `usage` is what the job's own statistics claim. `finished_at` is None for a job that was cut short.
    """

    id: str | None
    name: str | None
    started_at: str | None
    updated_at: str | None
    finished_at: str | None
    local_times: bool
    n_total_trials: int | None
    n_attempts: int | None
    usage: Usage
    datasets: tuple[DatasetRef, ...]
    config: Mapping[str, Any]
    result: Mapping[str, Any]
    x_evolve: Mapping[str, Any] | None
    warnings: tuple[RecordWarning, ...]


class JobLock(NamedTuple):
    """A job's lock.json, written before its trials run: it may name trials that never started."""

    harbor_version: str | None
    created_at: str | None
    trials: tuple[TrialLock, ...]
    raw: Mapping[str, Any]
    warnings: tuple[RecordWarning, ...]


class ReportedTotals(NamedTuple):
    """What a job's records claimed in sum; `n_trials_reporting` trials stated any of the four numbers."""

    cost_usd: float | None
    n_input_tokens: int | None
    n_cache_tokens: int | None
    n_output_tokens: int | None
    n_trials_reporting: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "cost_usd": self.cost_usd,
            "n_input_tokens": self.n_input_tokens,
            "n_cache_tokens": self.n_cache_tokens,
            "n_output_tokens": self.n_output_tokens,
            "n_trials_reporting": self.n_trials_reporting,
        }


def read_job(config: bytes | None, result: bytes | None) -> JobRecord:
    """Read the two records that make a folder a job folder (None: the file is not there).

    No key is required, `{}` is a config and a result. Raises TraceflowError("not_a_job_dir") where a record is
    missing or the folder is that of a single trial, and TraceflowError("invalid_job") for what is no JSON object.
    """
    if config is None or result is None:
        lacking = [name for name, data in (("config.json", config), ("result.json", result)) if data is None]
        raise TraceflowError(
            "not_a_job_dir",
            f"no {' and no '.join(lacking)} at the root: give the job folder that holds both and its trial folders",
            missing=lacking,
        )
    notes = Notes("config.json")
    setup = Fields(read_object(config, notes, "invalid_job"), notes)
    result_notes = Notes("result.json")
    outcome = Fields(read_object(result, result_notes, "invalid_job"), result_notes)
    if outcome.raw.keys() >= _TRIAL_MARKS:
        raise TraceflowError("not_a_job_dir", "this is the folder of one trial: give the job folder above it")
    times = [outcome.raw.get(key) for key in ("started_at", "finished_at")]
    name = setup.filled("job_name")
    evolve = outcome.nested("x_evolve") or setup.nested("x_evolve")
    return JobRecord(
        id=identity_of(outcome, "id"),
        name=name,
        started_at=outcome.time("started_at", naive_is_known=True),
        updated_at=outcome.time("updated_at", naive_is_known=True),
        finished_at=outcome.time("finished_at", naive_is_known=True),
        local_times=any(isinstance(time, str) and _has_no_zone(time) for time in times),
        n_total_trials=outcome.count("n_total_trials"),
        n_attempts=setup.count("n_attempts"),
        usage=usage_of(outcome.inside("stats")),
        datasets=tuple(_dataset(item) for item in setup.each("datasets")),
        config=setup.raw,
        result=outcome.raw,
        x_evolve=None if evolve is None else evolve.raw,
        warnings=(*notes.kept, *result_notes.kept),
    )


def read_job_lock(data: bytes) -> JobLock:
    """Read a job's lock.json. Raises TraceflowError("invalid_job") for what is no JSON object."""
    notes = Notes("lock.json")
    fields = Fields(read_object(data, notes, "invalid_job"), notes)
    return JobLock(
        harbor_version=fields.inside("harbor").filled("version"),
        created_at=fields.time("created_at", naive_is_known=True),
        trials=tuple(trial_lock_of(item.raw, Notes(f"lock.json {item.where}")) for item in fields.each("trials")),
        raw=fields.raw,
        warnings=tuple(notes.kept),
    )


class TrialSums:
    """Per number the sum over all trials and steps that state it, as Harbor adds up a job; and the trials that do."""

    def __init__(self, trials: Iterable[TrialRecord] = ()) -> None:
        self.sums: dict[str, Any] = dict.fromkeys(_TOTALS)
        self.reporting = 0
        for trial in trials:
            self.add(trial)

    def add(self, trial: TrialRecord) -> None:
        own = [trial.agent_result] if trial.agent_result is not None else [s.agent_result for s in trial.steps]
        usages = [result.usage for result in own if result is not None]
        self.reporting += any(usage.stated for usage in usages)
        for usage in usages:
            for name in _TOTALS:
                if (value := getattr(usage, name)) is not None:
                    self.sums[name] = (self.sums[name] or 0) + value


def reported_totals(job: JobRecord, trials: TrialSums) -> ReportedTotals:
    """What the job claims: its own statistics, and where they lack a number the sum over the trials that state it."""
    own = {name: getattr(job.usage, name) for name in _TOTALS}
    chosen = {name: trials.sums[name] if value is None else value for name, value in own.items()}
    return ReportedTotals(**chosen, n_trials_reporting=trials.reporting)


def totals_differ(job: JobRecord, trials: TrialSums) -> list[RecordWarning]:
    """A warning for each total that the job states and that its trials do not add up to."""
    found = []
    for name in _TOTALS:
        claimed, summed = getattr(job.usage, name), trials.sums[name]
        if claimed is None or math.isclose(claimed, summed or 0, rel_tol=1e-9, abs_tol=1e-9):
            continue
        found.append(RecordWarning("totals_differ", f"result.json: {name} is {claimed}, its trials sum to {summed}"))
    return found


def _dataset(fields: Fields) -> DatasetRef:
    return DatasetRef(
        name=fields.filled("name"),
        version=fields.filled("version"),
        ref=fields.filled("ref"),
        path=fields.filled("path"),
    )


def _has_no_zone(time: str) -> bool:
    clock = time[10:]
    return bool(clock) and not (clock.endswith(("Z", "z")) or "+" in clock or "-" in clock)
