"""Which trials fit a question best: BM25 over events, a trial by its best one.

The answer is that of scoring every event that has a word, but few are scored: `_needed` says what an event must have to
come before the last trial that is shown so far. Whether a phrase stands in an event is looked up in its text, for the
trials that could be shown, those first that could score most.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from itertools import groupby

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

from .pattern import Pattern

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection, Iterable, Sequence

    from traceflow.store.manifest import Manifest

    from .matching import Scope
    from .postings import JobWords, WordsTrial
    from .ranked import Query

__all__ = ["LONGEST", "SHORTEST", "Ranked", "Ranking"]

K1, B = 1.2, 0.75
SHORTEST, LONGEST = 2, 40  # characters of a word
_OFTEN = 16  # times that a single word stands in the events that are scored first
_DIGITS = 9  # of a score: the sum of floats depends on their order
_MARGIN = 1e-6  # more than that can make
_GAP = r"[^\pL\pN_]"


class Ranked(NamedTuple):
    """The best event of a trial. They sort as they are shown."""

    order: float  # the score, negative and rounded
    job: int
    first: int  # the trial's first event
    trial: WordsTrial
    row: int
    score: float


class _Candidate(NamedTuple):
    """A trial, and those of its events that were scored. They sort as they would be shown if all fitted."""

    order: float
    job: int
    first: int
    trial: WordsTrial
    events: Sequence[int]
    scores: Sequence[float]

    def ranked(self) -> Ranked:
        best = max(self.scores)
        return Ranked(*self[:4], self.events[self.scores.index(best)], best)


class Ranking:
    """A question to jobs whose words are known."""

    def __init__(self, scope: Scope, jobs: Sequence[Manifest], words: Sequence[JobWords], query: Query) -> None:
        self._scope = scope
        self._jobs = jobs
        self._words = words
        self._query = query
        count = sum(each.docs for each in words)
        mean = sum(each.length for each in words) / max(count, 1)
        self._low, self._high = K1 * (1 - B), K1 * B / mean if mean else 0.0
        self._weights: list[tuple[str, float]] = []
        for term in query.terms:
            having = sum(len(each.postings(term)[0]) for each in words)
            self._weights.append((term, math.log(1 + (count - having + 0.5) / (having + 0.5)) * (K1 + 1)))

    def best(self, limit: int) -> list[Ranked]:
        """The trials that are shown, at most so many, best first."""
        if self._query.phrases or self._query.unwanted:
            numbers = range(len(self._words))
            return self._looked_up(sorted(each for n in numbers for each in self._candidates(n, 0.0)), limit)
        found: list[_Candidate] = []
        several = len(self._weights) > 1
        for number in range(len(self._words) if several else 1):  # first what scores most
            found = sorted(found + self._candidates(number, math.inf))[:limit]
        for number in range(len(self._words)):
            bar = _bar(found, limit)
            if not several or len(self._needed(bar)[0]) < len(self._weights):
                others = [each for each in found if each.job != number]
                found = sorted(others + self._candidates(number, bar))[:limit]
        return [each.ranked() for each in found]

    def matches(self, trial: Ranked) -> int:
        """How many events of a trial fit."""
        words, (first, rows) = self._words[trial.job], trial.trial[-2:]
        events: set[int] = set()
        for term, _ in self._weights:
            having, _ = words.postings(term)
            events.update(having[bisect_left(having, first) : bisect_left(having, first + rows)])
        return len(self._with_phrases(trial.job, self._allowed(words, events)))

    # -- scores ----------------------------------------------------------------------------------------------

    def _needed(self, bar: float) -> tuple[list[str], int]:
        """The terms without which no event scores more than `bar`, and how often a single term must stand in it.

        A share of a score is `weight * n / (n + low + high * length)`, and an event has at least n terms. An infinite
        bar asks for what scores most: all terms, a single one often.
        """
        most = {term: weight / (1 + self._high) for term, weight in self._weights}
        phrases = {word for phrase in self._query.phrases for word in phrase}
        needed = [term for term, share in most.items() if sum(most.values()) - share < bar or term in phrases]
        if len(most) > 1 or not bar:
            return needed, 1
        ((_, weight),) = self._weights
        rest = weight - bar * (1 + self._high)  # of the bound, solved for n
        return needed, int(bar * self._low / rest) if rest > 0 else _OFTEN

    def _scores(self, words: JobWords, bar: float) -> tuple[Sequence[int], Sequence[float]]:
        """The events that may score more than `bar`, and perhaps others; they ascend, each with its score."""
        low, high = self._low, self._high
        needed, least = self._needed(bar)
        found = [(weight, *words.postings(term)) for term, weight in self._weights]
        lists = [each for each in found if each[1]]
        having = [words.postings(term)[0] for term in needed]
        if not lists or not all(having):
            return (), ()
        lengths = words.lengths()
        if len(lists) > 1 and needed:
            events = sorted(set(having[0]).intersection(*having[1:]))
            scores = [0.0] * len(events)
            for weight, having_it, counts in lists:
                some = _often(having_it, counts, events)
                scores = [
                    score + weight * n / (n + low + high * lengths[at])
                    for score, at, n in zip(scores, events, some, strict=True)
                ]
            return events, scores
        total: dict[int, float] = {}
        for weight, having_it, counts in lists:
            shares = {
                at: weight * n / (n + low + high * lengths[at])
                for at, n in zip(having_it, counts, strict=True)
                if n >= least
            }
            for at in total.keys() & shares.keys():
                shares[at] += total[at]
            total |= shares
        ascending = sorted(total)
        return ascending, [total[at] for at in ascending]

    def _candidates(self, number: int, bar: float) -> list[_Candidate]:
        """The trials of a job with events that may score more than `bar`, and perhaps others."""
        words = self._words[number]
        events, scores = self._scores(words, bar)
        allowed = self._allowed(words, events)
        if len(allowed) < len(events):
            pairs = [(event, score) for event, score in zip(events, scores, strict=True) if event in allowed]
            events, scores = [event for event, _ in pairs], [score for _, score in pairs]
        out = []
        high = 0
        for trial in words.trials if events else ():
            low = bisect_left(events, trial.first, high)
            high = bisect_left(events, trial.first + trial.rows, low)
            if low < high and self._scope.chosen(trial.trial_id, trial.name, trial.agent, trial.model):
                some = scores[low:high]
                order = -round(max(some), _DIGITS)
                out.append(_Candidate(order, number, trial.first, trial, events[low:high], some))
        return out

    # -- what else is asked for -----------------------------------------------------------------------------

    def _allowed(self, words: JobWords, events: Collection[int]) -> Collection[int]:
        """Of these events those that the index does not rule out."""
        if not (self._query.without or self._query.phrases or self._scope.types is not None):
            return events
        kept = set(events)
        for term in self._query.without:
            kept.difference_update(words.postings(term)[0])
        for phrase in self._query.phrases:
            kept = _with_words(words, phrase, kept)
        if self._scope.types is not None and kept:
            ascending = sorted(kept)
            types = words.types(ascending)
            kept = {event for event, kind in zip(ascending, types, strict=True) if kind in self._scope.types}
        return kept

    def _with_phrases(self, job: int, events: Iterable[int]) -> set[int]:
        """Of these events of a job those that have the phrases that they must have, and none that they must not."""
        kept = set(events)
        for phrase in self._query.phrases:
            kept = self._having(job, phrase, kept)
        for phrase in self._query.unwanted:
            kept -= self._having(job, phrase, _with_words(self._words[job], phrase, kept))
        return kept

    def _having(self, job: int, phrase: Sequence[str], events: set[int]) -> set[int]:
        if not events:
            return events
        pattern = Pattern(" ".join(phrase), phrase_expression(phrase))
        return set(self._scope.having(self._jobs[job], pattern, sorted(events)))

    def _looked_up(self, candidates: list[_Candidate], limit: int) -> list[Ranked]:
        """The best of these trials, which are sorted, by those of their events that have the phrases."""
        found: list[Ranked] = []
        at, some = 0, limit
        while at < len(candidates) and (len(found) < limit or candidates[at].order <= found[limit - 1].order):
            for job, group in groupby(sorted(candidates[at : at + some], key=_job), _job):
                trials = list(group)
                kept = self._with_phrases(job, [event for each in trials for event in each.events])
                for trial in trials:
                    pairs = [pair for pair in zip(trial.events, trial.scores, strict=True) if pair[0] in kept]
                    if pairs:
                        order = -round(max(score for _, score in pairs), _DIGITS)
                        insort(found, _Candidate(order, *trial[1:4], *zip(*pairs, strict=True)).ranked())
            at, some = at + some, 2 * some
        return found[:limit]


def _bar(found: list[_Candidate], limit: int) -> float:
    """What a trial must score to be shown: the score of the last of those that would be, or 0."""
    return -found[limit - 1].order - _MARGIN if len(found) >= limit else 0.0


def _often(having: array[int], counts: array[int], events: Sequence[int]) -> list[int]:
    """How often a term stands in each of these events, by the events that have it."""
    if len(events) * 4 > len(having):
        often = dict(zip(having, counts, strict=True))
        return [often.get(at, 0) for at in events]
    places = [bisect_left(having, at) for at in events]
    end = len(having)
    return [counts[n] if n < end and having[n] == at else 0 for n, at in zip(places, events, strict=True)]


def _job(candidate: _Candidate) -> int:
    return candidate.job


def _with_words(words: JobWords, phrase: Sequence[str], events: set[int]) -> set[int]:
    """Of these events those that have all words of a phrase."""
    for word in phrase:
        if SHORTEST <= len(word) <= LONGEST:
            events = events.intersection(words.postings(word)[0])
    return events


def phrase_expression(words: Sequence[str]) -> str:
    """A phrase as a pattern: its words in their order, with anything between them that is no word."""
    return rf"(?i:(?:\A|{_GAP}){f'{_GAP}+'.join(words)}(?:{_GAP}|\z))"
