"""What an export adds to a trial: its trajectory, its parsed trace, a list of its agent's files, and our record.

Everything is made from the store alone, without a clock or a path of this machine, so that it is the same bytes
wherever and whenever it is made. A file that was imported under one of these names is never replaced. A trace is
read once, also that of a trial of several steps, whose parts go to the agent folder of each step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.atif import AtifBuilder
from traceflow_formats.trace import GATEWAY_SEQ, TraceLine

from ..store import FileRow

__all__ = ["Derived", "Spool", "agent_home", "derive_trial", "stated_rewards", "trial_record"]

_RECORD_COLUMNS = (
    "trial_id", "trial_name", "task_name", "task_digest", "status", "reward", "reward_valid", "n_steps",
    "n_model_calls", "n_tool_calls", "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd",
    "spend_source", "linked_by", "dataset", "link_reason", "candidates", "skipped_code", "skipped_message",
)  # fmt: skip
_TRACE_COLUMNS = (
    "trace_source", "trace_harness", "trace_version", "trace_session_id", "lines_read", "lines_parsed",
    "lines_unknown", "lines_malformed", "lines_duplicate", "incomplete",
)  # fmt: skip
_BUFFER = 1 << 20

Events = Callable[[], Iterator[TraceLine]]  # the trace of the trial, from its beginning


@dataclass(frozen=True, slots=True)
class Derived:
    """A file that an export adds: its path below the job, and where its content lies until it is written, as text
    since there are very many.

    One that is not `added` takes the place of a file that was imported: its redacted copy.
    """

    path: str
    place: str
    size: int
    sha256: str
    executable: bool = False
    added: bool = True

    @property
    def file(self) -> Path:
        return Path(self.place)

    def chunks(self) -> Iterator[bytes]:
        with self.file.open("rb") as stream:
            while chunk := stream.read(_BUFFER):
                yield chunk


class Spool:
    """A folder of contents that wait to be written; each is digested as it comes. `taken` are names of originals."""

    def __init__(self, folder: Path, taken: set[str]) -> None:
        self.folder = folder
        self.taken = taken
        self.made: list[Derived] = []
        self._count = 0

    def free(self, path: str) -> bool:
        """Whether nothing was imported under this name."""
        return path not in self.taken

    def add(self, path: str, content: bytes) -> None:
        """A whole content, unless the name is taken."""
        if self.free(path):
            draft = self.draft()
            draft.write(content)
            self.keep(path, draft)

    def draft(self) -> _Draft:
        """A new content, to be written piece by piece and then kept or dropped."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._count += 1
        return _Draft(self.folder / f"{self._count:06d}")

    def keep(self, path: str, draft: _Draft) -> None:
        """The draft is the content of the file at this path."""
        draft.close()
        self.made.append(Derived(path, str(draft.file), draft.size, draft.digest.hexdigest()))


class _Draft:
    """A content in the making. Between writes no file is open: a trial may have any number of steps."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.size = 0
        self.digest = hashlib.sha256()
        self._waiting = bytearray()

    def write(self, data: bytes) -> int:
        self._waiting += data
        if len(self._waiting) >= _BUFFER:
            self._flush()
        return len(data)

    def close(self) -> None:
        self._flush()

    def drop(self) -> None:
        self._waiting.clear()
        self.file.unlink(missing_ok=True)

    def _flush(self) -> None:
        self.digest.update(self._waiting)
        self.size += len(self._waiting)
        with self.file.open("ab") as out:
            out.write(self._waiting)
        self._waiting.clear()


# -- one trial -------------------------------------------------------------------------------------------------


def derive_trial(
    trial: Mapping[str, Any],
    events: Events,
    files: list[FileRow],
    folder: Path,
    rewards: Mapping[str, Any] | None = None,
) -> list[Derived]:
    """The files that an export adds to one trial, their contents written into `folder`, sorted by path.

    `trial` is its row, `events` opens its trace, `files` are its originals and `rewards` what its record states
    (`stated_rewards`). A trial of several steps gets trace and trajectory in each step's own agent folder.
    """
    name = trial["trial_name"]
    spool = Spool(folder, {file.path for file in files})
    _derive_traces(spool, trial, events)
    for base, rows in sorted(_agent_folders(name, files).items()):
        spool.add(f"{base}/agent-home.json", agent_home(base, rows))
    spool.add(f"{name}/traceflow.json", jsontext.pretty(trial_record(trial, rewards)))
    return sorted(spool.made, key=lambda made: made.path.encode())


def _derive_traces(spool: Spool, trial: Mapping[str, Any], events: Events) -> None:
    name = trial["trial_name"]
    if not trial["n_events"]:
        return
    if not trial["step_results"]:
        sink = _Sink(spool, f"{name}/agent")
        if sink.wanted:
            for event in events():
                sink.add(event)
            sink.finish()
        return
    if not _derive_steps(spool, name, events()):  # the steps are not one after the other: step by step then
        for step in sorted({_step_of(event) for event in events()}):
            sink = _Sink(spool, _base(name, step))
            for event in events():
                if _step_of(event) == step:
                    sink.add(event)
            sink.finish()


def _derive_steps(spool: Spool, name: str, events: Iterator[TraceLine]) -> bool:
    """Trace and trajectory of each step in one pass; False, and nothing kept, when a step comes a second time."""
    before = len(spool.made)
    done: set[str] = set()
    step: str | None = None
    sink: _Sink | None = None
    for event in events:
        now = _step_of(event)
        if sink is None or now != step:
            if sink is not None:
                sink.finish()
            if now in done:
                for made in spool.made[before:]:
                    made.file.unlink(missing_ok=True)
                del spool.made[before:]
                return False
            done.add(now)
            step, sink = now, _Sink(spool, _base(name, now))
        sink.add(event)
    if sink is not None:
        sink.finish()
    return True


def _base(name: str, step: str) -> str:
    return f"{name}/steps/{step}/agent" if step else f"{name}/agent"


class _Sink:
    """Trace and trajectory of one agent folder, as events come; what is an original already is not made."""

    def __init__(self, spool: Spool, base: str) -> None:
        self._spool = spool
        self._base = base
        self._images: dict[str, _Draft] = {}
        self._count = 0
        self._trace = spool.draft() if spool.free(f"{base}/trace-parsed.jsonl") else None
        self._builder = AtifBuilder(images=self._image) if spool.free(f"{base}/trajectory.json") else None
        self.wanted = self._trace is not None or self._builder is not None

    def add(self, event: TraceLine) -> None:
        if self._trace is not None:
            seq = event.seq if event.seq >= GATEWAY_SEQ else self._count
            self._trace.write(jsontext.dumps({"seq": seq, "type": event.type, "data": event.data}) + b"\n")
        if self._builder is not None:
            self._builder.add(event)
        self._count += 1

    def finish(self) -> None:
        if self._trace is not None and self._count:
            self._spool.keep(f"{self._base}/trace-parsed.jsonl", self._trace)
        if self._builder is None:
            return
        with self._builder.finish() as built:
            if built.is_empty:
                for image in self._images.values():
                    image.drop()
                return
            draft = self._spool.draft()
            for chunk in built.chunks():
                draft.write(chunk)
        self._spool.keep(f"{self._base}/trajectory.json", draft)
        for name, image in sorted(self._images.items()):
            if self._spool.free(f"{self._base}/{name}"):
                self._spool.keep(f"{self._base}/{name}", image)

    def _image(self, name: str, content: bytes) -> None:
        if name not in self._images:
            draft = self._images[name] = self._spool.draft()
            draft.write(content)
            draft.close()


def _step_of(event: TraceLine) -> str:
    extra = event.data.get("extra")
    step = extra.get("stepName") if isinstance(extra, dict) else None
    return step if isinstance(step, str) else ""


# -- records ---------------------------------------------------------------------------------------------------


def _agent_folders(name: str, files: list[FileRow]) -> dict[str, list[FileRow]]:
    """The agent folders of a trial with their original files."""
    found: dict[str, list[FileRow]] = {}
    for file in files:
        parts = file.path.removeprefix(f"{name}/").split("/", 3)
        if parts[0] == "agent" and len(parts) > 1:
            found.setdefault(f"{name}/agent", []).append(file)
        elif parts[0] == "steps" and len(parts) > 3 and parts[2] == "agent":
            found.setdefault(f"{name}/steps/{parts[1]}/agent", []).append(file)
    return found


def agent_home(base: str, files: list[FileRow], skipped: list[dict[str, Any]] | None = None) -> bytes:
    """The content of an agent-home.json: every file below `base` with size, sha256 and mode, and what is left out."""
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
    return jsontext.pretty({"files": rows, "skipped": skipped or [], "excluded": []})


def trial_record(trial: Mapping[str, Any], rewards: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Our own record of a trial, without a clock: outcome, totals, link, and what the parse said.

    Rewards stand as the trial's record has them: 1 stays 1.
    """
    record = {name: trial[name] for name in _RECORD_COLUMNS if trial[name] is not None}
    if trial["rewards"]:
        stated = rewards or {}
        record["rewards"] = {reward["name"]: _reward(stated.get(reward["name"]), reward) for reward in trial["rewards"]}
    parse = {name: trial[name] for name in _TRACE_COLUMNS if trial[name] is not None}
    for name in ("unknown_types", "warnings"):
        if trial[name]:
            parse[name] = jsontext.loads(trial[name])
    if parse:
        record["parse"] = parse
    return record


def _reward(stated: object, row: Mapping[str, Any]) -> object:
    if row["text"] is not None:  # no finite number: NaN, or beyond what a double holds
        return row["text"]
    same = isinstance(stated, int | float) and not isinstance(stated, bool) and stated == row["value"]
    return stated if same else row["value"]


def stated_rewards(result: bytes) -> dict[str, Any]:
    """The rewards in a trial's result.json, numbers as they are written; empty where there are none."""
    try:
        verified = jsontext.loads(result, exact=True)["verifier_result"]
        rewards = verified["rewards"]
    except (ValueError, KeyError, TypeError):
        return {}
    return rewards if isinstance(rewards, dict) else {}
