"""The index of a large capture, kept on this machine: a hundred thousand files are read once, not for every question.

It lies in the folder of the cache (docs/store.md) under the digest of the capture, as a SQLite database of names and
what is known of them, without contents. Losing it costs time alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats.errors import TraceflowError

from ..limits import Limits
from ..store.cache import open_cache
from .capture import CaptureTree, Counts
from .model import Changes, Entry

__all__ = ["KeptCapture", "Progress", "open_capture"]

_VERSION = 2  # raised when the index of a capture changes
_LARGE = 2_000  # entries: fewer are read as fast
_LONG = 1 << 20  # bytes of a capture that take a while to read
_COLUMNS = ", ".join(Entry._fields)
_TABLES = f"""
CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE hard (path TEXT PRIMARY KEY, target TEXT) WITHOUT ROWID;
CREATE TABLE entry (folder TEXT, {_COLUMNS}, at INTEGER, PRIMARY KEY (folder, name)) WITHOUT ROWID;
CREATE TABLE gone (path TEXT PRIMARY KEY, {_COLUMNS}) WITHOUT ROWID;
CREATE TABLE change (path TEXT PRIMARY KEY, changed TEXT, phase TEXT) WITHOUT ROWID;
CREATE TABLE total (phase TEXT, changes INTEGER, bytes INTEGER);
"""
Progress = Callable[[str, int], AbstractContextManager[Callable[[int, str], None]]]  # for a label and a total


def open_capture(
    name: str,
    digest: str,
    size: int,
    open_archive: Callable[[], BinaryIO],
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> CaptureTree:
    """The tree of the capture with this digest: from its kept index, else from itself, and then the index is kept."""
    cache, key = open_cache(), f"capture {_VERSION} {digest}"
    if cache is not None and (path := cache.find(key)) is not None:
        try:
            return KeptCapture(name, open_archive, path)
        except sqlite3.Error:  # damaged: it is made anew
            pass
    shown = progress(f"reading {name}", size) if progress is not None and size >= _LONG else nullcontext(None)
    with shown as advance:
        tree = CaptureTree(name, open_archive, limits, advance)
    if cache is not None and tree.is_capture and sum(map(len, tree.folders().values())) >= _LARGE:
        # what a stranger's manifest says may be no number or text that a database holds: such a one is read each time
        with suppress(OverflowError, UnicodeEncodeError, sqlite3.Error):
            cache.keep(key, _index_of(tree))
    return tree


def _index_of(tree: CaptureTree) -> bytes:
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(_TABLES)
        facts = {"prefix": tree.prefix, "unsafe": tree.unsafe, "sparse": tree.is_sparse, **tree.counts()._asdict()}
        _insert(database, "fact", 2, facts.items())
        _insert(database, "hard", 2, tree.hard_links().items())
        _insert(database, "entry", len(Entry._fields) + 2, _entries(tree))
        changed = tree.changed()
        _insert(database, "change", 3, ((path, entry.changed, entry.phase) for path, entry in sorted(changed.items())))
        gone = ((path, *entry) for path, entry in changed.items() if tree.entry(path) is None)
        _insert(database, "gone", len(Entry._fields) + 1, gone)
        for phase in {entry.phase for entry in changed.values()}:
            some = [entry.size or 0 for entry in changed.values() if entry.phase == phase]
            _insert(database, "total", 3, [(phase, len(some), sum(some))])
        database.commit()
        return database.serialize()
    finally:
        database.close()


def _entries(tree: CaptureTree) -> Iterator[tuple[Any, ...]]:
    """All entries in the order of the table, which makes it faster."""
    for folder, held in sorted(tree.folders().items()):
        for name, entry in sorted(held.items()):
            place = tree.place(f"{folder}/{name}" if folder else name)
            yield folder, *entry, place[0] if place is not None else None


def _insert(database: sqlite3.Connection, table: str, width: int, rows: Iterable[tuple[Any, ...]]) -> None:
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * width)})", rows)


class KeptCapture(CaptureTree):
    """A capture whose names come from its kept index; contents are read from the capture itself."""

    def __init__(self, name: str, open_archive: Callable[[], BinaryIO], index: Path) -> None:
        self._database = sqlite3.connect(f"{index.as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            super().__init__(name, open_archive)
        except sqlite3.Error:
            self._database.close()
            raise

    def close(self) -> None:
        self._database.close()

    @property
    def is_capture(self) -> bool:
        return True

    def _index(self) -> None:
        facts = dict(self._database.execute("SELECT name, value FROM fact"))
        self.prefix, self.unsafe = facts.pop("prefix", ""), facts.pop("unsafe", 0)
        self._sparse = bool(facts.pop("sparse", True))
        try:
            self._counts = Counts(**facts)
        except TypeError as error:
            raise sqlite3.DatabaseError(str(error)) from None
        self._hard = dict(self._database.execute("SELECT path, target FROM hard"))

    def entry(self, path: str) -> Entry | None:
        if not path:
            return Entry("", "dir")
        folder, _, name = path.rpartition("/")
        rows = self._rows(f"SELECT {_COLUMNS} FROM entry WHERE folder = ? AND name = ?", folder, name)
        return next(map(_entry, rows), None)

    def children(self, path: str, after: str = "", count: int | None = None) -> list[Entry]:
        query = f"SELECT {_COLUMNS} FROM entry WHERE folder = ? AND name > ? ORDER BY name LIMIT ?"
        return list(map(_entry, self._rows(query, path, after, -1 if count is None else count)))

    def changes(self, phase: str, after: str, count: int) -> Changes:
        totals = {told: sums for told, *sums in self._rows("SELECT * FROM total")}
        chosen = [sums for told, sums in totals.items() if phase in ("all", told)]
        query = "SELECT * FROM change WHERE path > ? AND (? = 'all' OR phase = ?) ORDER BY path LIMIT ?"
        items = []
        for path, *change in self._rows(query, after, phase, phase, count):
            gone = self._rows(f"SELECT {_COLUMNS} FROM gone WHERE path = ?", path)
            entry = self.entry(path) or next(map(_entry, gone))
            items.append((path, entry._replace(changed=change[0], phase=change[1])))
        return Changes(items, sum(n for n, _ in chosen), sum(size for _, size in chosen), bool(totals))

    def uncaptured(self, path: str) -> int:
        where, values = _within(path)
        count = f"SELECT count(*) FROM entry WHERE {where} AND type = 'file' AND NOT captured"
        return int(next(self._rows(count, *values))[0])

    def counts(self) -> Counts:
        return self._counts

    def place(self, path: str) -> tuple[int, int] | None:
        folder, _, name = path.rpartition("/")
        query = "SELECT at, size FROM entry WHERE folder = ? AND name = ? AND at IS NOT NULL"
        return next(((at, size) for at, size in self._rows(query, folder, name)), None)

    def placed(self, path: str) -> list[tuple[int, str, int]]:
        where, values = _within(path)
        query = f"SELECT at, folder, name, size FROM entry WHERE {where} AND at IS NOT NULL ORDER BY at"
        rows = self._rows(query, *values)
        return [(at, f"{folder}/{name}" if folder else name, size) for at, folder, name, size in rows]

    def _rows(self, query: str, *values: str | int) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._database.execute(query, values)
        except sqlite3.Error as error:
            raise TraceflowError(
                "io_error",
                f"the kept index of {self.name} cannot be read: {error}; `traceflow store gc --cache` removes it",
                path=self.name,
            ) from None


def _entry(row: Iterable[Any]) -> Entry:
    entry = Entry(*row)
    return entry._replace(captured=bool(entry.captured))


def _within(path: str) -> tuple[str, tuple[str, ...]]:
    """The entries at a path and below it, as a condition and its values."""
    if not path:
        return "1", ()
    folder, _, name = path.rpartition("/")
    where = "(folder = ? AND name = ? OR folder = ? OR folder > ? AND folder < ?)"
    return where, (folder, name, path, f"{path}/", f"{path}0")
