"""Reading single columns of a row group without a Parquet engine, from where `events.grep` says that they lie.

Only what our own writer makes is understood: data pages of version 1, zstd, plain or dictionary encoding, no nested
columns. Everything else raises BadPageError, and the caller asks an engine instead.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from functools import partial

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

from .zstd import ZstdDecompressor, ZstdError, frame_content_size

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

__all__ = ["BadPageError", "read_int32", "read_numbers", "read_strings", "split_page", "text_page", "unpack"]

_DATA, _DICTIONARY = 0, 2  # page types
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY, _BYTE_STREAM_SPLIT = 0, 2, 8, 9  # encodings


class BadPageError(Exception):
    """A page that this reader does not understand, or that is damaged."""


class _Header(NamedTuple):
    kind: int
    size: int  # unpacked
    packed: int
    values: int
    encoding: int
    length: int  # of the header itself


def unpack(frame: bytes | memoryview, most: int) -> bytes:
    """The content of a zstd frame, which says that it has `most` bytes at most. Threads may call it.

    Raises BadPageError for anything else.
    """
    try:
        unpacker = _IDLE.pop()
    except IndexError:
        unpacker = ZstdDecompressor()
    try:
        if not 0 <= frame_content_size(frame) <= most:
            raise BadPageError("a frame has another size than it should have")
        data: bytes = unpacker.decompress(frame)
    except ZstdError as error:
        raise BadPageError(str(error)) from None
    _IDLE.append(unpacker)
    return data


_IDLE: list[ZstdDecompressor] = []  # making one costs more than unpacking a small frame


def text_page(chunk: bytes, rows: int) -> bytes:
    """The one page of a required, plain column of strings: a length of four bytes before each."""
    pages = list(_pages(chunk, rows))
    if len(pages) != 1 or pages[0][0].encoding != _PLAIN:
        raise BadPageError("more than one page of text")
    data: bytes = pages[0][1]
    return data


def split_page(data: bytes, rows: int) -> list[int]:
    """Where the strings of a page begin, each with its length of four bytes before it, and where the last ends."""
    bounds = [0]
    at = 0
    unpack_from = _LENGTH.unpack_from
    try:
        for _ in range(rows):
            at += 4 + unpack_from(data, at)[0]
            bounds.append(at)
    except struct.error:
        raise BadPageError("a page is too short") from None
    if at != len(data):
        raise BadPageError("a page has another length than its strings")
    return bounds


_LENGTH = struct.Struct("<I")


def read_strings(chunk: bytes, rows: int, optional: bool, wanted: Sequence[int] | None = None) -> list[str | None]:
    """A column of strings, or the values of some rows of it, which ascend."""
    return [None if v is None else v.decode() for v in _column(chunk, rows, optional, wanted, _plain_strings)]


def read_numbers(chunk: bytes, rows: int, optional: bool, wanted: Sequence[int] | None = None) -> list[int | None]:
    """A column of 64-bit integers, times among them, or the values of some rows of it, which ascend."""
    return _column(chunk, rows, optional, wanted, _plain_numbers)


def read_int32(chunk: bytes, rows: int, start: int, count: int) -> array[int]:
    """Part of a required column of 32-bit integers, plain or split by bytes."""
    out = bytearray()
    first = 0  # row of the page
    for header, data in _pages(chunk, rows):
        size = header.values
        low, high = max(start - first, 0), min(start + count - first, size)
        first += size
        if header.kind != _DATA or len(data) != 4 * size:
            raise BadPageError("no page of 32-bit integers")
        if low >= high:
            continue
        if header.encoding == _BYTE_STREAM_SPLIT:  # all first bytes, then all second bytes, ...
            part = bytearray(4 * (high - low))
            for n in range(4):
                part[n::4] = data[n * size + low : n * size + high]
            out += part
        elif header.encoding == _PLAIN:
            out += data[4 * low : 4 * high]
        else:
            raise BadPageError(f"encoding {header.encoding}")
    if len(out) != 4 * count:
        raise BadPageError("a column has fewer integers than it should have")
    from array import array

    numbers = array("i", bytes(out))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


# -- pages -------------------------------------------------------------------------------------------------


def _pages(chunk: bytes, rows: int) -> Iterator[tuple[_Header, bytes]]:
    """The pages of a column, unpacked, until they have given all rows."""
    at, left = 0, rows
    view = memoryview(chunk)
    while left > 0:
        header = _header(chunk, at)
        at += header.length
        packed = view[at : at + header.packed]
        if len(packed) != header.packed or header.packed < 0:
            raise BadPageError("a page is cut off")
        at += header.packed
        data = unpack(packed, header.size)
        if len(data) != header.size:
            raise BadPageError("a page has another size than it says")
        if header.kind == _DATA:
            left -= header.values
        elif header.kind != _DICTIONARY:
            raise BadPageError(f"page type {header.kind}")
        yield header, data
    if left:
        raise BadPageError("more rows than there should be")


def _column(chunk: bytes, rows: int, optional: bool, wanted: Sequence[int] | None, plain: Any) -> list[Any]:
    out: list[Any] = []
    dictionary: list[Any] = []
    first = 0
    for header, data in _pages(chunk, rows):
        if header.kind == _DICTIONARY:
            dictionary = plain(data, 0, header.values)
            continue
        stop = first + header.values
        here = range(header.values) if wanted is None else [n - first for n in wanted if first <= n < stop]
        first = stop
        at, places, present = 0, here, header.values
        levels: _Hybrid | None = None
        if optional:
            length = int.from_bytes(data[:4], "little")
            levels = _Hybrid(data[4 : 4 + length], 1, header.values)
            places = [levels.ones(n) for n in here]  # where a value that is there stands among those that are
            at, present = 4 + length, levels.ones(header.values)
        if header.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
            numbers = _Hybrid(data[at + 1 :], data[at] if present else 0, present)
            value: Callable[[int], Any] = partial(_looked_up, dictionary, numbers)
        elif header.encoding == _PLAIN:
            value = plain(data, at, present).__getitem__
        else:
            raise BadPageError(f"encoding {header.encoding}")
        if levels is None:
            out += map(value, places)
        else:
            out += [value(place) if levels[n] else None for n, place in zip(here, places, strict=True)]
    return out


def _looked_up(dictionary: list[Any], numbers: _Hybrid, place: int) -> Any:
    try:
        return dictionary[numbers[place]]
    except IndexError:
        raise BadPageError("a number beyond the dictionary") from None


def _plain_strings(data: bytes, at: int, count: int) -> list[bytes]:
    out = []
    for _ in range(count):
        end = at + 4 + int.from_bytes(data[at : at + 4], "little")
        if end > len(data):
            raise BadPageError("a page is too short")
        out.append(data[at + 4 : end])
        at = end
    return out


def _plain_numbers(data: bytes, at: int, count: int) -> Sequence[int]:
    try:
        return struct.unpack_from(f"<{count}q", data, at)
    except struct.error:
        raise BadPageError("a page is too short") from None


class _Hybrid:
    """Runs of one number and bit-packed groups of eight, as Parquet has levels and dictionary numbers.

    Only the heads of the runs are read; a number is looked up where it stands.
    """

    __slots__ = ("_bits", "_ones", "_starts", "_values", "_width")

    def __init__(self, data: bytes, width: int, count: int) -> None:
        self._width = width
        self._starts: list[int] = []  # the first number of each run
        self._values: list[int] = []  # what a run repeats; of a bit-packed one all its bits
        self._bits: list[bool] = []  # whether it is bit-packed
        self._ones: list[int] | None = None
        found = at = 0
        size = (width + 7) // 8
        if not width or not count:
            self._add(0, 0, False)
            return
        while found < count:
            head, at = _varint(data, at)
            if head & 1:
                groups = head >> 1
                self._add(found, int.from_bytes(data[at : at + groups * width], "little"), True)
                at += groups * width
                found += groups * 8
            else:
                if at + size > len(data):
                    raise BadPageError("a run is cut off")
                self._add(found, int.from_bytes(data[at : at + size], "little"), False)
                at += size
                found += head >> 1
            if not head >> 1:
                raise BadPageError("an empty run")

    def _add(self, start: int, value: int, bits: bool) -> None:
        self._starts.append(start)
        self._values.append(value)
        self._bits.append(bits)

    def __getitem__(self, number: int) -> int:
        run = bisect_right(self._starts, number) - 1
        value = self._values[run]
        if not self._bits[run]:
            return value
        return value >> (number - self._starts[run]) * self._width & (1 << self._width) - 1

    def ones(self, stop: int) -> int:
        """How many of the first numbers, which are 0 or 1, are 1."""
        if self._ones is None:
            total, self._ones = 0, [0]
            for n, start in enumerate(self._starts[1:]):
                total += self._ones_in(n, start - self._starts[n])
                self._ones.append(total)
        run = bisect_right(self._starts, stop) - 1
        return self._ones[run] + self._ones_in(run, stop - self._starts[run])

    def _ones_in(self, run: int, count: int) -> int:
        value = self._values[run]
        return (value & (1 << count) - 1).bit_count() if self._bits[run] else value * count


# -- headers: Thrift's compact protocol --------------------------------------------------------------------


def _header(data: bytes, at: int) -> _Header:
    """The header of the page that begins here."""
    begin = at
    fields: dict[int, Any] = {}
    at = _struct(data, at, fields, 0)
    page = fields.get(5) or fields.get(7)
    kind = fields.get(1)
    if not isinstance(page, dict) or not isinstance(kind, int):
        raise BadPageError("it is no page of version 1")
    try:
        return _Header(kind, fields[2], fields[3], page[1], page[2], at - begin)
    except KeyError:
        raise BadPageError("a page's header lacks a field") from None


def _struct(data: bytes, at: int, fields: dict[int, Any], depth: int) -> int:
    number = 0
    while True:
        if at >= len(data) or depth > 8:
            raise BadPageError("a page's header is cut off")
        head = data[at]
        at += 1
        if not head:
            return at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _zigzag(data, at)
        fields[number], at = _value(data, at, head & 15, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (1, 2):  # true, false
        return kind == 1, at
    if kind in (4, 5, 6):  # integers
        return _zigzag(data, at)
    if kind == 8:  # bytes
        length, at = _varint(data, at)
        return data[at : at + length], at + length
    if kind == 12:
        inner: dict[int, Any] = {}
        return inner, _struct(data, at, inner, depth + 1)
    raise BadPageError(f"a page's header has a field of type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise BadPageError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at
