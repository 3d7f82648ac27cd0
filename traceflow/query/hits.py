"""What grep finds."""

from __future__ import annotations

from itertools import islice

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from traceflow_formats.trace import TraceLine

    from .pattern import Pattern

__all__ = ["Hit", "TrialCount", "TrialHits"]

MAX_SPANS = 100  # places that a hit names


class Hit(NamedTuple):
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
    pattern: Pattern

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The places of `text` that match, at most 100: start and end, in characters. Found when asked for."""
        return self.places(MAX_SPANS)

    def places(self, limit: int) -> tuple[tuple[int, int], ...]:
        """The first places of `text` that match."""
        return tuple(match.span() for match in islice(self.pattern.compile().finditer(self.text), limit))

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
        spans = self.places(1)
        return spans[0][0] if spans else 0


class TrialCount(NamedTuple):
    """How many events of a trial match."""

    job_id: str
    trial_id: str
    trial_name: str
    matches: int


class TrialHits(NamedTuple):
    """The events of a trial that match: how many, exactly, and the first five."""

    trial_id: str
    trial_name: str
    task_name: str | None
    match_count: int
    events: tuple[TraceLine, ...]
