"""Another revision of a job: written beside the one that stands, and put in its place in one step.

What does not change is carried over: a second name of the same bytes on a local disk, a copy by the server on an
object store. So every revision is a whole job of its own, and what `verify`, `gc` and readers know of a job stays true.
Of two rewriters of one job the first to commit wins; the other is told store_conflict and can begin again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .catalog import mark_gone
from .layout import job_folder, manifest_name
from .manifest import Manifest, StoredObject
from .packs import PACK_SIZE
from .schema import TABLES
from .tables import JSON_COLUMNS
from .writer import JobWriter

__all__ = ["JobRewriter", "stored_row"]


class JobRewriter(JobWriter):
    """A writer of another revision of `old`; used as JobWriter is, and nothing of it is seen before `commit`.

    `keep` are tables that stay as they are: `trials`, `events` (with all that is made of them, such as `events.grep`;
    `add_trial` then takes `n_events` and `event_offset` from its row) and `files` (with the packs). Of the others
    every row is written anew. `stored_row` makes a row that was read into one that `add_trial` takes.

    Raises TraceflowError job_not_found when the job is gone, store_conflict when it is another revision by now: at
    the start, and at the commit.
    """

    def __init__(
        self, backend: Backend, old: Manifest, keep: Iterable[str] = (), *, pack_size: int = PACK_SIZE
    ) -> None:
        self.old = old
        self.keep = frozenset(keep)
        if unknown := self.keep - TABLES.keys():
            raise ValueError(f"a job has no table {', '.join(sorted(unknown))}")
        self._written = tuple(table for table in TABLES if table not in self.keep)
        super().__init__(backend, old.job_id, pack_size=pack_size)
        with self._machine():
            for stored in self._kept():
                backend.carry(old.path(stored.name), f"{self._folder}/{stored.name}")
                self._objects.append(stored)
        if "trials" in self.keep:
            self._counts = dict(old.counts)

    def add_trial(self, row: Mapping[str, Any]) -> None:
        if "events" in self.keep and row.get("event_offset") is not None:
            self._events_of[row["trial_id"]] = (row["event_offset"], row.get("n_events") or 0)
        super().add_trial(row)

    def _check_path(self, path: str) -> None:
        if "files" in self.keep:
            raise ValueError(f"the files are kept, so that {path!r} cannot be added")
        super()._check_path(path)

    def _kept(self) -> Iterable[StoredObject]:
        for stored in self.old.objects:
            table = stored.name.removesuffix(".parquet")
            if table not in TABLES:
                table = "files" if stored.name.startswith("pack-") else "events"
            if table in self.keep:
                yield stored

    def _begin(self) -> None:
        try:
            self._before = self._backend.read_bytes(manifest_name(self.job_id))
        except FileNotFoundError:
            raise self._gone() from None
        if Manifest.from_bytes(self._before, self.job_id).revision != self.old.revision:
            raise self._conflict()

    def _publish(self, manifest: Manifest) -> Manifest:
        # a kept table has the columns of the version that wrote it
        version = min(manifest.schema_version, self.old.schema_version) if self.keep else manifest.schema_version
        there = set(self._backend.folders(job_folder(self.job_id)))
        previous = tuple(name for name in (*self.old.previous, self.old.revision) if name in there)
        manifest = manifest.changed(schema_version=version, previous=previous)
        name = manifest_name(self.job_id)
        mark_gone(self._backend, self.old)
        if not self._backend.swap(name, self._before, manifest.to_bytes(), self._folder):
            if self._committed():  # the answer was lost on its way, and the client asked again
                return manifest
            raise self._conflict() if self._backend.exists(name) else self._gone()
        return manifest

    def _conflict(self) -> TraceflowError:
        return TraceflowError(
            "store_conflict",
            f"job {self.job_id} was changed by another process meanwhile; run it again",
            job_id=self.job_id,
        )

    def _gone(self) -> TraceflowError:
        return TraceflowError("job_not_found", f"job {self.job_id} was deleted meanwhile", job_id=self.job_id)


def stored_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `Store.trials` as `add_trial` takes it. One that is not changed is stored as it was."""
    out = dict(row)
    for column in JSON_COLUMNS & out.keys():
        if out[column] is not None:
            out[column] = jsontext.loads(out[column])
    rewards = out.get("rewards")
    if rewards is not None:
        out["rewards"] = [(r["name"], r["value"] if r["text"] is None else r["text"]) for r in rewards]
    return out
