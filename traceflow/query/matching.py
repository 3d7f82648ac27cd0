"""Grep over the events of a store: RE2 patterns, answered by the index where it can, else by a scan.

A pattern is searched in `text`: words, the strings of a call's input, results, errors. Hits come in the order of
job ids, of trials as their job has them, and of events in their trace, whichever way they were found. The index
answers when the pattern says which literals a text must hold (`literals`) and the job has one; where it is missing
or damaged DuckDB reads everything (`scan`).
"""

from __future__ import annotations

from collections import deque
from itertools import groupby, islice
from operator import itemgetter

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING
from traceflow.store.grep_index import NAME as INDEX
from traceflow.store.grep_index import BadIndexError, open_index

from .blocks import UNUSABLE, Blocks, BlockSearch, in_order, processors
from .hits import TrialCount, TrialHits
from .literals import ANY_TEXT, looks_around, required
from .pattern import Pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from traceflow.store.grep_index import GrepIndex, IndexedTrial
    from traceflow.store.manifest import Manifest
    from traceflow.store.reading import Matches
    from traceflow.store.store import Store

    from .blocks import Row
    from .hits import Hit
    from .literals import Condition
    from .scan import ScannedJob

__all__ = ["Scope", "grep", "grep_counts", "job_grep", "trace_matcher"]

FIRST_EVENTS = 5  # events that a trial's group shows
_ROW = "file_row_number"
_PREFIX = 8  # characters of an id that are enough to name a trial


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
    use_index: bool = True,
) -> Iterator[Hit]:
    """The events whose text matches: all, the first `limit`, or the last `tail` (oldest first).

    `jobs` and `trials` are ids, beginnings of ids or names, `types` event types, `agents` and `models` those of
    the trials. Without `use_index` everything is read; the answer is the same. Raises TraceflowError invalid_input
    for a pattern that is refused, job_not_found, trial_not_found.
    """
    search = Pattern.parse(pattern, fixed, case_sensitive)
    scope = Scope(store, jobs, trials, types, agents, models, _asked(search) if use_index else None)
    if tail is not None:
        return iter(_last(scope, search, tail)[:limit])
    if not _few(limit):
        scope.prefetch()
    return _first(scope, search, limit)


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
    use_index: bool = True,
) -> list[TrialCount]:
    """The trials that have hits, in order, each with the number of its events that match.

    Arguments are those of `grep`; the sum of the counts is the number of its hits.
    """
    search = Pattern.parse(pattern, fixed, case_sensitive)
    scope = Scope(store, jobs, trials, types, agents, models, _asked(search) if use_index else None)
    scope.prefetch()
    out: list[TrialCount] = []
    for indexed, group in groupby(scope.jobs, key=scope.has_index):
        run = list(group)
        out += _indexed_counts(scope, run, search) if indexed else _scanned_counts(scope, run, search)
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
    from traceflow.store.decode import decode_batch

    from .engine import quote
    from .scan import IN_EVENT, ScannedJob, names_of, rows_at, scan

    search = Pattern.parse(pattern, fixed, case_sensitive)
    where = IN_EVENT if cursor is None else f"trial_id > {quote(cursor)} AND {IN_EVENT}"
    select = f"trial_id, count(*), min(file_row_number, {FIRST_EVENTS})"
    end = f"GROUP BY filename, trial_id ORDER BY trial_id LIMIT {max(0, limit)}"
    kinds = None if types is None else sorted(types)
    rows = list(scan(store, [ScannedJob(job)], kinds, search, select, where, end))
    names = names_of(store, job) if rows else {}
    out = []
    for _, trial_id, count, first in rows:
        events = tuple(line for part in rows_at(store, job, sorted(first)) for line in decode_batch(part))
        out.append(TrialHits(trial_id, *names[trial_id], count, events))
    return out


def trace_matcher(pattern: str, *, fixed: bool = False, case_sensitive: bool = False) -> Matches:
    """For `Store.trace(matches=...)`: whether an event's type, text or tool name matches."""
    search = Pattern.parse(pattern, fixed, case_sensitive).compile().search

    def matches(kind: str, text: str, tool_name: str | None) -> bool:
        return bool(search(kind) or search(text) or (tool_name is not None and search(tool_name)))

    return matches


# -- where -------------------------------------------------------------------------------------------------


class Scope:
    """Jobs in order, what of them is asked for, and the index of each that has one."""

    def __init__(
        self,
        store: Store,
        jobs: Iterable[str] | None,
        trials: Iterable[str] | None,
        types: Iterable[str] | None,
        agents: Iterable[str] | None,
        models: Iterable[str] | None,
        condition: Condition | None,
    ) -> None:
        named = store.jobs() if jobs is None else [store.job(name) for name in jobs]
        self.store = store
        self.jobs: Sequence[Manifest] = sorted({j.job_id: j for j in named}.values(), key=lambda job: job.job_id)
        self.types = None if types is None else sorted(types)
        self.condition = condition
        self.choice = None if trials is None and agents is None and models is None else _Choice(trials, agents, models)
        self._indexes: dict[str, GrepIndex | None] = {}
        if self.choice is not None and trials is not None:
            self._check_names(self.choice)

    def prefetch(self) -> None:
        """Bring all indexes to this machine at once, where each of them would be waited for."""
        if self.condition is not None and self.store.backend.parallel > 1:
            stored = [(job, job.object(INDEX)) for job in self.jobs]
            self.store.backend.prefetch((job.path(INDEX), found.size) for job, found in stored if found is not None)

    def index(self, job: Manifest) -> GrepIndex | None:
        """The index of a job, when it has one that can be used."""
        if job.job_id not in self._indexes:
            try:
                self._indexes[job.job_id] = open_index(self.store.backend, job)
            except BadIndexError:
                self._indexes[job.job_id] = None
        return self._indexes[job.job_id]

    def has_index(self, job: Manifest) -> bool:
        """Whether the index answers for this job."""
        return self.condition is not None and self.index(job) is not None

    def search(self, job: Manifest, pattern: Pattern) -> BlockSearch:
        """The search of an indexed job."""
        index = self.index(job)
        if index is None or self.condition is None:
            raise BadIndexError("there is none")
        keep: Callable[[IndexedTrial], bool] | None = None
        if self.choice is not None:
            choice = self.choice
            keep = lambda t: choice(t.trial_id, t.name, t.agent, t.model)  # noqa: E731
        types = None if self.types is None else frozenset(self.types)
        return BlockSearch(self.store.backend, job, index, pattern, self.condition, keep, types)

    def having(self, job: Manifest, pattern: Pattern, rows: Sequence[int]) -> list[int]:
        """Those of these rows of a job, which ascend, whose text matches."""
        index = self.index(job)
        try:
            if index is not None:
                return Blocks(self.store.backend, job, index, pattern).having(rows, pattern.compile().search)
        except UNUSABLE:
            pass
        from .scan import IN_TEXT, ScannedJob, scan

        found = [row for _, row in scan(self.store, [ScannedJob(job)], None, pattern, _ROW, IN_TEXT)]
        return sorted(set(rows) & set(found))

    def hits(self, job: Manifest, rows: Sequence[int], pattern: Pattern) -> list[Hit]:
        """The events in these rows of a job, which ascend."""
        index = self.index(job)
        try:
            if index is not None:
                return Blocks(self.store.backend, job, index, pattern).at(rows)
        except UNUSABLE:
            pass
        from .scan import ScannedJob, hits_at

        return list(hits_at(self.store, [ScannedJob(job)], ((0, row) for row in rows), pattern))

    def chosen(self, trial_id: str, name: str, agent: str | None, model: str | None) -> bool:
        """Whether the trial is asked for."""
        return self.choice is None or self.choice(trial_id, name, agent, model)

    def scanned(self, jobs: Iterable[Manifest]) -> list[ScannedJob]:
        """Jobs for a scan."""
        from .scan import ScannedJob

        return [ScannedJob(job, self._chosen(job)) for job in jobs]

    def _chosen(self, job: Manifest) -> frozenset[str] | None:
        if self.choice is None:
            return None
        return frozenset(row[0] for row in self._trials(job) if self.choice(*row))

    def _trials(self, job: Manifest) -> list[tuple[str, str, str | None, str | None]]:
        """Id, name, agent and model of all trials of a job."""
        from traceflow.store.reading import read_table

        names = ["trial_id", "trial_name", "agent", "model"]
        rows = read_table(self.store.backend, job, "trials", names).to_pylist()
        return [(row["trial_id"], row["trial_name"], row["agent"], row["model"]) for row in rows]

    def _check_names(self, choice: _Choice) -> None:
        """Refuse a name that no trial has. Trials without events are in no index."""
        for job in self.jobs:
            index = self.index(job)
            for trial in index.trials if index is not None else ():
                choice(trial.trial_id, trial.name, trial.agent, trial.model)
        if choice.unused:
            for job in self.jobs:
                for row in self._trials(job):
                    choice(*row)
        if choice.unused:
            name = min(choice.unused)
            raise TraceflowError("trial_not_found", f"no trial {name!r} in the jobs that are searched", name=name)


class _Choice:
    """Picks trials by id, beginning of an id, or name, and by agent and model."""

    def __init__(
        self, trials: Iterable[str] | None, agents: Iterable[str] | None, models: Iterable[str] | None
    ) -> None:
        self._names = None if trials is None else frozenset(trials)
        self._agents = None if agents is None else frozenset(agents)
        self._models = None if models is None else frozenset(models)
        self.unused = set(self._names or ())

    def __call__(self, trial_id: str, name: str, agent: str | None, model: str | None) -> bool:
        if self._names is not None:
            found = {n for n in self._names if n in (trial_id, name) or (len(n) >= _PREFIX and trial_id.startswith(n))}
            self.unused -= found
            if not found:
                return False
        return (self._agents is None or agent in self._agents) and (self._models is None or model in self._models)


def _asked(search: Pattern) -> Condition | None:
    """What the index is asked; None where every text must be looked at by itself, which an engine does faster."""
    condition = required(search.expression)
    return ANY_TEXT if condition is None and not looks_around(search.expression) else condition


# -- the search --------------------------------------------------------------------------------------------


def _first(scope: Scope, search: Pattern, limit: int | None) -> Iterator[Hit]:
    """The hits in their order, at most so many."""
    left = limit
    for indexed, group in groupby(scope.jobs, key=scope.has_index):
        if left is not None and left <= 0:
            return
        run = list(group)
        for hit in _indexed_hits(scope, run, search, left) if indexed else _scanned_hits(scope, run, search, left):
            yield hit
            if left is not None:
                left -= 1
                if left <= 0:
                    return


def _indexed_hits(scope: Scope, jobs: Sequence[Manifest], search: Pattern, limit: int | None) -> Iterator[Hit]:
    """The hits of jobs by their indexes; of a job whose index fails on the way the rest of them by a scan."""
    given, broken = 0, None
    last: Manifest | None = None
    for job, blocks, rows in _blocks(scope, jobs, search, _threads(scope.store, limit)):
        if job is not last:
            last, given = job, 0
        if job is broken:
            continue
        hits: Iterable[Hit]
        try:
            if blocks is None or rows is None:
                raise BadIndexError("it cannot be read")
            hits = blocks.hits(rows if limit is None else rows[:limit])
        except UNUSABLE:
            broken = job
            hits = islice(_scanned_hits(scope, [job], search, None), given, None)
        for hit in hits:
            given += 1
            yield hit


def _blocks(
    scope: Scope, jobs: Iterable[Manifest], search: Pattern, threads: int
) -> Iterator[tuple[Manifest, BlockSearch | None, list[Row] | None]]:
    """The rows that match of every block that may have some; None for them, or for both, where the index fails."""

    def found() -> Iterator[tuple[Manifest, BlockSearch | None, int]]:
        for job in jobs:
            try:
                blocks = scope.search(job, search)
            except UNUSABLE:
                yield job, None, 0
            else:
                yield from ((job, blocks, block) for block in blocks.blocks)

    def read(item: tuple[Manifest, BlockSearch | None, int]) -> list[Row] | None:
        _, blocks, block = item
        try:
            return None if blocks is None else blocks.block(block)
        except UNUSABLE:
            return None

    for (job, blocks, _), rows in in_order(read, found(), threads):
        yield job, blocks, rows


def _scanned_hits(scope: Scope, jobs: Sequence[Manifest], search: Pattern, limit: int | None) -> Iterator[Hit]:
    from .scan import IN_TEXT, hits_at, scan

    scanned = scope.scanned(jobs)
    places = scan(scope.store, scanned, scope.types, search, _ROW, IN_TEXT, limit=limit)
    yield from hits_at(scope.store, scanned, places, search)


def _last(scope: Scope, search: Pattern, tail: int) -> list[Hit]:
    """The last hits, oldest first: jobs are searched from the last one on."""
    found: deque[Hit] = deque()
    for indexed, group in groupby(reversed(scope.jobs), key=scope.has_index):
        run = list(group)
        for part in [[job] for job in run] if indexed else [run[::-1]]:
            missing = tail - len(found)
            if missing <= 0:
                break
            hits: list[Hit] | None = None
            if indexed:
                try:
                    hits = _last_indexed(scope, part[0], search, missing)
                except UNUSABLE:
                    hits = None
            found.extendleft(reversed(_last_scanned(scope, part, search, missing) if hits is None else hits))
    return list(found)


def _last_indexed(scope: Scope, job: Manifest, search: Pattern, tail: int) -> list[Hit]:
    found: deque[Hit] = deque()
    blocks = scope.search(job, search)
    for rows in blocks.rows(backwards=True):
        found.extendleft(reversed(blocks.hits(rows[-(tail - len(found)) :])))
        if len(found) >= tail:
            break
    return list(found)


def _last_scanned(scope: Scope, jobs: Sequence[Manifest], search: Pattern, tail: int) -> list[Hit]:
    from .scan import IN_TEXT, hits_at, scan

    scanned = scope.scanned(jobs)
    places = deque(scan(scope.store, scanned, scope.types, search, _ROW, IN_TEXT), tail)
    return list(hits_at(scope.store, scanned, places, search))


def _indexed_counts(scope: Scope, jobs: Sequence[Manifest], search: Pattern) -> list[TrialCount]:
    out: list[TrialCount] = []
    for job, group in groupby(_blocks(scope, jobs, search, _threads(scope.store, None)), key=itemgetter(0)):
        counts: dict[IndexedTrial, int] = {}
        try:
            for _, blocks, rows in group:
                if blocks is None or rows is None:
                    raise BadIndexError("it cannot be read")
                for row in rows:
                    trial = blocks.trial_of(row)
                    counts[trial] = counts.get(trial, 0) + 1
        except UNUSABLE:
            out += _scanned_counts(scope, [job], search)
        else:
            out += [TrialCount(job.job_id, trial.trial_id, trial.name, count) for trial, count in counts.items()]
    return out


def _scanned_counts(scope: Scope, jobs: Sequence[Manifest], search: Pattern) -> list[TrialCount]:
    from .scan import IN_TEXT, names_of, scan

    select = "min(file_row_number), trial_id, count(*)"
    scanned = scope.scanned(jobs)
    rows = sorted(scan(scope.store, scanned, scope.types, search, select, IN_TEXT, "GROUP BY filename, trial_id"))
    out: list[TrialCount] = []
    names: dict[int, Any] = {}
    for number, _, trial_id, count in rows:
        job = scanned[number].job
        if number not in names:
            names = {number: names_of(scope.store, job)}
        out.append(TrialCount(job.job_id, trial_id, names[number][trial_id][0], count))
    return out


def _few(limit: int | None) -> bool:
    """Whether a few hits end the search, so that it need not be fast beyond them."""
    return limit is not None and limit < 1000


def _threads(store: Store, limit: int | None) -> int:
    """Threads that read blocks: one for each processor, or as many as are worth waiting in for a network."""
    return 1 if _few(limit) else max(processors(), store.backend.parallel)
