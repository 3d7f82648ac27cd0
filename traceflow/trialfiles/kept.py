"""The index of a large capture, kept on this machine: a hundred thousand files are read once, not for every question.

It lies in the folder of the cache (docs/store.md) under the digest of the capture, as a SQLite database of names and
what is known of them, without contents. Losing it costs time alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats.errors import TraceflowError

from ..limits import Limits
from ..store.cache import open_cache
from .capture import CaptureTree, Counts
from .model import Entry, Hints

__all__ = ["KeptCapture", "open_capture"]

_VERSION = 1  # raised when the index of a capture changes
_LARGE = 2_000  # entries: fewer are read as fast
_COLUMNS = ", ".join(field.name for field in fields(Entry))
_TABLES = f"""
CREATE TABLE fact (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE hard (path TEXT PRIMARY KEY, target TEXT) WITHOUT ROWID;
CREATE TABLE place (path TEXT PRIMARY KEY, at INTEGER, size INTEGER) WITHOUT ROWID;
CREATE TABLE entry (folder TEXT, {_COLUMNS}, PRIMARY KEY (folder, name)) WITHOUT ROWID;
CREATE TABLE changed (path TEXT PRIMARY KEY, {_COLUMNS}) WITHOUT ROWID;
"""


def open_capture(
    name: str, digest: str, open_archive: Callable[[], BinaryIO], limits: Limits | None = None
) -> CaptureTree:
    """The tree of the capture with this digest: from its kept index, else from itself, and then the index is kept."""
    cache, key = open_cache(), f"capture {_VERSION} {digest}"
    if cache is not None and (path := cache.find(key)) is not None:
        try:
            return KeptCapture(name, open_archive, path)
        except sqlite3.Error:  # damaged: it is made anew
            pass
    tree = CaptureTree(name, open_archive, limits)
    if cache is not None and tree.is_capture and sum(map(len, tree.folders().values())) >= _LARGE:
        # what a stranger's manifest says may be no number or text that a database holds: such a one is read each time
        with suppress(OverflowError, UnicodeEncodeError, sqlite3.Error):
            cache.keep(key, _index_of(tree))
    return tree


def _index_of(tree: CaptureTree) -> bytes:
    database = sqlite3.connect(":memory:")
    try:
        database.executescript(_TABLES)
        facts = {"prefix": tree.prefix, "unsafe": tree.unsafe, **tree.counts()._asdict()}
        database.executemany("INSERT INTO fact VALUES (?, ?)", facts.items())
        database.executemany("INSERT INTO hard VALUES (?, ?)", tree.hard_links().items())
        database.executemany("INSERT INTO place VALUES (?, ?, ?)", ((p, *place) for p, place in tree.places().items()))
        entries = ((folder, e) for folder, held in tree.folders().items() for e in held.values())
        _insert(database, "entry", entries)
        _insert(database, "changed", tree.changed().items())
        database.commit()
        return database.serialize()
    finally:
        database.close()


def _insert(database: sqlite3.Connection, table: str, entries: Iterable[tuple[str, Entry]]) -> None:
    marks = ", ".join("?" * (1 + len(fields(Entry))))
    database.executemany(
        f"INSERT INTO {table} VALUES ({marks})", ((where, *astuple(entry)) for where, entry in entries)
    )


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

    def children(self, path: str) -> list[Entry]:
        return list(map(_entry, self._rows(f"SELECT {_COLUMNS} FROM entry WHERE folder = ? ORDER BY name", path)))

    def changed(self) -> Hints:
        return {path: _entry(row) for path, *row in self._rows("SELECT * FROM changed")}

    def uncaptured(self, path: str) -> int:
        entry = self.entry(path)
        if entry is not None and entry.type != "dir":
            return int(entry.type == "file" and not entry.captured)
        within = (
            ("WHERE (folder = ? OR folder > ? AND folder < ?)", path, f"{path}/", f"{path}0") if path else ("WHERE 1",)
        )
        where, *values = within
        count = f"SELECT count(*) FROM entry {where} AND type = 'file' AND NOT captured"
        return int(next(self._rows(count, *values))[0])

    def counts(self) -> Counts:
        return self._counts

    def place(self, path: str) -> tuple[int, int] | None:
        return next(((at, size) for at, size in self._rows("SELECT at, size FROM place WHERE path = ?", path)), None)

    def _rows(self, query: str, *values: str) -> Iterator[tuple[Any, ...]]:
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
    return replace(entry, captured=bool(entry.captured))
