"""Ranked search: events by BM25 over their words, the best of each trial.

timeout redis            events with either word, those with both and with the rarer one first
"connection refused"     only events with these words in this order
timeout -docker          none that has the word
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

from .blocks import UNUSABLE
from .matching import Scope
from .pattern import Pattern
from .postings import open_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from traceflow.store.manifest import Manifest
    from traceflow.store.store import Store

    from .hits import Hit
    from .postings import JobWords

    _Progress = Callable[[int, str], None]

__all__ = ["Found", "Query", "index_jobs", "search", "snippet"]

K1, B = 1.2, 0.75
_SHORTEST, _LONGEST = 2, 40  # characters of a word
_MAX_TERMS = 64
_SNIPPET = 160  # characters
_MAX_LENGTH = 512
_GAP = r"[^\pL\pN_]"
_PART = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')


class Found(NamedTuple):
    """The best event of a trial, its score, and how many events of the trial match."""

    score: float
    matches: int
    hit: Hit


class Query(NamedTuple):
    """What is asked: terms that count, terms that must not stand in an event, phrases that must, and that must not."""

    terms: tuple[str, ...]
    without: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...]
    unwanted: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, words: str) -> Self:
        """Raises TraceflowError invalid_input for a question without a word, or with too many."""
        terms: list[str] = []
        without: list[str] = []
        phrases: list[tuple[str, ...]] = []
        unwanted: list[tuple[str, ...]] = []
        for minus, quoted, plain in _PART.findall(words):
            text = (quoted or plain).lower()
            whole = tuple(re.findall(r"\w+", text))
            found = [word for word in whole if _SHORTEST <= len(word) <= _LONGEST]
            if not minus:
                terms += found
            if len(whole) > 1:  # a phrase; or `error-401`, whose parts stand together as well
                (unwanted if minus else phrases).append(whole)
            elif minus:
                without += found
        if not terms:
            message = f"{words!r} has no word to look for: a word is 2 to 40 letters, digits and underscores"
            raise TraceflowError("invalid_input", message)
        if len(terms) + len(without) > _MAX_TERMS or len(words) > _MAX_LENGTH:
            message = f"more than {_MAX_TERMS} words or {_MAX_LENGTH} characters are refused"
            raise TraceflowError("invalid_input", message)
        return cls(*(tuple(dict.fromkeys(some)) for some in (terms, without, phrases, unwanted)))  # type: ignore[arg-type]


def search(
    store: Store,
    words: str,
    *,
    jobs: Iterable[str] | None = None,
    trials: Iterable[str] | None = None,
    types: Iterable[str] | None = None,
    agents: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    limit: int = 10,
    progress: _Progress = lambda amount, word: None,
) -> list[Found]:
    """The trials that fit the words best, at most `limit`, each with its best event; best first.

    Jobs that were never searched are indexed first; `progress` is told of each. Arguments are those of `grep`.
    Raises TraceflowError invalid_input for a question without a word, job_not_found, trial_not_found, io_error.
    """
    query = Query.parse(words)
    scope = Scope(store, jobs, trials, types, agents, models, None)
    searched = [job for job in scope.jobs if job.rows("events")]
    if not searched or limit <= 0:
        return []
    _, opened = _indexed(store, searched, progress)
    try:
        rows = _ranked(scope, searched, opened, query, limit)
    except (*UNUSABLE, FileNotFoundError) as error:
        raise TraceflowError(
            "store_corrupt", f"an index of search is damaged ({error}); remove the folder search of its job"
        ) from None
    pattern = _shown(query)
    by_id = {job.job_id: job for job in searched}
    wanted: dict[str, list[int]] = {}
    for job_id, _, row, _, _ in rows:
        wanted.setdefault(job_id, []).append(row)
    hits = {
        (job_id, row): hit
        for job_id, some in wanted.items()
        for row, hit in zip(sorted(some), scope.hits(by_id[job_id], sorted(some), pattern), strict=True)
    }
    return [Found(score, matches, hits[job_id, row]) for job_id, _, row, score, matches in rows]


def index_jobs(store: Store, jobs: Sequence[Manifest], progress: _Progress = lambda amount, word: None) -> int:
    """Index the words of the jobs that have no such index yet; how many had none."""
    return _indexed(store, jobs, progress)[0]


def _indexed(store: Store, jobs: Sequence[Manifest], progress: _Progress) -> tuple[int, list[JobWords]]:
    """The words of these jobs, and how many had to be indexed for it."""
    made = 0
    opened = []
    for job in jobs:
        words = open_words(store.backend, job)
        if words is None:
            from .words import build_words

            progress(0, str(job.job.get("original_job_name") or job.job_id))
            words = build_words(store, job)
            made += 1
        opened.append(words)
        progress(1, job.job_id)
    return made, opened


def snippet(hit: Hit, width: int = _SNIPPET) -> tuple[str, list[tuple[int, int]]]:
    """Part of the event's text around the place with most matches, on one line, and the matches in it."""
    spans = hit.places(1000)
    if not spans:
        return " ".join(hit.text[:width].split()), []
    best, most = 0, 0
    for number, (start, _) in enumerate(spans):
        inside = {hit.text[a:b].lower() for a, b in spans[number : number + 40] if b <= start + width * 3 // 4}
        if len(inside) > most:
            best, most = number, len(inside)
    begin = max(0, spans[best][0] - width // 4)
    end = min(len(hit.text), begin + width)
    part = re.sub(r"\s", " ", hit.text[begin:end])
    return part, [(a - begin, b - begin) for a, b in spans if a >= begin and b <= end]


# -- the question ------------------------------------------------------------------------------------------


def _phrase(words: Sequence[str]) -> str:
    """A phrase as a pattern: its words in their order, with anything between them that is no word."""
    return rf"(?i:(?:\A|{_GAP}){f'{_GAP}+'.join(words)}(?:{_GAP}|\z))"


def _shown(query: Query) -> Pattern:
    """What is marked in a hit: the words, whole where RE2 can tell."""
    longest = sorted(query.terms, key=lambda term: (-len(term), term))
    whole = [rf"\b{term}\b" if term.isascii() else term for term in longest]
    return Pattern(" ".join(query.terms), f"(?i:{'|'.join(whole)})")


# -- the answer --------------------------------------------------------------------------------------------


class _Ranked(NamedTuple):
    """The best event of a trial. They sort as they are shown."""

    order: float  # the score, negative, rounded: the sum of floats depends on their order
    job: int
    first: int  # the first event of the trial that fits
    trial_id: str
    row: int
    score: float
    matches: int


def _ranked(
    scope: Scope, jobs: Sequence[Manifest], words: Sequence[JobWords], query: Query, limit: int
) -> list[tuple[str, str, int, float, int]]:
    """Job, trial, row, score and matches of the best trials."""
    count = sum(each.docs for each in words)
    mean = sum(each.length for each in words) / max(count, 1)
    weights = []
    for term in query.terms:
        having = sum(len(each.postings(term)[0]) for each in words)
        weights.append((term, math.log(1 + (count - having + 0.5) / (having + 0.5)) * (K1 + 1)))
    found: list[_Ranked] = []
    for number, each in enumerate(words):
        events, scores = _fitting(scope, jobs[number], each, query, *_scores(each, weights, mean))
        for trial in each.trials:
            low, high = bisect_left(events, trial.first), bisect_left(events, trial.first + trial.rows)
            if low == high or not scope.chosen(trial.trial_id, trial.name, trial.agent, trial.model):
                continue
            best = max(scores[low:high])
            at = scores.index(best, low)
            found.append(_Ranked(-round(best, 9), number, events[low], trial.trial_id, events[at], best, high - low))
    return [(jobs[r.job].job_id, r.trial_id, r.row, r.score, r.matches) for r in sorted(found)[:limit]]


def _scores(words: JobWords, weights: Sequence[tuple[str, float]], mean: float) -> tuple[Sequence[int], list[float]]:
    """The events that have a term, which ascend, and the score of each: BM25."""
    low, high = K1 * (1 - B), K1 * B / mean if mean else 0.0
    parts: list[tuple[Sequence[int], list[float]]] = []
    for term, weight in weights:
        having, counts = words.postings(term)
        if having:
            lengths = words.lengths()
            # the one loop over every event that has a common word
            parts.append(
                (having, [weight * n / (n + low + high * lengths[at]) for at, n in zip(having, counts, strict=True)])
            )
    if len(parts) < 2:
        return parts[0] if parts else ((), [])
    total = dict(zip(*parts[0], strict=True))
    get = total.get
    for events, scores in parts[1:]:
        for at, score in zip(events, scores, strict=True):
            total[at] = get(at, 0.0) + score
    ascending = sorted(total)
    return ascending, [total[at] for at in ascending]


def _fitting(
    scope: Scope, job: Manifest, words: JobWords, query: Query, events: Sequence[int], scores: list[float]
) -> tuple[Sequence[int], list[float]]:
    """Of the events with a term those that are asked for."""
    if not (query.without or query.phrases or query.unwanted or scope.types is not None):
        return events, scores
    kept = set(events)
    for term in query.without:
        kept.difference_update(words.postings(term)[0])
    for phrase in query.phrases:
        kept &= _with_phrase(scope, job, words, phrase, kept)
    for phrase in query.unwanted:
        kept -= _with_phrase(scope, job, words, phrase, kept)
    if scope.types is not None and kept:
        ascending = sorted(kept)
        types = words.types(ascending)
        kept = {event for event, kind in zip(ascending, types, strict=True) if kind in scope.types}
    pairs = [(event, score) for event, score in zip(events, scores, strict=True) if event in kept]
    return [event for event, _ in pairs], [score for _, score in pairs]


def _with_phrase(scope: Scope, job: Manifest, words: JobWords, phrase: Sequence[str], among: set[int]) -> set[int]:
    """Those of some events in which the words of a phrase stand together. Only events that have all are read."""
    for word in phrase:
        if _SHORTEST <= len(word) <= _LONGEST:
            among = among.intersection(words.postings(word)[0])
    return set(scope.having(job, Pattern(" ".join(phrase), _phrase(phrase)), sorted(among))) if among else set()
