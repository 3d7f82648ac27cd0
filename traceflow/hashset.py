"""A set of 64-bit hashes that takes 12 to 24 bytes for each: names and ids that must be unique, a million of them."""

from __future__ import annotations

from array import array

__all__ = ["HashSet"]


class HashSet:
    """A set of 64-bit hashes in one flat table (open addressing, at most two thirds full).

    `hash(str)` is keyed anew in each process, so nobody can aim for a collision; by chance one of a million
    names collides with probability 3e-8, and what holds them is then refused that should not be.
    """

    __slots__ = ("_count", "_mask", "_slots")

    def __init__(self) -> None:
        self._slots = array("q", bytes(8 * 1024))
        self._mask = 1023
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: int) -> bool:
        return self._slots[self._place(key)] != 0

    def add(self, key: int) -> bool:
        """Put a hash in; False when it was there."""
        place = self._place(key)
        if self._slots[place]:
            return False
        self._slots[place] = key or 1
        self._count += 1
        if 3 * self._count > 2 * self._mask:
            self._grow()
        return True

    def _place(self, key: int) -> int:
        key = key or 1
        slots, mask = self._slots, self._mask
        place = key & mask
        while (found := slots[place]) and found != key:
            place = (place + 1) & mask
        return place

    def _grow(self) -> None:
        old = self._slots
        self._mask = 2 * self._mask + 1
        self._slots = array("q", bytes(8 * (self._mask + 1)))
        for key in old:
            if key:
                self._slots[self._place(key)] = key
