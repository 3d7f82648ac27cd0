"""Where Kimi Code and kimi-cli keep their sessions.

Kimi Code: `~/.kimi-code/sessions/<work dir>/session_<id>/`, with a journal per agent, `agents/<agent>/wire.jsonl`.
kimi-cli: `~/.kimi/sessions/<md5 of the work dir>/<id>/`, with `wire.jsonl`, `context.jsonl` (older ones after a
compaction: `context_1.jsonl`, ...) and `subagents/<agent>/`. What is needed before the lines are read (which call
spawned an agent, what was undone, the summaries that only the context has) is found in a first pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from ..contract import Parser, Part
from ..facts import as_dict, as_list, as_text
from ..lines import LongLine, file_lines
from ..source import Input, Source, file_input, head_records, walk_files
from .parts import text_of_parts

__all__ = ["COMPACTED", "cli_session_at", "cli_sessions_in", "code_session_at", "code_sessions_in"]

COMPACTED = "<system>Previous context has been compacted"
_SPAWNED = re.compile(r"^agent_id: ([\w-]{1,80})$", re.MULTILINE)
_TYPE = re.compile(rb'\{"type": ?"([^"\\]{1,80})"').match
_SURVEYED = frozenset((b"subagent.spawned", b"context.undo"))
_HISTORY = frozenset(
    (b"context.undo", b"turn.prompt", b"turn.steer", b"context.append_message", b"context.apply_compaction",
     b"context.clear")
)  # fmt: skip
_HEAD = 40  # a context's summary stands among its first lines

Make = Callable[[], Parser]
Claims = Callable[[Sequence[dict[str, Any]]], bool]


def _records(path: Path, *needles: bytes, limit: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file whose line holds one of the needles, with the line's number; of its first lines only,
    where a limit is given."""
    for number, line in enumerate(islice(file_lines(path), limit or None), 1):
        if (not needles or any(needle in line for needle in needles)) and (record := _object(line)) is not None:
            yield number, record


def _typed(path: Path, types: frozenset[bytes]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The records of a journal that are of these types, with the number of their line.

    Most records begin with their type, which is cheaper to look at than a whole line.
    """
    for number, line in enumerate(file_lines(path), 1):
        head = _TYPE(line)
        wanted = head[1] in types if head is not None else any(kind in line for kind in types)
        if wanted and (record := _object(line)) is not None:
            yield number, record


def _object(line: bytes) -> dict[str, Any] | None:
    if type(line) is LongLine:
        return None
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if isinstance(record, dict) else None


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


# -- Kimi Code ---------------------------------------------------------------------------------------------


def code_sessions_in(folder: Path, make: Make, claims: Claims) -> list[Source]:
    """The sessions below a folder: each `agents/` with journals in it, and a journal that lies in the folder."""
    found: dict[Path, list[Path]] = {}
    for path in walk_files(folder.absolute(), ("wire.jsonl",)):
        inside = path.parent.parent.name == "agents"
        if path.name == "wire.jsonl" and (inside or path.parent == folder.absolute()) and claims(head_records(path)):
            found.setdefault(path.parent.parent.parent if inside else path.parent, []).append(path)
    return [_code_source(session, paths, make) for session, paths in found.items()]


def code_session_at(path: Path, make: Make) -> Source:
    """The session of a journal, with the journals of its other agents."""
    if path.parent.parent.name != "agents":
        return _code_source(path.parent, [path], make, path.stem)
    paths = sorted(p for p in path.parent.parent.glob("*/wire.jsonl") if _plain(p) and not p.parent.is_symlink())
    return _code_source(path.parent.parent.parent, paths, make)


def _code_source(session: Path, paths: list[Path], make: Make, name: str | None = None) -> Source:
    paths = sorted(paths, key=lambda p: (p.parent.name != "main", p.parent.name))
    main = paths[0]
    spawns: dict[str, list[str]] = {}
    undone: set[Path] = set()  # journals that took something back
    for path in paths:
        for _, record in _typed(path, _SURVEYED):
            agent, call = as_text(record.get("subagentId")), as_text(record.get("parentToolCallId"))
            if agent is not None and call is not None:
                spawns.setdefault(agent, []).append(call)
            if record.get("type") == "context.undo":
                undone.add(path)
    order = {agent: at for at, agent in enumerate(spawns)}
    session_id = name or _session_id(session) or session.name
    inputs = []
    for path in sorted(paths, key=lambda p: (p != main, order.get(p.parent.name, len(order)), p.parent.name)):
        agent = None if path == main else path.parent.name
        calls = spawns.get(path.parent.name, []) if agent else []
        info = {"session": session_id, "spawns": calls, "withdrawn": _withdrawn(path) if path in undone else []}
        place = path.relative_to(session).as_posix() if path.is_relative_to(session) else path.name
        inputs.append(file_input(path, Part(place, agent, calls[0] if calls else None, info)))
    state = session / "state.json"
    files = (*paths, state) if _plain(state) else tuple(paths)
    return Source("kimi-code", "session", main, tuple(inputs), make, session_id, files)


def _session_id(session: Path) -> str | None:
    state = session / "state.json"
    if not _plain(state) or state.stat().st_size > 1 << 20:
        return None
    try:
        return as_text(as_dict(orjson.loads(state.read_bytes())).get("id"))
    except orjson.JSONDecodeError:
        return None


def _withdrawn(path: Path) -> list[tuple[int, int]]:
    """The stretches of a journal that `context.undo` took back: from the prompt that it names to the undo itself."""
    stretches: list[tuple[int, int]] = []
    anchors: list[int] = []
    turn: int | None = None
    for number, record in _typed(path, _HISTORY):
        kind = record.get("type")
        if kind in ("turn.prompt", "turn.steer"):
            turn = number
        elif kind == "context.append_message":
            message = as_dict(record.get("message"))
            if message.get("role") == "user" and as_dict(message.get("origin")).get("kind") in (None, "user"):
                anchors.append(turn or number)
                turn = None
        elif kind in ("context.apply_compaction", "context.clear"):
            anchors.clear()
        elif kind == "context.undo":
            count = record.get("count")
            if isinstance(count, int) and 0 < count <= len(anchors):
                stretches.append((anchors[-count], number))
                del anchors[-count:]
    return stretches


# -- kimi-cli ----------------------------------------------------------------------------------------------


def cli_sessions_in(folder: Path, make: Make, claims: Claims) -> list[Source]:
    """The sessions below a folder: each folder with a wire or a context of kimi-cli, those of subagents left out."""
    found: dict[Path, None] = {}
    for path in walk_files(folder, (".jsonl",)):
        inner = path.relative_to(folder).parts
        if path.name not in ("wire.jsonl", "context.jsonl") or "subagents" in inner[:-1] or path.parent in found:
            continue
        if claims(head_records(path)):
            found[path.parent] = None
    return [_cli_source(session, make, claims) for session in found]


def cli_session_at(path: Path, make: Make, claims: Claims) -> Source:
    """The session whose wire or context this is, with what lies beside it; any other file alone."""
    if path.name in ("wire.jsonl", "context.jsonl") and claims(head_records(path)):
        return _cli_source(path.parent, make, claims)
    part = Part(path.name, info={"session": None, "context": _is_context(path)})
    return Source("kimi-cli", "session", path, (file_input(path, part),), make, None, (path,))


def _cli_source(session: Path, make: Make, claims: Claims) -> Source:
    wire = session / "wire.jsonl"
    contexts = _contexts(session)
    files = [*contexts]
    inputs: list[Input]
    if _plain(wire) and claims(head_records(wire)):
        info = {"session": session.name, **_context_facts(contexts)}
        inputs = [file_input(wire, Part("wire.jsonl", info=info)), *_unseen_agents(session, wire)]
        files.insert(0, wire)
    else:
        inputs = [
            file_input(path, Part(path.name, info={"session": session.name, "context": True})) for path in contexts
        ]
    below = session / "subagents"
    if below.is_dir() and not below.is_symlink():
        files += list(walk_files(below))
    return Source("kimi-cli", "session", files[0], tuple(inputs), make, session.name, tuple(files))


def _contexts(session: Path) -> list[Path]:
    """The contexts, oldest first: `context_1.jsonl`, `context_2.jsonl`, ..., `context.jsonl`."""
    numbered = []
    for path in session.iterdir():
        found = re.fullmatch(r"context_(\d{1,6})\.jsonl", path.name)
        if found and _plain(path):
            numbered.append((int(found[1]), path))
    last = session / "context.jsonl"
    return [path for _, path in sorted(numbered)] + ([last] if _plain(last) else [])


def _is_context(path: Path) -> bool:
    return any(isinstance(record.get("role"), str) for record in head_records(path)[:5])


def _context_facts(contexts: list[Path]) -> dict[str, Any]:
    """What the wire does not hold: the system prompt, and the summary of each compaction in its order."""
    system: str | None = None
    summaries: list[str] = []
    for path in contexts:
        for _, record in _records(path, limit=_HEAD):
            content = record.get("content")
            if record.get("role") == "_system_prompt" and system is None:
                system = as_text(content)
            elif record.get("role") == "user" and text_of_parts(content).startswith(COMPACTED):
                summary = text_of_parts(as_list(content)[1:])
                if summary not in summaries[-1:]:  # a context that was cut back begins with the same one again
                    summaries.append(summary)
                break
    return {"system": system, "summaries": summaries}


def _unseen_agents(session: Path, wire: Path) -> list[Input]:
    """The wires of subagents that the main wire does not repeat (agents in the background), with their calls."""
    folder = session / "subagents"
    if not folder.is_dir() or folder.is_symlink():
        return []
    told = {
        as_text(as_dict(as_dict(record.get("message")).get("payload")).get("agent_id"))
        for _, record in _records(wire, b'"SubagentEvent"')
    }
    calls: dict[str, str] = {}
    for _, record in _records(wire, b"agent_id: "):
        payload = as_dict(as_dict(record.get("message")).get("payload"))
        call = as_text(payload.get("tool_call_id"))
        output = as_dict(payload.get("return_value")).get("output")
        for agent in _SPAWNED.findall(output[:2000]) if isinstance(output, str) and call is not None else ():
            calls.setdefault(agent, str(call))
    inputs = []
    for agent in sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()):
        path = agent / "wire.jsonl"
        if agent.name not in told and _plain(path):
            part = Part(
                f"subagents/{agent.name}/wire.jsonl", agent.name, calls.get(agent.name), {"session": session.name}
            )
            inputs.append(file_input(path, part))
    return inputs
