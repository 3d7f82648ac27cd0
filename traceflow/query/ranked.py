"""Ranked search: events by BM25 over their words, the best of each trial.

timeout redis            events with either word, those with both and with the rarer one first
"connection refused"     only events with these words in this order
timeout -docker          none that has the word
"""

from __future__ import annotations

import re

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

from .blocks import UNUSABLE
from .matching import Scope
from .pattern import Pattern
from .postings import open_words
from .scoring import LONGEST, SHORTEST, Ranking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Self

    from traceflow.store.manifest import Manifest
    from traceflow.store.store import Store

    from .hits import Hit
    from .postings import JobWords

    _Progress = Callable[[int, str], None]

__all__ = ["Found", "Query", "index_jobs", "search", "snippet"]

_MAX_TERMS = 64
_SNIPPET = 160  # characters
_MAX_LENGTH = 512
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
            found = [word for word in whole if SHORTEST <= len(word) <= LONGEST]
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
        ranking = Ranking(scope, searched, opened, query)
        rows = [(each, ranking.matches(each)) for each in ranking.best(limit)]
    except (*UNUSABLE, FileNotFoundError) as error:
        raise TraceflowError(
            "store_corrupt", f"an index of search is damaged ({error}); remove the folder search of its job"
        ) from None
    pattern = _shown(query)
    wanted: dict[int, list[int]] = {}
    for each, _ in rows:
        wanted.setdefault(each.job, []).append(each.row)
    hits = {
        (job, row): hit
        for job, some in wanted.items()
        for row, hit in zip(sorted(some), scope.hits(searched[job], sorted(some), pattern), strict=True)
    }
    return [Found(each.score, matches, hits[each.job, each.row]) for each, matches in rows]


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


def _shown(query: Query) -> Pattern:
    """What is marked in a hit: the words, whole where RE2 can tell."""
    longest = sorted(query.terms, key=lambda term: (-len(term), term))
    whole = [rf"\b{term}\b" if term.isascii() else term for term in longest]
    return Pattern(" ".join(query.terms), f"(?i:{'|'.join(whole)})")
