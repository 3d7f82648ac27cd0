"""Making the catalog, and reading the trials of many jobs through it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .catalog import LATEST, Entry, Listing, Pointer, marks, take_stock
from .layout import CATALOG, manifest_name
from .manifest import Manifest, StoredObject
from .reading import fitted, groups_of, open_for_arrow, read_table
from .schema import arrow_schema
from .tables import Hashing

__all__ = ["Compacted", "compact", "differences", "old_objects", "trials_of"]

_GROUP_ROWS = 16_384
_BATCH = 256  # jobs whose trials are asked for at once


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a catalog holds: how many jobs, how many of them were read anew, trials, and bytes of its objects."""

    jobs: int
    read: int
    trials: int
    size: int


def compact(backend: Backend, progress: Callable[[int], None] = lambda jobs: None) -> Compacted:
    """Write a catalog of the jobs that are there now. A job that cannot be read is left out."""
    listing = take_stock(backend, lenient=True)
    old = _old_trials(backend, listing)
    entries: list[tuple[str, Manifest]] = []
    out = io.BytesIO()
    hashing = Hashing(out)
    schema = arrow_schema("trials")
    with pq.ParquetWriter(
        hashing, schema, compression="zstd", compression_level=3, write_page_checksum=True, version="2.6"
    ) as writer:
        pending: list[pa.Table] = []
        rows = 0
        for job, table in _tables(backend, listing, old, progress):
            entries.append((listing.stamps[job.job_id], job))
            pending.append(table)
            rows += table.num_rows
            if rows >= _GROUP_ROWS:
                writer.write_table(pa.concat_tables(pending), row_group_size=_GROUP_ROWS)
                pending, rows = [], 0
        if pending:
            writer.write_table(pa.concat_tables(pending), row_group_size=_GROUP_ROWS)
    count = sum(job.rows("trials") for _, job in entries)
    lines = b"\n".join(jsontext.dumps([stamp, job.as_value()]) for stamp, job in entries)
    pointer = Pointer(
        _put(backend, "jobs", ".zst", zstandard.ZstdCompressor(level=3).compress(lines), len(entries)),
        _put(backend, "trials", ".parquet", out.getvalue(), count),
    )
    with backend.create(LATEST) as stream:
        stream.write(pointer.to_bytes())
    read = sum(job.job_id not in listing.known for _, job in entries)
    return Compacted(len(entries), read, count, pointer.jobs.size + pointer.trials.size)


def _put(backend: Backend, what: str, ending: str, data: bytes, rows: int) -> StoredObject:
    digest = hashlib.sha256(data).hexdigest()
    name = f"{what}-{digest[:32]}{ending}"
    with backend.create(f"{CATALOG}/{name}") as stream:
        stream.write(data)
    return StoredObject(name, len(data), digest, rows)


def _old_trials(backend: Backend, listing: Listing) -> pa.Table | None:
    """The trials of the catalog that stands, when they are what was written."""
    if listing.pointer is None:
        return None
    stored = listing.pointer.trials
    try:
        data = backend.read_range(f"{CATALOG}/{stored.name}", 0, stored.size)
    except FileNotFoundError:
        return None
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        return None
    return pq.read_table(pa.BufferReader(data), schema=arrow_schema("trials"))


def _tables(
    backend: Backend, listing: Listing, old: pa.Table | None, progress: Callable[[int], None]
) -> Iterator[tuple[Manifest, pa.Table]]:
    """The trials of every job, in the order of their ids: from the old catalog, or from the job itself."""
    jobs = list(listing.jobs.values())
    for at in range(0, len(jobs), _BATCH):
        some = jobs[at : at + _BATCH]
        apart = [job for job in some if old is None or job.job_id not in listing.known]
        found = dict(zip((job.job_id for job in apart), _own_tables(backend, apart), strict=True))
        for job in some:
            if job.job_id not in found:
                table = old.slice(listing.known[job.job_id].first, job.rows("trials"))  # type: ignore[union-attr]
            else:
                table = found[job.job_id]
            if table is not None and table.num_rows == job.rows("trials"):
                yield job, table
        progress(len(some))


def _own_tables(backend: Backend, jobs: list[Manifest]) -> Iterator[pa.Table | None]:
    """The trials of jobs as each has them; None for what cannot be read."""
    schema = arrow_schema("trials")
    stored = [job.object("trials.parquet") for job in jobs]
    try:
        ranges = [(job.path(o.name), 0, o.size) for job, o in zip(jobs, stored, strict=True) if o is not None]
        contents = backend.read_ranges(ranges)
    except FileNotFoundError:  # one was deleted meanwhile
        for job in jobs:
            try:
                yield read_table(backend, job, "trials")
            except TraceflowError:
                yield None
        return
    for data, o in zip(contents, stored, strict=True):
        try:
            if o is None or hashlib.sha256(data).hexdigest() != o.sha256:
                yield None
                continue
            with pq.ParquetFile(pa.BufferReader(data)) as file:
                yield fitted(file.read(), schema, schema.names).combine_chunks()
        except (pa.ArrowException, OSError):
            yield None


# -- reading -----------------------------------------------------------------------------------------------


def trials_of(
    backend: Backend, listing: Listing, jobs: Iterable[Manifest], columns: list[str] | None = None
) -> Iterator[tuple[Manifest, pa.Table]]:
    """The trials of each of these jobs, with all columns or with these; through the catalog where it knows the job."""
    with _Catalog(backend, listing, columns) as catalog:
        for job in jobs:
            entry = listing.known.get(job.job_id)
            if (
                entry is not None
                and entry.manifest.revision == job.revision
                and (table := catalog.trials(entry)) is not None
            ):
                yield job, table
            else:
                yield job, read_table(backend, job, "trials", columns)


class _Catalog:
    """The open table of a catalog, one row group in hand."""

    def __init__(self, backend: Backend, listing: Listing, columns: list[str] | None) -> None:
        self._backend, self._listing, self._columns = backend, listing, columns
        self._file: pq.ParquetFile | None = None
        self._stream: Any = None
        self._held: tuple[int, pa.Table | None] = -1, None

    def __enter__(self) -> _Catalog:
        pointer = self._listing.pointer
        if pointer is not None:
            try:
                self._stream = open_for_arrow(self._backend, f"{CATALOG}/{pointer.trials.name}")
                self._file = pq.ParquetFile(self._stream, pre_buffer=True, page_checksum_verification=True)
            except (OSError, pa.ArrowException):
                self._file = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
        if self._stream is not None:
            self._stream.close()

    def trials(self, entry: Entry) -> pa.Table | None:
        """The rows of one job; None when the catalog cannot be read."""
        if self._file is None:
            return None
        try:
            parts = [
                self._group(number).slice(start, stop - start)
                for number, start, stop in groups_of(self._file, entry.first, entry.manifest.rows("trials"))
            ]
        except (OSError, pa.ArrowException):
            self._file = None
            return None
        return pa.concat_tables(parts) if parts else self._empty()

    def _group(self, number: int) -> pa.Table:
        assert self._file is not None
        held, table = self._held
        if held != number or table is None:
            table = self._file.read_row_group(number, columns=self._columns)
            self._held = number, table
        return table

    def _empty(self) -> pa.Table:
        schema = arrow_schema("trials")
        return (schema if self._columns is None else pa.schema([schema.field(n) for n in self._columns])).empty_table()


# -- care --------------------------------------------------------------------------------------------------


def differences(backend: Backend) -> Iterator[tuple[str, str]]:
    """What the catalog has that the jobs do not: the object, and in words."""
    listing = take_stock(backend, lenient=True)
    if listing.pointer is None:
        return
    with _Catalog(backend, listing, None) as catalog:
        for job_id, entry in listing.known.items():
            data = backend.read_many([manifest_name(job_id)])[0]
            if data is None:  # deleted meanwhile
                continue
            try:
                job = Manifest.from_bytes(data, job_id)
                same, own = job == entry.manifest, read_table(backend, job, "trials")
            except TraceflowError:  # told of the job itself
                continue
            if not same:
                yield listing.pointer.jobs.name, f"job {job_id} is not as its manifest says"
            elif catalog.trials(entry) != own:
                yield listing.pointer.trials.name, f"the trials of job {job_id} are not those of its table"


def old_objects(backend: Backend) -> Iterator[tuple[str, int, float]]:
    """Objects of catalogs that no longer stand, and marks that the catalog has heeded: name, bytes, age."""
    listing = take_stock(backend, lenient=True)
    pointer = Pointer.read(backend)
    named = {LATEST, *(f"{CATALOG}/{o.name}" for o in ((pointer.jobs, pointer.trials) if pointer else ()))}
    for found in list(backend.objects(CATALOG)):
        if found.name not in named and found.name.count("/") == 1:
            yield found.name, found.size, found.age
    stale = frozenset(listing.stale)
    standing = {(job.job_id, job.revision) for job in listing.jobs.values()}
    for job_id, revision, name, age in marks(backend):
        if (job_id, revision) in standing or job_id not in stale:
            yield name, 1, age
