"""What an export adds to a trial: its trajectory, its parsed trace, a list of its agent's files, and our record.

Everything is made from the store alone, without a clock or a path of this machine, so that it is the same bytes
wherever and whenever it is made. A file that was imported under one of these names is never replaced.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats import jsontext
from traceflow_formats.atif import AtifBuilder
from traceflow_formats.trace import GATEWAY_SEQ, TraceLine

from ..store import FileRow, Manifest, Store

__all__ = ["Derived", "derive_trial", "trial_record"]

_RECORD_COLUMNS = (
    "trial_id", "trial_name", "task_name", "task_digest", "status", "reward", "reward_valid", "n_steps",
    "n_model_calls", "n_tool_calls", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd",
    "spend_source", "linked_by", "dataset", "link_reason", "candidates", "skipped_code", "skipped_message",
)  # fmt: skip
_TRACE_COLUMNS = (
    "trace_source", "trace_harness", "trace_version", "trace_session_id", "lines_read", "lines_parsed",
    "lines_unknown", "lines_malformed", "lines_duplicate", "incomplete",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Derived:
    """A file that an export adds: its path below the job, and where its content lies until it is written."""

    path: str
    file: Path
    size: int
    sha256: str

    def chunks(self) -> Iterator[bytes]:
        with self.file.open("rb") as stream:
            while chunk := stream.read(1 << 20):
                yield chunk


class _Spool:
    """A folder of contents that wait to be written; each is digested as it comes."""

    def __init__(self, folder: Path, taken: set[str]) -> None:
        self.folder = folder
        self.taken = taken
        self.made: list[Derived] = []

    def free(self, path: str) -> bool:
        """Whether nothing was imported under this name."""
        return path not in self.taken

    def add(self, path: str, content: bytes) -> None:
        if self.free(path):
            self.add_file(path, self._write(content))

    def add_file(self, path: str, file: Path) -> None:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        self.made.append(Derived(path, file, file.stat().st_size, digest))

    def new(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder / f"{len(list(self.folder.iterdir())):06d}"

    def _write(self, content: bytes) -> Path:
        file = self.new()
        file.write_bytes(content)
        return file


def derive_trial(
    store: Store, job: Manifest, trial: Mapping[str, Any], files: list[FileRow], folder: Path
) -> list[Derived]:
    """The files that an export adds to one trial, their contents written into `folder`.

    `files` are the trial's originals. A trial of several steps gets them in each step's own agent folder.
    """
    name = trial["trial_name"]
    spool = _Spool(folder, {file.path for file in files})
    for step, events in _by_step(store, trial, folder):
        base = f"{name}/steps/{step}/agent" if step else f"{name}/agent"
        _derive_trace(spool, base, events)
    for base, rows in sorted(_agent_folders(name, files).items()):
        spool.add(f"{base}/agent-home.json", _agent_home(base, rows))
    spool.add(f"{name}/traceflow.json", jsontext.pretty(trial_record(trial)))
    return spool.made


def _derive_trace(spool: _Spool, base: str, events: Iterator[TraceLine]) -> None:
    images: dict[str, bytes] = {}
    builder = AtifBuilder(images=images.__setitem__)
    with ExitStack() as stack:
        trace: BinaryIO | None = None
        trace_file = None
        if spool.free(f"{base}/trace-parsed.jsonl"):
            trace_file = spool.new()
            trace = stack.enter_context(trace_file.open("wb"))
        count = 0
        for event in events:
            if trace is not None:
                seq = event.seq if event.seq >= GATEWAY_SEQ else count
                trace.write(jsontext.dumps({"seq": seq, "type": event.type, "data": event.data}) + b"\n")
            builder.add(event)
            count += 1
    if trace_file is not None:
        if count:
            spool.add_file(f"{base}/trace-parsed.jsonl", trace_file)
        else:
            trace_file.unlink()
    with builder.finish() as built:
        if built.is_empty or not spool.free(f"{base}/trajectory.json"):
            return
        file = spool.new()
        with file.open("wb") as out:
            built.write(out)
    spool.add_file(f"{base}/trajectory.json", file)
    for image, content in sorted(images.items()):
        spool.add(f"{base}/{image}", content)


def _by_step(store: Store, trial: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Iterator[TraceLine]]]:
    """The trace of a trial, per step where it has steps; "" for what belongs to no step."""
    if not trial["n_events"]:
        return
    steps: dict[str, None] = {}
    for event in store.trace(dict(trial)):
        steps.setdefault(_step_of(event), None)
        if not _has_steps(trial):
            break
    for step in sorted(steps):
        events = store.trace(dict(trial))
        yield step, (event for event in events if _step_of(event) == step) if _has_steps(trial) else events


def _has_steps(trial: Mapping[str, Any]) -> bool:
    return bool(trial["step_results"])


def _step_of(event: TraceLine) -> str:
    extra = event.data.get("extra")
    step = extra.get("stepName") if isinstance(extra, dict) else None
    return step if isinstance(step, str) else ""


def _agent_folders(name: str, files: list[FileRow]) -> dict[str, list[FileRow]]:
    """The agent folders of a trial with their original files."""
    found: dict[str, list[FileRow]] = {}
    for file in files:
        inside = file.path.removeprefix(f"{name}/")
        parts = inside.split("/")
        if parts[0] == "agent" and len(parts) > 1:
            found.setdefault(f"{name}/agent", []).append(file)
        elif parts[0] == "steps" and len(parts) > 3 and parts[2] == "agent":
            found.setdefault(f"{name}/steps/{parts[1]}/agent", []).append(file)
    return found


def _agent_home(base: str, files: list[FileRow]) -> bytes:
    rows = [
        {
            "path": file.path.removeprefix(f"{base}/"),
            "size": file.size,
            "sha256": file.sha256,
            "mode": "0755" if file.mode & 0o100 else "0644",  # as the archive has it
        }
        for file in files
        if file.kind == "file"
    ]
    return jsontext.pretty({"files": rows, "skipped": [], "excluded": []})


def trial_record(trial: Mapping[str, Any]) -> dict[str, Any]:
    """Our own record of a trial, without a clock: outcome, totals, link, and what the parse said."""
    record = {name: trial[name] for name in _RECORD_COLUMNS if trial[name] is not None}
    rewards = trial["rewards"] or []
    if rewards:
        record["rewards"] = {reward["name"]: reward["value"] for reward in rewards}
    parse = {name: trial[name] for name in _TRACE_COLUMNS if trial[name] is not None}
    for name in ("unknown_types", "warnings"):
        if trial[name]:
            parse[name] = jsontext.loads(trial[name])
    if parse:
        record["parse"] = parse
    return record
