"""One job as one archive: a top folder named as the job, its files, and what an export adds to them."""

from __future__ import annotations

import hashlib
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats import jsontext

from ..archive import NewMember, Written, windows_problem, write_tar_gz
from ..importer.derived import EXPORT_FORMAT, EXPORT_VERSION, MARK
from ..store import FileRow, Manifest, Store
from .derive import Derived, derive_trial

__all__ = ["Exported", "export_job"]

_CHUNK = 1 << 20
_JOB_FACTS = (
    "original_job_id", "original_job_name", "started_at", "finished_at", "n_total_trials", "n_trials", "n_scored",
    "n_skipped", "datasets", "reported_totals", "task_links", "tree_sha256",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Exported:
    """An archive that was written, the files that were added to it, and warnings on names."""

    job_id: str
    name: str
    written: Written
    derived: int
    warnings: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        written = self.written
        return {
            "job_id": self.job_id,
            "name": self.name,
            "members": written.members,
            "derived": self.derived,
            "bytes": written.archive_bytes,
            "archive_sha256": written.archive_sha256,
            "tar_sha256": written.tar_sha256,
            "encoder": written.encoder,
            "warnings": self.warnings,
        }


def export_job(
    store: Store,
    job: Manifest,
    output: Path | BinaryIO,
    *,
    original: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Exported:
    """Write a job as a .tar.gz to a path or a binary stream. With `original` exactly what was imported.

    The same store content gives the same bytes, on any machine, at any time. Memory is flat; what is added lies
    in a temporary folder until it is written. Raises TraceflowError store_corrupt and io_error.
    """
    rows = store.files(job)
    name = archive_name(job)
    with tempfile.TemporaryDirectory(prefix="traceflow-export-") as spool:
        derived: list[Derived] = []
        kept = rows
        if not original:
            kept = [row for row in rows if not row.derived]
            derived = list(_derive(store, job, kept, Path(spool)))
        members = _members(store, job, kept, derived, name, exact_modes=original)
        written = write_tar_gz(members, output, progress=progress)
    paths = [row.path for row in kept] + [item.path for item in derived]
    return Exported(job.job_id, name, written, len(derived), _name_warnings(paths))


def archive_name(job: Manifest) -> str:
    """The name of the archive's top folder: the job's own where it can be a folder's name, else its id."""
    name = job.job.get("original_job_name")
    if not isinstance(name, str) or not name.strip() or name in (".", "..") or len(name.encode()) > 200:
        return job.job_id
    if any(ord(c) < 32 or c in '/\\:*?"<>|\x7f' for c in name) or name != name.strip():
        return job.job_id
    return name


def _derive(store: Store, job: Manifest, files: list[FileRow], spool: Path) -> Iterator[Derived]:
    by_trial: dict[str | None, list[FileRow]] = {}
    for row in files:
        by_trial.setdefault(row.trial_id, []).append(row)
    if any(row.path == MARK for row in files):
        return  # a file of that name was imported: nothing that we add could be told from an original
    added: list[Derived] = []
    for number, trial in enumerate(store.trials(job)):
        own = by_trial.get(trial["trial_id"], [])
        if trial["skipped_code"] is not None and not own:
            continue
        made = derive_trial(store, job, trial, own, spool / f"{number:06d}")
        added.extend(made)
        yield from made
    record = {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "job": {key: job.job[key] for key in _JOB_FACTS if job.job.get(key) is not None},
        "derived": [{"path": d.path, "size": d.size, "sha256": d.sha256} for d in sorted(added, key=_path_bytes)],
    }
    file = spool / MARK
    content = jsontext.pretty(record)
    file.write_bytes(content)
    yield Derived(MARK, file, len(content), hashlib.sha256(content).hexdigest())


def _path_bytes(item: Derived | FileRow) -> bytes:
    return item.path.encode()


def _members(
    store: Store, job: Manifest, files: list[FileRow], derived: list[Derived], name: str, *, exact_modes: bool
) -> Iterator[NewMember]:
    contents = store.contents(job)
    everything: Iterable[Derived | FileRow] = sorted([*files, *derived], key=_path_bytes)
    for item in everything:
        path = f"{name}/{item.path}"
        if isinstance(item, Derived):
            yield NewMember(path, item.size, chunks=item.chunks)
        elif item.kind == "directory":
            yield NewMember(path, directory=True, mode=item.mode if exact_modes else None)
        elif item.packed is not None:
            yield NewMember(
                path,
                item.size,
                executable=bool(item.mode & 0o100),
                chunks=partial(_chunks, contents, item),
                mode=item.mode if exact_modes else None,
            )


def _chunks(contents: Any, item: FileRow) -> Iterator[bytes]:
    with contents.open(item.packed) as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk


def _name_warnings(paths: list[str]) -> list[dict[str, Any]]:
    """Names that cannot be extracted elsewhere: they are written all the same."""
    found = []
    bad = [(path, problem) for path in paths if (problem := windows_problem(path))]
    if bad:
        path, problem = bad[0]
        message = f"{path}: {problem}; such names cannot be extracted on Windows"
        found.append({"code": "windows_name", "count": len(bad), "message": message, "path": path})
    seen: dict[str, str] = {}
    twins = []
    for path in paths:
        other = seen.setdefault(unicodedata.normalize("NFC", path).casefold(), path)
        if other != path:
            twins.append((other, path))
    if twins:
        message = f"{twins[0][0]} and {twins[0][1]} are one file where case or Unicode form does not count"
        found.append({"code": "name_twin", "count": len(twins), "message": message, "path": twins[0][1]})
    return found
