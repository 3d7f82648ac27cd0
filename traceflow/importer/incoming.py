"""From what a user names to a folder that can be read: a job folder as it is, an archive unpacked to a spool,
a URL fetched to one."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor.layout import job_root

from ..archive import scan, unpack
from ..archive.fetch import fetch
from ..archive.urls import is_url, shown_url
from ..files import remove_tree
from ..limits import Limits, format_size
from .tree import Tree, list_tree

__all__ = ["Incoming", "incoming", "is_job_folder", "jobs_below", "source_name"]

Progress = Callable[[int, str], None]
_RECORDS = ("config.json", "result.json")
_ENDINGS = re.compile(r"\.(?:tar\.gz|tgz|tar\.zst|tzst|tar|zip)\Z", re.IGNORECASE)


@dataclass
class Incoming:
    """A job's files, and where they came from: `kind` is folder or the archive's format, `name` the job's name
    where its records have none: the folder's, also of one inside an archive, else the archive's."""

    tree: Tree
    kind: str
    name: str
    oversized: dict[str, int] = field(default_factory=dict)  # files over `file_bytes`: path -> bytes
    warnings: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def incoming(source: str | Path, limits: Limits, progress: Progress = lambda amount, word: None) -> Iterator[Incoming]:
    """The job at a path or URL. What is remote is fetched to a spool first; an archive is read whole, and unpacked
    only when all of it is safe. The spool is gone when the block ends.

    Raises TraceflowError not_found, invalid_archive, upload_too_large, not_a_job_dir, invalid_input, io_error.
    """
    with ExitStack() as stack:
        path, left_out = Path(source), {}
        if is_url(str(source)):
            spool = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traceflow-fetch-")))
            stack.callback(remove_tree, spool)
            fetched = fetch(str(source), spool, limits.within_disk(spool), progress=_FetchProgress(progress))
            path, left_out = fetched.path, {member.name: member.size for member in fetched.left_out}
        name = shown_url(str(source)) if is_url(str(source)) else str(path)
        if path.is_dir():
            yield _folder(path, source, name, left_out, limits)
            return
        if not path.exists():
            raise TraceflowError("not_found", f"{path}: no such file or folder", path=str(path))
        if not path.is_file():
            raise TraceflowError("invalid_input", f"{path}: neither a folder nor an archive", path=str(path))
        spool = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="traceflow-import-")))
        stack.callback(remove_tree, spool)
        yield _archive(path, source, spool, limits.within_disk(spool), progress)


def source_name(source: str | Path) -> str:
    """What a source is called: its last name, without the ending of an archive."""
    text = str(source)
    name = (urlsplit(shown_url(text)).path if is_url(text) else os.path.abspath(text)).rstrip("/").rpartition("/")[2]  # noqa: PTH100
    return _ENDINGS.sub("", name) or name or text


def _folder(path: Path, source: str | Path, name: str, left_out: dict[str, int], limits: Limits) -> Incoming:
    root, called = path, source_name(source)
    if not is_job_folder(path):
        inside = list(path.iterdir())
        if len(inside) != 1 or not is_job_folder(inside[0]):
            raise _no_job(path, name)
        root, called = inside[0], inside[0].name
        left_out = {p.removeprefix(root.name + "/"): size for p, size in left_out.items()}
    tree = list_tree(root, limits)
    return Incoming(tree, "folder", called, left_out | tree.oversized)


def is_job_folder(folder: Path) -> bool:
    """Whether a folder holds the two records of a job."""
    return not folder.is_symlink() and all((folder / name).is_file() for name in _RECORDS)


def _archive(path: Path, source: str | Path, spool: Path, limits: Limits, progress: Progress) -> Incoming:
    checked = scan(path, limits)
    prefix = job_root(member.name for member in checked.members if not member.directory)
    big = {m.name.removeprefix(prefix): m.size for m in checked.members if m.size > limits.file_bytes}
    progress(0, "unpacking")
    target = spool / "job"
    unpack(path, target, checked, limits)
    tree = list_tree(target / prefix if prefix else target, limits)
    return Incoming(tree, checked.format, prefix.rstrip("/") or source_name(source), big, checked.warnings)


class _FetchProgress:
    """Bytes so far as bytes more."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._known = 0

    def __call__(self, done: int, total: int | None) -> None:
        of = f" of {format_size(total)}" if total is not None else ""
        self._progress(0, f"fetching: {format_size(done)}{of}")


def jobs_below(folder: Path) -> list[Path]:
    """What a folder of jobs holds: job folders and archives directly in it, in the order of their names."""
    found = sorted(folder.iterdir(), key=lambda path: os.fsencode(path.name))
    return [p for p in found if not p.name.startswith(".") and (_is_job(p) or _is_archive(p))]


def _is_job(path: Path) -> bool:
    return (path / "config.json").is_file() and not (path / "task.toml").exists() and path.is_dir()


def _is_archive(path: Path) -> bool:
    return _ENDINGS.search(path.name) is not None and path.is_file()


def _no_job(path: Path, name: str) -> TraceflowError:
    missing = [record for record in _RECORDS if not (path / record).exists()]
    odd = [record for record in _RECORDS if record not in missing and not (path / record).is_file()]
    if odd:
        return TraceflowError("not_a_job_dir", f"{name}: {odd[0]} in it is no file", path=name, missing=odd)
    hint = ""
    jobs = jobs_below(path) if len(missing) == 2 else []
    if len(jobs) == 1:
        hint = f"; did you mean {jobs[0]}?"
    elif jobs:
        hint = f"; it holds {len(jobs)} jobs: name them, or add --all"
    return TraceflowError(
        "not_a_job_dir",
        f"{name}: no {' and no '.join(missing)} in it, so it is no Harbor job folder{hint}",
        path=name,
        missing=missing,
    )
