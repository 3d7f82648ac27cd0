"""Writing one job: files, events and trials stream in, and one atomic step at the end makes the job exist.

Everything goes to a revision folder of this attempt. Until the manifest is written nobody sees it; a killed
writer leaves only that folder, which `Store.gc` removes. Of two writers of one job the first to commit wins.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import pyarrow as pa
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event, TraceLine

from ..hashset import HashSet
from .backend import Backend
from .encoder import EventEncoder, RowBatches
from .grep_build import GrepIndexObject
from .grep_index import NAME as GREP_INDEX
from .layout import check_job_id, manifest_name, new_revision, revision_folder
from .manifest import Manifest, StoredObject
from .packs import PACK_SIZE, Packed, PackWriter, Readable
from .tables import GROUP_ROWS, TableObject, fit_row, rows_to_batch
from .totals import Totals

__all__ = ["JobWriter"]


class JobWriter:
    """One attempt to write a job. Use it as a context: what is not committed at the end is removed.

    Raises TraceflowError job_already_uploaded at the start when the job is there, and again at the commit when
    another writer was faster; io_error when the disk is full or fails. All methods are for one thread.
    """

    _written: tuple[str, ...] = ("trials", "events", "files")  # the tables that this attempt writes

    def __init__(self, backend: Backend, job_id: str, *, pack_size: int = PACK_SIZE) -> None:
        self.job_id = check_job_id(job_id)
        self.revision = new_revision()
        self._backend = backend
        self._folder = revision_folder(job_id, self.revision)
        self._create = functools.partial(_create, backend, self._folder)
        self._packs = PackWriter(self._create, pack_size)
        self._tables: dict[str, TableObject] = {}
        self._objects: list[StoredObject] = []
        self._event_rows = RowBatches(self._add_batch)
        self._n_events = 0
        self._rows: dict[str, list[dict[str, Any]]] = {"trials": [], "files": []}
        self._events_of: dict[str, tuple[int, int]] = {}  # trial to come -> first row and number of its events
        self._trials = HashSet()
        self._counts: dict[str, int] = {}
        self._paths = HashSet()
        self._grep: GrepIndexObject | None = None  # where events are written
        self._open = True
        self._begin()
        with self._machine():
            for table in self._written:
                if table == "events":
                    self._grep = GrepIndexObject(self._create(GREP_INDEX))
                told = (self._grep.group, self._grep.described) if self._grep is not None and table == "events" else ()
                self._tables[table] = TableObject(table, self._create(f"{table}.parquet"), *told)

    # -- what a job is made of ---------------------------------------------------------------------------

    def add_file(
        self, path: str, stream: Readable, *, mode: int = 0o644, trial_id: str | None = None, derived: bool = False
    ) -> Packed:
        """Store a file's content, read to its end, and return its size, digest and place.

        `path` is POSIX and relative to the job's folder; each path once. Equal content is stored once. What
        reading the stream raises is raised as it is, and the job can go on without the file.
        """
        self._check_path(path)
        try:
            with self._machine():
                packed = self._packs.add(_Source(stream))
        except _SourceFailed as failed:  # of the input, not of the store: the job can go on without this file
            raise failed.error from None
        self._file_row(
            {
                "path": path,
                "trial_id": trial_id,
                "kind": "file",
                "size": packed.size,
                "mode": mode & 0o7777,
                "sha256": packed.sha256,
                "derived": derived,
                "pack": packed.pack,
                "offset": packed.offset,
                "length": packed.length,
                "frames": packed.frames,
            },
        )
        return packed

    def add_directory(self, path: str, *, mode: int = 0o755, trial_id: str | None = None) -> None:
        """Remember an empty folder."""
        self._check_path(path)
        row = {"path": path, "trial_id": trial_id, "kind": "directory", "size": 0, "mode": mode & 0o7777}
        self._file_row({**row, "derived": False})

    def add_link(self, path: str, target: str, *, mode: int = 0o777, trial_id: str | None = None) -> None:
        """Remember a link with its target, verbatim. Links are never followed."""
        self._check_path(path)
        row = {"path": path, "trial_id": trial_id, "kind": "link", "size": 0, "mode": mode & 0o7777, "target": target}
        self._file_row({**row, "derived": False})

    def add_events(self, trial_id: str, events: Iterable[Event | TraceLine]) -> Totals:
        """Store the events of a trial as they come, once per trial and before its `add_trial`.

        Events are numbered from 0, lines of a trace keep their position. What `events` raises is raised as it is;
        the events before it are then the trial's.
        """
        encoder = EventEncoder(self.job_id, trial_id)
        self.add_rows(trial_id, encoder.rows(events))
        return encoder.totals()

    def add_rows(self, trial_id: str, rows: Iterable[list[list[Any]]]) -> None:
        """The same for rows as an EventEncoder makes them, some at a time; its totals are the caller's to ask for."""
        self._begin_events(trial_id)
        before = self._event_rows.count
        try:
            self._event_rows.extend(rows)
        finally:
            self._end_events(trial_id, self._event_rows.count - before)

    def add_batches(self, counts: Iterable[tuple[str, int]], batches: Iterable[pa.RecordBatch]) -> None:
        """The same for the rows of several trials that were made in another process: `counts` has each with the
        number of its rows, in their order."""
        self._event_rows.flush()
        for trial_id, count in counts:
            self._begin_events(trial_id)
            self._end_events(trial_id, count)
        for batch in batches:
            self._add_batch(batch)

    def add_trial(self, row: Mapping[str, Any]) -> None:
        """Store a trial: columns by name, as `tables.fit_row` takes them. `trial_id` and `trial_name` are needed;
        `job_id`, `n_events` and `event_offset` are filled in here. A trial with `skipped_code` is SKIPPED, one
        without a status UNSCORED."""
        trial_id = row["trial_id"]
        if not self._trials.add(hash(trial_id)):
            raise ValueError(f"the trial {trial_id} was added before")
        status = "SKIPPED" if row.get("skipped_code") else str(row.get("status") or "UNSCORED")
        self._counts[status] = self._counts.get(status, 0) + 1
        offset, count = self._events_of.pop(trial_id, (None, 0))
        written = self._row("trials", {**row, "status": status, "n_events": count, "event_offset": offset})
        if self._grep is not None:
            self._grep.trial(written)

    @contextlib.contextmanager
    def create_object(self, name: str) -> Iterator[BinaryIO]:
        """A further object of the job, `events.grep` for instance; the manifest will name it."""
        with self._machine(), self._create(name) as stream:
            digesting = _Digesting(stream)
            yield digesting  # type: ignore[misc]
        self._objects.append(StoredObject(name, digesting.size, digesting.digest.hexdigest()))

    # -- the end -----------------------------------------------------------------------------------------

    def commit(
        self,
        job: Mapping[str, Any] | None = None,
        report: Mapping[str, Any] | None = None,
        parsers: Mapping[str, str] | None = None,
    ) -> Manifest:
        """Make the job exist. `job` is its record (see docs/store.md for the keys that the `jobs` view shows)."""
        if not self._open:
            raise ValueError("the writer is closed")
        try:
            self._event_rows.flush()
            with self._machine():
                for table in ("trials", "files"):
                    self._flush(table)
                objects = [table.finish() for table in self._tables.values()]
                if self._grep is not None:
                    objects.append(self._grep.finish(self._tables["events"].table.size))
                self._tables.clear()
                objects += [*self._packs.finish(), *self._objects]
                manifest = Manifest(
                    self.job_id, self.revision, tuple(objects), self._counts, job or {}, report or {}, parsers or {}
                )
                manifest = self._publish(manifest)
        except BaseException:
            self.abort()
            raise
        self._close()
        return manifest

    def abort(self) -> None:
        """Remove what was written. Safe to call at any time; after a commit it does nothing."""
        if not self._open:
            return
        self._close()
        for table in self._tables.values():
            table.drop()
        if self._grep is not None:
            self._grep.drop()
        self._packs.abort()
        with contextlib.suppress(OSError):
            if not self._committed():
                self._backend.delete_prefix(self._folder)

    def __enter__(self) -> JobWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    # -- inside ------------------------------------------------------------------------------------------

    def _close(self) -> None:
        """No more is taken in. Nothing refers to the writer from inside any more: a cycle would keep its compressors,
        some 3 MB, until a collector of cycles comes by."""
        self._open = False
        self._event_rows = RowBatches(_closed)

    def _begin(self) -> None:
        """Refuse what cannot end well, before anything is written."""
        if self._backend.exists(manifest_name(self.job_id)):
            raise self._taken()

    def _publish(self, manifest: Manifest) -> Manifest:
        """The one step that makes the revision the job."""
        if not self._backend.put_if_absent(manifest_name(self.job_id), manifest.to_bytes(), self._folder):
            if self._committed():  # the answer was lost on its way, and the client asked again
                return manifest
            raise self._taken()
        return manifest

    def _committed(self) -> bool:
        """Whether the job is this attempt's: an interrupt or a lost answer may hit right after the commit."""
        try:
            data = self._backend.read_bytes(manifest_name(self.job_id))
        except FileNotFoundError:
            return False
        try:
            return Manifest.from_bytes(data, self.job_id).revision == self.revision
        except TraceflowError:
            return self.revision.encode() in data

    def _check_path(self, path: str) -> None:
        if hash(path) in self._paths:
            raise ValueError(f"the path {path!r} was added before")
        if not path or path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} is no path below the job's folder")

    def _file_row(self, row: Mapping[str, Any]) -> None:
        self._paths.add(hash(row["path"]))
        self._row("files", row)

    def _row(self, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """Take in a row; what it is made to fit its table."""
        rows = self._rows[table]
        fitted = fit_row(table, {**row, "job_id": self.job_id})
        rows.append(fitted)
        if len(rows) >= GROUP_ROWS:
            with self._machine():
                self._flush(table)
        return fitted

    def _flush(self, table: str) -> None:
        rows = self._rows[table]
        if rows:
            self._tables[table].table.add(rows_to_batch(table, rows))
            self._rows[table] = []

    def _begin_events(self, trial_id: str) -> None:
        if trial_id in self._events_of or hash(trial_id) in self._trials:
            raise ValueError(f"the events of trial {trial_id} come once, and before the trial")

    def _end_events(self, trial_id: str, count: int) -> None:
        self._events_of[trial_id] = (self._n_events, count)
        self._n_events += count

    def _add_batch(self, batch: pa.RecordBatch) -> None:
        with self._machine():
            self._tables["events"].table.add(batch)

    @contextlib.contextmanager
    def _machine(self) -> Iterator[None]:
        """A failure of the machine ends the job, in words."""
        try:
            yield
        except TraceflowError:
            raise
        except OSError as error:
            self.abort()
            raise _machine_error(error, self.job_id, self._backend.url) from error

    def _taken(self) -> TraceflowError:
        return TraceflowError(
            "job_already_uploaded",
            f"job {self.job_id} is in the store already; delete it first to import it anew",
            existing_job_id=self.job_id,
        )


def _create(backend: Backend, folder: str, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
    return backend.create(f"{folder}/{name}")


def _closed(batch: pa.RecordBatch) -> None:
    raise ValueError("the writer is closed")


def _machine_error(error: OSError, job_id: str, url: str) -> TraceflowError:
    what = error.strerror or str(error) or type(error).__name__
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "make room there and import again"
    else:
        advice = "nothing of the job is visible; import again when it is mended"
    name = f" ({os.fsdecode(error.filename)})" if isinstance(error.filename, str | bytes | os.PathLike) else ""
    return TraceflowError(
        "io_error", f"job {job_id} could not be written to {url}: {what}{name}; {advice}", errno=error.errno
    )


class _SourceFailed(Exception):
    """Reading the input failed."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class _Source:
    """The input of a file, whose failures are not the store's."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            raise _SourceFailed(error) from error


class _Digesting:
    """A stream that digests what is written, from its beginning to its end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)
