"""One trial as a folder: the tree that the platform's trial download has, made from the store.

Everything that was imported is in it, and what an export adds; on top of that what only a download has: exception.txt
and verifier/reward.json from the record where the trial has no such file, the agent's home at its real names, and
copies of its sessions where other tools look. It is the text view: of a home file that is no UTF-8 only the name,
size and digest are given, in agent-home.json. An absent piece is absent.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats import jsontext
from traceflow_formats.atif import AtifBuilder
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import write_trace

from ..archive import safe_name
from ..store import FileRow, Manifest, Store
from ..trialfiles.logs import stderr_files, stdout_files
from .derive import agent_home, derive_trial, stated_rewards
from .home import home_path, slot_paths

__all__ = ["STREAMS", "Downloaded", "download_trial", "write_stream"]

STREAMS = ("trace-parsed", "trace-stdout", "trace-stderr", "trace-atif", "agent-home", "verifier")
_RECORD_LIMIT = 64 << 20
_HARNESSES = {"claude": "claude-code", "gemini": "gemini-cli", "qwen-coder": "qwen-code", "qwen": "qwen-code"}


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The folder that was written, its files and bytes, and the files of which only the name is given."""

    path: str
    files: int
    bytes: int
    left_out: list[dict[str, Any]]


def download_trial(
    store: Store, job: Manifest, trial: dict[str, Any], folder: Path, *, overwrite: bool = False
) -> Downloaded:
    """Write the tree of a trial (its row) to `folder`, whole or not at all.

    Raises TraceflowError invalid_input when the folder is there already (unless `overwrite`, which replaces it),
    store_corrupt and io_error.
    """
    if (folder.exists() or folder.is_symlink()) and not overwrite:
        raise TraceflowError(
            "invalid_input", f"{folder} is there already: say --overwrite to replace it", path=str(folder)
        )
    if folder.exists() and not folder.is_dir():
        raise TraceflowError("invalid_input", f"{folder} is a file", path=str(folder))
    part = folder.with_name(f".{folder.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        part.mkdir(parents=True)
        tree = _Tree(store, job, trial, part)
        tree.write()
        _put_in_place(part, folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return Downloaded(str(folder), tree.files, tree.bytes, tree.left_out)


def _put_in_place(part: Path, folder: Path) -> None:
    if not folder.exists():
        part.rename(folder)
        return
    old = part.with_name(f"{part.name}.old")
    folder.rename(old)
    try:
        part.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


class _Tree:
    """The files of one trial on their way to a folder."""

    def __init__(self, store: Store, job: Manifest, trial: dict[str, Any], root: Path) -> None:
        self._trial = trial
        self._root = root
        self._packs = store.contents(job)
        self._prefix = f"{trial['trial_name']}/"
        self._store = store
        self._rows: dict[str, FileRow] = {}
        self._harness = _HARNESSES.get(trial["agent"] or "", trial["trace_harness"] or trial["agent"])
        self.files = self.bytes = 0
        self.left_out: list[dict[str, Any]] = []
        with store.file_table(job) as table:
            for row in table.rows(self._prefix):
                if not row.derived:
                    self._rows[row.path[len(self._prefix) :]] = row

    def write(self) -> None:
        for name, row in self._rows.items():
            if row.kind == "directory":
                self._place(name).mkdir(parents=True, exist_ok=True)
            elif row.packed is not None and not self._is_left_out(name, row):
                self._write(name, row, self._packs.chunks(row.packed))
        self._write_homes()
        self._write_derived()
        self._write_records()

    def _write_homes(self) -> None:
        """The home at its real names, the sessions at other tools' slots, and the list of it, for each agent folder."""
        bases: dict[str, list[tuple[str, FileRow]]] = {}
        for name, row in self._rows.items():
            base, inside = _agent_base(name)
            if base and row.kind == "file" and (home := home_path(inside, self._harness)) is not None:
                bases.setdefault(base, []).append((home, row))
        for base, found in bases.items():
            missing = {item["path"] for item in self.left_out}
            for home, row in found:
                for name in (home, *slot_paths(home, self._harness)):
                    path = f"{base}{name}"
                    if path not in self._rows and row.path[len(self._prefix) :] not in missing and row.packed:
                        self._write(path, row, self._packs.chunks(row.packed))
            if f"{base}agent-home.json" not in self._rows:
                self._write_home_list(base, found)

    def _write_home_list(self, base: str, found: list[tuple[str, FileRow]]) -> None:
        left_out = {item["path"]: item for item in self.left_out}
        kept: dict[str, FileRow] = {}
        skipped: dict[str, dict[str, Any]] = {}
        for home, row in sorted(found, key=lambda pair: pair[0].encode()):
            item = left_out.get(row.path[len(self._prefix) :])
            if item is not None:
                skipped[home] = {**item, "path": home}
            else:
                kept[home] = row
        rows = [replace(row, path=f"{base}{home}") for home, row in kept.items()]
        content = agent_home(base.rstrip("/"), rows, list(skipped.values()))
        self._write(f"{base}agent-home.json", None, iter((content,)))

    def _write_derived(self) -> None:
        """Trajectory, parsed trace and our record, as an export has them."""
        trial = self._trial
        result = self._small("result.json")
        rewards = stated_rewards(result) if result is not None else {}
        rows = list(self._rows.values())
        with tempfile.TemporaryDirectory(prefix="traceflow-download-") as spool:
            made = derive_trial(trial, lambda: self._store.trace(trial), rows, Path(spool) / "d", rewards)
            for item in made:
                name = item.path[len(self._prefix) :]
                if not name.endswith("/agent-home.json") and name != "agent-home.json":
                    self._write(name, None, item.chunks())
        if "verifier/reward.json" not in self._rows and rewards:
            self._write("verifier/reward.json", None, iter((jsontext.pretty(rewards),)))

    def _write_records(self) -> None:
        kind = self._trial["exception_type"]
        if kind and "exception.txt" not in self._rows:
            message = self._trial["exception_message"] or ""
            self._write("exception.txt", None, iter((f"{kind}: {message}\n".encode("utf-8", "replace"),)))

    def _is_left_out(self, name: str, row: FileRow) -> bool:
        """Whether a file is of the agent's home and no text: then only its name is given."""
        base, inside = _agent_base(name)
        if not base or home_path(inside, self._harness) is None or row.packed is None:
            return False
        decoder = _Utf8()
        if all(decoder.takes(chunk) for chunk in self._packs.chunks(row.packed)) and decoder.ends():
            return False
        facts = {"path": name, "size": row.size, "sha256": row.sha256, "mode": _mode(row)}
        self.left_out.append({**facts, "reason": "not UTF-8 text: an export has it"})
        return True

    def _small(self, name: str) -> bytes | None:
        row = self._rows.get(name)
        if row is None or row.packed is None or row.size > _RECORD_LIMIT:
            return None
        return self._packs.read(row.packed)

    def _place(self, name: str) -> Path:
        if safe_name(name) != name:
            raise TraceflowError("store_corrupt", f"the store holds a file of the unsafe name {name[:80]!r}")
        return self._root / name

    def _write(self, name: str, row: FileRow | None, chunks: Iterator[bytes]) -> None:
        target = self._place(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as out:
            for chunk in chunks:
                out.write(chunk)
                self.bytes += len(chunk)
        if row is not None and row.mode & 0o100:
            with contextlib.suppress(OSError):
                target.chmod(target.stat().st_mode | 0o111 & ~_umask())
        self.files += 1


class _Utf8:
    """Whether bytes that come in pieces are UTF-8 text without NUL."""

    def __init__(self) -> None:
        import codecs

        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def takes(self, chunk: bytes) -> bool:
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError:
            return False
        return b"\0" not in chunk

    def ends(self) -> bool:
        try:
            self._decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
        return True


def _agent_base(name: str) -> tuple[str, str]:
    """(`agent/` or `steps/NAME/agent/`, the path in it) of a file of an agent folder, else two empty strings."""
    parts = name.split("/", 3)
    if parts[0] == "agent" and len(parts) > 1:
        return "agent/", name[len("agent/") :]
    if parts[0] == "steps" and len(parts) > 3 and parts[2] == "agent":
        return f"steps/{parts[1]}/agent/", parts[3]
    return "", ""


def _mode(row: FileRow) -> str:
    return "0755" if row.mode & 0o100 else "0644"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# -- one stream --------------------------------------------------------------------------------------------------


def write_stream(store: Store, job: Manifest, trial: dict[str, Any], stream: str, out: BinaryIO) -> int:
    """Write one stream of a trial to a file and return its bytes.

    `trace-parsed` is the trace, `trace-atif` the trajectory made of it, `trace-stdout` and `trace-stderr` what the
    harness printed, `verifier` the verifier's output, `agent-home` the list of the agent's files. Raises
    invalid_input for another name, not_found when the trial has no such stream.
    """
    if stream not in STREAMS:
        raise TraceflowError("invalid_input", f"{stream[:40]!r} is no stream: say {', '.join(STREAMS)}")
    counted = _Counted(out)
    if stream == "trace-parsed" and trial["n_events"]:
        write_trace(store.trace(trial), counted)  # type: ignore[arg-type]
    elif stream == "trace-atif" and trial["n_events"]:
        builder = AtifBuilder()
        for event in store.trace(trial):
            builder.add(event)
        with builder.finish() as built:
            for chunk in built.chunks():
                counted.write(chunk)
    elif stream in ("trace-stdout", "trace-stderr", "verifier", "agent-home"):
        for chunk in _file_stream(store, job, trial, stream):
            counted.write(chunk)
    if not counted.size:
        raise TraceflowError("not_found", f"trial {trial['trial_name']} has no {stream}", trial=trial["trial_id"])
    return counted.size


def _file_stream(store: Store, job: Manifest, trial: dict[str, Any], stream: str) -> Iterator[bytes]:
    prefix = f"{trial['trial_name']}/"
    packs = store.contents(job)
    with store.file_table(job) as table:
        rows = {row.path[len(prefix) :]: row for row in table.rows(prefix) if not row.derived}
    names = list(rows)
    if stream == "agent-home":
        own = [row for name, row in rows.items() if name.startswith("agent/") and row.kind == "file"]
        listed = rows.get("agent/agent-home.json")
        if listed is not None and listed.packed is not None:
            yield from packs.chunks(listed.packed)
        elif own:
            yield agent_home(f"{prefix}agent", own)
        return
    if stream == "verifier":
        wanted = [name for name in names if name.endswith("verifier/test-stdout.txt") and name.count("/") in (1, 3)]
    else:
        wanted = stdout_files(names) if stream == "trace-stdout" else stderr_files(names)
    for name in wanted:
        packed = rows[name].packed
        if packed is not None:
            yield from packs.chunks(packed)


class _Counted:
    """A file that counts what is written to it."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self.size = 0

    def write(self, data: bytes) -> int:
        self.size += len(data)
        return self._out.write(data)
