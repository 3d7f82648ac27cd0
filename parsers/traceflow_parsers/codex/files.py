"""Where codex keeps its rollouts, and which of them belong together.

Every thread has a file of its own: `sessions/YYYY/MM/DD/rollout-<local time>-<thread id>.jsonl`. The first
record says whose child a thread is. A root with its children and theirs is one source; a child whose parent is
not there is a root, and so is a fork, which goes on with a copy of another thread's history.
"""

from __future__ import annotations

import filecmp
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from ..contract import Parser, Part
from ..source import Input, Source, file_input, head_records, walk_files
from .history import copied_items, read_records
from .output import read_arguments

__all__ = ["is_session", "session_at", "sessions_in"]

_FOLDERS = frozenset(("sessions", "archived_sessions"))
_RECORDS = ("response_item", "event_msg", "turn_context", "token_usage_record", "compacted")
_EARLY_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "local_shell_call")


def is_session(records: Sequence[dict[str, Any]]) -> bool:
    """Whether these first records are those of a rollout."""
    for record in records:
        kind, payload = record.get("type"), record.get("payload")
        if kind == "session_meta" and isinstance(payload, dict):
            return isinstance(payload.get("id"), str)
        if kind in _RECORDS and isinstance(payload, dict):
            return True
        if kind is None and "instructions" in record and isinstance(record.get("id"), str):  # before 0.3x
            return any(other.get("record_type") == "state" or other.get("type") in _EARLY_ITEMS for other in records)
    return False


class _Thread(NamedTuple):
    """What the first record of a rollout says."""

    path: Path
    ident: str
    parent: str | None = None
    forked_from: str | None = None
    agent_path: str | None = None
    nickname: str | None = None
    marks_history: bool = False  # it says itself where its own history starts


def session_at(path: Path, make: Callable[[], Parser]) -> Source:
    """The thread that a file holds, with the threads of its subagents that lie in the same `sessions` folder."""
    thread = _thread(path)
    place = next((p for p in path.parents if p.name in _FOLDERS), None)
    if place is None:
        others = [p for p in path.parent.iterdir() if p.suffix == ".jsonl" and p.is_file() and not p.is_symlink()]
    else:
        others = [p for p in walk_files(place, (".jsonl",)) if p.name.startswith("rollout-")]
    threads = [thread] if thread is not None else []
    if thread is not None:
        threads += [t for p in sorted(others) if p != path and (t := _thread(p)) is not None]
    return _source(path, thread, threads, make)


def sessions_in(folder: Path, make: Callable[[], Parser]) -> list[Source]:
    """The root threads below a folder: at `sessions/` at any depth, or as files directly in the folder.

    A tree that holds the same rollout at two places gives it once.
    """
    homes: dict[Path, list[Path]] = {}
    inside = next((p.parent for p in (folder, *folder.absolute().parents) if p.name in _FOLDERS), None)
    for path in walk_files(folder, (".jsonl",)):
        home = next((p.parent for p in path.parents if p.name in _FOLDERS and p.is_relative_to(folder)), inside)
        if home is not None and path.name.startswith("rollout-"):
            homes.setdefault(home, []).append(path)
        elif path.parent == folder:
            homes.setdefault(folder, []).append(path)
    found: list[Source] = []
    for home in sorted(homes):
        threads = [thread for path in homes[home] if (thread := _thread(path)) is not None]
        idents = {thread.ident for thread in threads}
        roots = [t for t in threads if t.parent is None or t.parent == t.ident or t.parent not in idents]
        claimed: set[Path] = set()
        for thread in roots + threads:  # threads that name each other as parent have no root: the first one is it
            if thread.path not in claimed:
                source = _source(thread.path, thread, threads, make, claimed)
                claimed.update(source.files)
                if not any(_same(source, other) for other in found):
                    found.append(source)
    return found


def _same(one: Source, other: Source) -> bool:
    return one.session_id == other.session_id and filecmp.cmp(one.path, other.path, shallow=False)


def _source(
    path: Path,
    thread: _Thread | None,
    threads: list[_Thread],
    make: Callable[[], Parser],
    claimed: Set[Path] = frozenset(),
) -> Source:
    if thread is None:
        return Source("codex", "session", path, (file_input(path, Part(path.name)),), make, files=(path,))
    family = _family(thread, [other for other in threads if other.path not in claimed])
    by_ident = {other.ident: other for other in reversed(threads)}
    callers = _callers(family)
    names = _names([member.path for member in family])
    inputs: list[Input] = []
    for member in family:
        agent = None if member is thread else member.ident
        parent = by_ident.get(member.forked_from) if member.forked_from is not None else None
        marked = member.forked_from is None or member.marks_history
        copied = 0 if marked else copied_items(member.path, parent.path if parent is not None else None)
        part = Part(names[member.path], agent, callers.get(member.ident), {"copied_items": copied} if copied else {})
        inputs.append(file_input(member.path, part))
    files = tuple(member.path for member in family)
    return Source("codex", "session", path, tuple(inputs), make, thread.ident, files)


def _family(root: _Thread, threads: list[_Thread]) -> list[_Thread]:
    """The root, its children, theirs, and so on; each thread once."""
    family = [root]
    seen = {root.ident}
    for member in family:  # grows while it is read
        for other in threads:
            if other.parent == member.ident and other.ident not in seen:
                seen.add(other.ident)
                family.append(other)
    return family


def _names(paths: list[Path]) -> dict[Path, str]:
    """The names of the files of a source: below the folder that holds them all."""
    if len(paths) == 1:
        return {paths[0]: paths[0].name}
    top = paths[0].parent
    while not all(path.is_relative_to(top) for path in paths):
        top = top.parent
    return {path: path.relative_to(top).as_posix() for path in paths}


def _thread(path: Path) -> _Thread | None:
    for number, record in enumerate(read_records(path)):
        if number > 4:
            break
        payload = record.get("payload")
        if record.get("type") == "session_meta" and isinstance(payload, dict):
            return _read_meta(path, payload)
        if "type" not in record and "instructions" in record and isinstance(record.get("id"), str):
            return _Thread(path, record["id"])
        if isinstance(payload, dict) and record.get("type") in _RECORDS:
            break
    return _Thread(path, path.stem) if is_session(head_records(path)) else None


def _read_meta(path: Path, meta: dict[str, Any]) -> _Thread | None:
    ident = _text(meta.get("id"))
    if ident is None:
        return None
    spawn: Any = meta.get("source")
    for key in ("subagent", "thread_spawn"):
        spawn = spawn.get(key) if isinstance(spawn, dict) else None
    spawn = spawn if isinstance(spawn, dict) else {}
    return _Thread(
        path,
        ident,
        _text(spawn.get("parent_thread_id")) or _text(meta.get("parent_thread_id")),
        _text(meta.get("forked_from_id")),
        _text(spawn.get("agent_path")) or _text(meta.get("agent_path")),
        _text(spawn.get("agent_nickname")) or _text(meta.get("agent_nickname")),
        isinstance(meta.get("subagent_history_start_ordinal"), int),
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# -- who spawned whom ----------------------------------------------------------------------------------------


def _callers(family: list[_Thread]) -> dict[str, str]:
    """Thread id of a subagent -> the id of the call in its parent's file that spawned it, where that is known."""
    callers: dict[str, str] = {}
    for parent in family:
        children = [member for member in family[1:] if member.parent == parent.ident]
        if children:
            callers.update(_spawns(parent, children))
    return callers


def _spawns(parent: _Thread, children: list[_Thread]) -> dict[str, str]:
    """Matches by the thread id that an item or the output states, else by the agent's path or nickname, else in order.

    Order decides only where as many calls as children are left.
    """
    spawned: dict[str, Any] = {}  # call id -> its output, parsed
    found: dict[str, str] = {}
    wanted = {child.ident for child in children}

    def relevant(line: bytes) -> bool:
        if b"spawn" in line or b"SubAgentActivity" in line or b"receiver_thread_ids" in line:
            return True
        return b"_output" in line and any(call_id.encode() in line for call_id in spawned)

    own_from = 0
    for record in read_records(parent.path, lambda line: b"session_meta" in line or relevant(line)):
        payload = record.get("payload")
        if not isinstance(payload, dict):
            continue
        if record.get("type") == "session_meta":
            start = payload.get("subagent_history_start_ordinal")
            own_from = max(own_from, start if isinstance(start, int) else 0)
            continue
        ordinal = record.get("ordinal")
        if isinstance(ordinal, int) and ordinal < own_from:  # a copy of the grandparent's calls
            continue
        kind = payload.get("type")
        call_id = _text(payload.get("call_id"))
        if kind == "function_call" and payload.get("name") == "spawn_agent" and call_id is not None:
            spawned[call_id] = None
        elif kind == "function_call_output" and call_id in spawned:
            spawned[call_id] = read_arguments(payload.get("output"))
        elif (item := payload.get("item")) and isinstance(item, dict):
            for ident in _receivers(item):
                if ident in wanted and _text(item.get("id")) in spawned:
                    found.setdefault(ident, item["id"])
    for child in children:
        if child.ident not in found:
            for call_id, output in spawned.items():
                if isinstance(output, Mapping) and _answers(output, child):
                    found[child.ident] = call_id
                    break
    rest = [child for child in children if child.ident not in found]
    free = [call_id for call_id in spawned if call_id not in found.values()]
    if len(rest) == len(free):
        found.update({child.ident: call_id for child, call_id in zip(rest, free, strict=True)})
    return found


def _receivers(item: dict[str, Any]) -> list[str]:
    if item.get("type") == "SubAgentActivity" and item.get("kind") == "started":
        return [ident] if (ident := _text(item.get("agent_thread_id"))) else []
    if item.get("type") == "CollabAgentToolCall" and item.get("tool") == "spawn_agent":
        idents = item.get("receiver_thread_ids")
        return [ident for ident in idents if isinstance(ident, str)] if isinstance(idents, list) else []
    return []


def _answers(output: Mapping[str, Any], child: _Thread) -> bool:
    if child.ident in (output.get("agent_id"), output.get("thread_id")):
        return True
    if child.agent_path is not None:
        return child.agent_path in (output.get("task_name"), output.get("agent_path"))
    return child.nickname is not None and output.get("nickname") == child.nickname and "agent_id" not in output
