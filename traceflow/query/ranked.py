"""Ranked search: events by BM25 over their words, the best of each trial.

timeout redis            events with either word, those with both and with the rarer one first
"connection refused"     only events with these words in this order
timeout -docker          none that has the word
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from traceflow_formats.errors import TraceflowError

from traceflow.store.manifest import Manifest
from traceflow.store.store import Store

from .hits import Hit
from .literals import required
from .matching import Scope
from .pattern import Pattern

if TYPE_CHECKING:
    import duckdb

__all__ = ["Found", "Query", "index_jobs", "search", "snippet"]

K1, B = 1.2, 0.75
_MAX_TERMS = 64
_SNIPPET = 160  # characters
_MAX_LENGTH = 512
_GAP = r"[^\pL\pN_]"
_PART = re.compile(r'(-?)(?:"([^"]*)"?|(\S+))')
_Progress = Callable[[int, str], None]


class Found(NamedTuple):
    """The best event of a trial, its score, and how many events of the trial match."""

    score: float
    matches: int
    hit: Hit


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: terms that count, terms that must not stand in an event, phrases that must, and that must not."""

    terms: tuple[str, ...]
    without: tuple[str, ...]
    phrases: tuple[tuple[str, ...], ...]
    unwanted: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, words: str) -> Query:
        """Raises TraceflowError invalid_input for a question without a word, or with too many."""
        terms: list[str] = []
        without: list[str] = []
        phrases: list[tuple[str, ...]] = []
        unwanted: list[tuple[str, ...]] = []
        for minus, quoted, plain in _PART.findall(words):
            text = (quoted or plain).lower()
            whole = tuple(re.findall(r"\w+", text))
            found = [word for word in whole if 2 <= len(word) <= 40]
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
    import duckdb

    from .connection import explain_error
    from .engine import open_locked

    query = Query.parse(words)
    scope = Scope(store, jobs, trials, types, agents, models, None)
    searched = [job for job in scope.jobs if job.rows("events")]
    if not searched or limit <= 0:
        return []
    index_jobs(store, searched, progress)
    connection, root = open_locked(store)
    try:
        rows = _ranked(connection, root, scope, searched, query, limit)
    except duckdb.Error as error:
        raise explain_error(error) from None
    finally:
        connection.close()
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
    from .words import build_words, has_words

    made = 0
    for job in jobs:
        if not has_words(store.backend, job):
            progress(0, str(job.job.get("original_job_name") or job.job_id))
            build_words(store, job)
            made += 1
        progress(1, job.job_id)
    return made


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


def _ranked(
    connection: duckdb.DuckDBPyConnection,
    root: str,
    scope: Scope,
    jobs: Sequence[Manifest],
    query: Query,
    limit: int,
) -> list[tuple[str, str, int, float, int]]:
    """Job, trial, row, score and matches of the best trials."""
    from .engine import quote
    from .words import DOCS, WORDS

    words, docs = (
        f"read_parquet([{', '.join(quote(root + job.path(name)) for job in jobs)}])" for name in (WORDS, DOCS)
    )
    values: dict[str, Any] = {"limit": limit}
    where = ["true"]
    if query.without:
        unwanted = f"SELECT job_id, event FROM {words} WHERE term IN {_listed(query.without)}"
        where.append(f"(job_id, event) NOT IN ({unwanted})")
    if scope.types is not None:
        values["types"] = list(scope.types)
        where.append("list_contains($types::VARCHAR[], type)")
    if scope.choice is not None:
        chosen = [(s.job.job_id, t) for s in scope.scanned(jobs) for t in sorted(s.chosen or ())]
        values["some_jobs"], values["some_trials"] = ([pair[n] for pair in chosen] for n in (0, 1))
        where.append("(job_id, trial_id) IN (SELECT unnest($some_jobs), unnest($some_trials))")
    for number, phrase in enumerate([*query.phrases, *query.unwanted]):
        places = _with_phrase(scope, jobs, phrase)
        for n, name in enumerate(("jobs", "rows")):
            values[f"{name}{number}"] = [place[n] for place in places]
        but = "" if number < len(query.phrases) else "NOT "
        some = f"SELECT unnest($jobs{number}::VARCHAR[]), unnest($rows{number}::INTEGER[])"
        where.append(f"(job_id, event) {but}IN ({some})")
    return connection.execute(
        f"""
WITH p AS MATERIALIZED (SELECT job_id, term, event, tf FROM {words} WHERE term IN {_listed(query.terms)}),
d AS MATERIALIZED (SELECT * FROM {docs}),
n AS (SELECT count(*) AS events, avg(length) AS mean FROM d),
idf AS (SELECT term, ln(1 + (any_value(events) - count(*) + 0.5) / (count(*) + 0.5)) AS idf FROM p, n GROUP BY term),
scored AS (
    SELECT p.job_id, p.event, trial_id, type,
        sum(idf * tf * {K1 + 1} / (tf + {K1} * ({1 - B} + {B} * length / mean))) AS score
    FROM p JOIN idf USING (term) JOIN d ON d.job_id = p.job_id AND d.event = p.event, n
    GROUP BY p.job_id, p.event, trial_id, type
)
SELECT job_id, trial_id, arg_max(event, (score, -event)) AS event, max(score) AS best, count(*) AS matches
FROM scored WHERE {" AND ".join(where)}
GROUP BY job_id, trial_id ORDER BY round(max(score), 9) DESC, job_id, min(event) LIMIT $limit""",
        values,
    ).fetchall()


def _listed(terms: Sequence[str]) -> str:
    from .engine import quote

    return f"({', '.join(map(quote, terms))})"


def _with_phrase(scope: Scope, jobs: Sequence[Manifest], phrase: Sequence[str]) -> list[tuple[str, int]]:
    """Where the words of a phrase stand together, found as grep finds it: job and event."""
    pattern = Pattern(" ".join(phrase), _phrase(phrase))
    return list(scope.rows(jobs, pattern, required(pattern.expression)))
