"""What a scan of an archive knows: its members, its totals, and what was odd."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from traceflow_formats.errors import TraceflowError

from ..limits import Limits

__all__ = ["Member", "MemberTable", "Notes", "Scan"]

_BLOCK = 2048  # names compressed together


class Member(NamedTuple):
    """A file, or a folder that the archive names: its safe name, its size in bytes, whether a file may be run."""

    name: str
    size: int = 0
    executable: bool = False
    directory: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable or self.directory else 0o644


class MemberTable:
    """The members in the archive's order. A million of them take some 20 MB: names are kept compressed.

    Iterating gives `Member` objects, anew each time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._sizes = array("q")
        self._flags = bytearray()
        self._blocks: list[bytes] = []
        self._open: list[str] = []
        self._packed = 0

    def append(self, member: Member) -> None:
        """Add a member. Raises `upload_too_large` when the names take more than `index_bytes`."""
        self._sizes.append(member.size)
        self._flags.append(member.executable | member.directory << 1)
        self._open.append(member.name)
        if len(self._open) == _BLOCK:
            self._blocks.append(self._pack())
            self._packed += len(self._blocks[-1])
            self._open.clear()
            if self._packed > self._limits.index_bytes:
                raise TraceflowError(
                    "upload_too_large",
                    f"the names of the archive's members take over {self._limits.index_bytes} bytes even when"
                    " compressed: shorten them, or raise the limit `index_bytes`",
                    limit="index_bytes",
                    value=self._limits.index_bytes,
                )

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[Member]:
        sizes, flags = self._sizes, self._flags
        number = 0
        for block in [*self._blocks, self._pack()]:
            if not block:
                continue
            for name in zlib.decompress(block).decode().split("\0"):
                flag = flags[number]
                yield Member(name, sizes[number], bool(flag & 1), bool(flag & 2))
                number += 1

    def _pack(self) -> bytes:
        return zlib.compress("\0".join(self._open).encode(), 1) if self._open else b""


@dataclass(slots=True, eq=False, repr=False)
class _Note:
    code: str
    count: int
    message: str
    path: str | None


class Notes:
    """Warnings of one reading, counted by code; the first of each keeps its message and the member it was about."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}

    def warn(self, code: str, message: str, path: str | None = None, count: int = 1) -> None:
        if (found := self._notes.get(code)) is not None:
            found.count += count
        elif count > 0:
            self._notes[code] = _Note(code, count, message, path)

    def __len__(self) -> int:
        return len(self._notes)

    def __contains__(self, code: str) -> bool:
        return code in self._notes

    def as_list(self) -> list[dict[str, Any]]:
        """[{"code", "count", "message", "path"?}, ...] in the order of the codes."""
        out = []
        for code in sorted(self._notes):
            note = self._notes[code]
            row: dict[str, Any] = {"code": code, "count": note.count, "message": note.message}
            if note.path is not None:
                row["path"] = note.path
            out.append(row)
        return out


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole archive, read once and found safe.

    `format` is tar, tar.gz, tar.zst or zip. `root` is the one top folder that holds everything (what macOS adds
    beside it does not count), or None. Sizes are bytes.
    """

    format: str
    archive_bytes: int
    unpacked_bytes: int
    files: int
    members: MemberTable
    root: str | None
    notes: Notes = field(default_factory=Notes)

    @property
    def warnings(self) -> list[dict[str, Any]]:
        return self.notes.as_list()
