"""Reading single columns of a row group without a Parquet engine, from where `events.grep` says that they lie.

Only what our own writer makes is understood: data pages of version 1, zstd, plain or dictionary encoding, no nested
columns. Everything else raises BadPageError, and the caller asks an engine instead.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import zstandard

__all__ = ["BadPageError", "Strings", "optional_strings", "read_numbers", "read_strings", "split_page", "text_page"]

_DATA, _DICTIONARY = 0, 2  # page types
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8  # encodings


class BadPageError(Exception):
    """A page that this reader does not understand, or that is damaged."""


class _Header(NamedTuple):
    kind: int
    size: int  # unpacked
    packed: int
    values: int
    encoding: int
    length: int  # of the header itself


class Strings(NamedTuple):
    """The text of a block: one piece of bytes, and where each row begins and ends in it."""

    data: bytes
    starts: list[int]
    ends: list[int]


def text_page(chunk: bytes, rows: int) -> bytes:
    """The one page of a required, plain column of strings: a length of four bytes before each."""
    pages = list(_pages(chunk, rows))
    if len(pages) != 1 or pages[0][0].encoding != _PLAIN:
        raise BadPageError("more than one page of text")
    data: bytes = pages[0][1]
    return data


def split_page(data: bytes, rows: int) -> Strings:
    """Where the strings of a page lie; nothing is copied."""
    starts, ends = [], []
    at = 0
    unpack = struct.Struct("<I").unpack_from
    try:
        for _ in range(rows):
            end = at + 4 + unpack(data, at)[0]
            starts.append(at + 4)
            ends.append(end)
            at = end
    except struct.error:
        raise BadPageError("a page is too short") from None
    if at != len(data):
        raise BadPageError("a page has another length than its strings")
    return Strings(data, starts, ends)


def read_strings(chunk: bytes, rows: int, optional: bool) -> list[str | None]:
    """A column of strings."""
    return [None if v is None else v.decode() for v in _column(chunk, rows, optional, _plain_strings)]


def optional_strings(chunk: bytes, rows: int) -> list[str | None]:
    """A column of strings that may be null."""
    return read_strings(chunk, rows, True)


def read_numbers(chunk: bytes, rows: int, optional: bool) -> list[int | None]:
    """A column of 64-bit integers, times among them."""
    return _column(chunk, rows, optional, _plain_numbers)


# -- pages -------------------------------------------------------------------------------------------------


def _pages(chunk: bytes, rows: int) -> Any:
    """The pages of a column, unpacked, until they have given all rows."""
    at = left = 0
    left = rows
    unpacker = zstandard.ZstdDecompressor()
    while left > 0:
        header = _header(chunk, at)
        at += header.length
        packed = chunk[at : at + header.packed]
        if len(packed) != header.packed or header.packed < 0:
            raise BadPageError("a page is cut off")
        at += header.packed
        try:
            if zstandard.frame_content_size(packed) != header.size:
                raise BadPageError("a page has another size than it says")
            data = unpacker.decompress(packed)
        except zstandard.ZstdError as error:
            raise BadPageError(str(error)) from None
        if header.kind == _DATA:
            left -= header.values
        elif header.kind != _DICTIONARY:
            raise BadPageError(f"page type {header.kind}")
        yield header, data
    if left:
        raise BadPageError("more rows than there should be")


def _column(chunk: bytes, rows: int, optional: bool, plain: Any) -> list[Any]:
    out: list[Any] = []
    dictionary: list[Any] = []
    for header, data in _pages(chunk, rows):
        if header.kind == _DICTIONARY:
            dictionary = plain(data, 0, header.values)
            continue
        at, present = 0, header.values
        levels: list[int] | None = None
        if optional:
            length = int.from_bytes(data[:4], "little")
            levels = _hybrid(data[4 : 4 + length], 1, header.values)
            at, present = 4 + length, sum(levels)
        if header.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY):
            values = _from_dictionary(data, at, present, dictionary)
        elif header.encoding == _PLAIN:
            values = plain(data, at, present)
        else:
            raise BadPageError(f"encoding {header.encoding}")
        if levels is None:
            out += values
        else:
            found = iter(values)
            out += [next(found) if level else None for level in levels]
    return out


def _from_dictionary(data: bytes, at: int, count: int, dictionary: list[Any]) -> list[Any]:
    if not count:
        return []
    try:
        return [dictionary[n] for n in _hybrid(data[at + 1 :], data[at], count)]
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


def _plain_numbers(data: bytes, at: int, count: int) -> list[int]:
    try:
        return list(struct.unpack_from(f"<{count}q", data, at))
    except struct.error:
        raise BadPageError("a page is too short") from None


def _hybrid(data: bytes, width: int, count: int) -> list[int]:
    """Runs of one number and bit-packed groups of eight, as Parquet has levels and dictionary numbers."""
    if not width:
        return [0] * count
    out: list[int] = []
    at = 0
    mask, size = (1 << width) - 1, (width + 7) // 8
    while len(out) < count:
        head, at = _varint(data, at)
        if head & 1:
            groups = min(head >> 1, (count - len(out) + 7) // 8)
            bits = int.from_bytes(data[at : at + groups * width], "little")
            for _ in range(groups * 8):
                out.append(bits & mask)
                bits >>= width
            at += (head >> 1) * width
        else:
            if at + size > len(data):
                raise BadPageError("a run is cut off")
            out += [int.from_bytes(data[at : at + size], "little")] * min(head >> 1, count - len(out))
            at += size
            if not head:
                raise BadPageError("an empty run")
    return out[:count]


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
