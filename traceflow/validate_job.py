"""Checking a Harbor job, or one trial of it: every record and every trace, all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    JobRecord,
    RecordWarning,
    TrialRecord,
    TrialSums,
    read_evolve,
    read_job,
    read_job_lock,
    read_trial,
    read_trial_config,
    read_trial_lock,
    totals_differ,
)
from traceflow_formats.harbor.layout import trial_folders

from .importer.derived import derived_files
from .importer.tree import Tree, list_tree
from .importer.trial_trace import find_trace
from .limits import Limits
from .validate import Validation, trajectory_file

__all__ = ["check_job", "check_trial_folder"]


def check_job(report: Validation, root: Path, limits: Limits) -> None:
    """Check a job's folder and every trial in it."""
    tree = _listed(report, root, limits)
    if tree is None:
        return
    job = _job(report, tree, limits)
    _read(report, tree, "lock.json", limits, read_job_lock)
    folders = trial_folders(entry.path for entry in tree.files)
    derived = derived_files(tree)
    trials: dict[str, TrialRecord] = {}
    for name in folders.complete:
        record = _trial(report, tree, f"{name}/", limits, derived)
        if record is not None:
            trials[name] = record
    for name in folders.incomplete:
        report.warn(f"{name}/", "no result.json: the trial never finished and will be skipped", "trial_incomplete")
    if not folders.complete:
        report.warn(".", "no folder with a result.json in it: a job without a trial", "nothing_scored")
    _twins(report, trials)
    if job is not None and len(trials) == len(folders.complete):
        for warning in totals_differ(job, TrialSums(trials.values())):
            report.warn("result.json", warning.message, warning.code)


def check_trial_folder(report: Validation, root: Path, limits: Limits) -> None:
    """Check the folder of one trial."""
    tree = _listed(report, root, limits)
    if tree is not None:
        _trial(report, tree, "", limits, frozenset())


def _listed(report: Validation, root: Path, limits: Limits) -> Tree | None:
    try:
        tree = list_tree(root, limits)
    except TraceflowError as error:
        report.error(".", error)
        return None
    for path, why in tree.passed_over:
        report.warn(path, why, "file_passed_over")
    for entry in tree.files:
        if entry.size > limits.file_bytes:
            code = "upload_too_large" if entry.path == "job.log" else "trial_too_large"
            report.problem(entry.path, f"{entry.size} bytes, over the limit `file_bytes` of {limits.file_bytes}", code)
    report.count("files", sum(1 for _ in tree.files))
    return tree


# -- records ---------------------------------------------------------------------------------------------------


def _job(report: Validation, tree: Tree, limits: Limits) -> JobRecord | None:
    """The job's own records, each told apart: one that is broken hides nothing of the other."""
    config = _bytes(report, tree, "config.json", limits, "not_a_job_dir")
    result = _bytes(report, tree, "result.json", limits, "not_a_job_dir")
    broken = config is None or result is None
    for name, first, second in (("config.json", config, b"{}"), ("result.json", b"{}", result)):
        try:
            read_job(first if first is not None else b"{}", second if second is not None else b"{}")
        except TraceflowError as error:
            report.error(name, error)
            broken = True
    if broken or config is None or result is None:
        return None
    job = read_job(config, result)
    for warning in job.warnings:
        name = "result.json" if warning.message.startswith("result.json") else "config.json"
        report.warn(name, warning.message, warning.code)
    return job


def _trial(report: Validation, tree: Tree, prefix: str, limits: Limits, derived: frozenset[str]) -> TrialRecord | None:
    report.count("trials")
    record: TrialRecord | None = None
    path = f"{prefix}result.json"
    data = _bytes(report, tree, path, limits, "trial_incomplete")
    if data is not None:
        told = path if prefix else f"{tree.root.name}/result.json"
        try:
            record = read_trial(data, told)
        except TraceflowError as error:
            report.error(path, _renamed(error, told, path))
        else:
            for warning in record.warnings:
                report.warn(path, warning.message.replace(told, path, 1), warning.code)
    _read(report, tree, f"{prefix}config.json", limits, read_trial_config)
    _read(report, tree, f"{prefix}lock.json", limits, read_trial_lock)
    _read(report, tree, f"{prefix}evolve.json", limits, read_evolve)
    agent_name = record.agent_name if record is not None else None
    for folder in _agents(tree, prefix):
        _agent(report, tree, folder, agent_name, limits, derived)
    return record


def _bytes(report: Validation, tree: Tree, path: str, limits: Limits, missing: str | None) -> bytes | None:
    try:
        data = tree.read(path, limits.record_bytes)
    except (TraceflowError, OSError) as error:
        failure = error if isinstance(error, TraceflowError) else TraceflowError("io_error", str(error))
        report.error(path, failure)
        return None
    if data is None and missing is not None:
        report.problem(path, "missing", missing)
    return data


def _read(report: Validation, tree: Tree, path: str, limits: Limits, read: Callable[..., Any]) -> None:
    """A record that may be absent: its fault, or its warnings."""
    data = _bytes(report, tree, path, limits, None)
    if data is None:
        return
    try:
        record = read(data) if read is read_job_lock else read(data, path)
    except TraceflowError as error:
        report.error(path, error)
        return
    warnings: Iterable[RecordWarning] = getattr(record, "warnings", ())
    for warning in warnings:
        report.warn(path, warning.message, warning.code)


def _renamed(error: TraceflowError, told: str, path: str) -> TraceflowError:
    """The error of a record that was read under another name."""
    details = {key: value for key, value in error.details.items() if key != "path"}
    return TraceflowError(error.code, error.message.replace(told, path, 1), **details)


def _twins(report: Validation, trials: dict[str, TrialRecord]) -> None:
    seen: dict[str, str] = {}
    for name, record in trials.items():
        if record.id is not None and seen.setdefault(record.id, name) != name:
            message = f"has the id of {seen[record.id]}; it will get one of its own"
            report.warn(f"{name}/result.json", message, "duplicate_trial_id")


# -- traces ----------------------------------------------------------------------------------------------------


def _agents(tree: Tree, prefix: str) -> list[str]:
    """The agent folders of a trial: its own, and those of its steps."""
    found: dict[str, None] = {}
    for entry in tree.below(prefix[:-1]) if prefix else tree.entries:
        if entry.directory:
            continue
        parts = entry.path[len(prefix) :].split("/")
        if len(parts) > 1 and parts[0] == "agent":
            found[f"{prefix}agent/"] = None
        elif len(parts) > 3 and parts[0] == "steps" and parts[2] == "agent":
            found[f"{prefix}steps/{parts[1]}/agent/"] = None
    return list(found)


def _agent(
    report: Validation, tree: Tree, folder: str, agent: str | None, limits: Limits, derived: frozenset[str]
) -> None:
    for name in ("trajectory.json", "trajectory.json.gz"):
        path = f"{folder}{name}"
        if tree.find(path) is not None and path not in derived:
            trajectory_file(report, tree.root / path, path, limits)
            break
    ignored = frozenset(tree.root / path for path in derived if path.startswith(folder))
    try:
        trace = find_trace(tree.root / folder, agent, limits.atif_bytes, ignored)
        report.count("events", sum(1 for _ in trace.events))
    except TraceflowError as error:
        if error.code != "trial_too_large":  # told with the trajectory
            report.error(folder, error)
        return
    said = trace.report() or {}
    for problem in said.get("problems", ()):
        if problem["code"] != "invalid_trajectory":  # told with the trajectory
            report.problem(folder, problem["message"], problem["code"])
    for warning in said.get("warnings", ()):
        place = {key: warning.get(key) for key in ("line", "byte")}
        report.warn(
            f"{folder}{warning.get('path', '')}", warning["message"], warning["code"], warning["count"], **place
        )
