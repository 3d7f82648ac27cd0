"""The footer of a large Parquet file that is being written: the row groups of one window at a time.

Arrow holds some 30 KB for each row group of events until a file is ended, and as much again while its footer is made:
260 MB for a job of 5 GB. So a large file is written by several writers one after the other, each of which ends with a
footer of its own. What those say of their row groups is kept compressed, and joined at the end to the bytes that one
writer would have made.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

__all__ = ["MAGIC", "WINDOW", "Footer", "varint"]

WINDOW = 16  # row groups
MAGIC = b"PAR1"
_NO_ROWS = b"\x16\x00\x19\x0c"  # in Thrift's compact protocol: no rows, and no row groups in the list
_ORDINALS = 1 << 15  # row groups that can be numbered


class Footer:
    """Gathers footers. `empty` is one of a file without rows, by which the others are taken apart."""

    def __init__(self, empty: bytes, columns: int) -> None:
        self._head, _, self._tail = empty.partition(_NO_ROWS)
        self.joins = empty.count(_NO_ROWS) == 1  # whether footers can be taken apart
        self._begin = b"\x19\xfc" + varint(columns) + b"\x26"  # how a row group of 15 columns or more begins
        self._rows = self._groups = 0
        self._parts: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, footer: bytes, rows: int, groups: int) -> None:
        """Take in the footer of the next writer."""
        head = self._head + _counts(rows, groups)
        if not (footer.startswith(head) and footer.endswith(self._tail)):
            raise AssertionError("a footer of Parquet that is none of ours")
        part = footer[len(head) : len(footer) - len(self._tail)]
        self._parts.append(zlib.compress(self._renumbered(part, groups), 1))
        self._rows += rows
        self._groups += groups

    def pieces(self) -> Iterator[bytes]:
        """The footer of the whole file, and what stands behind it."""
        head = self._head + _counts(self._rows, self._groups)
        length = len(head) + len(self._tail)
        yield head
        for part in self._parts:
            piece = zlib.decompress(part)
            length += len(piece)
            yield piece
        yield self._tail + length.to_bytes(4, "little") + MAGIC

    def _renumbered(self, part: bytes, groups: int) -> bytes:
        """The row groups with their numbers in the whole file. Nothing reads them, so that they stay as they are where
        it is not certain which bytes they are."""
        found = part.split(self._begin)
        if found[0] or len(found) != groups + 1 or self._groups + groups > _ORDINALS:
            return part
        out = []
        for number, group in enumerate(found[1:]):
            old = _ordinal(number)
            if not group.endswith(old):
                return part
            out.append(self._begin + group.removesuffix(old) + _ordinal(self._groups + number))
        return b"".join(out)


def _counts(rows: int, groups: int) -> bytes:
    listed = bytes([groups << 4 | 12]) if groups < 15 else b"\xfc" + varint(groups)
    return b"\x16" + varint(2 * rows) + b"\x19" + listed


def _ordinal(number: int) -> bytes:
    """The number of a row group, its last field, and the end of it."""
    return b"\x14" + varint(2 * number) + b"\0"


def varint(value: int) -> bytes:
    """A number as Thrift's compact protocol writes it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
