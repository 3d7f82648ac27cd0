"""How often Python looks for cycles of objects: seldom, while millions of objects that are in none come and go."""

from __future__ import annotations

import gc

__all__ = ["CollectingSeldom"]

_NEW = 100_000  # objects that are made between two looks; Python's own 700 are those of a few events


class CollectingSeldom:
    """Looks for cycles less often while its block runs, unless the program looks less often still, or never."""

    def __enter__(self) -> None:
        self._before = gc.get_threshold()
        if 0 < self._before[0] < _NEW:
            gc.set_threshold(_NEW, 20, 20)

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._before)
