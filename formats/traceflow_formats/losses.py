"""What a format cannot hold: counted by name, and said at the end of a conversion."""

from __future__ import annotations

__all__ = ["Losses"]


class Losses:
    """Counts of what was left out or replaced, by name; a count of 0 is not kept."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, what: str, count: int = 1) -> None:
        if count:
            self._counts[what] = self._counts.get(what, 0) + count

    def as_dict(self) -> dict[str, int]:
        return dict(sorted(self._counts.items()))
