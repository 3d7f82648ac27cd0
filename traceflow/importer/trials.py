"""The trials of a job on their way in: read from their records, or skipped with a code, then written as rows.

What a trial's records say is read from `read`, a function from a path below the job's root to the bytes of the file
or None, so that the same code serves an import and a new parse of what is stored.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    Rewards,
    TrialRecord,
    outcome_of,
    read_evolve,
    read_trial,
    read_trial_config,
    read_trial_lock,
    trial_cost,
)
from traceflow_formats.harbor.layout import trial_folders

from ..limits import Limits
from ..store import JobWriter
from .incoming import Incoming
from .links import Link, Linker
from .report import ImportReport, Warnings
from .reviews import trial_review
from .rows import skipped_row, trial_row
from .tree import Tree, changed
from .workers import ParsedTrials

__all__ = ["Read", "Trial", "link_trials", "outline", "read_trials", "write_trial"]

Read = Callable[[str], bytes | None]
_NOTHING: Mapping[str, Any] = {}
_NO_REWARDS = Rewards({})


@dataclass
class Trial:
    """A trial folder on its way in: read, or skipped with a code. `record` is the outline of its record."""

    name: str
    trial_id: str
    record: TrialRecord | None = None
    digest: str | None = None
    link: Link | None = None
    code: str | None = None
    message: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    keeps_files: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)  # what its files say, for the column `extra`

    @property
    def link_columns(self) -> dict[str, Any]:
        """The columns of its task link."""
        return {"task_digest": self.digest, **(self.link.columns() if self.link else {})}


def read_trials(found: Incoming, job_id: str, limits: Limits, skip_invalid: bool, warnings: Warnings) -> list[Trial]:
    tree = found.tree
    folders = trial_folders(entry.path for entry in tree.files)
    sizes = found.oversized | {
        entry.path: entry.size
        for entry in tree.files
        if entry.size > limits.atif_bytes and entry.path.endswith("/agent/trajectory.json")
    }
    too_large = {path.partition("/")[0]: path for path in sorted(sizes, reverse=True)}
    trials: list[Trial] = []
    for name in sorted([*folders.complete, *folders.incomplete]):
        trial = Trial(name, str(uuid.uuid5(uuid.NAMESPACE_URL, f"traceflow:{job_id}/{name}")))
        trials.append(trial)
        if name in too_large:
            path = too_large[name]
            trial.code, trial.keeps_files = "trial_too_large", False
            bound = "file_bytes" if sizes[path] > limits.file_bytes else "atif_bytes"
            trial.message = f"{path} has {sizes[path]} bytes, over the limit `{bound}` of {getattr(limits, bound)}"
        elif name in folders.incomplete:
            trial.code = "trial_incomplete"
            trial.message = f"{name} has no result.json: the trial never finished; its files are kept"
            trial.config = _config_columns(tree, name, limits)
        else:
            _read_one(tree, trial, limits, skip_invalid, warnings)
    _unique_ids(trials, warnings)
    return trials


def _read_one(tree: Tree, trial: Trial, limits: Limits, skip_invalid: bool, warnings: Warnings) -> None:
    path = f"{trial.name}/result.json"
    try:
        data = tree.read(path, limits.record_bytes)
        assert data is not None
        record = read_trial(data, path)
    except TraceflowError as error:
        if error.code != "invalid_trial" or not skip_invalid:
            raise
        trial.code, trial.message = error.code, error.message
        trial.config = _config_columns(tree, trial.name, limits)
        return
    trial.record = outline(record)
    warnings.take({"code": w.code, "message": w.message} for w in record.warnings)
    if record.id:
        trial.trial_id = record.id
    lock = tree.read(f"{trial.name}/lock.json", limits.record_bytes)
    if lock is not None:
        try:
            trial.digest = read_trial_lock(lock, f"{trial.name}/lock.json").digest
        except TraceflowError as error:
            warnings.warn("bad_lock", error.message)


def outline(record: TrialRecord) -> TrialRecord:
    """What is kept of a record until all trials are written: names and token counts. The whole is read again for
    its row, so that the records of ten thousand trials are never in memory at once."""
    steps = tuple(replace(step, rewards=_NO_REWARDS, exception=None) for step in record.steps)
    bare = replace(record, rewards=_NO_REWARDS, exception=None, phases=_NOTHING, steps=steps, x_evolve=None)
    return replace(bare, task_id=_NOTHING, config=_NOTHING, raw=_NOTHING)


def link_trials(trials: list[Trial], linking: Linker) -> None:
    for trial in trials:
        if trial.record is not None:
            trial.link = linking.link(trial.record.task_name, trial.digest)


def _config_columns(tree: Tree, name: str, limits: Limits) -> dict[str, Any]:
    """What the config.json of a trial without a result says of it."""
    try:
        data = tree.read(f"{name}/config.json", limits.record_bytes)
        config = read_trial_config(data, f"{name}/config.json") if data is not None else None
    except TraceflowError:
        return {}
    return {} if config is None else {"agent": config.agent_name, "model": config.model_name}


def _unique_ids(trials: list[Trial], warnings: Warnings) -> None:
    seen: dict[str, str] = {}
    for trial in trials:
        other = seen.get(trial.trial_id)
        if other is not None:
            warnings.warn("duplicate_trial_id", f"{trial.name} has the id of {other}; it gets one of its own")
            trial.trial_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{trial.trial_id}/{trial.name}"))
        seen[trial.trial_id] = trial.name


def write_trial(
    writer: JobWriter, trial: Trial, parsed: ParsedTrials, read: Read, report: ImportReport, warnings: Warnings
) -> None:
    """Store the next trial: its events, and its row."""
    if trial.record is None:
        code = trial.code or "invalid_trial"
        report.skipped.append({"trial": trial.name, "code": code, "message": trial.message})
        writer.add_trial(skipped_row(trial.trial_id, trial.name, code, trial.message, trial.config))
        return
    totals, said = parsed.store_next(writer)
    path = f"{trial.name}/result.json"
    data = read(path)
    if data is None:
        raise changed(path)
    record = read_trial(data, path)
    evolve = None
    evolve_data = read(f"{trial.name}/evolve.json")
    if evolve_data is not None:
        try:
            evolve = read_evolve(evolve_data, f"{trial.name}/evolve.json")
        except TraceflowError as error:
            warnings.warn("bad_evolve", error.message)
    outcome = outcome_of(record)
    facts = {"review": trial_review(read, trial.name, warnings), **trial.facts}
    row = trial_row(
        trial.trial_id, trial.name, record, outcome, trial_cost(record, evolve), totals, said, trial.link_columns, facts
    )
    writer.add_trial(row)
    report.trials += 1
    report.scored += outcome.status == "SCORED"
    if said is not None:
        warnings.take([*said.get("warnings", ()), *said.get("problems", ())], trial.name)
