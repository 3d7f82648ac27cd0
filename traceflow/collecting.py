"""How often Python looks for cycles of objects: seldom, while millions of objects that are in none come and go."""

from __future__ import annotations

import gc
from _thread import allocate_lock  # `threading` would be loaded by commands that need to start quickly

__all__ = ["CollectingSeldom"]

_NEW = 100_000  # objects that are made between two looks; Python's own 700 are those of a few events


class CollectingSeldom:
    """Looks for cycles less often while its block runs, unless the program looks less often still, or never.

    Blocks may overlap, in one thread or several: the program's own setting is back after the last of them.
    """

    _lock = allocate_lock()
    _running = 0
    _before = (0, 0, 0)

    def __enter__(self) -> None:
        kind = CollectingSeldom
        with kind._lock:
            kind._running += 1
            if kind._running == 1:
                kind._before = gc.get_threshold()
                if 0 < kind._before[0] < _NEW:
                    gc.set_threshold(_NEW, 20, 20)

    def __exit__(self, *_: object) -> None:
        kind = CollectingSeldom
        with kind._lock:
            kind._running -= 1
            if not kind._running:
                gc.set_threshold(*kind._before)
