"""Where things stand in a job folder: its trials, their parts, and the files that may hold a trial's trace.

Everything here is about names: POSIX paths relative to the job's root, or to an `agent/` folder. Nothing is opened.
"""

from __future__ import annotations

import unicodedata
from bisect import insort
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from ..errors import TraceflowError

__all__ = [
    "SLOTS",
    "STDOUT_NAMES",
    "Place",
    "SessionFile",
    "TraceFiles",
    "TrialFolders",
    "case_safe_names",
    "folder_kind",
    "in_upload",
    "job_root",
    "place_of",
    "trace_files",
    "trial_folders",
]

# What `harbor upload` of 0.26 carries, of a job and of each trial; steps are steps/NAME/{agent,verifier,artifacts}.
_UPLOAD_JOB = frozenset({"config.json", "lock.json", "result.json", "analysis.md", "job.log"})
_UPLOAD_FILES = frozenset({"config.json", "lock.json", "result.json", "analysis.md", "trial.log", "exception.txt"})
_UPLOAD_FOLDERS = frozenset({"agent", "user-agent", "user-agent-inputs", "verifier", "artifacts"})
_UPLOAD_STEP_FOLDERS = frozenset({"agent", "verifier", "artifacts"})
_RECORDS = frozenset({"config.json", "lock.json", "result.json"})
_JOB_RECORDS = frozenset({"config.json", "result.json"})
_TOPS_SHOWN = 10

# The file that a runner tees a harness's stdout into, below agent/, in the order they are tried.
STDOUT_NAMES: Mapping[str, str] = {
    "claude-code.txt": "claude-code",
    "codex.txt": "codex",
    "gemini-cli.txt": "gemini-cli",
    "qwen-code.txt": "qwen-code",
    "kimi-code.txt": "kimi-code",
    "kimi-cli.txt": "kimi-cli",
    "opencode.txt": "opencode",
    "droid.txt": "droid",
}
_STDOUT_PLAIN = "stdout.log"
_NO_STDOUT = ("stderr.log", "stderr.txt", ".stderr.log", ".stderr.txt")

# Harbor's own place for a harness's session files, below agent/, and where they stood in the home folder: a folder, or
# one file that was copied out and has lost its name. A trial of claude-code has its CLAUDE_CONFIG_DIR at sessions/,
# one of codex has a copy of its sessions folder there.
SLOTS: tuple[tuple[str, str, str], ...] = (
    ("claude-code", "sessions/projects/", ".claude/projects/"),
    ("codex", "sessions/", ".codex/sessions/"),
    ("qwen-code", "qwen-sessions/projects/", ".qwen/projects/"),  # cp -r into a folder that was there already
    ("qwen-code", "qwen-sessions/", ".qwen/projects/"),
    ("opencode", "opencode/xdg-data/opencode/", ".local/share/opencode/"),
    ("gemini-cli", "gemini-cli.trajectory.jsonl", ".gemini/tmp/harbor/chats/session-harbor.jsonl"),
    ("gemini-cli", "gemini-cli.trajectory.json", ".gemini/tmp/harbor/chats/session-harbor.json"),
)
# The same files at their own names, below agent/ as below a home folder.
_HOMES: tuple[tuple[str, str], ...] = (
    ("claude-code", ".claude/projects/"),
    ("codex", ".codex/sessions/"),
    ("codex", ".codex/archived_sessions/"),
    ("gemini-cli", ".gemini/tmp/"),
    ("qwen-code", ".qwen/projects/"),
    ("qwen-code", ".qwen/tmp/"),
    ("kimi-code", ".kimi-code/sessions/"),
    ("kimi-cli", ".kimi/sessions/"),
    ("opencode", ".local/share/opencode/"),
    ("droid", ".factory/sessions/"),
)
_EVIDENCE = "source/"  # agent/source/ is kept and never read as a trace


class Place(NamedTuple):
    """What a path of a job folder is part of.

    `area` is job, trial, agent, user-agent, verifier, artifacts or steps; `name` is the path inside that area.
    """

    trial: str | None
    step: str | None
    area: str
    name: str


class TrialFolders(NamedTuple):
    """The folders directly below a job's root, by name: trials, trials without a result, and what is neither."""

    complete: tuple[str, ...]
    incomplete: tuple[str, ...]
    other: tuple[str, ...]


class SessionFile(NamedTuple):
    """A file at a place where a harness keeps sessions: its path below agent/, and below a home folder."""

    path: str
    harness: str
    home: str


class TraceFiles(NamedTuple):
    """What an agent folder has for a trace, in the order in which a trial's trace is looked for.

    Session files stand at the harness's own names first, then at Harbor's. The first source that yields events
    is the trace: `sessions`, `parsed`, `trajectory`, then each of `stdout`.
    """

    sessions: tuple[SessionFile, ...]
    parsed: str | None
    trajectory: str | None
    stdout: tuple[str, ...]


def job_root(paths: Iterable[str]) -> str:
    """The folder among these paths that is the job: "" for the root itself, "NAME/" for one folder around it.

    Raises TraceflowError("not_a_job_dir") naming what is there when neither holds config.json and result.json.
    """
    at_root: set[str] = set()  # records; of the paths nothing else is kept, there may be a million
    inside: set[str] = set()  # the same, of the folder `first`
    first = last = None
    tops: list[str] = []  # the least of what stands at the root: ten are shown, and whether there are more
    for path in paths:
        top, _, rest = path.partition("/")
        if first is None:
            first = top
        if path in _JOB_RECORDS:
            at_root.add(path)
        if rest in _JOB_RECORDS and top == first:
            inside.add(rest)
        if top != last and top not in tops:
            insort(tops, top)
            del tops[_TOPS_SHOWN + 1 :]
        last = top
    if at_root == _JOB_RECORDS:
        return ""
    if inside == _JOB_RECORDS and len(tops) == 1:
        return f"{first}/"
    shown = ", ".join(tops[:_TOPS_SHOWN]) + (", ..." if len(tops) > _TOPS_SHOWN else "")
    raise TraceflowError(
        "not_a_job_dir",
        "neither the root nor one folder in it holds config.json and result.json of a job; "
        f"the root holds {shown or 'nothing'}",
        root=tops[:_TOPS_SHOWN],
    )


def trial_folders(paths: Iterable[str]) -> TrialFolders:
    """Sort the folders of a job. A trial has result.json; config.json alone is a trial that never finished.

    Folders whose name begins with a dot are Harbor's own work space and never trials.
    """
    seen: dict[str, set[str]] = {}
    for path in paths:
        folder, slash, rest = path.partition("/")
        if slash:
            files = seen.setdefault(folder, set())
            if rest in _RECORDS:
                files.add(rest)
    kinds: dict[str, list[str]] = {"complete": [], "incomplete": [], "other": []}
    for folder in sorted(seen):
        kinds[folder_kind(folder, seen[folder])].append(folder)
    return TrialFolders(*(tuple(kinds[kind]) for kind in ("complete", "incomplete", "other")))


def folder_kind(name: str, files: Collection[str]) -> Literal["complete", "incomplete", "other"]:
    """What a folder at the top of a job is, by the files that stand directly in it."""
    if not name.startswith("."):
        if "result.json" in files:
            return "complete"
        if "config.json" in files:
            return "incomplete"
    return "other"


def place_of(path: str) -> Place:
    """What a path of a job folder is part of: `T/steps/S/agent/x` is step S of trial T, area agent, name `x`."""
    trial, slash, rest = path.partition("/")
    if not slash:
        return Place(None, None, "job", path)
    step: str | None = None
    if rest.startswith("steps/"):
        inner = rest.split("/", 2)
        if len(inner) < 3:
            return Place(trial, None, "steps", inner[1])
        step, rest = inner[1], inner[2]
    area, slash, name = rest.partition("/")
    if slash and area in _UPLOAD_FOLDERS:
        return Place(trial, step, area, name)
    return Place(trial, step, "trial" if step is None else "steps", rest)


def in_upload(path: str) -> bool:
    """Whether `harbor upload` carries a file of a job folder (0.26: no analysis.json, no check_report.json)."""
    place = place_of(path)
    if place.trial is None:
        return path in _UPLOAD_JOB
    if place.step is not None:
        return place.area in _UPLOAD_STEP_FOLDERS
    return place.area in _UPLOAD_FOLDERS or (place.area == "trial" and place.name in _UPLOAD_FILES)


def trace_files(names: Iterable[str]) -> TraceFiles:
    """What the files of an agent folder (paths below it) offer for a trace.

    A .gz beside a trajectory is its twin and counts where the plain file is absent.
    """
    present = sorted(name for name in names if not name.startswith(_EVIDENCE))
    have = set(present)
    flat = [name for name in present if "/" not in name and name.endswith((".txt", ".log"))]
    known = [name for name in (*STDOUT_NAMES, _STDOUT_PLAIN) if name in have]
    others = [name for name in flat if name not in known and not name.endswith(_NO_STDOUT)]
    at_home = [found for name in present if (found := _session_at_home(name))]
    at_slot = [found for name in present if (found := _session_at_slot(name))]
    return TraceFiles(
        sessions=(*at_home, *at_slot),
        parsed=_first(have, "trace-parsed.jsonl", "trace-parsed.jsonl.gz"),
        trajectory=_first(have, "trajectory.json", "trajectory.json.gz"),
        stdout=(*known, *others),
    )


def _first(have: set[str], *names: str) -> str | None:
    return next((name for name in names if name in have), None)


def _session_at_home(name: str) -> SessionFile | None:
    for harness, prefix in _HOMES:
        if name.startswith(prefix):
            return SessionFile(name, harness, name)
    return None


def _session_at_slot(name: str) -> SessionFile | None:
    for harness, slot, home in SLOTS:
        if not (name.startswith(slot) if slot.endswith("/") else name == slot):
            continue
        inside = name[len(slot) :]
        # Codex files its sessions by year; anything else in sessions/ is a part of Claude Code's folder.
        if harness == "codex" and not (inside[:4].isdigit() and inside[4:5] == "/") and "rollout-" not in inside:
            return None
        return SessionFile(name, harness, home + inside)
    return None


def case_safe_names(names: Iterable[str]) -> dict[str, str]:
    """Folder names for a file system that does not tell upper from lower case: each name, and the one to write.

    Of names that fall together the first in code point order keeps its own, the others get `-2`, `-3`, ...
    """
    given = sorted(set(names))
    taken = {_folded(name) for name in given}
    used: set[str] = set()
    chosen: dict[str, str] = {}
    for name in given:
        safe, number = name, 1
        while _folded(safe) in used or (number > 1 and _folded(safe) in taken):
            number += 1
            safe = f"{name}-{number}"
        used.add(_folded(safe))
        chosen[name] = safe
    return chosen


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
