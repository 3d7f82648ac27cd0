"""Deciding the task links of a stored job anew: after a dataset was added or removed, or with another `-d`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..store import Manifest, Store, stored_row
from .links import Rollup, flagged, linker

__all__ = ["Relinked", "relink_job"]


@dataclass(frozen=True, slots=True)
class Relinked:
    """What came of it: how many trials have another link now, counts by reason or "linked", and rows by task."""

    job_id: str
    changed: int
    link_counts: Mapping[str, int]
    task_links: Sequence[Mapping[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "changed": self.changed,
            "link_counts": dict(self.link_counts),
            "task_links": list(self.task_links),
        }


def relink_job(store: Store, job: Manifest, datasets: Sequence[str] = ()) -> Relinked:
    """Link the trials of a job as an import would now, with these `-d`. Nothing else of the job changes.

    A job whose links stay as they are is not written. Raises TraceflowError dataset_not_found,
    dataset_version_not_found, store_conflict when another process changes the job meanwhile.
    """
    deciding = linker(store, job.job.get("datasets") or (), flagged(store, datasets))
    rows = store.trials(job)
    links = Rollup()
    changed = 0
    for row in rows:
        if row["status"] == "SKIPPED":
            continue
        link = deciding.link(row["task_name"] or "", row["task_digest"])
        links.add(row["task_name"] or "", link)
        columns = link.columns()
        changed += any((row[name] or None) != value for name, value in columns.items())
        row.update(columns)
    by_task, counts = links.rows(), links.counts
    facts = {**job.job, "task_links": by_task, "link_counts": counts, "dataset_flags": list(datasets)}
    if changed or facts != dict(job.job):
        with store.rewriter(job, keep=("events", "files")) as writer:
            for row in rows:
                writer.add_trial(stored_row(row))
            writer.commit(facts, {**job.report, "task_links": counts}, job.parsers)
    return Relinked(job.job_id, changed, counts, by_task)
