"""Reading zip archives: the central directory first, then each member against its local header.

A zip names its members twice; readers that trust one list see other files than readers that trust the other. Here
both must agree, no two members may share bytes, and nothing may stand before the first member.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from traceflow_formats.errors import TraceflowError

from ..limits import Limits
from .members import Notes
from .names import bad_member, shown
from .streams import PIECE, Progress, corrupt
from .tar_read import RawMember

__all__ = ["ZipReader"]

_END = struct.Struct("<4sHHHHIIH")
_END64 = struct.Struct("<4sQHHIIQQQQ")
_END64_AT = struct.Struct("<4sIQI")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_FULL = 0xFFFFFFFF
_METHODS = {1: "shrink", 6: "implode", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 98: "ppmd"}
_UNIX_MAKERS = (3, 19)  # Unix, macOS: the high half of the external attributes is the mode
_FILE_TYPES = {
    0o120000: ("is a symbolic link; links are not read", "link"),
    0o010000: ("is a FIFO", "special_file"),
    0o020000: ("is a character device", "special_file"),
    0o060000: ("is a block device", "special_file"),
    0o140000: ("is a socket", "special_file"),
}


class _Entry(NamedTuple):
    name: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    maker: int
    attributes: int
    extra: bytes


class ZipReader:
    """The members of a zip in the order of its central directory; `chunks` gives the bytes of the one returned."""

    def __init__(
        self, file: BinaryIO, size: int, limits: Limits, notes: Notes, progress: Progress | None = None
    ) -> None:
        self._file = file
        self._size = size
        self._limits = limits
        self._notes = notes
        self._progress = progress
        self._entry: _Entry | None = None
        self._data_at = 0

    def __iter__(self) -> Iterator[RawMember]:
        count, at, length = self._directory()
        if count > self._limits.members:
            raise TraceflowError(
                "upload_too_large",
                f"the zip holds {count} members, the limit `members` is {self._limits.members}",
                limit="members",
                value=self._limits.members,
            )
        starts, ends = array("q"), array("q")
        for entry in self._entries(count, at, length):
            end = self._open(entry) if entry.offset < at else entry.offset + 1
            if end > at:
                raise bad_member(entry.name, "reaches into the central directory of the zip", "overlap")
            starts.append(entry.offset)
            ends.append(end)
            self._entry = entry
            yield _raw(entry, self._notes)
        self._check_overlap(starts, ends)

    def chunks(self) -> Iterator[bytes]:
        """The content of the current member, at most a megabyte at a time; its length and CRC are verified."""
        assert self._entry is not None
        return self._chunks(self._entry, self._data_at)

    def _chunks(self, entry: _Entry, at: int) -> Iterator[bytes]:
        left, size, crc = entry.packed, 0, 0
        inflate = zlib.decompressobj(-15) if entry.method == 8 else None
        pending = b""
        while left or pending:
            if not pending:
                self._file.seek(at)
                pending = self._read(min(left, PIECE >> 2))
                if not pending:
                    raise corrupt(f"the zip ends in the middle of {shown(entry.name)}", reason="truncated")
                at += len(pending)
                left -= len(pending)
            try:
                piece = pending if inflate is None else inflate.decompress(pending, PIECE)
            except zlib.error as error:
                raise corrupt(f"the data of {shown(entry.name)} is damaged ({error})") from None
            pending = b"" if inflate is None else inflate.unconsumed_tail
            if inflate is not None and inflate.eof and (left or inflate.unused_data):
                raise corrupt(f"data follows the end of {shown(entry.name)} in the zip")
            size += len(piece)
            if size > entry.size:
                break
            crc = zlib.crc32(piece, crc)
            if piece:
                yield piece
        if size != entry.size or crc != entry.crc or (inflate is not None and not inflate.eof):
            raise corrupt(f"{shown(entry.name)} does not have the {entry.size} bytes and the CRC that the zip states")

    # -- structure ---------------------------------------------------------------------------------------

    def _directory(self) -> tuple[int, int, int]:
        """(number of members, offset, length) of the central directory."""
        tail_at = max(self._size - _END.size - 0xFFFF, 0)
        self._file.seek(tail_at)
        tail = self._read(_END.size + 0xFFFF)
        place = len(tail) - _END.size + 4
        while (place := tail.rfind(b"PK\5\6", 0, max(place, 0))) >= 0:
            if place + _END.size + int.from_bytes(tail[place + 20 : place + 22], "little") == len(tail):
                break
        if place < 0:
            raise corrupt("the zip has no end record at its end, so it is cut off or has data behind it")
        _, disk, first_disk, here, count, length, at, _ = _END.unpack_from(tail, place)
        end_at = tail_at + place
        if end_at >= _END64_AT.size:
            self._file.seek(end_at - _END64_AT.size)
            mark, disk64, record_at, disks = _END64_AT.unpack(self._read(_END64_AT.size))
            if mark == b"PK\6\7":
                if disk64 or disks > 1 or record_at + _END64.size > end_at:
                    raise corrupt("the zip64 end record is damaged, or the zip has several parts")
                self._file.seek(record_at)
                mark, record, _, _, disk, first_disk, here, count, length, at = _END64.unpack(self._read(_END64.size))
                if mark != b"PK\6\6" or record_at + 12 + record != end_at - _END64_AT.size:
                    raise corrupt("the zip64 end record is damaged")
                end_at = record_at
        if disk or first_disk or here != count:
            raise corrupt("the zip has several parts; only whole ones are read")
        if at + length != end_at:
            raise corrupt("the zip has data before its first member or behind its directory")
        return count, at, length

    def _entries(self, count: int, at: int, length: int) -> Iterator[_Entry]:
        end = at + length
        for number in range(count):
            self._file.seek(at)
            raw = self._read(_CENTRAL.size)
            if len(raw) < _CENTRAL.size or at + _CENTRAL.size > end:
                raise corrupt(f"the directory of the zip ends after {number} of {count} members")
            f = _CENTRAL.unpack(raw)
            name_len, extra_len, comment_len = f[10:13]
            rest = self._read(name_len + extra_len)
            at += _CENTRAL.size + name_len + extra_len + comment_len
            if f[0] != b"PK\1\2" or at > end or len(rest) < name_len + extra_len:
                raise corrupt(f"entry {number + 1} in the directory of the zip is damaged")
            name, extra = rest[:name_len], rest[name_len:]
            size, packed, offset = _zip64(name, extra, f[9], f[8], f[16])
            if f[13] not in (0, 0xFFFF):
                raise corrupt("the zip has several parts; only whole ones are read")
            yield _Entry(name, f[3], f[4], f[7], packed, size, offset, f[1] >> 8, f[15], extra)
        if at != end:
            raise corrupt("the directory of the zip holds more than its members")

    def _open(self, entry: _Entry) -> int:
        """Check a member's local header; where its data ends."""
        if entry.flags & 0x2041:
            raise bad_member(entry.name, "is encrypted", "encrypted")
        if entry.method not in (0, 8):
            method = _METHODS.get(entry.method, str(entry.method))
            raise bad_member(entry.name, f"is packed with method {method}; stored and deflate are read", "bad_type")
        self._file.seek(entry.offset)
        raw = self._read(_LOCAL.size)
        if len(raw) < _LOCAL.size or raw[:4] != b"PK\3\4":
            raise bad_member(entry.name, "has no local header where the zip's directory says", "bad_header")
        _, _, flags, method, _, _, crc, packed, size, name_len, extra_len = _LOCAL.unpack(raw)
        rest = self._read(name_len + extra_len)
        name, extra = rest[:name_len], rest[name_len:]
        if name != entry.name or method != entry.method or (flags ^ entry.flags) & 0x2841:
            raise bad_member(
                entry.name, f"is called {shown(name)} in its local header, or packed otherwise", "mismatch"
            )
        self._data_at = entry.offset + _LOCAL.size + name_len + extra_len
        if not flags & 8:  # else sizes and CRC stand behind the data
            size, packed, _ = _zip64(name, extra, size, packed, 0)
            if (crc, packed, size) != (entry.crc, entry.packed, entry.size):
                raise bad_member(entry.name, "has other sizes or another CRC in its local header", "mismatch")
        if entry.method == 0 and entry.packed != entry.size:
            raise bad_member(entry.name, "is stored, but its two sizes differ", "mismatch")
        return self._data_at + entry.packed

    def _check_overlap(self, starts: array[int], ends: array[int]) -> None:
        order: range | list[int] = range(len(starts))
        if any(starts[i] > starts[i + 1] for i in range(len(starts) - 1)):
            order = sorted(order, key=starts.__getitem__)
        end = 0
        for index in order:
            if starts[index] < end or (end == 0 and starts[index] != 0):
                raise corrupt("members of the zip share bytes, or data stands before the first one", reason="overlap")
            end = ends[index]

    def _read(self, count: int) -> bytes:
        piece = self._file.read(count)
        if self._progress is not None:
            self._progress(min(self._file.tell(), self._size), self._size)
        return piece


def _zip64(name: bytes, extra: bytes, size: int, packed: int, offset: int) -> tuple[int, int, int]:
    """The sizes and the offset with those that do not fit 32 bits taken from the extra field."""
    values: list[int] | None = None
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        at += 4
        if at + length > len(extra):
            break
        if kind == 1:
            if values is not None:
                raise bad_member(name, "states its size twice", "bad_header")
            values = list(struct.unpack_from(f"<{min(length // 8, 3)}Q", extra, at))
        elif kind == 0x7075 and extra[at + 5 : at + length] != name:  # Info-ZIP's second name
            raise bad_member(name, f"has a second name {shown(extra[at + 5 : at + length])}", "mismatch")
        at += length
    out = []
    for value in (size, packed, offset):
        if value == _FULL and values:
            value = values.pop(0)
        if value >= 1 << 63:
            raise bad_member(name, "states no valid size", "bad_header")
        out.append(value)
    return out[0], out[1], out[2]


def _raw(entry: _Entry, notes: Notes) -> RawMember:
    mode = entry.attributes >> 16 if entry.maker in _UNIX_MAKERS else 0
    file_type = mode & 0o170000
    if file_type in _FILE_TYPES:
        raise bad_member(entry.name, *_FILE_TYPES[file_type])
    directory = entry.name.endswith(b"/")
    if directory and entry.size:
        raise bad_member(entry.name, f"is a folder with {entry.size} bytes of content", "bad_header")
    if file_type and (file_type == 0o040000) != directory:
        raise bad_member(entry.name, "is a folder by its mode and a file by its name, or the reverse", "mismatch")
    if not entry.flags & 0x800 and not entry.name.isascii():
        # Packers on Linux and macOS write UTF-8 without saying so; where it is none, `safe_name` refuses it.
        notes.warn("unmarked_utf8", "a name in the zip is not marked as UTF-8 and was read as such", shown(entry.name))
    return RawMember(entry.name, entry.size, mode & 0o7777, directory)
