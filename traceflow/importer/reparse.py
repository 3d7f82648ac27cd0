"""Parsing a stored job anew: the tables are made again from the files that were kept, by the parsers of today.

The files stay as they are. Each trial's records and agent files are laid out in a folder for as long as it is being
parsed, so that this is the code of an import. The job's new revision takes the place of the old one in one step.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import read_trial

from ..limits import Limits
from ..store import FileRow, Manifest, Store
from ..store.packs import PackReader
from ..store.swap import stored_row
from .parse import TrialTask
from .report import ImportReport, Warnings
from .reviews import job_reviews
from .stale import PARSERS
from .trials import Trial, step_names, write_trial
from .workers import Workers, parsed_trials

__all__ = ["reparse_job"]

Progress = Callable[[int, str], None]
# Warnings of the intake: only the import saw what they are about, so they are carried over.
_OF_INTAKE = frozenset(
    {
        "duplicate_trial_id",
        "file_passed_over",
        "mode_dropped",
        "name_twin",
        "no_end_mark",
        "outside_root",
        "same_content",
        "totals_differ",
        "trailing_data",
    }
)


def reparse_job(
    store: Store,
    job: Manifest,
    *,
    limits: Limits | None = None,
    progress: Progress = lambda amount, word: None,
    workers: Workers | None = None,
) -> ImportReport:
    """Make the trials and events of a job anew and put them in the place of the old ones, as one step.

    Task links stay. Raises TraceflowError store_conflict when the job was changed meanwhile, store_corrupt, io_error.
    """
    bounds = limits or Limits()
    old = dict(job.report)
    report = ImportReport(job.job_id, job.job.get("original_job_id"), job.job.get("original_job_name"))
    report.reported_totals = dict(old.get("reported_totals") or {})
    report.task_links = dict(old.get("task_links") or {})
    report.dataset_flags = list(job.job.get("dataset_flags") or ())
    warnings = Warnings()
    warnings.take(w for w in old.get("warnings") or () if w["code"] in _OF_INTAKE)
    with (
        tempfile.TemporaryDirectory(prefix="traceflow-reparse-") as folder,
        store.rewriter(job, keep={"files"}) as writer,
    ):
        kept = _Kept(store, job, Path(folder), bounds)
        rows = store.trials(job)
        trials = [_trial(row, kept, warnings) for row in rows]
        tasks = [kept.task(trial) for trial in trials if trial.code is None]
        size = sum(task.size for task in tasks)
        with parsed_trials(kept.laid_out(tasks), workers, len(tasks), size) as parsed:
            for number, (trial, row) in enumerate(zip(trials, rows, strict=True), 1):
                progress(0, f"trial {number} of {len(trials)}: {trial.name}")
                if trial.code is not None:
                    writer.add_trial(stored_row(row))
                    code, message = str(row["skipped_code"]), str(row["skipped_message"])
                    report.skipped.append({"trial": trial.name, "code": code, "message": message})
                    continue
                write_trial(writer, trial, parsed, kept.read, report, warnings)
                kept.done()
        reviews = job_reviews(kept.read, warnings)
        if not report.scored:
            warnings.warn("nothing_scored", "no trial has a reward")
        report.warnings = warnings.as_list()
        facts = {**job.job, "n_trials": report.trials, "n_scored": report.scored, "reviews": reviews}
        writer.commit(facts, report.as_dict(), PARSERS)
    return report


_LINK = ("task_digest", "linked_by", "dataset", "link_reason", "candidates")


def _trial(row: Mapping[str, Any], kept: _Kept, warnings: Warnings) -> Trial:
    name = row["trial_name"]
    trial = Trial(name, row["trial_id"], row["skipped_code"])
    if trial.code is not None:
        return trial
    data = kept.read(f"{name}/result.json")
    if data is None:
        raise TraceflowError("store_corrupt", f"job {kept.job.job_id} has no {name}/result.json")
    record = read_trial(data, f"{name}/result.json")
    warnings.take({"code": w.code, "message": w.message} for w in record.warnings)
    extra = jsontext.loads(row["extra"].encode()) if row["extra"] else {}
    return trial._replace(
        agent_name=record.agent_name,
        steps=step_names(record),
        link={column: row[column] for column in _LINK},
        facts={key: extra[key] for key in ("user_agent", "earlier_attempts") if key in extra},
        size=sum(file.size for file in kept.of_trial.get(name, ())),
    )


@dataclass
class _Kept:
    """The files of a stored job, and a folder where those of the trials in hand are laid out."""

    store: Store
    job: Manifest
    folder: Path
    limits: Limits
    files: dict[str, FileRow] = field(init=False)
    of_trial: dict[str, list[FileRow]] = field(init=False)
    contents: PackReader = field(init=False)
    out: deque[Path] = field(default_factory=deque)

    def __post_init__(self) -> None:
        rows = [row for row in self.store.files(self.job) if row.packed is not None]
        self.files = {row.path: row for row in rows}
        self.of_trial = {}
        for row in rows:
            name, _, rest = row.path.partition("/")
            if not row.derived and rest.startswith(("agent/", "steps/")):
                self.of_trial.setdefault(name, []).append(row)
        self.contents = self.store.contents(self.job)

    def read(self, path: str) -> bytes | None:
        """A record whole, or None where it is absent."""
        row = self.files.get(path)
        if row is None or row.packed is None or row.size > self.limits.record_bytes:
            return None
        return self.contents.read(row.packed)

    def task(self, trial: Trial) -> TrialTask:
        folder = str(self.folder / trial.name)
        ids = (self.job.job_id, trial.trial_id)
        return TrialTask(*ids, folder, trial.agent_name, trial.steps, (), self.limits.atif_bytes, trial.size)

    def laid_out(self, tasks: list[TrialTask]) -> Iterator[TrialTask]:
        """The tasks, each with its files in place when it is taken."""
        for task in tasks:
            target = Path(task.folder)
            target.mkdir()
            for row in self.of_trial.get(target.name, ()):
                assert row.packed is not None
                path = self.folder / row.path
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as file, self.contents.open(row.packed) as stream:
                    shutil.copyfileobj(stream, file, 1 << 20)
            self.out.append(target)
            yield task

    def done(self) -> None:
        """The oldest trial that is laid out was read."""
        shutil.rmtree(self.out.popleft())
