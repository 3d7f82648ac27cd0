"""The row groups of a large Parquet file, a window of them at a time.

Arrow holds the whole footer while a file is open: some 35 KB for each row group of events, 150 MB for a job of 5 GB.
Here the footer is cut between its row groups and Arrow is given those of one window alone. A footer that does not look
as our writer makes them is given to it as a whole.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from .footers import MAGIC, varint

__all__ = ["RowGroups"]

_WINDOW = 128  # row groups
_LIST_OF_STRUCTS = b"\x19\xfc"  # in Thrift's compact protocol: the next field is a list of 15 structs or more
_FILE_OFFSET = b"\x26"  # the first field of a column chunk, and so of a row group's list of them


class RowGroups:
    """The row groups of an open file. `starts` has the first row of each, and at the end the number of rows."""

    def __init__(self, stream: Any, columns: int) -> None:
        self._stream = stream
        self._parts = _parts(stream, columns)
        self._held: tuple[int, pq.ParquetFile | None] = -1, None
        self.starts = [0]
        for window in range(len(self._parts) or 1):
            metadata = self._file(window).metadata
            for number in range(metadata.num_row_groups):
                self.starts.append(self.starts[-1] + metadata.row_group(number).num_rows)

    @property
    def names(self) -> list[str]:
        """The columns of the file."""
        return list(self._file(0).schema_arrow.names)

    def of_rows(self, offset: int, count: int) -> list[tuple[int, int, int]]:
        """The row groups that hold these rows: number, first row in it, row after the last."""
        found = []
        number = bisect_right(self.starts, offset) - 1
        while number < len(self.starts) - 1 and self.starts[number] < offset + count:
            first, end = self.starts[number], self.starts[number + 1]
            found.append((number, max(0, offset - first), min(end, offset + count) - first))
            number += 1
        return found

    def read(self, number: int, columns: list[str]) -> pa.Table:
        """The columns of one row group."""
        window, inside = divmod(number, _WINDOW) if self._parts else (0, number)
        return self._file(window).read_row_group(inside, columns, use_threads=False)

    def close(self) -> None:
        """Let go of what is held; the stream is its owner's."""
        self._held = -1, None

    def _file(self, window: int) -> pq.ParquetFile:
        held, file = self._held
        if held != window or file is None:
            metadata = pq.read_metadata(pa.BufferReader(self._parts[window])) if self._parts else None
            file = pq.ParquetFile(self._stream, metadata=metadata, pre_buffer=True, page_checksum_verification=True)
            self._held = window, file
        return file


def _parts(stream: Any, columns: int) -> list[bytes]:
    """The footer as files of their own, each with the row groups of one window; nothing where it cannot be cut."""
    stream.seek(0, 2)
    size = stream.tell()
    stream.seek(max(0, size - 8))
    end = stream.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or not 0 < length <= size - 12:
        return []
    stream.seek(size - 8 - length)
    footer = stream.read(length)
    mark = _LIST_OF_STRUCTS + varint(columns) + _FILE_OFFSET
    starts = []
    at = footer.find(mark)
    while at >= 0:
        starts.append(at)
        at = footer.find(mark, at + len(mark))
    listed = _LIST_OF_STRUCTS + varint(len(starts))
    if len(starts) <= _WINDOW or not footer[: starts[0]].endswith(listed):
        return []
    head = footer[: starts[0] - len(listed)]
    ends = [*starts[1:], length]
    found = []
    for first in range(0, len(starts), _WINDOW):
        last = min(first + _WINDOW, len(starts)) - 1
        count = last - first + 1
        header = b"\x19" + (bytes([count << 4 | 12]) if count < 15 else b"\xfc" + varint(count))
        rest = b"" if last == len(starts) - 1 else b"\0"  # what follows the row groups; the end of the struct
        part = head + header + footer[starts[first] : ends[last]] + rest
        found.append(MAGIC + part + len(part).to_bytes(4, "little") + MAGIC)
    with contextlib.suppress(pa.ArrowInvalid, OSError):
        pq.read_metadata(pa.BufferReader(found[-1]))
        return found
    return []
