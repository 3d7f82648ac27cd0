"""Building `events.grep`: the 4-grams of each block of events as they are written, and the footer at the end.

The work is done by Arrow on whole blocks: the text is folded, read as 32-bit words at each of the four places a
word can begin, hashed, and scattered into a bitmap. Memory is bounded by a segment of 256 blocks, 8 MiB.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from .backend import Backend
from .compute import InversePermutationOptions, call
from .grams import BUCKET_BITS, BUCKETS, FACTOR, GRAM, MIX, MIX_SHIFT, buckets, fold
from .grep_index import COLUMNS, FRAME_BUCKETS, MAGIC, NAME, SEGMENT_BLOCKS, VERSION
from .manifest import Manifest, StoredObject

__all__ = ["GrepIndexObject", "GrepIndexWriter", "block_grams", "build_index"]

_BITMAP = BUCKETS // 8
_ALL = b"\xff" * _BITMAP
_REST = 2 * GRAM + GRAM - 1  # bytes at the end in which words may begin that make no pair
_TURNED = BUCKETS // 8  # buckets that are turned at once: each of them takes 64 bytes meanwhile
_PART = 4 << 20  # bytes of text that are hashed at once
_LEVEL = 1  # bitmaps take less room than with 3
_COUNTED = 128  # blocks that are counted together
_SPREAD = pa.array([sum((byte >> bit & 1) << 8 * bit for bit in range(8)) for byte in range(256)], pa.uint64())
_TRIAL = ("trial_id", "trial_name", "task_name", "agent", "model", "event_offset", "n_events")
_OPTIONS = InversePermutationOptions(max_index=BUCKETS - 1, output_type=pa.int32())


def block_grams(chunks: Iterable[pa.Array]) -> bytes:
    """The bitmap of the 4-grams of a column of strings; some may be of two neighbours."""
    data = fold(b"".join(map(_bytes_of, chunks)))
    if len(data) <= _PART:
        return _grams(data)
    found = 0
    for at in range(0, len(data), _PART - GRAM):
        found |= int.from_bytes(_grams(data[at : at + _PART]), "little")
    return found.to_bytes(_BITMAP, "little")


def _bytes_of(chunk: pa.Array) -> bytes | memoryview:
    """The characters of an array of strings, as they lie in its buffer."""
    if not len(chunk):
        return b""
    _, offsets, data = chunk.buffers()
    if data is None:
        return b""
    width = 8 if pa.types.is_large_string(chunk.type) else 4
    kind = "<q" if width == 8 else "<i"
    start, end = (struct.unpack_from(kind, offsets, width * n)[0] for n in (chunk.offset, chunk.offset + len(chunk)))
    return memoryview(data)[start:end]


def _grams(data: bytes) -> bytes:
    buffer = pa.py_buffer(data)
    hashes = []
    for start in range(GRAM):
        count = (len(data) - start) // GRAM & ~1  # two words at a time where that is the same
        if count > 0:
            words = pa.Array.from_buffers(pa.uint32(), count, [None, buffer.slice(start, count * GRAM)])
            product = call("multiply", [words, _uint(FACTOR)])
            shifted = call("shift_right", [product, _uint(MIX_SHIFT)])
            mixed = call("bit_wise_xor", [_viewed(product, pa.uint64()), _viewed(shifted, pa.uint64())])
            product = call("multiply", [_viewed(mixed, pa.uint32()), _uint(MIX)])
            hashes.append(call("shift_right", [product, _uint(32 - BUCKET_BITS)]).view(pa.int32()))
    found = bytearray(_BITMAP)
    if hashes:
        (scattered,) = call("inverse_permutation", [pa.chunked_array(hashes)], _OPTIONS).chunks
        if not scattered.null_count:
            return _ALL
        found[:] = memoryview(scattered.buffers()[0])[:_BITMAP]
    for number in buckets(data[-_REST:]):  # the last words
        found[number >> 3] |= 1 << (number & 7)
    return bytes(found)


def _viewed(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same bytes as numbers of another width."""
    buffer = numbers.buffers()[1]
    return pa.Array.from_buffers(kind, len(numbers) * numbers.type.bit_width // kind.bit_width, [None, buffer])


def _uint(number: int) -> pa.Scalar:
    return pa.scalar(number, pa.uint32())


class Writable(Protocol):
    """What an index is written to."""

    def write(self, data: Any, /) -> int: ...


class GrepIndexWriter:
    """Writes an index: a `block` for each row group, each `trial`, what is `described`, then `finish`."""

    def __init__(self, stream: Writable) -> None:
        self._stream = stream
        self._at = 0
        self._bitmaps: list[bytes] = []
        self._segments: list[tuple[int, int]] = []
        self._lengths = array("Q")
        self._numbers = [array("Q") for _ in range(1 + 2 * len(COLUMNS))]  # rows, and where each column lies
        self._trials = bytearray()  # as JSON, which is a quarter of what rows would take
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._write(MAGIC)

    def block(self, text: Iterable[pa.Array]) -> None:
        """Take in the text of the next row group, an array of strings in one piece or several."""
        self._bitmaps.append(block_grams(text))
        if len(self._bitmaps) == SEGMENT_BLOCKS:
            self._end_segment()

    def trial(self, row: Mapping[str, Any]) -> None:
        """Take in the row of the next trial; one without events is not in the index."""
        if row["n_events"]:
            self._trials += (b"," if self._trials else b"[") + _json([row[name] for name in _TRIAL])

    def described(self, metadata: pq.FileMetaData) -> None:
        """Take in what Parquet says of the next row groups of events."""
        places: dict[str, int] = {}
        rows, *columns = self._numbers
        for group in map(metadata.row_group, range(metadata.num_row_groups)):
            # not `metadata.schema`, which would hold the metadata as that holds it, and much memory with them
            places = places or {group.column(n).path_in_schema: n for n in range(metadata.num_columns)}
            rows.append(group.num_rows)
            for number, name in enumerate(COLUMNS):
                c = group.column(places[name])
                columns[2 * number].append(c.dictionary_page_offset if c.has_dictionary_page else c.data_page_offset)
                columns[2 * number + 1].append(c.total_compressed_size)

    def finish(self, events_size: int) -> None:
        """Write the footer; `events_size` are the bytes of events.parquet."""
        if self._bitmaps:
            self._end_segment()
        self._trials += b"]" if self._trials else b"[]"
        packed = self._compressor.compress(self._trials)
        place = (self._at, len(packed))
        self._write(packed)
        head = {
            "version": VERSION,
            "events": events_size,
            "columns": list(COLUMNS),
            "trials": place,
            "segments": self._segments,
            "blocks": len(self._numbers[0]),
        }
        numbers = array("Q")
        for part in (self._lengths, *self._numbers):
            numbers += part
        if sys.byteorder == "big":
            numbers.byteswap()
        footer = self._compressor.compress(_json(head) + b"\n" + numbers.tobytes())
        start = self._at
        self._write(footer)
        self._write(start.to_bytes(8, "little") + len(footer).to_bytes(8, "little") + MAGIC)

    def _end_segment(self) -> None:
        bitmaps, self._bitmaps = self._bitmaps, []
        self._segments.append((self._at, len(bitmaps)))
        width = (len(bitmaps) + 7) // 8 * FRAME_BUCKETS
        for first in range(0, BUCKETS, _TURNED):
            data = _by_bucket(bitmaps, first)
            for start in range(0, len(data), width):
                frame = self._compressor.compress(data[start : start + width])
                self._lengths.append(len(frame))
                self._write(frame)

    def _write(self, data: bytes) -> None:
        self._stream.write(data)
        self._at += len(data)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


class GrepIndexObject:
    """The index of a job that is being written: its object is open until the job is committed or dropped."""

    def __init__(self, opened: AbstractContextManager[BinaryIO]) -> None:
        self._opened = opened
        self._stream = _Digesting(opened.__enter__())
        self._writer = GrepIndexWriter(self._stream)

    def group(self, group: pa.RecordBatch) -> None:
        """Take in a row group of events."""
        self._writer.block([group.column("text")])

    def trial(self, row: Mapping[str, Any]) -> None:
        """Take in the row of a trial."""
        self._writer.trial(row)

    def described(self, metadata: pq.FileMetaData) -> None:
        """Take in what Parquet says of the next row groups."""
        self._writer.described(metadata)

    def finish(self, events_size: int) -> StoredObject:
        """End the index of events that are finished."""
        self._writer.finish(events_size)
        self._opened.__exit__(None, None, None)
        return StoredObject(NAME, self._stream.size, self._stream.digest.hexdigest())

    def drop(self) -> None:
        with contextlib.suppress(RuntimeError, OSError):
            self._opened.__exit__(RuntimeError, RuntimeError("dropped"), None)


class _Digesting:
    """A stream that digests what is written."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:
        self._stream.write(data)
        self.digest.update(data)
        self.size += len(data)
        return len(data)


def _by_bucket(bitmaps: list[bytes], first: int) -> memoryview:
    """The bitmaps of blocks turned: for each of the next buckets a bit for each block. What nearly all blocks have, all
    have.

    Eight buckets are worked on at once: one of the eight bytes of a number is one of them.
    """
    groups: list[pa.Array] = []  # for eight blocks each a byte for each bucket
    counts: list[pa.Array] = []  # how many of so many blocks have it: no byte runs over
    start, size = first // 8, _TURNED // 8
    for number, bitmap in enumerate(bitmaps):
        part = pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(bitmap).slice(start, size)])
        bits = call("array_take", [_SPREAD, part])
        if number % _COUNTED:
            counts[-1] = call("add", [counts[-1], bits])
        else:
            counts.append(bits)
        if number % 8:
            shifted = call("shift_left", [bits, pa.scalar(number % 8, pa.uint64())])
            groups[-1] = call("bit_wise_or", [groups[-1], shifted])
        else:
            groups.append(bits)
    count = _viewed(counts[0], pa.uint8())
    for more in counts[1:]:
        # of 256 blocks all is 0, and their bits are full without it
        count = call("add", [count, _viewed(more, pa.uint8())])
    least = len(bitmaps) * 15 // 16
    nearly = bytes(count.buffers()[1][:_TURNED]).translate(bytes(least + 1) + b"\xff" * (255 - least))
    full = pa.Array.from_buffers(pa.uint64(), size, [None, pa.py_buffer(nearly)])
    out = bytearray(_TURNED * len(groups))
    for number, group in enumerate(groups):
        out[number :: len(groups)] = memoryview(call("bit_wise_or", [group, full]).buffers()[1])[:_TURNED]
    return memoryview(out)


def build_index(
    backend: Backend, job: Manifest, progress: Callable[[int, str], None] = lambda amount, word: None
) -> str:
    """Make the index of a job that was written without one, beside its objects; the name of it."""
    from .reading import open_table, trial_rows

    name = job.path(f"search/{NAME}")
    stored = job.object("events.parquet")
    with open_table(backend, job, "events") as file, backend.create(name) as stream:
        writer = GrepIndexWriter(stream)
        for number in range(file.num_row_groups):
            writer.block(file.read_row_group(number, columns=["text"]).column("text").chunks)
            progress(file.metadata.row_group(number).num_rows, job.job_id)
        for row in trial_rows(backend, job):
            writer.trial(row)
        writer.described(file.metadata)
        writer.finish(stored.size if stored is not None else 0)
    return name
