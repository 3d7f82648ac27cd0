"""Lists that are read in order and would be large: their values are kept compressed, in blocks."""

from __future__ import annotations

import marshal
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["Packed"]

_BLOCK = 256
_HELD = 4  # blocks that are unpacked at a time: the record of one trial, the listing of another


class Packed:
    """Tuples of plain values (texts, numbers, tuples, lists, dicts), appended in the order of their first.

    They come back anew each time: in order, or from a place that is looked for.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Any, ...]] = []
        self._blocks: list[bytes] = []
        self._firsts: list[str] = []  # the first text of each block
        self._held: dict[int, Sequence[tuple[Any, ...]]] = {}

    def append(self, value: tuple[Any, ...]) -> None:
        if not self._open:
            self._firsts.append(value[0])
        self._open.append(value)
        if len(self._open) == _BLOCK:
            self._blocks.append(zlib.compress(marshal.dumps(self._open), 1))
            self._open = []

    def __len__(self) -> int:
        return len(self._blocks) * _BLOCK + len(self._open)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for number in range(len(self._blocks)):
            yield from self._unpacked(number)
        yield from self._open

    def since(self, text: str) -> Iterator[tuple[Any, ...]]:
        """The values whose first is this text or comes after it."""
        number = max(bisect_right(self._firsts, text) - 1, 0)
        block = self._block(number)
        yield from block[bisect_left(block, text, key=_first) :]
        for later in range(number + 1, len(self._firsts)):
            yield from self._block(later)

    def find(self, text: str) -> tuple[Any, ...] | None:
        """The value whose first is this text."""
        block = self._block(max(bisect_right(self._firsts, text) - 1, 0))
        place = bisect_left(block, text, key=_first)
        return block[place] if place < len(block) and block[place][0] == text else None

    def _block(self, number: int) -> Sequence[tuple[Any, ...]]:
        if number >= len(self._blocks):
            return self._open
        found = self._held.get(number)
        if found is None:
            if len(self._held) == _HELD:
                del self._held[next(iter(self._held))]
            found = self._held[number] = self._unpacked(number)
        return found

    def _unpacked(self, number: int) -> Sequence[tuple[Any, ...]]:
        values: list[tuple[Any, ...]] = marshal.loads(zlib.decompress(self._blocks[number]))
        return values


def _first(value: tuple[Any, ...]) -> Any:
    return value[0]
