"""Grep over the events of a store: RE2, as DuckDB runs it over the Parquet tables.

A pattern is searched in `text`: words, the strings of a call's input, results, errors. Hits come in the order of
job ids, of trials as their job has them, and of events in their trace. DuckDB finds the rows, in batches of jobs;
the hits are then read by row group, so that a pattern that is everywhere needs no more memory than a rare one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import TraceLine

from traceflow.store import Manifest, Store
from traceflow.store.decode import decode_batch
from traceflow.store.reading import Matches, open_table, read_table

from .connection import explain_error, open_locked
from .pattern import Pattern
from .views import quote

__all__ = ["Hit", "TrialCount", "TrialHits", "grep", "grep_counts", "job_grep", "trace_matcher"]

FIRST_EVENTS = 5  # events that a trial's group shows
_PREFIX = 8  # characters of an id that are enough to name a trial
_BATCH_BYTES = 256 << 20  # of events.parquet, per query
_BATCH_JOBS = 64
_FETCH = 10_000
_IN_TEXT = 'regexp_matches("text", $pattern)'
_IN_EVENT = f"(regexp_matches(type, $pattern) OR {_IN_TEXT} OR regexp_matches(tool_name, $pattern))"


@dataclass(frozen=True, slots=True)
class Hit:
    """An event that matches."""

    job_id: str
    trial_id: str
    trial_name: str
    seq: int
    type: str
    tool_name: str | None
    agent_id: str | None
    timestamp: int | None  # microseconds since 1970, UTC
    text: str
    pattern: Pattern = field(repr=False)

    def spans(self, limit: int = 100) -> list[tuple[int, int]]:
        """The first places of `text` that match: start and end, in characters."""
        found = self.pattern.compile().finditer(self.text)
        return [match.span() for match in islice(found, limit)]

    @property
    def line_number(self) -> int:
        """The line of the text, from 1, in which the first match begins."""
        return self.text.count("\n", 0, self._first()) + 1

    @property
    def line(self) -> str:
        """That line, without its line feed."""
        at = self._first()
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        return self.text[start : end if end >= 0 else len(self.text)]

    def _first(self) -> int:
        spans = self.spans(1)
        return spans[0][0] if spans else 0


class TrialCount(NamedTuple):
    """How many events of a trial match."""

    job_id: str
    trial_id: str
    trial_name: str
    matches: int


@dataclass(frozen=True, slots=True)
class TrialHits:
    """The events of a trial that match: how many, exactly, and the first five."""

    trial_id: str
    trial_name: str
    task_name: str | None
    match_count: int
    events: tuple[TraceLine, ...]


# -- what is asked -----------------------------------------------------------------------------------------


def grep(
    store: Store,
    pattern: str,
    *,
    jobs: Iterable[str] | None = None,
    trials: Iterable[str] | None = None,
    types: Iterable[str] | None = None,
    agents: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    fixed: bool = False,
    case_sensitive: bool = False,
    limit: int | None = None,
    tail: int | None = None,
) -> Iterator[Hit]:
    """The events whose text matches: all, the first `limit`, or the last `tail` (oldest first).

    `jobs` and `trials` are ids, beginnings of ids or names, `types` event types, `agents` and `models` those of
    the trials. Raises TraceflowError invalid_input for a pattern that is refused, job_not_found, trial_not_found.
    """
    search = Pattern.parse(pattern, fixed, case_sensitive)
    scope = _Scope.of(store, jobs, trials, types, agents, models)
    return _hits(scope, search, limit, tail)


def grep_counts(
    store: Store,
    pattern: str,
    *,
    jobs: Iterable[str] | None = None,
    trials: Iterable[str] | None = None,
    types: Iterable[str] | None = None,
    agents: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    fixed: bool = False,
    case_sensitive: bool = False,
) -> list[TrialCount]:
    """The trials that have hits, in order, each with the number of its events that match.

    Arguments are those of `grep`; the sum of the counts is the number of its hits.
    """
    search = Pattern.parse(pattern, fixed, case_sensitive)
    scope = _Scope.of(store, jobs, trials, types, agents, models)
    select = "min(file_row_number), trial_id, count(*)"
    rows = sorted(_scan(scope, search, select, _IN_TEXT, "GROUP BY filename, trial_id"))
    out: list[TrialCount] = []
    for number, group in groupby(rows, key=itemgetter(0)):
        job = scope.jobs[number]
        names = _names(store, job)
        out += [TrialCount(job.job_id, trial_id, names[trial_id][0], count) for _, _, trial_id, count in group]
    return out


def job_grep(
    store: Store,
    job: Manifest,
    pattern: str,
    *,
    limit: int = 50,
    cursor: str | None = None,
    types: Iterable[str] | None = None,
    fixed: bool = False,
    case_sensitive: bool = False,
) -> list[TrialHits]:
    """The trials of a job with events that match, in the order of their ids, at most `limit`.

    `cursor` is the trial id that the page before ended with. The pattern is that of a trace: an event matches by
    its type, its text or the name of its tool.
    """
    search = Pattern.parse(pattern, fixed, case_sensitive)
    scope = _Scope(store, [job], None, None if types is None else sorted(types))
    where = _IN_EVENT if cursor is None else f"trial_id > {quote(cursor)} AND {_IN_EVENT}"
    select = f"trial_id, count(*), min(file_row_number, {FIRST_EVENTS})"
    end = f"GROUP BY filename, trial_id ORDER BY trial_id LIMIT {max(0, limit)}"
    rows = list(_scan(scope, search, select, where, end))
    names = _names(store, job) if rows else {}
    out = []
    for _, trial_id, count, first in rows:
        events = tuple(line for part in _rows_at(store, job, sorted(first)) for line in decode_batch(part))
        out.append(TrialHits(trial_id, *names[trial_id], count, events))
    return out


def trace_matcher(pattern: str, *, fixed: bool = False, case_sensitive: bool = False) -> Matches:
    """For `Store.trace(matches=...)`: whether an event's type, text or tool name matches."""
    search = Pattern.parse(pattern, fixed, case_sensitive).compile().search

    def matches(kind: str, text: str, tool_name: str | None) -> bool:
        return bool(search(kind) or search(text) or (tool_name is not None and search(tool_name)))

    return matches


# -- where -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scope:
    """Jobs in order, and what of them: `chosen` are the trial ids of each job, None for all."""

    store: Store
    jobs: Sequence[Manifest]
    chosen: Sequence[frozenset[str]] | None
    types: Sequence[str] | None

    @classmethod
    def of(
        cls,
        store: Store,
        jobs: Iterable[str] | None,
        trials: Iterable[str] | None,
        types: Iterable[str] | None,
        agents: Iterable[str] | None,
        models: Iterable[str] | None,
    ) -> _Scope:
        named = store.jobs() if jobs is None else [store.job(name) for name in jobs]
        found = sorted({job.job_id: job for job in named}.values(), key=lambda job: job.job_id)
        kinds = None if types is None else sorted(types)
        if trials is None and agents is None and models is None:
            return cls(store, found, None, kinds)
        choose = _Choice(trials, agents, models)
        chosen = [choose(store, job) for job in found]
        choose.check()
        return cls(store, found, chosen, kinds)

    def batches(self) -> Iterator[list[int]]:
        """Numbers of jobs to search together: of one version, in order."""
        batch: list[int] = []
        size = 0
        for number, job in enumerate(self.jobs):
            if not job.rows("events") or (self.chosen is not None and not self.chosen[number]):
                continue
            full = len(batch) >= _BATCH_JOBS or size >= _BATCH_BYTES
            if batch and (full or self.jobs[batch[0]].schema_version != job.schema_version):
                yield batch
                batch, size = [], 0
            batch.append(number)
            stored = job.object("events.parquet")
            size += stored.size if stored is not None else 0
        if batch:
            yield batch


class _Choice:
    """Picks trials by id, beginning of an id, or name, and by agent and model."""

    def __init__(
        self, trials: Iterable[str] | None, agents: Iterable[str] | None, models: Iterable[str] | None
    ) -> None:
        self._names = None if trials is None else frozenset(trials)
        self._agents = None if agents is None else frozenset(agents)
        self._models = None if models is None else frozenset(models)
        self._unused = set(self._names or ())

    def __call__(self, store: Store, job: Manifest) -> frozenset[str]:
        rows = read_table(store.backend, job, "trials", ["trial_id", "trial_name", "agent", "model"]).to_pylist()
        return frozenset(row["trial_id"] for row in rows if self._named(row) and self._fits(row))

    def check(self) -> None:
        """Refuse a name that no trial has."""
        if self._unused:
            name = min(self._unused)
            raise TraceflowError("trial_not_found", f"no trial {name!r} in the jobs that are searched", name=name)

    def _named(self, row: Mapping[str, Any]) -> bool:
        if self._names is None:
            return True
        own = (row["trial_id"], row["trial_name"])
        found = {n for n in self._names if n in own or (len(n) >= _PREFIX and own[0].startswith(n))}
        self._unused -= found
        return bool(found)

    def _fits(self, row: Mapping[str, Any]) -> bool:
        return (self._agents is None or row["agent"] in self._agents) and (
            self._models is None or row["model"] in self._models
        )


def _names(store: Store, job: Manifest) -> dict[str, tuple[str, str | None]]:
    """Name and task of each trial of a job."""
    table = read_table(store.backend, job, "trials", ["trial_id", "trial_name", "task_name"])
    return {row["trial_id"]: (row["trial_name"], row["task_name"]) for row in table.to_pylist()}


# -- the search --------------------------------------------------------------------------------------------


def _hits(scope: _Scope, search: Pattern, limit: int | None, tail: int | None) -> Iterator[Hit]:
    if (limit is not None and limit <= 0) or (tail is not None and tail <= 0):
        return
    places: Iterable[Any] = _scan(scope, search, "file_row_number", _IN_TEXT, "", limit if tail is None else None)
    if tail is not None:
        places = list(deque(places, tail))[:limit]
    for number, group in groupby(places, key=itemgetter(0)):
        job = scope.jobs[number]
        names = _names(scope.store, job)
        for part in _rows_at(scope.store, job, (row for _, row in group), _HIT_COLUMNS):
            for row in part.set_column(5, "timestamp", part.column("timestamp").cast(pa.int64())).to_pylist():
                yield Hit(job_id=job.job_id, trial_name=names[row["trial_id"]][0], pattern=search, **row)


_HIT_COLUMNS = ["trial_id", "seq", "type", "tool_name", "agent_id", "timestamp", "text"]


def _scan(
    scope: _Scope, search: Pattern, select: str, condition: str, end: str, limit: int | None = None
) -> Iterator[tuple[Any, ...]]:
    """Search the jobs, one query per batch; the rows, each with the number of its job before it.

    Without `end` rows come in their order, and with a limit the search ends when it has so many.
    """
    left = limit
    connection, root = open_locked(scope.store)
    try:
        for batch in scope.batches():
            numbers = {root + scope.jobs[n].path("events.parquet"): n for n in batch}
            where, values = _where(scope, batch, condition)
            rows = connection.execute(
                f"SELECT filename, {select} FROM read_parquet([{', '.join(map(quote, numbers))}], "
                f"filename = true, file_row_number = true) WHERE {where} {end}"
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


def _where(scope: _Scope, batch: Sequence[int], condition: str) -> tuple[str, dict[str, Any]]:
    """The condition with what the scope adds to it, and the values of its parameters."""
    values: dict[str, Any] = {}
    if scope.chosen is not None:
        some = [(scope.jobs[n].job_id, trial_id) for n in batch for trial_id in sorted(scope.chosen[n])]
        values["some_jobs"], values["some_trials"] = ([pair[n] for pair in some] for n in (0, 1))
        condition = f"(job_id, trial_id) IN (SELECT unnest($some_jobs), unnest($some_trials)) AND {condition}"
    if scope.types is not None:
        values["types"] = list(scope.types)
        condition = f"type IN (SELECT unnest($types::VARCHAR[])) AND {condition}"
    return condition, values


def _rows_at(store: Store, job: Manifest, rows: Iterable[int], columns: list[str] | None = None) -> Iterator[pa.Table]:
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
