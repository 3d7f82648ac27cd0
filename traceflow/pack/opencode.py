"""The files of one OpenCode session out of a store that holds many.

A database with a single root session is packed as it is. Of one with several each trial gets the rows of its own
session, as the JSON files of OpenCode's own `storage/` (its layout before 1.2): the text of each row stays as it
stands in the database, with the ids and the time that were columns put before it. An exported document is filed in
the same layout, and kept as it is in `source/`, since OpenCode has no place for it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import orjson
from traceflow_formats import jsontext
from traceflow_parsers.opencode.files import is_database
from traceflow_parsers.source import Input, Source, walk_files

from .raw import Raw, file_raw

__all__ = ["opencode_raws"]

_HOME = ".local/share/opencode"
_SAFE = re.compile(r"[A-Za-z0-9_-]{1,128}").fullmatch  # as OpenCode makes its ids; a database may hold anything


def opencode_raws(source: Source, shared: bool) -> Iterator[Raw]:
    """What a session of OpenCode consists of: files of its storage, its rows of a `shared` database, or all of it."""
    path = source.path
    if path.is_dir():
        yield from (file_raw(f"{_HOME}/storage/{p.relative_to(path).as_posix()}", p) for p in _stored(source))
    elif not is_database(path):
        yield file_raw(f"source/{path.name}", path)
        for item in source.inputs:
            yield from _rows(item)
    elif shared:
        for item in source.inputs:
            yield from _rows(item)
    else:
        yield from (file_raw(f"{_HOME}/opencode.db{p.name.removeprefix(path.name)}", p) for p in source.files)


# -- storage/ ----------------------------------------------------------------------------------------------


def _stored(source: Source) -> Iterator[Path]:
    """The files of a storage that belong to the session and its subagents."""
    storage = source.path
    for session in (item.part.name.rpartition("/")[2] for item in source.inputs):
        messages = storage / "message" / session
        for folder in (messages, storage / "session/message" / session, storage / "session/part" / session):
            yield from _below(folder)
        for message in _below(messages):
            yield from _below(storage / "part" / message.stem)
        for folder in (*_folders(storage / "session"), storage / "todo", storage / "session_diff"):
            if (found := folder / f"{session}.json").is_file() and not found.is_symlink():
                yield found


def _below(folder: Path) -> Iterator[Path]:
    if not folder.is_symlink():
        yield from walk_files(folder)


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())


# -- rows of a database ------------------------------------------------------------------------------------


def _rows(item: Input) -> Iterator[Raw]:
    """The rows of one session as files. A row is `{"row": kind, ids and times, "data": the text of its column}`."""
    session = message = ""
    for line in item.lines():
        head, _, rest = line.partition(b',"data":')
        frame = orjson.loads(head + b"}")
        data = rest.rstrip(b"\n")[:-1]
        if frame["row"] == "session":
            row = orjson.loads(data)
            session = str(row.get("id") or item.part.name)
            if "time" not in row:
                times = {"created": row.get("time_created"), "updated": row.get("time_updated")}
                row |= {"parentID": row.get("parent_id"), "time": times}
            yield _file(f"session/packed/{_safe(session)}", jsontext.dumps(row))
            continue
        ident = frame.get("id") or _own_id(data)
        ids = {"id": ident, "sessionID": session, "time_created": frame.get("time")}
        if frame["row"] == "message":
            message = ident
            name = f"message/{_safe(session)}/{_safe(ident)}"
        else:
            ids["messageID"] = frame.get("message_id") or message
            name = f"part/{_safe(ids['messageID'])}/{_safe(ident)}"
        yield _file(name, _with_ids(ids, data) if frame.get("id") else data)


def _own_id(data: bytes) -> str:
    """The id in an exported message or part; its digest where it has none."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        value = None
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str) and found else hashlib.sha256(data).hexdigest()


def _file(name: str, data: bytes) -> Raw:
    return Raw(f"{_HOME}/storage/{name}.json", lambda: iter((data,)))


def _safe(ident: object) -> str:
    text = str(ident)
    return text if _SAFE(text) else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _with_ids(ids: dict[str, object], data: bytes) -> bytes:
    """The text of a row that is an object, with the ids before its own members."""
    text = data.strip()
    if not text.startswith(b"{"):
        return text
    inside = text[1:].lstrip()
    return jsontext.dumps(ids)[:-1] + (b"" if inside.startswith(b"}") else b",") + inside
