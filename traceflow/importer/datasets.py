"""Adding a dataset: a folder of task folders (or one task, or an archive of either), checked whole, then kept whole.

Every file is kept, also what no digest covers: a package can be given out again as it was. Links are kept as links
and never followed. A task that Harbor would refuse refuses the dataset, with every fault of every task in the details.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats.errors import TraceflowError
from traceflow_formats.tasks import Task, environment_id, read_task, task_checksum

from ..archive import scan, unpack
from ..limits import Limits
from ..store import Dataset, DatasetFile, Store
from ..store.dataset_writer import DatasetWriter
from ..store.layout import check_dataset
from .report import Warnings

__all__ = ["Added", "add_dataset", "task_folders"]

Progress = Callable[[int, str], None]

_LOOSE_FILES = 1000  # files beside the tasks: a README, a dataset.toml; more is another sort of folder
_TASK_PARTS = ("instruction.md", "environment", "tests", "solution", "steps")
_SHOWN = 5


@dataclass
class Added:
    """A dataset that was added, and what there is to say about it."""

    dataset: Dataset
    warnings: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Found:
    """Something in a folder, by lstat: path below it (POSIX), kind file, directory or link."""

    path: str
    kind: str
    status: os.stat_result


def add_dataset(
    store: Store,
    path: Path,
    name: str,
    version: str,
    *,
    limits: Limits | None = None,
    progress: Progress = lambda amount, word: None,
) -> Added:
    """Check a folder of tasks, or an archive of one, and keep it as `name@version`.

    Raises TraceflowError: not_found, invalid_archive, upload_too_large, invalid_input (no task in it, or
    `details.problems` with every fault of every task), dataset_exists, io_error.
    """
    check_dataset(name, version)
    bounds = limits or Limits()
    warnings = Warnings()
    with store.dataset_writer(name, version) as writer, _opened(path, bounds, warnings, progress) as (root, kind):
        folders = task_folders(root, path, warnings)
        tasks = [(folder, read_task(folder)) for folder in folders]
        _refuse_faults(tasks)
        _refuse_twins(tasks)
        packing = _Packing(writer, bounds, progress)
        if folders != [root]:
            packing.loose(root)
        for folder, task in tasks:
            packing.task(folder, task)
        facts = {"added_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), "added_as": kind}
        return Added(writer.commit(facts), warnings.as_list())


def task_folders(root: Path, shown: Path, warnings: Warnings) -> list[Path]:
    """The task folders of a dataset folder, sorted by name; the folder itself where it is a task.

    Raises TraceflowError invalid_input where there is none, or where a folder looks like a task without task.toml.
    """
    if (root / "task.toml").is_file() and not root.is_symlink():
        return [root]
    folders: list[Path] = []
    lacking: list[str] = []
    for entry in sorted(os.scandir(root), key=lambda e: e.name):
        if entry.is_symlink() or not entry.is_dir(follow_symlinks=False):
            if entry.is_symlink():
                warnings.warn("file_passed_over", f"{entry.name}: a link beside the tasks is not followed")
            continue
        folder = root / entry.name
        if (folder / "task.toml").is_file():
            folders.append(folder)
        elif any((folder / part).exists() for part in _TASK_PARTS):
            lacking.append(entry.name)
        else:
            warnings.warn("not_a_task", f"{entry.name} has no task.toml and is left out", path=entry.name)
    if lacking:
        problems = [{"task": name, "path": "task.toml", "message": "missing"} for name in lacking]
        raise TraceflowError(
            "invalid_input",
            f"{shown}: no task.toml in {', '.join(lacking[:_SHOWN])}, which otherwise look like tasks",
            path=str(shown),
            problems=problems,
        )
    if not folders:
        inside = sorted(p.parent.parent.name for p in root.glob("*/*/task.toml"))
        hint = f"; did you mean the folder {inside[0]} in it?" if inside else ""
        raise TraceflowError(
            "invalid_input",
            f"{shown}: no task folder (one with task.toml) in it, and it is none itself{hint}",
            path=str(shown),
        )
    return folders


@contextmanager
def _opened(path: Path, limits: Limits, warnings: Warnings, progress: Progress) -> Iterator[tuple[Path, str]]:
    """The folder of the dataset; an archive is unpacked to a spool once all of it is found safe."""
    if path.is_dir():
        yield path.resolve(), "folder"
        return
    if not path.exists():
        raise TraceflowError("not_found", f"{path}: no such file or folder", path=str(path))
    checked = scan(path, limits)
    warnings.take(checked.warnings)
    big = next((m for m in checked.members if m.size > limits.file_bytes), None)
    if big is not None:
        raise _too_large(big.name, big.size, limits)
    with tempfile.TemporaryDirectory(prefix="traceflow-dataset-") as spool:
        progress(0, "unpacking")
        target = Path(spool) / _stem(path)
        unpack(path, target, checked, limits)
        wrapped = checked.root is not None and not (target / "task.toml").is_file()
        yield (target / checked.root if wrapped and checked.root else target), checked.format


def _stem(path: Path) -> str:
    """The name that a task gets whose archive has no folder around it."""
    name = path.name
    for suffix in (".gz", ".zst", ".tar", ".tgz", ".zip"):
        name = name.removesuffix(suffix)
    return name.strip(".") or "task"


# -- faults ----------------------------------------------------------------------------------------------------


def _refuse_faults(tasks: list[tuple[Path, Task]]) -> None:
    problems = [
        {"task": folder.name, "path": problem.path, "message": problem.message}
        for folder, task in tasks
        for problem in task.problems
    ]
    problems += [
        {"task": folder.name, "path": ".", "message": "has no digest"}
        for folder, task in tasks
        if task.digest is None and not task.problems
    ]
    if not problems:
        return
    shown = "; ".join(f"{p['task']}/{p['path']}: {p['message']}" for p in problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    raise TraceflowError(
        "invalid_input",
        f"{len(problems)} problem(s) in {len({p['task'] for p in problems})} of {len(tasks)} task(s): {shown}{more}",
        problems=problems,
    )


def _refuse_twins(tasks: list[tuple[Path, Task]]) -> None:
    seen: dict[str, str] = {}
    for folder, task in tasks:
        if task.name in seen:
            raise TraceflowError(
                "invalid_input",
                f"the tasks {seen[task.name]} and {folder.name} are both called {task.name!r}: names are unique",
                name=task.name,
            )
        seen[task.name] = folder.name


def _too_large(path: str, size: int, limits: Limits) -> TraceflowError:
    return TraceflowError(
        "upload_too_large",
        f"{path} has {size} bytes; a file may have {limits.file_bytes}: raise the limit `file_bytes`",
        file=path,
        bytes=size,
        max_bytes=limits.file_bytes,
    )


# -- packing ---------------------------------------------------------------------------------------------------


class _Packing:
    """Puts files into the writer, within the bounds of a whole dataset."""

    def __init__(self, writer: DatasetWriter, limits: Limits, progress: Progress) -> None:
        self.writer = writer
        self.limits = limits
        self.progress = progress
        self.members = self.bytes = 0

    def loose(self, root: Path) -> None:
        """The files directly in the dataset's folder."""
        found = [f for f in self._children(root, "") if f.kind == "file"]
        if len(found) > _LOOSE_FILES:
            raise TraceflowError("invalid_input", f"{len(found)} files beside the tasks: this is no dataset's folder")
        self.writer.add_files([self._file(root, entry, None) for entry in found])

    def task(self, folder: Path, task: Task) -> None:
        digests = {file.path: file.sha256 for file in task.files}
        files = [self._file(folder, entry, digests) for entry in self._all(folder)]
        self.writer.add_task(
            {
                "task_name": task.name,
                "digest": task.digest,
                "task_checksum": _or_none(task_checksum, folder),
                "environment_id": _or_none(environment_id, folder),
                "path": folder.name,
                "task_version": task.version,
                "description": task.description,
                "keywords": list(task.keywords),
                "instruction": task.instruction,
                "n_steps": len(task.steps),
                "steps": [{"name": step.name, "instruction": step.instruction} for step in task.steps],
                "config": task.config,
            },
            files,
        )

    def _file(self, folder: Path, entry: _Found, digests: dict[str, str] | None) -> DatasetFile:
        mode = stat.S_IMODE(entry.status.st_mode) & 0o777
        counted = digests is not None and entry.path in digests
        if entry.kind == "directory":
            return DatasetFile(entry.path, "directory", 0, mode)
        if entry.kind == "link":
            target = os.readlink(folder / entry.path)  # noqa: PTH115 - as it is written
            return DatasetFile(entry.path, "link", 0, mode, target=target, counted=counted)
        with _open(folder / entry.path, entry) as stream:
            packed = self.writer.add_content(stream)
        if counted and digests is not None and packed.sha256 != digests[entry.path]:
            raise _changed(entry.path)
        self.progress(packed.size, f"{folder.name}/{entry.path}")
        return DatasetFile(entry.path, "file", packed.size, mode, packed.sha256, None, counted, packed)

    def _all(self, folder: Path) -> list[_Found]:
        """Everything below a task's folder, sorted by path; folders only where they are empty."""
        out: list[_Found] = []
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            children = self._children(folder, prefix)
            for child in children:
                if child.kind == "directory":
                    waiting.append(child.path + "/")
                else:
                    out.append(child)
            if prefix and not children:
                out.append(_Found(prefix[:-1], "directory", (folder / prefix).lstat()))
        out.sort(key=lambda entry: entry.path.encode())
        return out

    def _children(self, folder: Path, prefix: str) -> list[_Found]:
        if prefix.count("/") > self.limits.path_depth:
            raise TraceflowError("invalid_input", f"{folder.name}/{prefix}: more than {self.limits.path_depth} levels")
        out: list[_Found] = []
        with os.scandir(folder / prefix if prefix else folder) as entries:
            for entry in entries:
                path = prefix + entry.name
                try:
                    path.encode()
                except UnicodeEncodeError:
                    shown = os.fsencode(path).decode("utf-8", "backslashreplace")
                    raise TraceflowError("invalid_input", f"{folder.name}/{shown}: its name is no UTF-8") from None
                status = entry.stat(follow_symlinks=False)
                kind = _kind(status.st_mode)
                if kind is None:
                    message = f"{folder.name}/{path}: neither a file nor a folder nor a link; take it out"
                    raise TraceflowError("invalid_input", message, path=path)
                out.append(_Found(path, kind, status))
                self._count(folder, path, status if kind == "file" else None)
        return out

    def _count(self, folder: Path, path: str, status: os.stat_result | None) -> None:
        self.members += 1
        if status is not None:
            if status.st_size > self.limits.file_bytes:
                raise _too_large(f"{folder.name}/{path}", status.st_size, self.limits)
            self.bytes += status.st_size
        for name, value in (("members", self.members), ("unpacked_bytes", self.bytes)):
            if value > getattr(self.limits, name):
                raise TraceflowError(
                    "upload_too_large",
                    f"the dataset is over the limit `{name}` of {getattr(self.limits, name)}: split it, or raise it",
                    limit=name,
                )


def _kind(mode: int) -> str | None:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else None


def _open(path: Path, entry: _Found) -> BinaryIO:
    """The content of a file, when it is still the one that was seen."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    stream = os.fdopen(handle, "rb")
    found = os.fstat(handle)
    seen = entry.status
    if not stat.S_ISREG(found.st_mode) or (found.st_size, found.st_mtime_ns) != (seen.st_size, seen.st_mtime_ns):
        stream.close()
        raise _changed(entry.path)
    return stream


def _changed(path: str) -> TraceflowError:
    return TraceflowError(
        "io_error", f"{path} changed while it was read: add the dataset when nothing writes to it", path=path
    )


def _or_none(compute: Callable[[Path], str], folder: Path) -> str | None:
    """A digest that a folder may not have: a link out of it where it does not count, for instance."""
    try:
        return compute(folder)
    except TraceflowError:
        return None
