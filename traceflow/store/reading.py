"""Reading the tables of one job: rows as they were written, whatever version wrote them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .layout import manifest_name
from .local import LocalBackend
from .manifest import Manifest
from .packs import Packed
from .schema import arrow_schema

if TYPE_CHECKING:  # what is asked of files needs no events
    from traceflow_formats.trace import TraceLine

__all__ = [
    "FileRow",
    "Matches",
    "as_file_row",
    "file_row",
    "file_rows",
    "fitted",
    "groups_of",
    "open_for_arrow",
    "open_table",
    "read_table",
    "reading",
    "trace",
    "trial_names",
    "trial_row",
    "trial_rows",
]

_SMALL = 4 << 20  # bytes of a table that is read at once from another machine
Matches = Callable[[str, str, str | None], bool]  # of an event's type, text and tool name


@dataclass(frozen=True, slots=True)
class FileRow:
    """A file of a job: `kind` is file, directory (an empty one) or link; `packed` is where its content lies."""

    path: str
    trial_id: str | None
    kind: str
    size: int
    mode: int
    sha256: str | None
    target: str | None
    derived: bool
    packed: Packed | None


@contextlib.contextmanager
def reading(backend: Backend, job: Manifest, what: str) -> Iterator[None]:
    """Failures while a job is read, in words."""
    try:
        yield
    except FileNotFoundError:
        if not backend.exists(manifest_name(job.job_id)):
            raise TraceflowError("job_not_found", f"job {job.job_id} was deleted meanwhile") from None
        raise TraceflowError("store_corrupt", f"{what} of job {job.job_id} is missing", job_id=job.job_id) from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError, KeyError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceflowError(
            "store_corrupt", f"{what} of job {job.job_id} cannot be read: {first}", job_id=job.job_id
        ) from None
    except OSError as error:
        # pyarrow says OSError for damaged pages as well
        raise TraceflowError(
            "store_corrupt" if error.errno is None else "io_error",
            f"{what} of job {job.job_id} cannot be read: {str(error).splitlines()[0]}",
            job_id=job.job_id,
        ) from None


@contextlib.contextmanager
def open_table(backend: Backend, job: Manifest, table: str) -> Iterator[pq.ParquetFile]:
    """A table of the job as a Parquet file; failures in the block are told in words."""
    name = f"{table}.parquet"
    with (
        reading(backend, job, name),
        open_for_arrow(backend, job.path(name), stored.size if (stored := job.object(name)) else None) as stream,
        pq.ParquetFile(stream, pre_buffer=True, page_checksum_verification=True) as file,
    ):
        yield file


def open_for_arrow(backend: Backend, name: str, size: int | None = None) -> Any:
    """An object as Arrow reads it best: a file of its own, not one of Python's, or from memory what is small.

    Arrow's threads may still let go of a Python file while the interpreter ends, which aborts the process
    (pyarrow 26: "terminate called without an active exception").
    """
    if isinstance(backend, LocalBackend):
        return pa.OSFile(str(backend.root / name))
    if size is not None and size <= _SMALL:  # one request; its footer alone would take two
        return pa.BufferReader(backend.read_range(name, 0, size))
    return backend.open_read(name)


def read_table(backend: Backend, job: Manifest, table: str, columns: list[str] | None = None) -> pa.Table:
    """A whole table with the columns of today's schema; what an older job lacks is null."""
    schema = arrow_schema(table)
    names = columns if columns is not None else schema.names
    with open_table(backend, job, table) as file:
        present = set(file.schema_arrow.names)
        return fitted(file.read(columns=[name for name in names if name in present]), schema, names)


def fitted(found: pa.Table, schema: pa.Schema, names: list[str]) -> pa.Table:
    """The table with these columns of a schema; those that it lacks are null."""
    present = set(found.schema.names)
    types = {name: schema.field(name).type for name in names}
    arrays = [found.column(name) if name in present else pa.nulls(found.num_rows, types[name]) for name in names]
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(name) for name in names]))


def trial_rows(backend: Backend, job: Manifest) -> list[dict[str, Any]]:
    """The trials, each as a mapping of all columns."""
    rows: list[dict[str, Any]] = read_table(backend, job, "trials").to_pylist()
    return rows


def trial_row(backend: Backend, job: Manifest, trial_id: str) -> dict[str, Any]:
    """One trial, as a mapping of all columns."""
    schema = arrow_schema("trials")
    with open_table(backend, job, "trials") as file:
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["trial_id"]).column("trial_id").to_pylist()
            if trial_id in ids:
                found = fitted(file.read_row_group(group), schema, schema.names).slice(ids.index(trial_id), 1)
                row: dict[str, Any] = found.to_pylist()[0]
                return row
        raise KeyError(trial_id)


def trial_names(backend: Backend, job: Manifest) -> list[dict[str, Any]]:
    """Id and name of each trial."""
    rows: list[dict[str, Any]] = read_table(backend, job, "trials", ["trial_id", "trial_name"]).to_pylist()
    return rows


# -- files -------------------------------------------------------------------------------------------------


def file_rows(backend: Backend, job: Manifest, trial_id: str | None = None) -> list[FileRow]:
    """The files of the job, or of one trial, sorted by path."""
    table = read_table(backend, job, "files")
    if trial_id is not None:
        import pyarrow.compute as pc  # it takes a while: only where rows are chosen

        table = table.filter(pc.equal(table.column("trial_id"), trial_id))
    return sorted(map(as_file_row, table.to_pylist()), key=lambda row: row.path)


def file_row(backend: Backend, job: Manifest, path: str) -> FileRow:
    """The file with this path. Raises TraceflowError not_found."""
    import pyarrow.compute as pc

    table = read_table(backend, job, "files")
    found = table.filter(pc.equal(table.column("path"), path)).to_pylist()
    if not found:
        raise TraceflowError("not_found", f"job {job.job_id} has no file {path!r}", path=path)
    return as_file_row(found[0])


def as_file_row(row: Mapping[str, Any]) -> FileRow:
    """A row of the table of files."""
    packed = None
    if row["kind"] == "file":
        frames = row["frames"]
        packed = Packed(
            row["sha256"], row["size"], row["pack"], row["offset"], row["length"], tuple(frames) if frames else None
        )
    return FileRow(
        row["path"],
        row["trial_id"],
        row["kind"],
        row["size"],
        row["mode"],
        row["sha256"],
        row["target"],
        row["derived"],
        packed,
    )


# -- events ------------------------------------------------------------------------------------------------


def trace(
    backend: Backend,
    job: Manifest,
    trial: Mapping[str, Any],
    types: frozenset[str] | None = None,
    after: int | None = None,
    tail: int | None = None,
    limit: int | None = None,
    matches: Matches | None = None,
) -> Iterator[TraceLine]:
    """The events of one trial, row group by row group; see `Store.trace`."""
    from .decode import decode_batch

    offset, count = trial["event_offset"], trial["n_events"] or 0
    if offset is None or not count:
        return
    keep = _Keep(types, after, matches)
    with open_table(backend, job, "events") as file:
        groups = groups_of(file, offset, count)
        if tail is not None:
            yield from _last(file, groups, keep, tail)[:limit]
            return
        left = limit
        for number, start, stop in groups:
            rows = keep(file.read_row_group(number).slice(start, stop - start))
            yield from decode_batch(rows if left is None else rows.slice(0, left))
            if left is not None:
                left -= rows.num_rows
                if left <= 0:
                    return


def _last(file: pq.ParquetFile, groups: list[tuple[int, int, int]], keep: _Keep, tail: int) -> list[TraceLine]:
    from .decode import decode_batch

    parts: list[pa.Table] = []
    missing = tail
    for number, start, stop in reversed(groups):
        if missing <= 0:
            break
        rows = keep(file.read_row_group(number).slice(start, stop - start))
        rows = rows.slice(max(0, rows.num_rows - missing))
        missing -= rows.num_rows
        parts.append(rows)
    return [line for rows in reversed(parts) for line in decode_batch(rows)]


def groups_of(file: pq.ParquetFile, offset: int, count: int) -> list[tuple[int, int, int]]:
    """The row groups that hold these rows: number, first row in it, row after the last."""
    found = []
    at = 0
    for number in range(file.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        start, stop = max(0, offset - at), min(rows, offset + count - at)
        if start < stop:
            found.append((number, start, stop))
        at += rows
    return found


@dataclass(frozen=True, slots=True)
class _Keep:
    """Which events of a trial are asked for."""

    types: frozenset[str] | None
    after: int | None
    matches: Matches | None

    def __call__(self, rows: pa.Table) -> pa.Table:
        if self.types is None and self.after is None and self.matches is None:
            return rows
        import pyarrow.compute as pc

        if self.types is not None:
            rows = rows.filter(pc.is_in(rows.column("type"), pa.array(sorted(self.types), pa.string())))
        if self.after is not None:
            rows = rows.filter(pc.greater(rows.column("seq"), self.after))
        if self.matches is not None and rows.num_rows:
            names = ("type", "text", "tool_name")
            columns = [rows.column(name).to_pylist() for name in names]
            rows = rows.filter(pa.array([self.matches(*values) for values in zip(*columns, strict=True)]))
        return rows
