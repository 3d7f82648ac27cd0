"""Where OpenCode keeps its sessions, and how they become rows for the parser.

1.2 and later: `opencode.db`, SQLite in WAL mode; after a run nearly all of it is in `opencode.db-wal`. The database is
opened from a copy in a temporary folder, so that the source is never written to. Before: JSON files below `storage/`
(`session/<project>/`, `message/<session>/`, `part/<message>/`; the oldest `session/info/`, `session/message/`,
`session/part/`). `opencode export` writes one document {info, messages: [{info, parts}]}.

A session with a parent is a subagent: it belongs to its root's source, linked by the `task` call whose metadata
names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from ..contract import Parser, Part
from ..facts import as_dict, as_list, as_text
from ..source import Input, Source, file_input
from .database import Database, is_database
from .parts import HARNESS_NAME

__all__ = ["is_database", "session_at", "sessions_in"]

_DB_NAMES = ("opencode.db", "opencode-")
_DOCUMENT_BYTES = 256 << 20  # an export is one JSON document; a larger one is not read into memory


class Session(NamedTuple):
    """One stored session, as the readers of the three storages give it."""

    id: str
    parent: str | None
    created: float
    links: dict[str, str]  # id of a child session -> the call in this session that spawned it
    rows: Callable[[], Iterator[bytes]]
    size: int  # how many rows, to tell the fuller of two copies


def sessions_in(folder: Path, make: Callable[[], Parser]) -> list[Source]:
    """The root sessions of every OpenCode storage below a folder; of a database, when the path is one.

    A session that is found more than once (a home beside its copy, a migrated storage beside its database) is
    taken from the place that holds most of it, the first of equals. Raises `invalid_input` for a database that
    cannot be read and `unrecognized_trace` for one of another program.
    """
    if folder.is_file():
        return (
            _sources(folder, _database_sessions(folder), make, _database_files(folder)) if is_database(folder) else []
        )
    found: dict[str, tuple[int, Source]] = {}
    for place in _places(folder):
        stored = place.is_dir()
        sessions = _storage_sessions(place) if stored else _database_sessions(place)
        files = (place,) if stored else _database_files(place)
        sizes = {session.id: session.size for session in sessions}
        for source in _sources(place, sessions, make, files):
            name = source.session_id or ""
            if name not in found or found[name][0] < sizes[name]:
                found[name] = (sizes[name], source)
    return [source for _, source in found.values()]


def session_at(path: Path, make: Callable[[], Parser]) -> Source:
    """The session whose file this is: an export document, a dump of messages, a session file of a storage, or a
    database that holds a single session. Raises `invalid_input` for a database with several."""
    if is_database(path):
        sources = sessions_in(path, make)
        if len(sources) != 1:
            names = ", ".join(str(s.session_id) for s in sources[:5])
            raise TraceflowError(
                "invalid_input", f"{path} holds {len(sources)} sessions, not one: {names}", count=len(sources)
            )
        return sources[0]
    document = _document(path)
    if isinstance(document.get("messages"), list) and isinstance(document.get("info"), dict):
        session = _exported(document)
        return Source(
            HARNESS_NAME, "session", path, (Input(Part(path.name), session.rows),), make, session.id or None, (path,)
        )
    storage = next((p for p in path.parents if p.name == "storage"), None)
    if storage is not None and as_text(document.get("projectID")) is not None:
        sources = _sources(storage, _storage_sessions(storage), make, (storage,))
        own = [source for source in sources if source.session_id == document.get("id")]
        if own:
            return own[0]
    if as_text(document.get("role")) is not None:
        row = _row("message", jsontext.dumps(document))
        return Source(
            HARNESS_NAME, "session", path, (Input(Part(path.name), lambda: iter([row])),), make, files=(path,)
        )
    return Source(HARNESS_NAME, "session", path, (file_input(path, Part(path.name)),), make, files=(path,))


def _sources(place: Path, sessions: list[Session], make: Callable[[], Parser], files: tuple[Path, ...]) -> list[Source]:
    """One source per root: its own rows, then those of its descendants, oldest first."""
    by_id = {session.id: session for session in sessions}
    children: dict[str, list[Session]] = {}
    roots = []
    for session in sorted(sessions, key=lambda s: (s.created, s.id)):
        if session.parent in by_id and session.parent != session.id:
            children.setdefault(str(session.parent), []).append(session)
        else:
            roots.append(session)
    sources = []
    for root in roots:
        inputs = [Input(Part(f"{place.name}/{root.id}"), root.rows)]
        waiting = list(children.get(root.id, ()))
        while waiting:
            child = waiting.pop(0)
            call = by_id[str(child.parent)].links.get(child.id)
            inputs.append(Input(Part(f"{place.name}/{child.id}", child.id, call), child.rows))
            waiting.extend(children.get(child.id, ()))
        sources.append(Source(HARNESS_NAME, "session", place, tuple(inputs), make, root.id, files))
    return sources


def _places(root: Path) -> Iterator[Path]:
    """The databases and storage folders below a folder, in the order of their paths; links are not followed."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=lambda entry: entry.name, reverse=True)
        except (NotADirectoryError, FileNotFoundError):
            continue
        if _is_storage(folder, {entry.name for entry in entries}):
            yield folder
            continue
        files = []
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))
            elif entry.is_file(follow_symlinks=False) and _is_named(entry.name) and is_database(Path(entry.path)):
                files.append(Path(entry.path))
        yield from reversed(files)


def _is_named(name: str) -> bool:
    return name.endswith(".db") and name.startswith(_DB_NAMES)


def _is_storage(folder: Path, names: set[str]) -> bool:
    return (
        folder.name == "storage" and "session" in names and ("message" in names or (folder / "session/info").is_dir())
    )


# -- SQLite ------------------------------------------------------------------------------------------------


def _database_files(path: Path) -> tuple[Path, ...]:
    beside = (path.with_name(path.name + end) for end in ("", "-wal", "-shm"))
    return tuple(p for p in beside if p.is_file() and not p.is_symlink())


def _database_sessions(path: Path) -> list[Session]:
    database = Database(path)
    sizes = database.sizes()
    rows = database.sessions()
    links: dict[str, dict[str, str]] = {}
    if any(as_text(row.get("parent_id")) for row in rows):
        for session, part in database.linking_parts():
            _link(part, links.setdefault(session, {}))
    return [
        Session(
            str(row["id"]),
            as_text(row.get("parent_id")),
            _number(row.get("time_created")),
            links.get(str(row["id"]), {}),
            partial(database.rows, row),
            sizes.get(str(row["id"]), 0),
        )
        for row in rows
    ]


# -- JSON files --------------------------------------------------------------------------------------------


def _storage_sessions(storage: Path) -> list[Session]:
    old = (storage / "session/info").is_dir()
    folders = [storage / "session/info"] if old else _folders(storage / "session")
    sessions = []
    for path in (path for folder in folders for path in _files(folder)):
        info = _document(path)
        messages = storage / ("session/message" if old else "message") / path.stem
        parts = storage / "session/part" / path.stem if old else storage / "part"
        links: dict[str, str] = {}
        size = 0
        for message in _files(messages):
            size += 1
            for part in _files(parts / message.stem):
                size += 1
                _link(part.read_bytes(), links)
        created = _number(as_dict(info.get("time")).get("created"))
        rows = partial(_storage_rows, path, messages, parts)
        sessions.append(Session(path.stem, as_text(info.get("parentID")), created, links, rows, size))
    return sessions


def _storage_rows(info: Path, messages: Path, parts: Path) -> Iterator[bytes]:
    yield _row("session", _raw(info))
    for message in sorted(_files(messages), key=_message_order):
        yield _row("message", _raw(message))
        for part in _files(parts / message.stem):
            yield _row("part", _raw(part))


def _message_order(path: Path) -> tuple[float, str]:
    return _number(as_dict(_document(path).get("time")).get("created")), path.name


def _files(folder: Path) -> list[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix == ".json" and p.is_file() and not p.is_symlink())


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())


def _exported(document: dict[str, Any]) -> Session:
    info = as_dict(document.get("info"))

    def rows() -> Iterator[bytes]:
        yield _row("session", jsontext.dumps(info))
        for item in as_list(document.get("messages")):
            message = as_dict(item)
            yield _row("message", jsontext.dumps(as_dict(message.get("info"))))
            for part in as_list(message.get("parts")):
                yield _row("part", jsontext.dumps(part))

    return Session(as_text(info.get("id")) or "", None, 0, {}, rows, len(as_list(document.get("messages"))))


# -- shared ------------------------------------------------------------------------------------------------


def _link(raw: bytes, links: dict[str, str]) -> None:
    """Note which call spawned which session: a `task` part's metadata says so, also while the task runs."""
    if b"sessionId" not in raw:
        return
    try:
        part = as_dict(orjson.loads(raw))
    except orjson.JSONDecodeError:
        return
    child = as_text(as_dict(as_dict(part.get("state")).get("metadata")).get("sessionId"))
    call = as_text(part.get("callID"))
    if child is not None and call is not None:
        links.setdefault(child, call)


def _row(kind: str, data: bytes) -> bytes:
    return b'{"row":"%s","data":%s}' % (kind.encode(), data)


def _raw(path: Path) -> bytes:
    """A file of a storage on one line, as it stands where it is no JSON."""
    raw = path.read_bytes()
    try:
        return orjson.dumps(orjson.loads(raw))
    except (orjson.JSONDecodeError, TypeError):
        return raw.replace(b"\n", b" ").strip()


def _document(path: Path) -> dict[str, Any]:
    """The object that a file holds; an empty one where it holds none, or lines of them."""
    if path.stat().st_size > _DOCUMENT_BYTES:
        return {}
    try:
        value = jsontext.loads_repaired(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), jsontext.Repairs())
    except ValueError:
        return {}
    return as_dict(value)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
