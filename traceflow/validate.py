"""Checking what somebody wants to import, before it is imported: a job, a trial, a task, a dataset, a trajectory.

Everything that is wrong is listed at once, each with the file it is in and the line where that is known. A problem is
what an import (or Harbor) would refuse or skip; a warning is odd and stops nothing. Nothing is written.
"""

from __future__ import annotations

import gzip
import re
import tempfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.atif import read_trajectory
from traceflow_formats.errors import TraceflowError
from traceflow_formats.tasks import explain_mismatch, read_task

from .archive import scan, unpack
from .importer.datasets import task_folders
from .importer.report import Warnings
from .limits import Limits

__all__ = ["Finding", "Validation", "validate"]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)")
_ARCHIVES = (b"\x1f\x8b", b"PK\x03\x04", b"PK\x05\x06", b"\x28\xb5\x2f\xfd")
_RECORDS = ("config.json", "result.json", "lock.json", "task.toml", "instruction.md")
_TRIAL_MARKS = {"task_name", "trial_name", "task_checksum"}
_TASK_PARTS = ("instruction.md", "environment", "tests", "solution", "steps")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong or odd: in which file (below what was checked; "." for itself), and the line where known."""

    path: str
    message: str
    code: str | None = None
    line: int | None = None
    byte: int | None = None
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"path": self.path, "message": self.message}
        for name in ("code", "line", "byte"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        return out if self.count == 1 else {**out, "count": self.count}


@dataclass
class Validation:
    """What a path was taken for, and everything found in it."""

    path: str
    kind: str
    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)  # "trials" -> how many, and so on

    @property
    def ok(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def problem(self, path: str, message: str, code: str | None = None, **place: int | None) -> None:
        """Add a problem, once."""
        _add(self.problems, Finding(path, _short(message, path), code, place.get("line"), place.get("byte")))

    def warn(self, path: str, message: str, code: str | None = None, count: int = 1, **place: int | None) -> None:
        """Add a warning, once."""
        _add(self.warnings, Finding(path, _short(message, path), code, place.get("line"), place.get("byte"), count))

    def error(self, path: str, error: TraceflowError) -> None:
        """Add what an error says as a problem; each of its `details.problems` as one of its own."""
        details = error.details
        listed = details.get("problems")
        if isinstance(listed, list) and listed:
            for item in listed:
                self.problem(path, f"{item.get('where', '')}: {item['message']}".removeprefix(": "), error.code)
            more = details.get("problem_count", len(listed)) - len(listed)
            if more > 0:
                self.problem(path, f"and {more} more", error.code)
            return
        self.problem(path, error.message, error.code, line=details.get("line"), byte=details.get("byte"))

    def count(self, what: str, number: int = 1) -> None:
        """Count something that was checked."""
        self.checked[what] = self.checked.get(what, 0) + number

    def as_dict(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "kind": self.kind,
            "ok": self.ok,
            "checked": self.checked,
            "problems": [finding.as_dict() for finding in self.problems],
            "warnings": [finding.as_dict() for finding in self.warnings],
        }


def _add(findings: list[Finding], finding: Finding) -> None:
    if finding not in findings[-100:]:
        findings.append(finding)


def _short(message: str, path: str) -> str:
    """The message without the file that it is told for."""
    return message.removeprefix(f"{path}: ").removeprefix(f"{path} ") or message


def validate(path: Path, limits: Limits | None = None, digest: str | None = None) -> Validation:
    """Check what is at a path: a job folder or an archive of one, a trial's folder, a task's folder or a folder of
    tasks, a trajectory, or another trace. With `digest` a task must have that content digest; where it has another
    one, the problem says under which change it would be the same, when there is one.

    Raises TraceflowError not_found, unrecognized_trace for what is none of these, and invalid_input for a digest
    that is none or that is asked of anything but one task.
    """
    report = _validate(path, limits or Limits())
    if digest is not None:
        if report.kind != "task" or (path.is_file() and path.name not in _RECORDS):
            raise TraceflowError("invalid_input", f"{path}: only the folder of one task has a digest to compare")
        _compare(report, path if path.is_dir() else path.parent, digest)
    return report


def _compare(report: Validation, folder: Path, digest: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise TraceflowError("invalid_input", f"{digest[:80]!r} is no digest: sha256: and 64 hex digits")
    try:
        found = explain_mismatch(folder, digest)
    except TraceflowError as error:
        report.error(".", error)
        return
    if not found.matches:
        hints = f" ({', '.join(found.hints[:20])})" if found.hints else ""
        report.problem(".", f"its digest is {found.found}{hints}", "hash_mismatch")


def _validate(path: Path, bounds: Limits) -> Validation:
    if not path.exists():
        raise TraceflowError("not_found", f"{path}: no such file or folder", path=str(path))
    if path.is_file() and path.name in _RECORDS:
        path = path.parent  # one of the files of a folder stands for it
    if path.is_dir():
        return _folder(path.resolve(), str(path), bounds)
    if not path.is_file():
        raise TraceflowError("invalid_input", f"{path}: neither a folder nor a file", path=str(path))
    if path.name.endswith(".json.gz"):
        return _packed_trajectory(path, bounds)
    if _is_archive(path):
        return _archive(path, bounds)
    return _trace(path, bounds)


# -- folders and archives --------------------------------------------------------------------------------------


def _folder(root: Path, shown: str, limits: Limits) -> Validation:
    kind = _kind(root)
    report = Validation(shown, kind)
    if kind == "task":
        _task(report, root, "")
    elif kind == "dataset":
        _dataset(report, root)
    elif kind == "sessions":
        _sessions(report, root, shown, limits)
    else:
        from .validate_job import check_job, check_trial_folder

        (check_job if kind == "job" else check_trial_folder)(report, root, limits)
    return report


def _kind(root: Path) -> str:
    """What a folder is, by the files that make it so."""
    if (root / "task.toml").is_file():
        return "task"
    has = {name for name in ("config.json", "result.json") if (root / name).is_file()}
    if has:
        return "trial" if _is_trial(root) else "job"
    if any((root / name).exists() for name in _TASK_PARTS) and not (root / "agent").exists():
        return "task"
    children = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    for child in children:
        if (child / "task.toml").is_file():
            return "dataset"
        if (child / "result.json").is_file():
            return "job"
    return "sessions"


def _is_trial(root: Path) -> bool:
    for name, marks in (("result.json", _TRIAL_MARKS), ("config.json", {"trial_name"})):
        try:
            with (root / name).open("rb") as stream:
                value = jsontext.loads(stream.read(64 << 20))
        except (OSError, ValueError):
            continue
        if isinstance(value, dict):
            return value.keys() >= marks
    # records that cannot be read: a trial has an agent's or a verifier's folder, a job has folders of trials
    return any((root / name).is_dir() for name in ("agent", "verifier"))


def _is_archive(path: Path) -> bool:
    with path.open("rb") as stream:
        head = stream.read(512)
    return head.startswith(_ARCHIVES) or head[257:262] == b"ustar"


def _archive(path: Path, limits: Limits) -> Validation:
    try:
        checked = scan(path, limits)
        with tempfile.TemporaryDirectory(prefix="traceflow-validate-") as spool:
            target = Path(spool) / "archive"
            unpack(path, target, checked, limits)
            report = _folder(target / checked.root if checked.root else target, str(path), limits)
    except TraceflowError as error:
        report = Validation(str(path), "archive")
        report.error(str(error.details.get("member") or "."), error)
        return report
    for member in checked.members:
        if member.size > limits.file_bytes:
            report.problem(member.name, f"{member.size} bytes, over the limit `file_bytes`", "trial_too_large")
    for warning in checked.warnings:
        report.warn(warning.get("path", "."), warning["message"], warning["code"], warning["count"])
    return report


# -- tasks -----------------------------------------------------------------------------------------------------


def _task(report: Validation, folder: Path, prefix: str) -> str | None:
    """Check one task folder; its name, where it can be read."""
    try:
        task = read_task(folder)
    except TraceflowError as error:
        report.error(prefix or ".", error)
        return None
    for found in task.problems:
        match = _AT_LINE.search(found.message)
        report.problem(f"{prefix}{found.path}", found.message, "invalid_input", line=int(match[1]) if match else None)
    report.count("tasks")
    report.count("files", len(task.files))
    return task.name


def _dataset(report: Validation, root: Path) -> None:
    warnings = Warnings()
    folders: Iterable[Path]
    try:
        folders = task_folders(root, root, warnings)
    except TraceflowError as error:
        lacking = {item["task"] for item in error.details.get("problems", ())}
        for name in sorted(lacking):
            report.problem(f"{name}/task.toml", "missing", error.code)
        if not lacking:
            report.error(".", error)
        folders = sorted(p for p in root.iterdir() if p.name not in lacking and (p / "task.toml").is_file())
    seen: dict[str, str] = {}
    for folder in folders:
        name = _task(report, folder, f"{folder.name}/")
        if name is not None and seen.setdefault(name, folder.name) != folder.name:
            report.problem(f"{folder.name}/task.toml", f"{seen[name]} is called {name!r} as well", "invalid_input")
    for warning in warnings.as_list():
        report.warn(warning.get("path", "."), warning["message"], warning["code"], warning["count"])


# -- traces ----------------------------------------------------------------------------------------------------


def _check_trajectory(report: Validation, data: bytes, name: str, folder: Path | None) -> None:
    """Check an ATIF document; `folder` is where the images that it names should be."""
    report.count("trajectories")
    try:
        reading = read_trajectory(data, name)
    except TraceflowError as error:
        report.error(name, error)
        return
    for warned in reading.warnings:
        report.warn(name, f"{warned.where}: {warned.message}", warned.code, warned.count)
    if folder is not None:
        _media(report, reading.trajectory, name, folder)


def _media(report: Validation, document: Mapping[str, Any], name: str, folder: Path) -> None:
    """The files that a trajectory shows must be beside it."""
    for at, step in enumerate(document["steps"]):
        results = (step.get("observation") or {}).get("results") or ()
        for content in (step.get("message"), *(result.get("content") for result in results)):
            for part in content if isinstance(content, list) else ():
                path = (part.get("source") or {}).get("path")
                if not isinstance(path, str) or "://" in path or path.startswith("data:"):
                    continue
                where = f"trajectory.steps.{at}"
                if PurePosixPath(path).is_absolute() or ".." in path.split("/"):
                    report.warn(name, f"{where}: shows {path[:200]!r}, outside of its folder", "file_outside")
                elif "\0" in path or not (folder / path).is_file():
                    report.problem(name, f"{where}: shows {path[:200]!r}, which is missing", "not_found")


def _packed_trajectory(path: Path, limits: Limits) -> Validation:
    report = Validation(str(path), "trajectory")
    trajectory_file(report, path, path.name, limits)
    return report


def trajectory_file(report: Validation, path: Path, name: str, limits: Limits) -> None:
    """Check the ATIF document in a file, plain or packed with gzip; `name` is how findings call it."""
    data = _unpacked(path, limits, lambda message, code: report.problem(name, message, code))
    if data is not None:
        _check_trajectory(report, data, name, path.parent)


def _unpacked(path: Path, limits: Limits, refuse: Callable[[str, str], None]) -> bytes | None:
    """The content of a trajectory, packed with gzip or plain, or None after `refuse(message, code)`."""
    opened = gzip.open if path.name.endswith(".gz") else open
    try:
        with opened(path, "rb") as stream:
            data: bytes = stream.read(limits.atif_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        refuse(f"cannot be read: {error}", "invalid_trajectory")
        return None
    if len(data) > limits.atif_bytes:
        refuse(f"over {limits.atif_bytes} bytes, the limit `atif_bytes`", "trial_too_large")
        return None
    return data


def _trace(path: Path, limits: Limits) -> Validation:
    """A trajectory, or any other trace that a parser knows."""
    from .sources import open_any

    try:
        sources = open_any(path)
    except TraceflowError as error:
        if path.suffix != ".json" or error.code not in ("unrecognized_trace", "empty_trace"):
            raise
        sources = []
    if sources and sources[0].kind != "atif":
        report = Validation(str(path), "trace")
        for source in sources:
            _parse(report, source)
        return report
    report = Validation(str(path), "trajectory")
    trajectory_file(report, path, path.name, limits)
    return report


def _sessions(report: Validation, root: Path, shown: str, limits: Limits) -> None:
    """Trajectories below a folder, as `convert -o DIR` writes them, and sessions at the places of the harnesses."""
    from .sources import open_any

    found = sorted(path for path in root.glob("**/trajectory.json") if path.is_file() and not path.is_symlink())
    for path in found:
        trajectory_file(report, path, path.relative_to(root).as_posix(), limits)
    try:
        for source in open_any(root):
            _parse(report, source, root)
    except TraceflowError as error:
        if found and error.code == "unrecognized_trace":
            return
        if error.code != "unrecognized_trace":
            raise
        raise TraceflowError(
            "unrecognized_trace",
            f"{shown}: no job or trial (config.json, result.json), no task (task.toml), no trajectory and no session",
            path=shown,
        ) from None


def _parse(report: Validation, source: Any, root: Path | None = None) -> None:
    name = source.path.relative_to(root).as_posix() if root is not None else source.path.name
    parse = source.parse()
    try:
        events = sum(1 for _ in parse)
    except TraceflowError as error:
        report.error(name, error)
        return
    report.count("sessions")
    report.count("events", events)
    if not events:
        report.problem(name, "no event in it", "empty_trace")
    said = parse.report.as_dict()
    for place in said["malformed_at"]:
        report.problem(name, "a line that is no JSON", "malformed_line", line=place.get("line"), byte=place.get("byte"))
    hidden = said["lines"]["malformed"] - len(said["malformed_at"])
    if hidden > 0:
        report.problem(name, f"and {hidden} more lines that are no JSON", "malformed_line")
    for warning in said["warnings"]:
        if warning["code"] != "malformed_line":
            place = {key: warning.get(key) for key in ("line", "byte")}
            report.warn(name, warning["message"], warning["code"], warning["count"], **place)
