"""Reading tar headers: USTAR, PAX and GNU, strictly.

Only what every common reader understands alike is accepted. Where readers differ (negative sizes, names after a
NUL, global headers that rename files, a folder with content) the archive is refused, since the scan would then
see other members than the tool that made it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from traceflow_formats.errors import TraceflowError

from ..limits import Limits
from .names import bad_member, shown
from .streams import PIECE, ByteStream, corrupt

__all__ = ["RawMember", "TarReader"]

BLOCK = 512
_ZERO = bytes(BLOCK)
NUL = b"\0"
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,7}) ")
_PAX_SIZE = re.compile(rb"[0-9]{1,19}").fullmatch
_REFUSED_TYPES = {
    b"1": ("is a hard link; links are not read", "link"),
    b"2": ("is a symbolic link; links are not read", "link"),
    b"3": ("is a character device", "special_file"),
    b"4": ("is a block device", "special_file"),
    b"6": ("is a FIFO", "special_file"),
    b"S": ("is a sparse file; pack it without --sparse", "sparse"),
    b"M": ("is part of a multi-volume archive", "bad_type"),
    b"D": ("is the folder list of an incremental backup", "bad_type"),
    b"N": ("is an old GNU name list", "bad_type"),
}


class RawMember(NamedTuple):
    """A member as its header gives it: the name not yet checked, all mode bits."""

    name: bytes | str
    size: int
    mode: int
    directory: bool


@dataclass(slots=True, eq=False, repr=False)
class _Extended:
    """What the extended headers before a member say of it."""

    path: bytes | None = None
    size: int | None = None
    seen: str = ""


class TarReader:
    """The members of a tar in order; `chunks` gives the bytes of the one just returned, what is left is skipped."""

    def __init__(self, stream: ByteStream, limits: Limits) -> None:
        self._stream = stream
        self._limits = limits
        self._left = 0  # bytes of the current member not yet read
        self._padding = 0
        self._name: bytes = b""
        self._headers = 0
        self.end_mark = True  # False when the tar ended without one, which only a compressed tar may

    def __iter__(self) -> Iterator[RawMember]:
        while (member := self._next()) is not None:
            yield member

    def chunks(self) -> Iterator[bytes]:
        """The content of the current member, at most a megabyte at a time."""
        return self._chunks(self._headers)

    def _chunks(self, turn: int) -> Iterator[bytes]:
        while self._left:
            if turn != self._headers:
                raise ValueError("the reader has gone on to the next member")
            piece = self._stream.read(min(self._left, PIECE))
            if not piece:
                raise self._cut_off()
            self._left -= len(piece)
            yield piece

    def trailing(self) -> int:
        """Read to the end of the stream after the last member; how many bytes there are not zero."""
        count = 0
        while piece := self._stream.read(PIECE):
            count += len(piece) - piece.count(0)
        return count + self._stream.trailing

    def _next(self) -> RawMember | None:
        extended = _Extended()
        while True:
            if self._stream.skip(self._left + self._padding):
                raise self._cut_off()
            self._left = self._padding = 0
            at = self._stream.position
            header = self._stream.read_up_to(BLOCK)
            if header == _ZERO:
                if extended.seen:
                    raise corrupt(f"the tar ends after {extended.seen} that belongs to no member", reason="bad_header")
                return None
            if not header and self._stream.whole and not extended.seen:
                self.end_mark = False
                return None
            if len(header) < BLOCK:
                problem = "in the middle of a header" if header else "without an end mark, so it may be cut off"
                raise corrupt(f"the tar ends {problem}, at byte {self._stream.position}", reason="truncated")
            self._headers += 1
            if self._headers > 4 * self._limits.members + 16:
                raise _over_members(self._limits)
            _check_sum(header, at)
            member = self._member(header, at, extended)
            if member is not None:
                return member

    def _member(self, header: bytes, at: int, extended: _Extended) -> RawMember | None:
        """The member of a header; None when the header only says something of the next one."""
        kind = header[156:157]
        name = _text(header[:100], at, "name")
        if header[257:263] == b"ustar\0" and header[345]:
            end = 476 if header[508:512] == b"tar\0" else 500  # star keeps times behind a shorter prefix
            name = _text(header[345:end], at, "prefix") + b"/" + name
        size = _number(header[124:136], at, "size")
        if kind in (b"x", b"X", b"g", b"L", b"K"):
            self._extend(kind, size, at, extended)
            return None
        if kind == b"V" and not size:  # a volume label
            return None
        if extended.path is not None:
            name = extended.path
        self._name = name
        if extended.size is not None:
            size = extended.size
        if kind in _REFUSED_TYPES:
            raise bad_member(name, *_REFUSED_TYPES[kind])
        if kind not in (b"0", b"\0", b"5", b"7"):
            raise bad_member(name, f"has the unknown type {kind!r}", "bad_type")
        directory = kind == b"5" or (kind == b"\0" and name.endswith(b"/"))
        if directory and size:
            raise bad_member(name, f"is a folder with {size} bytes of content", "bad_header")
        if not directory and name.endswith(b"/"):
            raise bad_member(name, "is a file whose name ends in a slash", "bad_name")
        self._left = size
        self._padding = -size % BLOCK
        return RawMember(name, size, _mode(header[100:108], at), directory)

    def _extend(self, kind: bytes, size: int, at: int, extended: _Extended) -> None:
        what = {b"g": "a global header", b"L": "a long name", b"K": "a long link name"}.get(kind, "an extended header")
        if size > self._limits.header_bytes:
            raise corrupt(
                f"{what} at byte {at} of the tar has {size} bytes, the limit `header_bytes` is"
                f" {self._limits.header_bytes}",
                reason="bad_header",
                limit="header_bytes",
            )
        payload = self._stream.read_up_to(size)
        if len(payload) < size or self._stream.skip(-size % BLOCK):
            raise corrupt(f"the tar ends in the middle of {what} at byte {at}", reason="truncated")
        if kind == b"K":
            return  # only links have one, and links are refused
        path: bytes | None
        size_text: bytes | None = None
        if kind == b"L":
            path = _text(payload, at, "long name")
        else:
            path, size_text = _pax(payload, at)
        if kind == b"g":
            if path is not None or size_text is not None:
                raise corrupt(f"the global header at byte {at} of the tar renames or resizes files", reason="pax")
            return
        if extended.seen == what or (path is not None and extended.path is not None):
            raise corrupt(f"{what} at byte {at} of the tar follows another one", reason="pax")
        extended.seen = what
        if path is not None:
            extended.path = path
        if size_text is not None:
            if not _PAX_SIZE(size_text) or int(size_text) >= 1 << 63:
                raise corrupt(f"the extended header at byte {at} of the tar states no size: {size_text[:30]!r}")
            extended.size = int(size_text)

    def _cut_off(self) -> TraceflowError:
        return corrupt(
            f"the tar ends in the middle of {shown(self._name)}, at byte {self._stream.position}", reason="truncated"
        )


def _over_members(limits: Limits) -> TraceflowError:
    return TraceflowError(
        "upload_too_large",
        f"the archive holds over {limits.members} members: split it, or raise the limit `members`",
        limit="members",
        value=limits.members,
    )


def _check_sum(header: bytes, at: int) -> None:
    stated = _number(header[148:156], at, "checksum")
    rest = header[:148] + header[156:]
    if stated == 256 + sum(rest):
        return
    signed = 256 + sum(rest) - 256 * sum(b > 127 for b in rest)  # old tars summed signed characters
    if stated != signed:
        raise corrupt(f"the header at byte {at} of the tar is damaged (wrong checksum)", reason="bad_header")


def _text(field: bytes, at: int, what: str) -> bytes:
    """A field that ends at its first NUL; bytes after that, which some readers would show, are refused."""
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):
        raise corrupt(
            f"the {what} {shown(field.rstrip(NUL))} in the header at byte {at} of the tar holds a NUL",
            reason="bad_name",
        )
    return text


def _number(field: bytes, at: int, what: str) -> int:
    """An octal or a base-256 number; blank is 0."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
        if value < 1 << 63:
            return value
    elif field[0] < 0x80:
        digits = field.strip(b" \0")
        if not digits.strip(b"01234567"):
            return int(digits, 8) if digits else 0
    problem = "a negative" if field[0] >= 0x80 and field[0] & 0x40 else "no valid"
    raise corrupt(f"the header at byte {at} of the tar states {problem} {what}", reason="bad_header")


def _mode(field: bytes, at: int) -> int:
    return _number(field, at, "mode") & 0o7777


def _pax(payload: bytes, at: int) -> tuple[bytes | None, bytes | None]:
    """The path and the size that the records of an extended header state."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(payload):
        match = _PAX_RECORD.match(payload, position)
        end = position + int(match.group(1)) if match else 0
        key, equals, value = payload[match.end() if match else 0 : end - 1].partition(b"=")
        if not match or end > len(payload) or end <= match.end() or payload[end - 1] != 10 or not equals:
            raise corrupt(f"the extended header at byte {at} of the tar is damaged", reason="pax")
        position = end
        if key.startswith((b"GNU.sparse.", b"SCHILY.realsize", b"SUN.holesdata")):
            raise corrupt(f"the extended header at byte {at} of the tar makes a sparse file", reason="sparse")
        if key in (b"path", b"size"):
            if key in found or not value:
                problem = "states its {} twice" if key in found else "states an empty {}"
                raise corrupt(
                    f"the extended header at byte {at} of the tar {problem.format(key.decode())}", reason="pax"
                )
            found[key] = value
    return found.get(b"path"), found.get(b"size")
