"""Importing one job: checked as a whole, then written in one stream, then made visible in one step.

The order of decisions is that of the design: archive readable and safe, size bounds, the job's records, is it
here already, the datasets that `-d` names, then its trials. Everything before the manifest leaves no trace in the
store.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import JobRecord, read_job, reported_totals, totals_differ
from traceflow_formats.harbor.layout import place_of

from ..collecting import CollectingSeldom
from ..limits import Limits
from ..mark import MARK, redacted_id
from ..store import JobWriter, Manifest, Store
from .derived import derived_files, redaction_of
from .incoming import Incoming, incoming
from .links import flagged, linker
from .parse import TrialTask
from .report import ImportReport, Warnings
from .reviews import job_reviews
from .stale import PARSERS
from .tree import Tree, TreeDigest, sha256_of
from .trials import Trials, read_trials, write_trial
from .workers import Workers, parsed_trials

__all__ = ["import_job"]

Progress = Callable[[int, str], None]
_LOOK = 8  # files between two looks at what the workers have done


def import_job(
    store: Store,
    source: str | Path,
    *,
    limits: Limits | None = None,
    skip_invalid: bool = False,
    replace: bool = False,
    dry_run: bool = False,
    datasets: Sequence[str] = (),
    progress: Progress = lambda amount, word: None,
    workers: Workers | None = None,
) -> ImportReport:
    """Import a Harbor job, a folder or archive at a path or URL, into a store and report what landed.

    `replace` puts it in the place of the job with its id, in one step. `datasets` are name@version: its trials'
    tasks are looked for in those. `progress` is told bytes done and what is in hand. `workers` parse the trials where
    the job is worth it; what lands is the same with and without them. Raises TraceflowError: invalid_archive,
    upload_too_large, not_a_job_dir, invalid_job, invalid_trial (unless `skip_invalid`), job_already_uploaded (unless
    `replace`), store_conflict, dataset_not_found, dataset_version_not_found, io_error.
    """
    bounds = limits or Limits()
    with CollectingSeldom(), incoming(source, bounds, progress) as found:
        job = _read_job(found.tree, bounds)
        warnings = Warnings()
        warnings.take(found.warnings)
        for passed, why in found.tree.passed_over:
            warnings.warn("file_passed_over", f"{passed}: {why}", path=passed)
        warnings.take({"code": w.code, "message": w.message} for w in job.warnings)
        job_id = job.id or _id_from(found.tree)
        redacted = redaction_of(found.tree)
        if redacted is not None:
            job_id = redacted_id(job_id)
            warnings.warn("redacted", "this is a redacted export: markers stand where secrets stood", path=MARK)
        there = store.has_job(job_id)
        if there and not replace:
            raise _taken(job_id, job.name)
        flags = flagged(store, datasets)
        linking = linker(store, [{"name": d.name, "version": d.version, "ref": d.ref} for d in job.datasets], flags)
        derived = derived_files(found.tree)
        trials = read_trials(found, job_id, bounds, skip_invalid, linking, derived, warnings)
        _warn_of_large_files(found, trials, bounds, warnings)
        report = ImportReport(job_id, job.id, job.name or found.name, dry_run=dry_run, replaced=there)
        report.dataset_flags = list(datasets)
        report.redacted = redacted
        with _writer(store, job_id, store.job(job_id) if there else None, dry_run) as writer:
            _write(writer, store, found, job, trials, derived, report, warnings, bounds, progress, workers)
    if not dry_run:
        store.compact_if_due()
    return report


@contextmanager
def _writer(store: Store, job_id: str, old: Manifest | None, dry_run: bool) -> Iterator[JobWriter]:
    """Where the job goes: into the store, or for a dry run to a folder that is removed."""
    if dry_run:
        with (
            tempfile.TemporaryDirectory(prefix="traceflow-dry-run-") as folder,
            Store.open(folder, create=True).writer(job_id) as writer,
        ):
            yield writer
        return
    with store.rewriter(old) if old is not None else store.writer(job_id) as writer:
        yield writer


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


def _id_from(tree: Tree) -> str:
    """The id of a job whose record has none: a UUIDv5 of the tree's digest."""
    derived = derived_files(tree)
    digest = TreeDigest()
    for entry in tree.files:
        if entry.path not in derived:  # an export of the job is the same job
            with tree.open(entry) as stream:
                digest.add(entry.path, sha256_of(stream))
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"traceflow:{digest.hexdigest()}"))


def _taken(job_id: str, name: str | None) -> TraceflowError:
    return TraceflowError(
        "job_already_uploaded",
        f"job {name or job_id} is in the store already as {job_id}; add --replace to put this one in its place",
        existing_job_id=job_id,
    )


def _warn_of_same_content(store: Store, digest: str, job_id: str, warnings: Warnings) -> None:
    for other in store.jobs():
        if other.job_id != job_id and other.job.get("tree_sha256") == digest:
            name = other.job.get("original_job_name") or other.job_id
            warnings.warn("same_content", f"job {name} ({other.job_id}) has the same files under another id")


def _warn_of_large_files(found: Incoming, trials: Trials, limits: Limits, warnings: Warnings) -> None:
    for path, size in sorted(found.oversized.items()):
        if trials.find(path.partition("/")[0]) is None:
            message = f"{path} has {size} bytes, over the limit `file_bytes` of {limits.file_bytes}"
            warnings.warn("file_passed_over", message, path=path)


# -- writing ---------------------------------------------------------------------------------------------------


def _write(
    writer: JobWriter,
    store: Store,
    found: Incoming,
    job: JobRecord,
    trials: Trials,
    derived: frozenset[str],
    report: ImportReport,
    warnings: Warnings,
    limits: Limits,
    progress: Progress,
    workers: Workers | None,
) -> None:
    tree = found.tree
    digest = TreeDigest()

    def read(path: str) -> bytes | None:
        return tree.read(path, limits.record_bytes)

    tasks = _tasks(tree, trials, report.job_id, limits)
    with parsed_trials(tasks, workers, trials.readable, trials.size) as parsed:
        pending = iter(trials)
        done = 0

        def write_next() -> None:
            nonlocal done
            trial = next(pending)
            done += 1
            progress(0, f"trial {done} of {len(trials)}: {trial.name}")
            write_trial(writer, trial, parsed, read, report, warnings)

        folder, trial = "", None
        for number, entry in enumerate(tree.entries):
            if number % _LOOK == 0:
                while done < len(trials) and parsed.ready():
                    write_next()
            top = place_of(entry.path).trial or ""
            if top != folder:
                folder, trial = top, trials.find(top)
            if (trial is not None and not trial.keeps_files) or entry.size > limits.file_bytes:
                continue
            trial_id = trial.trial_id if trial is not None else None
            if entry.directory:
                writer.add_directory(entry.path, mode=entry.mode, trial_id=trial_id)
                continue
            is_derived = entry.path in derived
            with tree.open(entry) as stream:
                packed = writer.add_file(entry.path, stream, mode=entry.mode, trial_id=trial_id, derived=is_derived)
            if not is_derived:
                digest.add(entry.path, packed.sha256)
            progress(entry.size, entry.path)
        while done < len(trials):
            write_next()
    tree.verify()
    report.task_links = trials.links.counts
    report.reported_totals = reported_totals(job, trials.sums).as_dict()
    warnings.take({"code": w.code, "message": w.message} for w in totals_differ(job, trials.sums))
    if not report.scored:
        warnings.warn("nothing_scored", "no trial has a reward")
    reviews = job_reviews(read, warnings)
    _warn_of_same_content(store, digest.hexdigest(), report.job_id, warnings)
    report.warnings = warnings.as_list()
    if not report.dry_run:
        by_task = trials.links.rows()
        facts = _job_facts(found, job, report, digest.hexdigest(), by_task, reviews)
        writer.commit(facts, report.as_dict(), PARSERS)


def _tasks(tree: Tree, trials: Trials, job_id: str, limits: Limits) -> Iterator[TrialTask]:
    """What is to be parsed: one task for each trial that was read, in their order."""
    for trial in trials:
        if trial.code is None:
            yield TrialTask(
                job_id,
                trial.trial_id,
                str(tree.root / trial.name),
                trial.agent_name,
                trial.steps,
                trial.derived,
                limits.atif_bytes,
                trial.size,
            )


def _job_facts(
    found: Incoming,
    job: JobRecord,
    report: ImportReport,
    digest: str,
    by_task: list[dict[str, Any]],
    reviews: list[dict[str, Any]],
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
        "reviews": reviews,
    } | ({"redacted": report.redacted} if report.redacted is not None else {})
