"""What grep finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from .pattern import Pattern

__all__ = ["Hit", "TrialCount"]


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
