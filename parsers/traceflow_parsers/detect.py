"""What is this? Content decides: exactly one reader must claim an input, or it is refused with what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError

from .foreign import atif_source, is_atif, is_trace, trace_source
from .registry import HARNESSES, harness_named
from .sdk import SDK_AGENTS, body_records, is_sdk_log, sdk_source
from .source import Harness, Source, head_records, walk_files

__all__ = ["open_file", "open_folder", "open_path"]


def open_path(path: Path, harness: str | None = None) -> list[Source]:
    """The traces at a path: one for a file, every root session for a folder or a database, in the order of their paths.

    `harness` forces the reader. Raises TraceflowError: unrecognized_trace when nothing or more than one reader
    claims the input, empty_trace for a file without content, invalid_input for an unknown harness, not_found.
    """
    forced = _forced(harness)
    if not path.exists():
        raise TraceflowError("not_found", f"{path}: no such file or folder", path=str(path))
    if path.is_dir():
        return open_folder(path, harness)
    if not path.is_file():
        raise TraceflowError("invalid_input", f"{path}: neither a file nor a folder", path=str(path))
    for candidate in (forced,) if forced else HARNESSES:
        if candidate.is_store(path):
            if sources := candidate.sessions_in(path):
                return sources
            raise TraceflowError("empty_trace", f"{path}: no session of {candidate.name} in it", path=str(path))
    return [open_file(path, harness if forced else None)]


def open_folder(path: Path, harness: str | None = None) -> list[Source]:
    """Every root session below a folder, at the places of each harness, and every SDK session log.

    Raises unrecognized_trace when there is none.
    """
    forced = _forced(harness)
    found: list[Source] = []
    for candidate in (forced,) if forced else HARNESSES:
        found.extend(candidate.sessions_in(path))
    logs = {source.path: source for source in _sdk_logs(path, forced)}
    found = [source for source in found if source.path not in logs] + list(logs.values())
    found.sort(key=lambda source: str(source.path))
    claims: dict[Path, set[str]] = {}
    for source in found:
        claims.setdefault(source.path, set()).add(source.harness)
    for file, claimed in claims.items():
        if len(claimed) > 1:
            raise _ambiguous(file, sorted(claimed))
    if not found:
        names = forced.name if forced else ", ".join(h.name for h in HARNESSES)
        raise TraceflowError(
            "unrecognized_trace",
            f"{path}: no session of {names} and no SDK session log in this folder; "
            "give the session file, or the home folder it lies in",
            path=str(path),
        )
    return found


def open_file(path: Path, harness: str | None = None) -> Source:
    """The trace in one file. Raises as `open_path`."""
    forced = _forced(harness)
    with path.open("rb") as stream:
        magic = stream.read(16)
    if not magic:
        raise TraceflowError("empty_trace", f"{path}: the file is empty", path=str(path))
    if magic.startswith(b"SQLite format 3\0"):
        return _database(path, forced)
    records = head_records(path)
    if not records and not _has_content(path):
        raise TraceflowError("empty_trace", f"{path}: the file holds blank lines only", path=str(path))
    if forced is not None:
        return _as_forced(path, records, forced)
    if is_atif(records):
        return atif_source(path)
    if is_sdk_log(records):
        return _sdk(path, records)
    if is_trace(records):
        return trace_source(path)
    claims = _claims(path, records)
    if len(claims) == 1:
        return claims[0][1]()
    if claims:
        raise _ambiguous(path, [name for name, _ in claims])
    raise TraceflowError("unrecognized_trace", f"{path}: {_seen(records)}", path=str(path))


def _forced(name: str | None) -> Harness | None:
    if name is None:
        return None
    found = harness_named(name) or harness_named(SDK_AGENTS.get(name, ""))
    if found is None:
        known = ", ".join(h.name for h in HARNESSES)
        raise TraceflowError("invalid_input", f"no harness is called {name!r}; known are {known}", harness=name)
    return found


def _claims(path: Path, records: list[dict[str, Any]]) -> list[tuple[str, Callable[[], Source]]]:
    claims: list[tuple[str, Callable[[], Source]]] = []
    for harness in HARNESSES:
        if harness.is_session(records):
            claims.append((f"{harness.name} session", lambda h=harness: h.session_at(path)))  # type: ignore[misc]
        elif harness.is_stdout(records):
            claims.append((f"{harness.name} stdout", lambda h=harness: h.stdout_source(path)))  # type: ignore[misc]
    return claims


def _as_forced(path: Path, records: list[dict[str, Any]], harness: Harness) -> Source:
    if is_sdk_log(records):
        return sdk_source(path, records, harness)
    if harness.is_session(records):
        return harness.session_at(path)
    if harness.is_stdout(records):
        return harness.stdout_source(path)
    raise TraceflowError(
        "unrecognized_trace",
        f"{path}: not what {harness.name} writes: {_seen(records)}",
        path=str(path),
        harness=harness.name,
    )


def _sdk(path: Path, records: list[dict[str, Any]]) -> Source:
    body = body_records(records)
    if is_trace(body):
        return sdk_source(path, records, None)
    named = [h for h in HARNESSES if h.is_stdout(body)] if body else []
    if len(named) == 1:
        return sdk_source(path, records, named[0])
    meta = next((m for r in records if isinstance(m := r.get("_meta"), dict)), {})
    agent = meta.get("agent")
    by_name = harness_named(SDK_AGENTS.get(agent, "")) if isinstance(agent, str) else None
    if by_name is not None and (not named or by_name in named):
        return sdk_source(path, records, by_name)
    raise TraceflowError(
        "unrecognized_trace",
        f"{path}: an SDK session log of agent {agent!r} whose lines no parser claims; name one with --harness",
        path=str(path),
    )


def _sdk_logs(folder: Path, forced: Harness | None) -> Iterator[Source]:
    """The SDK session logs below a folder. Their first line says so, wherever they lie."""
    for path in walk_files(folder, (".jsonl",)):
        with path.open("rb") as stream:
            head = stream.read(4096)
        if b'"_meta"' not in head and b'"_prompt"' not in head:
            continue
        records = head_records(path)
        if not is_sdk_log(records):
            continue
        if forced is None:
            yield _sdk(path, records)
        elif (body := body_records(records)) and forced.is_stdout(body):
            yield sdk_source(path, records, forced)


def _database(path: Path, forced: Harness | None) -> Source:
    from . import opencode

    if forced is not None and forced.name != "opencode":
        raise TraceflowError(
            "unrecognized_trace", f"{path}: a SQLite database, not what {forced.name} writes", path=str(path)
        )
    return opencode.HARNESS.session_at(path)


def _has_content(path: Path) -> bool:
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            if chunk.strip():
                return True
    return False


def _ambiguous(path: Path, names: list[str]) -> TraceflowError:
    return TraceflowError(
        "unrecognized_trace",
        f"{path}: could be {' or '.join(names)}; name one with --harness",
        path=str(path),
        claims=names,
    )


def _seen(records: list[dict[str, Any]]) -> str:
    if not records:
        return (
            "no JSON lines in it; known are the session files and the stdout of the harnesses, ATIF and parsed traces"
        )
    first = records[0]
    keys = ", ".join(list(first)[:8])
    kind = first.get("type")
    what = f"first record of type {kind!r}" if isinstance(kind, str) else "first record without a type"
    return f"no parser recognises it: {what[:80]}, keys {keys[:160] or '(none)'}"
