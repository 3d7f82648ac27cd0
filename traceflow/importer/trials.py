"""The trials of a job on their way in: read from their records, or skipped with a code, then written as rows.

What a trial's records say is read from `read`, a function from a path below the job's root to the bytes of the file
or None, so that the same code serves an import and a new parse of what is stored.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    TrialRecord,
    TrialSums,
    outcome_of,
    read_evolve,
    read_trial,
    read_trial_config,
    read_trial_lock,
    trial_cost,
)
from traceflow_formats.harbor.layout import folder_kind

from ..hashset import HashSet
from ..limits import Limits
from ..store import JobWriter
from .incoming import Incoming
from .links import Linker, Rollup
from .packed import Packed
from .report import ImportReport, Warnings
from .reviews import trial_review
from .rows import skipped_row, trial_row
from .tree import Tree, changed
from .workers import ParsedTrials

__all__ = ["Read", "Trial", "Trials", "read_trials", "step_names", "write_trial"]

Read = Callable[[str], bytes | None]
_NOTHING: Mapping[str, Any] = {}


class Trial(NamedTuple):
    """A trial folder on its way in: what is kept of it from the look at all trials until it is written, or a code where
    it is skipped. Its record is read again for its row, so that those of ten thousand trials are never in memory."""

    name: str
    trial_id: str
    code: str | None = None
    message: str = ""
    config: Mapping[str, Any] = _NOTHING  # of a skipped one: what its own config.json says
    keeps_files: bool = True
    agent_name: str | None = None
    steps: tuple[str, ...] = ()
    link: Mapping[str, Any] = _NOTHING  # the columns of its task link
    facts: Mapping[str, Any] = _NOTHING  # what its files say, for the column `extra`
    size: int = 0  # bytes of its agent files
    derived: tuple[str, ...] = ()  # paths below it that an export added


@dataclass
class Trials:
    """The trials of a job in the order of their names, kept packed, and what their records add up to."""

    sums: TrialSums = field(default_factory=TrialSums)
    links: Rollup = field(default_factory=Rollup)
    readable: int = 0  # trials that are not skipped
    size: int = 0  # bytes of their agent files
    _trials: Packed = field(default_factory=Packed)
    _ids: HashSet = field(default_factory=HashSet)

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        return map(Trial._make, self._trials)

    def find(self, name: str) -> Trial | None:
        """The trial with this name."""
        found = self._trials.find(name)
        return None if found is None else Trial._make(found)

    def add(self, trial: Trial, warnings: Warnings) -> None:
        """Take in the next one; where its id is that of another it gets one of its own."""
        if not self._ids.add(hash(trial.trial_id)):
            message = ""  # only the first is told
            if "duplicate_trial_id" not in warnings:
                other = next((t.name for t in self if t.trial_id == trial.trial_id), "another trial")
                message = f"{trial.name} has the id of {other}; it gets one of its own"
            warnings.warn("duplicate_trial_id", message)
            own = uuid.uuid5(uuid.NAMESPACE_URL, f"{trial.trial_id}/{trial.name}")
            trial = trial._replace(trial_id=str(own))
            self._ids.add(hash(trial.trial_id))
        self._trials.append(tuple(trial))
        self.readable += trial.code is None
        self.size += trial.size


def read_trials(
    found: Incoming,
    job_id: str,
    limits: Limits,
    skip_invalid: bool,
    linking: Linker,
    derived: frozenset[str],
    warnings: Warnings,
) -> Trials:
    """Look at every trial of a job: which there are, which are skipped, to what they link. `derived` are paths that an
    export added. Raises invalid_trial for a record that cannot be read, unless `skip_invalid`."""
    tree = found.tree
    retries = _retries(tree)
    large: dict[str, list[tuple[str, int]]] = {}
    for path, size in found.oversized.items():
        large.setdefault(path.partition("/")[0], []).append((path, size))
    trials = Trials()
    for name in tree.folders():
        files = _Files(tree, name, derived, limits)
        kind = folder_kind(name, files.records)
        if kind == "other":
            continue
        trial = Trial(name, str(uuid.uuid5(uuid.NAMESPACE_URL, f"traceflow:{job_id}/{name}")))
        too_large = min([*large.get(name, ()), *files.too_large], default=None)
        if too_large is not None:
            path, size = too_large
            bound = "file_bytes" if size > limits.file_bytes else "atif_bytes"
            message = f"{path} has {size} bytes, over the limit `{bound}` of {getattr(limits, bound)}"
            trial = trial._replace(code="trial_too_large", message=message, keeps_files=False)
        elif kind == "incomplete":
            message = f"{name} has no result.json: the trial never finished; its files are kept"
            config = _config_columns(tree, name, limits)
            trial = trial._replace(code="trial_incomplete", message=message, config=config)
        else:
            try:
                record = _record(tree, name, limits)
            except TraceflowError as error:
                if error.code != "invalid_trial" or not skip_invalid:
                    raise
                config = _config_columns(tree, name, limits)
                trial = trial._replace(code=error.code, message=error.message, config=config)
            else:
                warnings.take({"code": w.code, "message": w.message} for w in record.warnings)
                digest = _task_digest(tree, name, limits, warnings)
                link = linking.link(record.task_name, digest)
                trials.sums.add(record)
                trials.links.add(record.task_name, link)
                attempts = {"earlier_attempts": retries[name]} if name in retries else {}
                trial = trial._replace(
                    trial_id=record.id or trial.trial_id,
                    agent_name=record.agent_name,
                    steps=step_names(record),
                    link={"task_digest": digest, **link.columns()},
                    facts={**files.facts(), **attempts},
                    size=files.size,
                    derived=tuple(files.derived),
                )
        trials.add(trial, warnings)
    return trials


class _Files:
    """What the listing says of a trial's folder."""

    def __init__(self, tree: Tree, name: str, derived: frozenset[str], limits: Limits) -> None:
        self.records: list[str] = []  # the files that stand directly in it
        self.size = 0  # bytes of its agent files
        self.derived: list[str] = []
        self.too_large: list[tuple[str, int]] = []
        self._user_agent_files = 0
        self._user_trajectory: str | None = None
        start = len(name) + 1
        for path, size, _, _, directory in tree.below(name):
            if directory:
                continue
            rest = path[start:]
            if "/" not in rest:
                self.records.append(rest)
            elif rest.startswith(("agent/", "steps/")):
                self.size += size
            elif rest.startswith("user-agent/"):
                self._user_agent_files += 1
                if rest == "user-agent/trajectory.json":
                    self._user_trajectory = rest
            if size > limits.atif_bytes and path.endswith("/agent/trajectory.json"):
                self.too_large.append((path, size))
            if path in derived:
                self.derived.append(rest)

    def facts(self) -> dict[str, Any]:
        """What the column `extra` of its trial is told."""
        if not self._user_agent_files:
            return {}
        facts = {"files": self._user_agent_files, "trajectory": self._user_trajectory}
        return {"user_agent": {name: value for name, value in facts.items() if value is not None}}


def _retries(tree: Tree) -> Counter[str]:
    """How many earlier attempts at each trial a download holds, by the trial's name."""
    found: Counter[str] = Counter()
    if any(tree.find(f"_retries/{record}") for record in ("config.json", "result.json")):
        return found  # it is a trial itself
    last = None
    for entry in tree.below("_retries"):
        parts = entry.path.split("/")
        if len(parts) > 3 and not entry.directory and parts[1:3] != last:
            last = parts[1:3]
            found[parts[1]] += 1
    return found


def _record(tree: Tree, name: str, limits: Limits) -> TrialRecord:
    path = f"{name}/result.json"
    data = tree.read(path, limits.record_bytes)
    assert data is not None
    return read_trial(data, path)


def step_names(record: TrialRecord) -> tuple[str, ...]:
    """The names of the steps of a multi-step trial, in their order."""
    return tuple(step.name for step in record.steps if step.name)


def _task_digest(tree: Tree, name: str, limits: Limits, warnings: Warnings) -> str | None:
    """The digest of the trial's task, which its lock.json states."""
    data = tree.read(f"{name}/lock.json", limits.record_bytes)
    try:
        return read_trial_lock(data, f"{name}/lock.json").digest if data is not None else None
    except TraceflowError as error:
        warnings.warn("bad_lock", error.message)
        return None


def _config_columns(tree: Tree, name: str, limits: Limits) -> dict[str, Any]:
    """What the config.json of a trial without a result says of it."""
    try:
        data = tree.read(f"{name}/config.json", limits.record_bytes)
        config = read_trial_config(data, f"{name}/config.json") if data is not None else None
    except TraceflowError:
        return {}
    return {} if config is None else {"agent": config.agent_name, "model": config.model_name}


def write_trial(
    writer: JobWriter, trial: Trial, parsed: ParsedTrials, read: Read, report: ImportReport, warnings: Warnings
) -> None:
    """Store the next trial: its events, and its row."""
    if trial.code is not None:
        report.skipped.append({"trial": trial.name, "code": trial.code, "message": trial.message})
        writer.add_trial(skipped_row(trial.trial_id, trial.name, trial.code, trial.message, trial.config))
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
        trial.trial_id, trial.name, record, outcome, trial_cost(record, evolve), totals, said, trial.link, facts
    )
    writer.add_trial(row)
    report.trials += 1
    report.scored += outcome.status == "SCORED"
    if said is not None:
        warnings.take([*said.get("warnings", ()), *said.get("problems", ())], trial.name)
