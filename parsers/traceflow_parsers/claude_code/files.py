"""Claude Code: how its output is told from others', and where its sessions lie.

`<home>/projects/<working directory with dashes>/<session id>.jsonl` is a session. Its subagents' files lie in
`<session id>/subagents/` with a `.meta.json` beside each (2.1), or next to the main file as `agent-<id>.jsonl`
(2.0), which name the session only inside. `journal.jsonl` and `history.jsonl` are no sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from ..contract import Part
from ..lines import file_lines, iter_lines
from ..source import Harness, Input, Source, entries_of, file_input, head_records, walk_files
from .history import History, first_pass, record_of, row_ids
from .session import QUIET, ClaudeSession
from .stdout import ClaudeStdout

__all__ = ["HARNESS", "is_session", "is_stdout", "session_at", "sessions_in"]

NAME = "claude-code"
_NOT_ROOTS = ("journal.jsonl", "history.jsonl")
_META_BYTES = 1 << 20
_FIRST_LINES = 20
_FEW_LINES = 6  # most sessions show in these what they are
_ROW_BYTES = 1 << 20
_KEPT_BYTES = 4 << 20
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}").fullmatch


# -- whose lines these are ---------------------------------------------------------------------------------


def is_stdout(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these are lines of `claude --output-format stream-json`.

    Qwen Code and Droid print `system/init`, `assistant` and `result` as well: Qwen names its version and gives each
    message the uuid of its line, Droid's lines have a role and no message, and neither states a cost.
    """
    claims = False
    for record in records:
        kind = record.get("type")
        if not isinstance(record.get("session_id"), str):
            continue
        if kind == "system":
            if "qwen_code_version" in record or "reasoning_effort" in record:
                return False
            init = record.get("subtype") == "init" and ("claude_code_version" in record or "apiKeySource" in record)
            claims = claims or init or "compact_metadata" in record or record.get("subtype") == "api_retry"
        elif kind == "assistant" or kind == "user":
            message = record.get("message")
            if not isinstance(message, dict) or "content" not in message:
                continue
            if kind == "assistant" and "id" in message and message["id"] == record.get("uuid"):
                return False
            claims = claims or kind == "assistant" or "tool_use_result" in record
        elif kind == "result":
            claims = claims or "total_cost_usd" in record or "modelUsage" in record
        elif kind in ("message", "completion", "tool_call", "reasoning"):
            return False
    return claims


def is_session(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these are rows of a Claude Code session file, or of one of its subagents.

    Qwen Code's rows have the same envelope: their messages have `parts`, and their system rows a `systemPayload`.
    """
    claims = False
    for record in records:
        if ("session_id" in record and "sessionId" not in record) or "systemPayload" in record:
            return False
        kind, message = record.get("type"), record.get("message")
        if isinstance(message, dict) and "parts" in message:
            return False
        if kind in ("user", "assistant"):
            row = isinstance(message, dict) and ("sessionId" in record or "parentUuid" in record)
            claims = claims or (row and message is not None and "content" in message)
        elif kind == "attachment":
            claims = claims or isinstance(record.get("attachment"), dict)
        elif kind == "system":
            claims = claims or ("sessionId" in record and "uuid" in record)
        elif kind == "summary":
            claims = claims or "leafUuid" in record
        elif kind == "file-history-snapshot":
            claims = claims or "snapshot" in record
        elif isinstance(kind, str) and kind in QUIET:
            claims = claims or "sessionId" in record
    return claims


# -- where sessions lie ------------------------------------------------------------------------------------


def sessions_in(folder: Path) -> list[Source]:
    """The sessions below a home folder, at any depth, and those that the folder itself holds."""
    roots = [
        path
        for path in walk_files(folder, (".jsonl",))
        if (path.parent == folder or path.absolute().parent.parent.name == "projects") and _is_root(path)
    ]
    neighbours = {place: _Neighbours(place) for place in {path.parent for path in roots}}
    return [_source(path, neighbours[path.parent], keep=len(roots) == 1) for path in roots]


def session_at(path: Path) -> Source:
    """The session of this main file. A subagent's file is taken for itself, its agent as the main one."""
    return _source(path, _Neighbours(path.parent), keep=True)


def _jsonl_files(folder: Path) -> list[Path]:
    return [
        Path(entry.path)
        for entry in entries_of(folder)
        if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False)
    ]


def _is_root(path: Path) -> bool:
    if path.name.startswith("agent-") or path.name in _NOT_ROOTS:
        return False
    return is_session(head_records(path, _FEW_LINES)) or is_session(head_records(path))


class _Neighbours:
    """What lies in one folder: subagents' files by their session, and which sessions begin with the same row."""

    def __init__(self, folder: Path) -> None:
        self.agents: dict[str, list[Path]] = {}
        alike: dict[tuple[str, str], dict[str, Path]] = {}  # first row's uuid and time -> its sessions
        paths = _jsonl_files(folder)
        for path in paths if len(paths) > 1 else ():
            records = _first_rows(path)
            session = _first(records, "sessionId") or ""
            if path.name.startswith("agent-"):
                self.agents.setdefault(session, []).append(path)
            elif path.name not in _NOT_ROOTS:
                row = next((record for record in records if isinstance(record.get("uuid"), str)), {})
                if row and isinstance(row.get("timestamp"), str):
                    known = path.stem if _UUID(path.stem) else session
                    alike.setdefault((row["uuid"], row["timestamp"]), {}).setdefault(known, path)
        self._families = [
            [path for _, path in sorted((_last_time(path), path) for path in family.values())]
            for family in alike.values()
            if len(family) > 1
        ]

    def copied_from(self, path: Path) -> Path | None:
        """The session whose rows this one began with: of those that begin alike, the one that ended before it."""
        for family in self._families:
            if path in family and (at := family.index(path)):
                return family[at - 1]
        return None


def _first_rows(path: Path) -> list[dict[str, Any]]:
    """The records of a file's first lines: enough to meet the first row of its conversation."""
    with path.open("rb") as stream:
        records = [record_of(line) for line in islice(iter_lines(stream, _ROW_BYTES), _FIRST_LINES)]
    return [record for record in records if record is not None]


def _first(records: Sequence[Mapping[str, Any]], key: str) -> str | None:
    return next((value for record in records if isinstance(value := record.get(key), str) and value), None)


def _last_time(path: Path) -> str:
    """The time of the last row that has one, from the last 256 KiB of the file."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - (1 << 18)))
        lines = stream.read().split(b"\n")
    for line in reversed(lines):
        record = record_of(line)
        if record is not None and isinstance(record.get("uuid"), str):
            time = record.get("timestamp")
            if isinstance(time, str):
                return time
    return ""


class _MainFile:
    """The lines of a session's main file, for a first pass and then for the parser. Those of a small one are read once,
    and kept meanwhile, where `keep` says that there are not many sessions to come."""

    def __init__(self, path: Path, keep: bool) -> None:
        self._path = path
        self._keep = keep
        self._kept: list[bytes] | None = None

    def first(self) -> Iterable[bytes]:
        """The lines for a first pass, which may ask for them again."""
        if self._kept is None and self._keep and self._path.stat().st_size <= _KEPT_BYTES:
            self._kept = list(file_lines(self._path))
        return file_lines(self._path) if self._kept is None else self._kept

    def last(self) -> Iterator[bytes]:
        """The lines for the parser."""
        kept, self._kept = self._kept, None
        return file_lines(self._path) if kept is None else iter(kept)


def _source(path: Path, neighbours: _Neighbours, keep: bool) -> Source:
    if path.name.startswith("agent-"):
        part = Part(path.name, info={"alone": True})
        return Source(NAME, "session", path, (file_input(path, part),), ClaudeSession, files=(path,))
    session = path.stem if _UUID(path.stem) else None
    folder = path.parent / path.stem
    own = [f for f in walk_files(folder / "subagents", (".jsonl",)) if f.name.startswith("agent-")]
    inside = session or _first(_first_rows(path), "sessionId")
    beside = neighbours.agents.get(inside, []) if inside is not None else []
    parts: list[tuple[str, Part, Path]] = []
    spawned: dict[str, str] = {}
    for file in [*own, *beside]:
        head = _first_rows(file)
        agent = _first(head, "agentId") or file.stem.removeprefix("agent-")
        call = _meta(file.with_suffix(".meta.json")).get("toolUseId")
        call = call if isinstance(call, str) and call else None
        if call is not None:
            spawned[agent] = call
        name = file.relative_to(path.parent).as_posix()
        parts.append((_first(head, "timestamp") or "", Part(name, agent, call), file))
    parts.sort(key=lambda found: (found[0], found[1].name))  # a subagent's own subagents began after it
    main = Part(path.name, info={"spawned": spawned, "session_id": session})
    lines = _MainFile(path, keep)
    inputs = [Input(main, lines.last), *(file_input(file, part) for _, part, file in parts)]
    original = neighbours.copied_from(path)
    return Source(
        NAME,
        "session",
        path,
        tuple(inputs),
        lambda: ClaudeSession(_history(lines, original)),
        session_id=session,
        files=(path, *walk_files(folder), *beside),
    )


def _history(lines: _MainFile, original: Path | None) -> History:
    """What a first pass of the main file finds, and of the one that it began as a copy of."""
    copied = row_ids(file_lines(original)) if original is not None else frozenset()
    return first_pass(lines.first, copied)


def _meta(path: Path) -> dict[str, Any]:
    try:
        if path.is_symlink() or path.stat().st_size > _META_BYTES:
            return {}
        return record_of(path.read_bytes()) or {}
    except OSError:
        return {}


HARNESS = Harness(
    name=NAME,
    version=1,
    stdout_names=("claude-code.txt",),
    is_stdout=is_stdout,
    is_session=is_session,
    stdout=ClaudeStdout,
    session_at=session_at,
    sessions_in=sessions_in,
)
