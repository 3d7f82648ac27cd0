"""From what a user names to a folder that can be read: a job folder as it is, an archive unpacked to a spool."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor.layout import job_root

from ..archive import scan, unpack
from ..limits import Limits
from .tree import Tree, list_tree

__all__ = ["Incoming", "incoming"]

Progress = Callable[[int, str], None]


@dataclass
class Incoming:
    """A job's files, and where they came from: `kind` is folder or the archive's format, `name` the job's name
    where its records have none: the folder's, also of one inside an archive, else the archive's."""

    tree: Tree
    kind: str
    name: str
    oversized: dict[str, int] = field(default_factory=dict)  # files over `file_bytes`, not unpacked: path -> bytes
    warnings: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def incoming(path: Path, limits: Limits, progress: Progress = lambda amount, word: None) -> Iterator[Incoming]:
    """The job at a path. An archive is read whole first, and unpacked only when all of it is safe.

    Raises TraceflowError not_found, invalid_archive, upload_too_large, not_a_job_dir, invalid_input.
    """
    if path.is_dir():
        tree = list_tree(path, limits)
        _refuse_other_folders(path, tree)
        found = Incoming(tree, "folder", path.resolve().name)
        found.oversized = {e.path: e.size for e in tree.files if e.size > limits.file_bytes}
        yield found
        return
    if not path.exists():
        raise TraceflowError("not_found", f"{path}: no such file or folder", path=str(path))
    if not path.is_file():
        raise TraceflowError("invalid_input", f"{path}: neither a folder nor an archive", path=str(path))
    checked = scan(path, limits)
    names = [member.name for member in checked.members if not member.directory]
    prefix = job_root(names)
    big = {m.name.removeprefix(prefix): m.size for m in checked.members if m.size > limits.file_bytes}
    with tempfile.TemporaryDirectory(prefix="traceflow-import-") as spool:
        progress(0, "unpacking")
        target = Path(spool) / "job"
        unpack(path, target, checked, limits)
        tree = list_tree(target / prefix if prefix else target, limits)
        yield Incoming(tree, checked.format, prefix.rstrip("/") or _stem(path.name), big, checked.warnings)


def _stem(name: str) -> str:
    """The name of an archive without its endings."""
    for ending in (".tar.gz", ".tgz", ".tar.zst", ".tar", ".zip"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


def _refuse_other_folders(path: Path, tree: Tree) -> None:
    names = {entry.path for entry in tree.files if "/" not in entry.path}
    missing = [name for name in ("config.json", "result.json") if name not in names]
    if not missing:
        return
    inside = sorted({e.path.partition("/")[0] for e in tree.files if e.path.endswith("/result.json")})
    hint = ""
    if len(missing) == 2 and inside and all((path / name / "config.json").is_file() for name in inside[:3]):
        hint = f"; did you mean a folder in it, {path / inside[0]}?"
    raise TraceflowError(
        "not_a_job_dir",
        f"{path}: no {' and no '.join(missing)} in it, so it is no Harbor job folder{hint}",
        path=str(path),
        missing=missing,
    )
