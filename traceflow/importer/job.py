"""Importing one job: checked as a whole, then written in one stream, then made visible in one step.

The order of decisions is that of the design: archive readable and safe, size bounds, the job's records, is it
here already, the datasets that `-d` names, then its trials. Everything before the manifest leaves no trace in the
store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    JobRecord,
    TrialRecord,
    outcome_of,
    read_evolve,
    read_job,
    read_trial,
    read_trial_config,
    read_trial_lock,
    reported_totals,
    totals_differ,
    trial_cost,
)
from traceflow_formats.harbor.layout import place_of, trial_folders
from traceflow_formats.trace import Event

from .. import __version__
from ..limits import Limits
from ..store import JobWriter, Store
from .derived import derived_files
from .incoming import Incoming, incoming
from .links import Link, Linker, flagged, linker, rollup
from .report import ImportReport, Warnings
from .rows import skipped_row, trial_row
from .tree import Tree, sha256_of, tree_digest
from .trial_trace import TrialTrace, find_trace

__all__ = ["import_job"]

Progress = Callable[[int, str], None]


@dataclass
class _Trial:
    """A trial folder on its way in: read, or skipped with a code."""

    name: str
    trial_id: str
    record: TrialRecord | None = None
    digest: str | None = None
    link: Link | None = None
    code: str | None = None
    message: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    keeps_files: bool = True


def import_job(
    store: Store,
    path: Path,
    *,
    limits: Limits | None = None,
    skip_invalid: bool = False,
    dry_run: bool = False,
    datasets: Sequence[str] = (),
    progress: Progress = lambda amount, word: None,
) -> ImportReport:
    """Import a Harbor job folder or archive into a store and report what landed.

    `datasets` are name@version: its trials' tasks are looked for in those. `progress` is told bytes done and what
    is in hand. Raises TraceflowError: invalid_archive, upload_too_large, not_a_job_dir, invalid_job, invalid_trial
    (unless `skip_invalid`), job_already_uploaded, dataset_not_found, dataset_version_not_found, io_error.
    """
    bounds = limits or Limits()
    with incoming(path, bounds, progress) as found:
        job = _read_job(found.tree, bounds)
        warnings = Warnings()
        warnings.take(found.warnings)
        for passed, why in found.tree.passed_over:
            warnings.warn("file_passed_over", f"{passed}: {why}", path=passed)
        warnings.take({"code": w.code, "message": w.message} for w in job.warnings)
        job_id = job.id or _id_from(found.tree)
        if store.has_job(job_id):
            raise _taken(job_id, job.name)
        flags = flagged(store, datasets)
        linking = linker(store, [{"name": d.name, "version": d.version, "ref": d.ref} for d in job.datasets], flags)
        trials = _read_trials(found, job_id, bounds, skip_invalid, warnings)
        _link(trials, linking)
        report = ImportReport(job_id, job.id, job.name or found.name, dry_run=dry_run)
        report.dataset_flags = list(datasets)
        _write(store, found, job, trials, report, warnings, bounds, dry_run, progress)
    return report


# -- records ---------------------------------------------------------------------------------------------------


def _read_job(tree: Tree, limits: Limits) -> JobRecord:
    log = tree.find("job.log")
    if log is not None and log.size > limits.file_bytes:
        raise TraceflowError(
            "upload_too_large",
            f"job.log has {log.size} bytes; a file may have {limits.file_bytes}: raise the limit `file_bytes`",
            file="job.log",
            bytes=log.size,
            max_bytes=limits.file_bytes,
        )
    return read_job(tree.read("config.json", limits.record_bytes), tree.read("result.json", limits.record_bytes))


def _read_trials(found: Incoming, job_id: str, limits: Limits, skip_invalid: bool, warnings: Warnings) -> list[_Trial]:
    tree = found.tree
    folders = trial_folders(entry.path for entry in tree.files)
    sizes = found.oversized | {
        entry.path: entry.size
        for entry in tree.files
        if entry.size > limits.atif_bytes and entry.path.endswith("/agent/trajectory.json")
    }
    too_large = {path.partition("/")[0]: path for path in sorted(sizes, reverse=True)}
    trials: list[_Trial] = []
    for name in sorted([*folders.complete, *folders.incomplete]):
        trial = _Trial(name, str(uuid.uuid5(uuid.NAMESPACE_URL, f"traceflow:{job_id}/{name}")))
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


def _read_one(tree: Tree, trial: _Trial, limits: Limits, skip_invalid: bool, warnings: Warnings) -> None:
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
    trial.record = record
    warnings.take({"code": w.code, "message": w.message} for w in record.warnings)
    if record.id:
        trial.trial_id = record.id
    lock = tree.read(f"{trial.name}/lock.json", limits.record_bytes)
    if lock is not None:
        try:
            trial.digest = read_trial_lock(lock, f"{trial.name}/lock.json").digest
        except TraceflowError as error:
            warnings.warn("bad_lock", error.message)


def _link(trials: list[_Trial], linking: Linker) -> None:
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


def _unique_ids(trials: list[_Trial], warnings: Warnings) -> None:
    seen: dict[str, str] = {}
    for trial in trials:
        other = seen.get(trial.trial_id)
        if other is not None:
            warnings.warn("duplicate_trial_id", f"{trial.name} has the id of {other}; it gets one of its own")
            trial.trial_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{trial.trial_id}/{trial.name}"))
        seen[trial.trial_id] = trial.name


def _id_from(tree: Tree) -> str:
    """The id of a job whose record has none: a UUIDv5 of the tree's digest."""

    derived = derived_files(tree)

    def contents() -> Iterator[tuple[str, str]]:
        for entry in tree.files:
            if entry.path in derived:  # an export of the job is the same job
                continue
            with tree.open(entry) as stream:
                yield entry.path, sha256_of(stream)

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"traceflow:{tree_digest(contents())}"))


def _taken(job_id: str, name: str | None) -> TraceflowError:
    return TraceflowError(
        "job_already_uploaded",
        f"job {name or job_id} is in the store already as {job_id}; `traceflow job delete {job_id}` frees the id",
        existing_job_id=job_id,
    )


# -- writing ---------------------------------------------------------------------------------------------------


def _write(
    store: Store,
    found: Incoming,
    job: JobRecord,
    trials: list[_Trial],
    report: ImportReport,
    warnings: Warnings,
    limits: Limits,
    dry_run: bool,
    progress: Progress,
) -> None:
    tree = found.tree
    derived = derived_files(tree)
    by_name = {trial.name: trial for trial in trials}
    with store.writer(report.job_id) as writer:
        digests: list[tuple[str, str]] = []
        for entry in tree.entries:
            trial = by_name.get(place_of(entry.path).trial or "")
            if (trial is not None and not trial.keeps_files) or entry.size > limits.file_bytes:
                continue
            trial_id = trial.trial_id if trial is not None else None
            if entry.directory:
                writer.add_directory(entry.path, mode=entry.mode, trial_id=trial_id)
                continue
            with tree.open(entry) as stream:
                packed = writer.add_file(
                    entry.path, stream, mode=entry.mode, trial_id=trial_id, derived=entry.path in derived
                )
            if entry.path not in derived:
                digests.append((entry.path, packed.sha256))
            progress(entry.size, entry.path)
        for trial in trials:
            progress(0, trial.name)
            _write_trial(writer, tree, trial, derived, report, warnings, limits)
        tree.verify()
        records = [trial.record for trial in trials if trial.record is not None]
        links = [(t.record.task_name, t.link) for t in trials if t.record is not None and t.link is not None]
        by_task, report.task_links = rollup(links)
        report.reported_totals = reported_totals(job, records).as_dict()
        warnings.take({"code": w.code, "message": w.message} for w in totals_differ(job, records))
        if not report.scored:
            warnings.warn("nothing_scored", "no trial has a reward")
        report.warnings = warnings.as_list()
        if not dry_run:
            facts = _job_facts(found, job, report, tree_digest(iter(digests)), by_task)
            writer.commit(facts, report.as_dict(), {"traceflow": __version__})


def _write_trial(
    writer: JobWriter,
    tree: Tree,
    trial: _Trial,
    derived: frozenset[str],
    report: ImportReport,
    warnings: Warnings,
    limits: Limits,
) -> None:
    record = trial.record
    if record is None:
        code = trial.code or "invalid_trial"
        report.skipped.append({"trial": trial.name, "code": code, "message": trial.message})
        writer.add_trial(skipped_row(trial.trial_id, trial.name, code, trial.message, trial.config))
        return
    trace = _trace_of(tree, trial, record, derived, limits)
    totals = writer.add_events(trial.trial_id, trace.events)
    said = trace.report()
    evolve = None
    evolve_data = tree.read(f"{trial.name}/evolve.json", limits.record_bytes)
    if evolve_data is not None:
        try:
            evolve = read_evolve(evolve_data, f"{trial.name}/evolve.json")
        except TraceflowError as error:
            warnings.warn("bad_evolve", error.message)
    outcome = outcome_of(record)
    link = {"task_digest": trial.digest, **(trial.link.columns() if trial.link else {})}
    row = trial_row(trial.trial_id, trial.name, record, outcome, trial_cost(record, evolve), totals, said, link)
    writer.add_trial(row)
    report.trials += 1
    report.scored += outcome.status == "SCORED"
    if said is not None:
        warnings.take([*said.get("warnings", ()), *said.get("problems", ())], trial.name)


def _trace_of(tree: Tree, trial: _Trial, record: TrialRecord, derived: frozenset[str], limits: Limits) -> TrialTrace:
    """The trace of a trial; of a multi-step one those of its steps, in their order, each event with its step."""
    root = tree.root / trial.name
    ignored = frozenset(tree.root / path for path in derived if path.startswith(f"{trial.name}/"))
    own = find_trace(root / "agent", record.agent_name, limits.atif_bytes, ignored)
    present = sorted(p.name for p in (root / "steps").iterdir() if p.is_dir()) if (root / "steps").is_dir() else []
    if not present:
        return own
    order = {step.name: number for number, step in enumerate(record.steps)}
    present.sort(key=lambda name: (order.get(name, len(order)), name))
    parts = [
        (name, find_trace(root / "steps" / name / "agent", record.agent_name, limits.atif_bytes, ignored))
        for name in present
    ]
    joined = TrialTrace(_joined(parts, own))
    for name, part in [*parts, ("", own)]:
        joined.parses.extend(part.parses)
        joined.problems.extend(part.problems)
        joined.files.extend(f"steps/{name}/agent/{file}" if name else file for file in part.files)
    return joined


def _joined(parts: list[tuple[str, TrialTrace]], own: TrialTrace) -> Iterator[Event]:
    for name, part in parts:
        for event in part.events:
            extra = {**(event.data.get("extra") or {}), "stepName": name}
            yield Event(event.type, {**event.data, "extra": extra})
    yield from own.events


def _job_facts(
    found: Incoming, job: JobRecord, report: ImportReport, digest: str, by_task: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "original_job_id": job.id,
        "original_job_name": report.original_job_name,
        "imported_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "imported_as": found.kind,
        "tree_sha256": digest,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "n_total_trials": job.n_total_trials,
        "n_trials": report.trials,
        "n_scored": report.scored,
        "n_skipped": len(report.skipped),
        "datasets": [
            {
                key: value
                for key, value in (("name", d.name), ("version", d.version), ("ref", d.ref), ("path", d.path))
                if value
            }
            for d in job.datasets
        ],
        "reported_totals": report.reported_totals,
        "task_links": by_task,
        "link_counts": report.task_links,
        "dataset_flags": report.dataset_flags,
        "x_evolve": job.x_evolve,
    }
