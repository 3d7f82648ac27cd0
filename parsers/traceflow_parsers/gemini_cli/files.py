"""The session files of gemini-cli on disk: which belong together, and what a first pass over them says.

`.gemini/tmp/<project>/chats/session-<minute>-<id8>.jsonl` is an append log that changes its mind: `$set.messages`
replaces the history and `$rewindTo` cuts it, so what was withdrawn is known at the end only. The first pass reads
the keys of the messages and little else. Releases before 0.30 write one JSON document, `session-*.json`, which is
read as a header line and one line per message. Subagents lie in `chats/<session id>/<subagent id>.jsonl`.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from traceflow_formats import jsontext

from ..contract import Part
from ..lines import MAX_LINE, LongLine, file_lines, iter_lines
from ..source import Input, head_records, walk_files
from .history import History, key_of, listed_of

__all__ = ["Session", "document_lines", "is_header", "is_session", "session_of", "sessions_below"]

_SLOTS = ("gemini-cli.trajectory.jsonl", "gemini-cli.trajectory.json")  # where Harbor puts its copy
_SUFFIXES = (".jsonl", ".json")
_MESSAGES = re.compile(r'"messages"\s*:\s*\[')
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}").fullmatch  # the harness writes no other names
_TOUCHED = re.compile(rb'\{"\$set":\{"lastUpdated":"[^"\\]{0,64}"\}\}\s*').fullmatch  # stands after each message
_MESSAGE = re.compile(rb'\{"id":"([^"\\]{1,200})","timestamp":"[^"\\]{0,64}","type":"(\w{1,20})"').match


class Session(NamedTuple):
    """One root session: its main file, the files to read in order, every file that belongs to it."""

    path: Path
    session_id: str | None
    inputs: tuple[Input, ...]
    files: tuple[Path, ...]


@dataclass(slots=True, eq=False, repr=False)
class _Survey:
    """What the first pass over the files of one agent found."""

    history: History = field(default_factory=History)
    spawned: dict[str, str] = field(default_factory=dict)  # subagent id -> the call that spawned it
    messages: dict[Path, int] = field(default_factory=dict)
    last: bytes = b""  # how the line before began, where that was a message


# -- recognising ------------------------------------------------------------------------------------------


def is_header(record: dict[str, Any]) -> bool:
    """The first record of a session file, or the whole document of an older one."""
    return isinstance(record.get("sessionId"), str) and "projectHash" in record and "uuid" not in record


def is_session(records: Iterable[dict[str, Any]]) -> bool:
    """Do these first records come from a gemini-cli session file?"""
    for record in records:
        if is_header(record) or isinstance(record.get("$rewindTo"), str):
            return True
        if record.get("type") == "gemini" and isinstance(record.get("id"), str):
            return True
    return False


def _header(path: Path) -> dict[str, Any] | None:
    """The header of a session file; {} for one that lost it; None for a file that is none."""
    try:
        records = head_records(path)
    except OSError:
        return None
    if not is_session(records):
        return None
    return next((r for r in records if is_header(r)), {})


# -- one session ------------------------------------------------------------------------------------------


def session_of(path: Path) -> Session:
    """The session whose main file this is, with its other files and its subagents beside it."""
    header = _header(path) or {}
    session_id = _text(header.get("sessionId"))
    mains = [path]
    if session_id and header.get("kind") != "subagent" and path.name.startswith("session-"):
        twins = path.parent.glob(f"session-*-{_glob_safe(session_id[:8])}.json*")
        mains = sorted({path, *(p for p in twins if _is_twin(p, session_id))}, key=lambda p: p.name)
    survey = _survey(mains)
    root = path.parent
    info = {"abandoned": frozenset(survey.history.abandoned)}
    inputs = [_input(p, Part(p.name, info=info)) for p in mains]
    children: list[Path] = []
    if session_id:
        _children(root, root, session_id, survey.spawned, inputs, children)
    main = max(mains, key=lambda p: (survey.messages.get(p, 0), p == path))
    return Session(main, session_id, tuple(inputs), (*mains, *children))


def _is_twin(path: Path, session_id: str) -> bool:
    if path.suffix not in _SUFFIXES or path.is_symlink() or not path.is_file():
        return False
    header = _header(path)
    return header is not None and header.get("sessionId") == session_id and header.get("kind") != "subagent"


def _children(
    root: Path, chats: Path, parent: str, spawned: dict[str, str], inputs: list[Input], found: list[Path]
) -> None:
    """Add the subagents of a session, and theirs. Their folder is named after the whole id of their parent; before
    it had one, their files lay beside its own."""
    folder = chats / parent
    paths = []
    if _FOLDER(parent) and not folder.is_symlink():
        paths += [p for p in walk_files(folder, _SUFFIXES) if p.parent == folder]
    filed = {path.stem for path in paths}
    for agent in sorted(a for a in spawned if a not in filed):
        paths += sorted(chats.glob(f"session-*-{_glob_safe(agent[:8])}.json*"))
    for path in paths:
        header = None if path in found else _header(path)
        if header is None or (path.parent == chats and not _is_child(header, spawned)):
            continue
        agent = _text(header.get("sessionId")) or path.stem
        survey = _survey([path])
        info = {"abandoned": frozenset(survey.history.abandoned)}
        inputs.append(_input(path, Part(path.relative_to(root).as_posix(), agent, spawned.get(agent), info)))
        found.append(path)
        if agent != parent:
            _children(root, chats, agent, survey.spawned, inputs, found)


def _is_child(header: dict[str, Any], spawned: dict[str, str]) -> bool:
    return header.get("kind") == "subagent" and _text(header.get("sessionId")) in spawned


def _input(path: Path, part: Part) -> Input:
    return Input(part, lambda: session_lines(path))


def session_lines(path: Path) -> Iterator[bytes]:
    """The lines of a session file of either form."""
    return document_lines(path) if path.suffix == ".json" else file_lines(path)


# -- the older form: one JSON document ---------------------------------------------------------------------


def document_lines(path: Path) -> Iterator[bytes]:
    """A document as lines: its header without the messages, then each message. A torn document gives what is whole
    of it and its rest as the last line; a file that holds JSON lines after all is read as such."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        if size > MAX_LINE:
            long = LongLine(stream.read(200))
            long.length = size
            yield long
            return
        data = stream.read()
    document = _document(data)
    if document is None:
        yield from _torn_lines(data)
        return
    messages = document.pop("messages")
    yield jsontext.dumps(document) + b"\n"
    for message in messages:
        yield jsontext.dumps(message) + b"\n"


def _document(data: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(data)
        if jsontext.rounded(value):
            value = jsontext.loads(data, exact=True)
    except ValueError:
        return None
    if jsontext.too_deep(value):  # what cannot be written again is left as it stands, and each message judged by itself
        return None
    return value if isinstance(value, dict) and isinstance(value.get("messages"), list) else None


def _torn_lines(data: bytes) -> Iterator[bytes]:
    text = data.decode("utf-8", "surrogateescape")  # every byte comes back as it was
    start = _MESSAGES.search(text)
    header = text[: start.start()].rstrip().rstrip(",") + "}" if start else ""
    decoder = json.JSONDecoder()
    try:
        whole = isinstance(decoder.decode(header), dict)
    except (ValueError, RecursionError):
        whole = False
    if start is None or not whole:
        yield from iter_lines(io.BytesIO(data))
        return
    yield _one_line(header)
    at = start.end()
    while True:
        at += len(text[at : at + 4096]) - len(text[at : at + 4096].lstrip(" \t\r\n,"))
        if at >= len(text) or text[at] == "]":
            return
        try:
            _, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield _one_line(text[at:])
            return
        yield _one_line(text[at:end])
        at = end


def _one_line(text: str) -> bytes:
    """JSON text without its line breaks, which stand between tokens only."""
    return re.sub(r"\s*[\r\n]\s*", " ", text).strip().encode("utf-8", "surrogateescape") + b"\n"


# -- the first pass ---------------------------------------------------------------------------------------


def _survey(paths: list[Path]) -> _Survey:
    survey = _Survey()
    for path in paths:
        spoken = 0
        for line in session_lines(path):
            if _TOUCHED(line) is None:
                spoken += _surveyed(line, survey)
        survey.messages[path] = spoken
    return survey


def _surveyed(line: bytes, survey: _Survey) -> bool:
    """Take one line into the survey; is it a message of a person or of the model?"""
    if type(line) is LongLine:
        return False
    history = survey.history
    head = _MESSAGE(line)
    if head is not None and (head[2] != b"gemini" or b'"agentId"' not in line):
        if head[0] != survey.last:  # most messages are written again with their calls
            survey.last = head[0]
            history.message(f"{head[2].decode()}:{head[1].decode('utf-8', 'replace')}")
        return head[2] in (b"user", b"gemini")
    if head is None and line.startswith(b'{"$set"') and b'"messages"' not in line and b'"sessionId"' not in line:
        return False
    survey.last = b""
    try:
        record = orjson.loads(line)
    except ValueError:
        try:
            record = jsontext.loads_repaired(line.strip(), jsontext.Repairs())
        except ValueError:
            return False
    if not isinstance(record, dict):
        return False
    if isinstance(target := record.get("$rewindTo"), str):
        history.rewind(target)
    elif (key := key_of(record)) is not None:
        history.message(key)
        _spawned(record, survey.spawned)
        return record.get("type") in ("user", "gemini")
    elif isinstance(values := record.get("$set"), dict):
        if "sessionId" in values:
            history.restart()
        if isinstance(messages := values.get("messages"), list):
            history.replace(listed_of(messages))
            for message in messages:
                if isinstance(message, dict):
                    _spawned(message, survey.spawned)
    elif is_header(record):
        history.restart()
    return False


def _spawned(record: dict[str, Any], spawned: dict[str, str]) -> None:
    calls = record.get("toolCalls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict) and (agent := _text(call.get("agentId"))) and (call_id := _text(call.get("id"))):
            spawned.setdefault(agent, call_id)


# -- many sessions ----------------------------------------------------------------------------------------


def sessions_below(folder: Path) -> list[Session]:
    """The root sessions below a folder: in any `chats/`, in Harbor's slot, or directly in the folder.

    A session that stands at several places (its own and a copy) counts once: where most of it is. A subagent that
    no session names is a root.
    """
    groups: dict[tuple[str, Path], list[Path]] = {}
    children: dict[Path, str] = {}
    for path in walk_files(folder, _SUFFIXES):
        own = path.parent.name == "chats" and path.name.startswith("session-")
        if not own and path.name not in _SLOTS and path.parent != folder:
            continue
        header = _header(path)
        if header is None:
            continue
        session_id = _text(header.get("sessionId")) or path.as_posix()
        if header.get("kind") == "subagent":
            children[path] = session_id
            continue
        groups.setdefault((session_id, path.parent), []).append(path)
    best: dict[str, tuple[int, list[Path]]] = {}
    for (session_id, _), paths in groups.items():
        size = sum(p.stat().st_size for p in paths)
        if session_id not in best or size > best[session_id][0]:
            best[session_id] = (size, paths)
    sessions = [session_of(max(paths, key=lambda p: p.stat().st_size)) for _, paths in best.values()]
    named = {item.part.agent_id for session in sessions for item in session.inputs}
    return sessions + [session_of(path) for path, agent in children.items() if agent not in named]


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _glob_safe(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "?", text)
