"""A first pass over a Claude Code session file: which rows are off the conversation's active branch.

The file is append-only and tree-shaped: each row names its parent, a rewind leaves the old rows where they are and
chains the next prompt to an earlier row (or to none, where the first prompt was rewound). The active branch runs
from the last message up to its root. Rows beside it need not be withdrawn: parallel tool calls branch as well
(2.1), and hooks tear a row off the chain; so this pass gives the rows that lie beside the branch, and the parser
calls them abandoned from the first prompt of a person on.

The pass looks for two keys in the bytes of a line and reads a line in full only where the chain does not simply
go on. It holds eight bytes and a hash per row, and a few numbers per branching.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson
from traceflow_formats import jsontext

from ..lines import LongLine
from .messages import is_prompt

__all__ = ["Branch", "History", "first_pass", "record_of", "row_ids"]


class Branch(NamedTuple):
    """Rows in a line of descent beside the active branch: their lines (from 1), and the line of the parent or 0."""

    first: int
    last: int
    parent: int


class History(NamedTuple):
    """What the first pass found: branches by their first line, the last line of a copied beginning (0: none), and
    the lines whose parent is not in the file."""

    branches: tuple[Branch, ...] = ()
    copied: int = 0
    broken: frozenset[int] = frozenset()


# The beginning of a row as Claude Code writes it; a row that begins otherwise is read in full.
_HEAD = re.compile(rb'\{"parentUuid": ?"([^"\\]+)", ?"isSidechain": ?false,').match
_ROW = b'{"parentUuid":"%b","isSidechain":false,'
_UUID_AT = re.compile(rb'"uuid": ?"([^"\\]+)"').search
_NEAR = 600
_UUID_KEY, _UUID_LENGTH, _END = b'"uuid":"', 36, 120


def record_of(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds, its text mended as a parser mends it; None where it holds none."""
    if type(line) is LongLine:
        return None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        start = line.find(b"{")
        if start < 0:
            return None
        try:
            value = jsontext.loads_repaired(line[start:], jsontext.Repairs())
        except ValueError:
            return None
    return value if isinstance(value, dict) else None


def _id(value: object) -> bytes | None:
    return value.encode("utf-8", "replace") if isinstance(value, str) and value else None


class _Rows:
    """The rows of the main conversation in file order, cut into runs that go on from row to row."""

    def __init__(self) -> None:
        self.ids = array("q")  # hash of each row's uuid
        self.lines = array("q")
        self.seen: set[int] = set()
        self.starts: list[int] = []  # first row of each run
        self.parents: list[int | None] = []  # hash of the run's parent; None for a root
        self.roots: set[int] = set()  # runs that begin with a person's prompt and no parent
        self.logical: set[int] = set()  # runs whose parent is the one before a compaction
        self.loose = False  # a message of the model has no parent: this file's links mean nothing
        self.leaf = -1  # the last message
        self._previous = b""  # the line of the last row, until its uuid is certain
        self._uuid: bytes | None = None

    def read(self, lines: Iterable[bytes]) -> None:
        """Take all lines. The first look is at bytes: most rows just go on from the row before."""
        ids, places, seen = self.ids, self.lines, self.seen
        for number, line in enumerate(lines, 1):
            head = _HEAD(line)
            if head is not None and head[1] == self._uuid and line[-2:] == b"}\n":
                at = head.end()
                found = _UUID_AT(line, at, at + _NEAR)
                if found is None and (at := line.rfind(b'"uuid":')) > 0:
                    found = _UUID_AT(line, at)
                if found is not None:
                    uuid = found[1]
                    mark = hash(uuid)
                    if mark not in seen:  # the uuid may be one inside the message: certain when the next row names it
                        seen.add(mark)
                        if b'"message"' in line:
                            self.leaf = len(ids)
                        ids.append(mark)
                        places.append(number)
                        self._previous, self._uuid = line, uuid
                        continue
            self._take_in_full(number, line)

    def _take_in_full(self, number: int, line: bytes) -> None:
        record = record_of(line)
        if record is None or record.get("isSidechain") is True:
            return
        uuid = _id(record.get("uuid"))
        if uuid is None or (hash(uuid) in self.seen and uuid != self._uuid):
            return
        self._settle()
        if hash(uuid) in self.seen:
            return
        parent = _id(record.get("parentUuid"))
        if self._uuid is None or parent != self._uuid:
            self._branch_off(record, parent)
        self._add(number, line, uuid)

    def _branch_off(self, record: dict[str, Any], parent: bytes | None) -> None:
        """A row that does not go on from the row before it."""
        run = len(self.starts)
        if parent is None and run:
            parent = _id(record.get("logicalParentUuid"))  # of a compaction's boundary
            if parent is not None:
                if parent == self._uuid:
                    return
                self.logical.add(run)
            elif is_prompt(record) and "parentUuid" in record:
                self.roots.add(run)
            else:  # a hook's row, a boundary without its parent: the conversation goes on
                self.loose |= record.get("type") == "assistant"
                return
        self.starts.append(len(self.ids))
        self.parents.append(None if parent is None else hash(parent))

    def _add(self, number: int, line: bytes, uuid: bytes) -> None:
        mark = hash(uuid)
        self.seen.add(mark)
        if b'"message"' in line:
            self.leaf = len(self.ids)
        self.ids.append(mark)
        self.lines.append(number)
        self._previous, self._uuid = line, uuid

    def _settle(self) -> None:
        """Make sure of the last row's uuid: the quick look may have taken one inside its message."""
        if not self._previous:
            return
        record = record_of(self._previous)
        uuid = _id(record.get("uuid")) if record is not None else None
        self._previous = b""
        if uuid is not None and uuid != self._uuid:
            self.seen.discard(self.ids[-1])
            self.seen.add(hash(uuid))
            self.ids[-1], self._uuid = hash(uuid), uuid

    # -- the tree ----------------------------------------------------------------------------------------

    def parent_rows(self) -> tuple[list[int], frozenset[int]]:
        """The row that each run goes on from (-1: none), and the lines whose parent is not in the file."""
        self._settle()
        wanted: dict[int, int] = {mark: -1 for mark in self.parents if mark is not None}
        if len(self.starts) > 1:
            for row, mark in enumerate(self.ids):
                if mark in wanted:
                    wanted[mark] = row
        rewound = set() if self.loose else self.roots
        rows: list[int] = []
        broken: list[int] = []
        for run, (start, parent) in enumerate(zip(self.starts, self.parents, strict=True)):
            row = -1 if parent is None else wanted[parent]
            if row < 0 and parent is not None and run not in self.logical:
                broken.append(self.lines[start])
            if row < 0 and run not in rewound:
                row = start - 1  # never a break: go on from the row before
            rows.append(row)
        return rows, frozenset(broken)

    def beside(self, parents: list[int]) -> list[Branch]:
        """The rows that are not on the way from the last message (and what goes straight on from it) to its root."""
        ends = [*self.starts[1:], len(self.ids)]
        reached: dict[int, int] = {}  # run -> its last row on the active branch
        row = ends[bisect_right(self.starts, self.leaf) - 1] - 1 if self.leaf >= 0 else -1
        while row >= 0:
            run = bisect_right(self.starts, row) - 1
            known = reached.get(run)
            reached[run] = row if known is None else max(row, known)
            if known is not None:
                break  # a chain that bites its tail
            row = parents[run]
        branches = []
        for run, (start, end) in enumerate(zip(self.starts, ends, strict=True)):
            first = reached.get(run, start - 1) + 1
            if first < end:
                parent = first - 1 if first > start else parents[run]
                line = self.lines[parent] if parent >= 0 else 0
                branches.append(Branch(self.lines[first], self.lines[end - 1], line))
        return branches


def first_pass(read: Callable[[], Iterable[bytes]], copied_from: frozenset[int] = frozenset()) -> History:
    """Read a session's lines (`read` opens them anew) once, or twice where the file has more than one branch.

    `copied_from` are the `row_ids` of the session that it may have begun as a copy of.
    """
    if not copied_from and _is_one_line(read()):
        return History()
    rows = _Rows()
    rows.read(read())
    if not rows.ids:
        return History()
    parents, broken = rows.parent_rows()
    copied = 0
    for place, mark in zip(rows.lines, rows.ids, strict=True):
        if mark not in copied_from:
            break
        copied = place
    return History(tuple(rows.beside(parents)), copied, broken)


def _is_one_line(lines: Iterable[bytes]) -> bool:
    """Whether each row of a file simply goes on from the row before it: no branch, no row written again."""
    last: bytes | None = None
    follows = b"\n"  # how a row begins that goes on from the last, as Claude Code writes it
    for line in lines:
        if line.startswith(follows):
            at = line.find(_UUID_KEY, -_END)
            if at < 0:
                at = line.rfind(_UUID_KEY)
            start = at + len(_UUID_KEY)
            end = start + _UUID_LENGTH
            if at > 0 and line[end : end + 1] == b'"':
                last = line[start:end]
                follows = _ROW % last
                continue
        head = _HEAD(line)
        if head is None:
            if b'"parentUuid"' not in line and b'"uuid"' not in line:
                continue  # the harness's bookkeeping
            record = record_of(line)
            uuid = _id(record.get("uuid")) if record is not None else None
            if record is None or uuid is None:
                continue
            parent = _id(record.get("parentUuid")) or _id(record.get("logicalParentUuid"))
            if parent != last or record.get("isSidechain") is True:
                return False
            last = uuid
        elif head[1] != last:
            return False
        else:
            at = head.end()
            found = _UUID_AT(line, at, at + _NEAR)
            if found is None and (at := line.rfind(b'"uuid":')) > 0:
                found = _UUID_AT(line, at)
            if found is None:
                return False
            last = found[1]
        follows = _ROW % last
    return True


def row_ids(lines: Iterable[bytes]) -> frozenset[int]:
    """Hashes of the uuids of a session's rows, for telling a copy of it (valid within this process)."""
    rows = _Rows()
    rows.read(lines)
    return frozenset(rows.seen)
