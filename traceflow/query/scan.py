"""Grep without an index: RE2 as DuckDB runs it over the Parquet tables.

DuckDB finds the rows, in batches of jobs; the hits are then read by row group, so that a pattern that is everywhere
needs no more memory than a rare one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from traceflow.store import Manifest, Store
from traceflow.store.reading import open_table, read_table

from .connection import explain_error
from .engine import open_locked, quote
from .hits import Hit
from .pattern import Pattern

__all__ = ["IN_EVENT", "IN_TEXT", "ScannedJob", "hits_at", "names_of", "rows_at", "scan"]

_BATCH_BYTES = 256 << 20  # of events.parquet, per query
_BATCH_JOBS = 64
_FETCH = 10_000
_HIT_COLUMNS = ["trial_id", "seq", "type", "tool_name", "agent_id", "timestamp", "text"]
IN_TEXT = 'regexp_matches("text", $pattern)'
IN_EVENT = f"(regexp_matches(type, $pattern) OR {IN_TEXT} OR regexp_matches(tool_name, $pattern))"


class ScannedJob(NamedTuple):
    """A job, and the ids of the trials that are asked for, None for all."""

    job: Manifest
    chosen: frozenset[str] | None = None


def scan(
    store: Store,
    jobs: Sequence[ScannedJob],
    types: Sequence[str] | None,
    search: Pattern,
    select: str,
    condition: str,
    end: str = "",
    limit: int | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Search jobs, one query per batch; the rows, each with the number of its job before it.

    Without `end` rows come in their order, and with a limit the search ends when it has so many.
    """
    left = limit
    connection, root = open_locked(store)
    try:
        for batch in _batches(jobs):
            numbers = {root + jobs[n].job.path("events.parquet"): n for n in batch}
            where, values = _where([jobs[n] for n in batch], types, condition)
            order = ""
            if not end and "some_trials" in values:  # the join with the trials gives rows in any order
                order, values["names"] = "ORDER BY list_position($names, filename), file_row_number", list(numbers)
            rows = connection.execute(
                f"SELECT filename, {select} FROM read_parquet([{', '.join(map(quote, numbers))}], "
                f"filename = true, file_row_number = true) WHERE {where} {end}{order}"
                + ("" if left is None else f" LIMIT {left}"),
                {"pattern": search.expression, **values},
            )
            while found := rows.fetchmany(_FETCH):
                left = None if left is None else left - len(found)
                for name, *rest in found:
                    yield (numbers[name], *rest)
            if left is not None and left <= 0:
                return
    except duckdb.Error as error:
        raise explain_error(error) from None
    finally:
        connection.close()


def _batches(jobs: Sequence[ScannedJob]) -> Iterator[list[int]]:
    """Numbers of jobs to search together: of one version, in order."""
    batch: list[int] = []
    size = 0
    for number, (job, chosen) in enumerate(jobs):
        if not job.rows("events") or (chosen is not None and not chosen):
            continue
        full = len(batch) >= _BATCH_JOBS or size >= _BATCH_BYTES
        if batch and (full or jobs[batch[0]].job.schema_version != job.schema_version):
            yield batch
            batch, size = [], 0
        batch.append(number)
        stored = job.object("events.parquet")
        size += stored.size if stored is not None else 0
    if batch:
        yield batch


def _where(jobs: Sequence[ScannedJob], types: Sequence[str] | None, condition: str) -> tuple[str, dict[str, Any]]:
    """The condition with what is asked for added to it, and the values of its parameters."""
    values: dict[str, Any] = {}
    if any(chosen is not None for _, chosen in jobs):
        some = [(job.job_id, trial_id) for job, chosen in jobs for trial_id in sorted(chosen or ())]
        values["some_jobs"], values["some_trials"] = ([pair[n] for pair in some] for n in (0, 1))
        condition = f"(job_id, trial_id) IN (SELECT unnest($some_jobs), unnest($some_trials)) AND {condition}"
    if types is not None:
        values["types"] = list(types)
        condition = f"list_contains($types::VARCHAR[], type) AND {condition}"  # a join would lose the order
    return condition, values


def hits_at(
    store: Store, jobs: Sequence[ScannedJob], places: Iterable[tuple[Any, ...]], search: Pattern
) -> Iterator[Hit]:
    """The events at these places: numbers of jobs, and of rows in their events."""
    for number, group in groupby(places, key=itemgetter(0)):
        job = jobs[number].job
        names = names_of(store, job)
        for part in rows_at(store, job, (row for _, row in group), _HIT_COLUMNS):
            columns = part.set_column(5, "timestamp", part.column("timestamp").cast(pa.int64())).to_pydict().values()
            for trial_id, seq, kind, tool, agent, when, text in zip(*columns, strict=True):
                yield Hit(job.job_id, trial_id, names[trial_id][0], seq, kind, tool, agent, when, text, search)


def names_of(store: Store, job: Manifest) -> dict[str, tuple[str, str | None]]:
    """Name and task of each trial of a job."""
    table = read_table(store.backend, job, "trials", ["trial_id", "trial_name", "task_name"])
    return {row["trial_id"]: (row["trial_name"], row["task_name"]) for row in table.to_pylist()}


def rows_at(store: Store, job: Manifest, rows: Iterable[int], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """These rows of the job's events (ascending numbers), a table per row group that has some."""
    with open_table(store.backend, job, "events") as file:
        group, start, stop = -1, 0, 0
        wanted: list[int] = []
        for row in rows:
            if row >= stop:
                if wanted:
                    yield file.read_row_group(group, columns=columns).take(wanted)
                    wanted = []
                while row >= stop:
                    group += 1
                    start, stop = stop, stop + file.metadata.row_group(group).num_rows
            wanted.append(row - start)
        if wanted:
            yield file.read_row_group(group, columns=columns).take(wanted)
