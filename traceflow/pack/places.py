"""Where the raw files of a run go below a trial's `agent/`: to the places where the harness itself keeps them.

A session that lies in a home folder keeps its path below it (`.claude/projects/<folder>/<id>.jsonl`). One that
lies loose is filed under `packed`, so that the folder it happened to lie in changes nothing. Everything that belongs
to a session goes with it: subagents, sidecars, spilled tool output. An SDK log and stdout go where a session belongs,
as in the official packing; a trajectory to `source/`, which is kept and never read as a trace.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from traceflow_parsers.source import Source, walk_files

from .opencode import opencode_raws
from .raw import Raw, file_raw

__all__ = ["raws_of", "stream_place"]

# For each harness: how the folders above a session's main file are named from the outermost one, `*` being any name,
# and where that outermost folder goes. The first that fits counts; none fits a file that lies loose.
_FOLDERS: dict[str, tuple[tuple[str, str], ...]] = {
    "claude-code": (("projects/*", ".claude/projects"),),
    "gemini-cli": (("tmp/*/chats", ".gemini/tmp"), ("chats", ".gemini/tmp/packed/chats")),
    "qwen-code": (("projects/*/chats", ".qwen/projects"), ("*/chats", ".qwen/projects/packed")),
    "kimi-code": (("sessions/*/*/agents/*", ".kimi-code/sessions"), ("*/*/agents/*", ".kimi-code/sessions/packed")),
    "kimi-cli": (("sessions/*/*", ".kimi/sessions"),),
    "droid": (("sessions/*", ".factory/sessions"),),
}
_LOOSE = {
    "claude-code": ".claude/projects/packed",
    "gemini-cli": ".gemini/tmp/packed/chats",
    "qwen-code": ".qwen/projects/packed/chats",
    "droid": ".factory/sessions/packed",
}
_CODEX = ("sessions", "archived_sessions")
_ROLLOUT = re.compile(r"rollout-(\d{4})-(\d{2})-(\d{2})T").match


def raws_of(source: Source, *, shared: bool = False) -> Iterator[Raw]:
    """The raw files of a source that is no stream. `shared`: other sources have the same main file."""
    if source.kind == "trace":
        yield file_raw("trace-parsed.jsonl", source.path)
    elif source.kind == "atif":
        yield file_raw(f"source/{source.path.name}", source.path)
        yield from _pictures(source.path.parent)
    elif source.harness == "opencode":
        yield from opencode_raws(source, shared)
    else:
        yield from (file_raw(_name(source, path), path) for path in _files(source))


def _pictures(folder: Path) -> Iterator[Raw]:
    """The pictures beside a trajectory, which its steps name by relative paths."""
    below = folder / "images"
    if below.is_symlink() or not below.is_dir():
        return
    yield from (file_raw(path.relative_to(folder).as_posix(), path) for path in walk_files(below))


# -- sessions ----------------------------------------------------------------------------------------------


def _normal(path: Path) -> Path:
    """A path from the root without `..` in it, which a name below `agent/` must not have."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _files(source: Source) -> list[Path]:
    """Every file of a session, with what the harness keeps for it at places of its own."""
    main = _normal(source.path)
    files = dict.fromkeys(map(_normal, source.files))
    beside: Path | None = None
    if source.harness == "claude-code":
        beside = main.parent / main.stem  # subagents/ and tool-results/
    elif source.harness == "gemini-cli" and _fits(main, "tmp/*/chats") and source.session_id:
        beside = main.parent.parent / "tool-outputs" / f"session-{source.session_id}"
    elif source.harness == "kimi-code" and main.parent.parent.name == "agents":
        beside = main.parent.parent.parent
    if beside is not None and beside.is_dir() and not beside.is_symlink():
        files.update(dict.fromkeys(walk_files(beside)))
    return list(files)


def _name(source: Source, path: Path) -> str:
    """The path below `agent/` of one file of a session."""
    if source.harness == "codex":
        return _codex_name(path)
    main = _normal(source.path)
    for pattern, target in _FOLDERS.get(source.harness, ()):
        if _fits(main, pattern):
            base = main.parents[pattern.count("/")]
            return (
                f"{target}/{path.relative_to(base).as_posix()}" if path.is_relative_to(base) else _loose(source, path)
            )
    return _loose(source, path)


def _fits(main: Path, pattern: str) -> bool:
    wanted = pattern.split("/")
    above = main.parent.parts[-len(wanted) :]
    return len(above) == len(wanted) and all(want in ("*", name) for want, name in zip(wanted, above, strict=True))


def _loose(source: Source, path: Path) -> str:
    """The place of a file that does not lie as the harness lays its files; its name in the harness's own form."""
    main = _normal(source.path)
    name = path.relative_to(main.parent).as_posix() if path.is_relative_to(main.parent) else path.name
    if source.harness == "kimi-code":
        return f".kimi-code/sessions/packed/{main.stem}/agents/main/wire.jsonl"
    if source.harness == "kimi-cli" and main.name in ("wire.jsonl", "context.jsonl"):
        return f".kimi/sessions/packed/{main.parent.name or 'session'}/{name}"
    if source.harness == "kimi-cli":
        context = any(item.part.info.get("context") for item in source.inputs)
        return f".kimi/sessions/packed/{main.stem}/{'context' if context else 'wire'}.jsonl"
    if path == main and path.suffix not in (".jsonl", ".json"):
        name = f"{path.stem}.jsonl"
    if path == main and source.harness == "gemini-cli" and not name.startswith("session-"):
        name = f"session-{name}"
    return f"{_LOOSE.get(source.harness, 'source')}/{name}"


def _codex_name(path: Path) -> str:
    parts = path.parts
    for at in range(len(parts) - 2, 0, -1):
        if parts[at] in _CODEX:
            return "/".join((".codex", *parts[at:]))
    day = _ROLLOUT(path.name)
    folder = "/".join(day.groups()) if day is not None else "packed"
    name = path.name if path.name.startswith("rollout-") else f"rollout-{path.stem}.jsonl"
    return f".codex/sessions/{folder}/{name}"


# -- streams -----------------------------------------------------------------------------------------------


def stream_place(harness: str, run: str, day: str | None, folder: str) -> str:
    """The path below `agent/` of an SDK log or of stdout, which reads as a session does where a session belongs.

    `run` is the id of the run, `day` the date (ISO 8601) of the log, `folder` what stands for a project. Those of
    codex and claude-code are the official packing's; the others follow their pattern.
    """
    dated = day[:10].replace("-", "/") if day else folder
    places = {
        "claude-code": f".claude/projects/{folder}/{run}.jsonl",
        "codex": f".codex/sessions/{dated}/rollout-{run}.jsonl",
        "gemini-cli": f".gemini/tmp/{folder}/chats/session-{run}.jsonl",
        "qwen-code": f".qwen/projects/{folder}/chats/{run}.jsonl",
        "kimi-code": f".kimi-code/sessions/{folder}/session_{run}/agents/main/wire.jsonl",
        "kimi-cli": f".kimi/sessions/{folder}/{run}/wire.jsonl",
        "opencode": f".local/share/opencode/{folder}/{run}.jsonl",
        "droid": f".factory/sessions/{folder}/{run}.jsonl",
    }
    return places.get(harness, "stdout.log")
