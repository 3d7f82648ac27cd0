"""The session files of qwen-code on disk: which belong together, and which records stand on the last branch.

`.qwen/projects/<cwd>/chats/<session id>.jsonl` is a tree by `uuid` and `parentUuid`, written in order: a record
whose parent is not the record before it goes back to an earlier point, and what lies between was withdrawn.
Releases after 0.15 write a file for each subagent, `subagents/<session id>/agent-<id>.jsonl`, with a sidecar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from traceflow_formats import jsontext

from ..contract import Part
from ..lines import LongLine, file_lines
from ..source import Input, file_input, head_records, walk_files

__all__ = ["Session", "is_session", "session_of", "sessions_below", "withdrawn_lines"]

_LINKS = re.compile(rb'\{"uuid":"([^"\\]{1,100})","parentUuid":(?:null|"([^"\\]{1,100})")[,}]').match
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}").fullmatch
_MAX_SIDECAR = 1 << 20


class Session(NamedTuple):
    """One root session: its main file, the files to read in order, every file that belongs to it."""

    path: Path
    session_id: str | None
    inputs: tuple[Input, ...]
    files: tuple[Path, ...]


def is_session(records: Iterable[dict[str, Any]]) -> bool:
    """Do these first records come from a qwen-code session file? Claude's have the same links but no `parts`."""
    for record in records:
        if not isinstance(record.get("uuid"), str) or "parentUuid" not in record or "sessionId" not in record:
            continue
        message = record.get("message")
        if isinstance(message, dict) and isinstance(message.get("parts"), list):
            return True
        if "systemPayload" in record or "toolCallResult" in record:
            return True
    return False


def _head(path: Path) -> dict[str, Any] | None:
    """The first record of a session file, or None for a file that is none."""
    try:
        records = head_records(path)
    except OSError:
        return None
    return next(r for r in records if "sessionId" in r) if is_session(records) else None


def session_of(path: Path) -> Session:
    """The session whose main file this is, with its subagents."""
    head = _head(path) or {}
    session_id = head["sessionId"] if isinstance(head.get("sessionId"), str) else None
    children = list(_children(path, session_id)) if session_id and not head.get("isSidechain") else []
    info = {
        "abandoned": withdrawn_lines(path),
        "agents": frozenset(part.agent_id for _, part, _ in children),
        "calls": frozenset(part.parent_call for _, part, _ in children),
    }
    inputs = [file_input(path, Part(path.name, info=info))]
    files = [path]
    for child, part, sidecar in children:
        inputs.append(file_input(child, part))
        files.extend((child, sidecar) if sidecar else (child,))
    return Session(path, session_id, tuple(inputs), tuple(files))


def _children(path: Path, session_id: str) -> Iterator[tuple[Path, Part, Path | None]]:
    folder = path.parent.parent / "subagents" / session_id
    if path.parent.name != "chats" or not _FOLDER(session_id) or folder.is_symlink():
        return
    for child in walk_files(folder, (".jsonl",)):
        if child.parent != folder or not child.name.startswith("agent-") or _head(child) is None:
            continue
        agent = child.stem.removeprefix("agent-")
        sidecar = child.with_suffix(".meta.json")
        said = _sidecar(sidecar)
        if isinstance(name := said.get("agentId"), str) and name:
            agent = name
        call = said.get("toolUseId")
        if not isinstance(call, str) or not call:  # the id of an agent ends with that of its call
            at = agent.find("call_")
            call = agent[at:] if at >= 0 else None
        info = {"abandoned": withdrawn_lines(child)}
        name = f"../subagents/{session_id}/{child.name}"
        yield child, Part(name, agent, call, info), sidecar if said else None


def _sidecar(path: Path) -> dict[str, Any]:
    try:
        if path.is_symlink() or path.stat().st_size > _MAX_SIDECAR:
            return {}
        value = jsontext.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def withdrawn_lines(path: Path) -> frozenset[int]:
    """The numbers (from 1) of the lines that are off the branch of the last record.

    A record whose parent is unknown goes on from the record before it: its history was lost, not withdrawn.
    """
    places: dict[bytes, int] = {}
    back: dict[int, int] = {}  # a line, and the line that it goes back to
    previous = b""
    last = 0
    for number, line in enumerate(file_lines(path), 1):
        links = _links(line)
        if links is None:
            continue
        uuid, parent = links
        if parent != previous and parent in places:
            back[number] = places[parent]
        places.setdefault(uuid, number)
        previous, last = uuid, number
    off: list[int] = []
    for number in sorted(back, reverse=True):  # along the branch, from its end to its beginning
        if number <= last:
            off.extend(range(back[number] + 1, number))
            last = back[number]
    return frozenset(off)


def _links(line: bytes) -> tuple[bytes, bytes] | None:
    if type(line) is LongLine:
        return None
    found = _LINKS(line)
    if found is not None:
        return found[1], found[2] or b""
    try:
        record = orjson.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or not isinstance(uuid := record.get("uuid"), str):
        return None
    parent = record.get("parentUuid")
    return uuid.encode(), parent.encode() if isinstance(parent, str) else b""


def sessions_below(folder: Path) -> list[Session]:
    """The root sessions below a folder: in any `chats/`, or directly in the folder.

    A session that stands at its own place and in a runner's slot counts once: where most of it is.
    """
    best: dict[str, tuple[int, Path]] = {}
    for path in walk_files(folder, (".jsonl",)):
        if path.parent.name != "chats" and path.parent != folder:
            continue
        head = _head(path)
        if head is None or head.get("isSidechain"):
            continue
        session_id = head["sessionId"] if isinstance(head["sessionId"], str) else path.as_posix()
        size = path.stat().st_size
        if session_id not in best or size > best[session_id][0]:
            best[session_id] = (size, path)
    return [session_of(path) for _, path in best.values()]
