"""OpenCode's SQLite database, read from a copy.

The copy holds the database and its write-ahead log; the shared-memory index is rebuilt by SQLite. Nothing of the
file is trusted: only tables are read, no views, no virtual tables and no computed columns, and a statement that
does not end is stopped.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

__all__ = ["Database", "is_database"]

_MAGIC = b"SQLite format 3\x00"
_TABLES = {
    "session": ("id", "parent_id"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "session_id", "time_created", "data"),
}
_SESSION_COLUMNS = (
    "id", "parent_id", "title", "directory", "version", "cost", "tokens_input", "tokens_output", "tokens_reasoning",
    "tokens_cache_read", "tokens_cache_write", "revert", "agent", "time_created", "time_updated",
)  # fmt: skip
_BROKEN = (sqlite3.Error, UnicodeDecodeError)  # names in a damaged schema may be no UTF-8
_PART = b'{"row":"part","id":"%b","message_id":"%b","time":%d,"data":%b}'
_BATCH = 1 << 20  # bytes
_TRIES = 3
_STEPS = 200_000_000  # instructions of SQLite's machine that one statement may take: minutes, not hours


def is_database(path: Path) -> bool:
    """Whether a file is a SQLite database, whoever wrote it. An empty file counts where a log lies beside it."""
    try:
        with path.open("rb") as stream:
            head = stream.read(len(_MAGIC))
    except (IsADirectoryError, FileNotFoundError):
        return False
    wal = path.with_name(path.name + "-wal")
    return head == _MAGIC or (not head and path.suffix == ".db" and wal.is_file() and wal.stat().st_size > 0)


class Database:
    """A copy of an OpenCode database, made at first use and removed when the last reader lets go of it.

    Raises `invalid_input` where SQLite cannot read the file, and `unrecognized_trace` where it is no database of
    OpenCode.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._copy: Path | None = None
        self._columns: dict[str, list[str]] = {}

    def sessions(self) -> list[dict[str, Any]]:
        """The session rows, as far as this release of OpenCode has the columns."""
        with _Reading(self) as connection:
            wanted = [name for name in _SESSION_COLUMNS if name in self._columns["session"]]
            found = connection.execute(f"SELECT {', '.join(wanted)} FROM session ORDER BY id").fetchall()
        return [{k: _text(v) for k, v in zip(wanted, row, strict=True)} for row in found if row[0] is not None]

    def sizes(self) -> dict[str, int]:
        """How many messages and parts each session has."""
        sizes: dict[str, int] = {}
        with _Reading(self) as connection:
            for table in ("message", "part"):
                query = f"SELECT session_id, count(*) FROM {table} GROUP BY session_id"
                for session, number in connection.execute(query):
                    sizes[str(_text(session))] = sizes.get(str(_text(session)), 0) + int(number)
        return sizes

    def linking_parts(self) -> Iterator[tuple[str, bytes]]:
        """The parts that name another session, with the session they stand in."""
        query = "SELECT session_id, data FROM part WHERE instr(data, 'sessionId') > 0 ORDER BY id"
        with _Reading(self) as connection:
            for session, data in connection.execute(query):
                yield str(_text(session)), _bytes(data)

    def rows(self, session: dict[str, Any]) -> Iterator[bytes]:
        """The rows of a session for the parser: itself, then each message (by time and id) with its parts (by id)."""
        data = dict(session)
        if isinstance(revert := data.get("revert"), str):
            try:
                data["revert"] = jsontext.loads(revert)
            except ValueError:
                del data["revert"]
        yield b'{"row":"session","data":%s}' % jsontext.dumps(data)
        with _Reading(self) as connection:
            messages = connection.execute(
                "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id",
                (session["id"],),
            )
            parts = connection.cursor()
            ready: list[bytes] = []  # read in batches: SQLite and the parser taking turns at every row is slower
            size = 0
            for message, time, raw in messages:
                ready.append(_message(message, time, raw))
                parts.execute(
                    "SELECT id, time_created, data FROM part WHERE message_id = ? ORDER BY id", (_text(message),)
                )
                plain = _is_plain(message)
                for part, moment, content in parts:
                    if plain and type(content) is bytes and content and type(moment) is int and _is_plain(part):
                        row = _PART % (part, message, moment, content)
                    else:
                        row = _framed(b"part", content, id=_text(part), message_id=_text(message), time=moment)
                    ready.append(row)
                    size += len(row)
                    if size > _BATCH:
                        yield from ready
                        ready, size = [], 0
            yield from ready

    # -- the copy ----------------------------------------------------------------------------------------

    def copy(self) -> Path:
        """The copied database file. A writer may be at work: a copy that was overtaken is made again."""
        if self._copy is None:
            folder = Path(tempfile.mkdtemp(prefix="traceflow-"))
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            target = folder / "copy.db"
            for _ in range(_TRIES):
                before = self._state()
                for end in ("-wal", "-journal", ""):
                    source = self.path.with_name(self.path.name + end)
                    if source.is_file() and not source.is_symlink():
                        shutil.copyfile(source, target.with_name(target.name + end))
                if self._state() == before:
                    break
            self._copy = target
        return self._copy

    def _state(self) -> list[tuple[int, int]]:
        files = (self.path.with_name(self.path.name + end) for end in ("", "-wal", "-journal"))
        return [(found.st_size, found.st_mtime_ns) for path in files if path.exists() and (found := path.stat())]

    def check(self, connection: sqlite3.Connection) -> None:
        """Find out once whether this is OpenCode's schema."""
        if self._columns:
            return
        for table, needed in _TABLES.items():
            found = connection.execute("SELECT type, sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            columns = connection.execute(f"PRAGMA table_xinfo({table})").fetchall() if found else []
            plain = [_text(row[1]) for row in columns if row[6] == 0]
            virtual = found is not None and b"VIRTUAL" in _bytes(found[1])[:20].upper()
            missing = [name for name in needed if name not in plain]
            if found is None or _text(found[0]) != "table" or virtual or (missing and missing != ["parent_id"]):
                self._columns = {}
                raise TraceflowError(
                    "unrecognized_trace",
                    f"{self.path} is a SQLite database, but none of OpenCode: it has no table {table!r} of its form",
                    path=str(self.path),
                )
            self._columns[table] = plain


class _Reading:
    """A connection to the copy, closed at the end; SQLite's errors come out as ours."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> sqlite3.Connection:
        try:
            connection = self._connection = sqlite3.connect(self._database.copy(), timeout=1, isolation_level=None)
            connection.text_factory = bytes
            connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 1_000_000)
            left = iter(range(_STEPS // 100_000))
            connection.set_progress_handler(lambda: next(left, None) is None, 100_000)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            self._database.check(connection)
        except _BROKEN as error:
            self.__exit__(type(error), error, None)
        except BaseException:
            self._close()
            raise
        return connection

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._close()
        if isinstance(error, _BROKEN):
            path = self._database.path
            raise TraceflowError(
                "invalid_input",
                f"{path} cannot be read as a SQLite database ({error}): copy it together with its -wal file "
                "while OpenCode is not running",
                path=str(path),
            ) from None

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _message(message: Any, time: Any, data: Any) -> bytes:
    if _is_plain(message) and type(data) is bytes and data and type(time) is int:
        return b'{"row":"message","id":"%b","time":%d,"data":%b}' % (message, time, data)
    return _framed(b"message", data, id=_text(message), time=time)


def _is_plain(name: Any) -> bool:
    """Whether an id is as OpenCode makes them: it stands in JSON as it is."""
    return type(name) is bytes and name.translate(None, b"_-").isalnum()


def _framed(row: bytes, data: object, **frame: object) -> bytes:
    """A row of which not all is as OpenCode writes it."""
    head = jsontext.dumps({key: value for key, value in frame.items() if value is not None})
    return b'{"row":"%s",%s,"data":%s}' % (row, head[1:-1] or b'"id":null', _bytes(data) or b"null")


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"" if value is None else str(value).encode()


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
