"""One job as one archive: a top folder named as the job, its files, and what an export adds to them."""

from __future__ import annotations

import hashlib
import heapq
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from traceflow_formats import jsontext

from ..archive import NewMember, Written, windows_problem
from ..archive.names import NameTree
from ..limits import Limits
from ..mark import EXPORT_FORMAT, EXPORT_VERSION, MARK
from ..store import FileRow, Manifest, PackReader, Store
from .derive import Derived
from .target import write_archive
from .worker import Trials, derived_in_order

if TYPE_CHECKING:
    from ..redact.job import JobRedaction

__all__ = ["Content", "Exported", "archive_name", "contents_of", "export_job", "members_of"]

_JOB_FACTS = (
    "original_job_id", "original_job_name", "started_at", "finished_at", "n_total_trials", "n_trials", "n_scored",
    "datasets", "reported_totals", "task_links", "tree_sha256",
)  # fmt: skip
_ANY_SIZE = Limits(members=(1 << 31) - 1, path_bytes=1 << 20, path_depth=1 << 20)

Content = Derived | FileRow


@dataclass(frozen=True, slots=True)
class Exported:
    """An archive that was written, the files that were added to it, and warnings on names."""

    job_id: str
    name: str
    written: Written
    derived: int
    warnings: list[dict[str, Any]]
    redacted: dict[str, Any] | None = None  # what was replaced, as traceflow.json says it

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
        } | ({"redacted": self.redacted} if self.redacted is not None else {})


def export_job(
    store: Store,
    job: Manifest,
    output: Path | str | BinaryIO,
    *,
    original: bool = False,
    redact: bool = False,
    progress: Callable[[int], None] | None = None,
    workers: int | None = None,
) -> Exported:
    """Write a job as a .tar.gz to a path, a URL that fsspec knows, or a binary stream. With `original` exactly what
    was imported; with `redact` markers stand where secrets stood (`traceflow.redact`).

    The same store content gives the same bytes, on any machine, at any time. Memory is flat; what is added lies
    in a temporary folder until it is written. A path or URL gets its file when all of it is written. `workers` is
    the number of processes that derive (0: none; default: by the size of the job). Raises TraceflowError
    store_corrupt, io_error, missing_extra, and invalid_input for a URL that cannot be written to.
    """
    name = archive_name(job)
    seen = _Names()
    redaction: JobRedaction | None = None
    with (
        tempfile.TemporaryDirectory(prefix="traceflow-export-", ignore_cleanup_errors=True) as spool,
        closing(contents_of(store, job, Path(spool), original=original, workers=workers)) as found,
    ):
        shown: Iterator[Content] = found
        if redact:
            from ..redact.job import JobRedaction

            redaction = JobRedaction(store, job, Path(spool) / "redacted")
            shown = redaction.contents(found)
        with closing(seen.watch(shown)) as contents:
            written = write_archive(members_of(store, job, contents, name, exact_modes=original), output, progress)
    if redaction is None:
        return Exported(job.job_id, name, written, seen.derived, seen.warnings())
    warnings = [*seen.warnings(), *redaction.warnings()]
    return Exported(job.job_id, name, written, seen.derived, warnings, redaction.record)


def archive_name(job: Manifest) -> str:
    """The name of the archive's top folder: the job's own where it can be a folder's name, else its id."""
    name = job.job.get("original_job_name")
    if not isinstance(name, str) or not name.strip() or name in (".", "..") or len(name.encode()) > 200:
        return job.job_id
    if any(ord(c) < 32 or c in '/\\:*?"<>|\x7f' for c in name) or name != name.strip():
        return job.job_id
    return name


def contents_of(
    store: Store, job: Manifest, spool: Path, *, original: bool, workers: int | None = None
) -> Generator[Content, None, None]:
    """What an export of the job holds, in the order of the paths' bytes; derived contents are made as they come."""
    spool.mkdir(parents=True, exist_ok=True)
    with store.file_table(job) as table:
        if original:
            yield from table.rows()
            return
        kept: Iterator[Content] = (row for row in table.rows() if not row.derived)
        if _is_taken(store, job):  # nothing that we add could be told from an original
            yield from kept
            return
        with closing(_derived(store, job, spool, workers)) as derived:
            yield from heapq.merge(kept, derived, key=_path_bytes)


def _is_taken(store: Store, job: Manifest) -> bool:
    """Whether a file or folder with the name of our record was imported."""
    with store.file_table(job) as table:
        return any(row.path == MARK or row.path.startswith(f"{MARK}/") for row in table.rows(MARK) if not row.derived)


def _derived(store: Store, job: Manifest, spool: Path, workers: int | None) -> Generator[Content, None, None]:
    """What is added, in order. Our record comes between two trials, and lists what all of them got."""
    trials = Trials(store, job)
    before = sum(f"{name}/".encode() < MARK.encode() for name in trials.names)
    added: list[Derived] = []
    with closing(derived_in_order(store, job, trials, spool, workers)) as results:
        for _, made in zip(range(before), results, strict=False):
            added.extend(made)
            yield from made
        rest = [made for trial in results for made in trial]
    facts = {key: job.job[key] for key in _JOB_FACTS if job.job.get(key) is not None}
    record = {
        "format": EXPORT_FORMAT,
        "version": EXPORT_VERSION,
        "job": facts,
        "derived": [{"path": d.path, "size": d.size, "sha256": d.sha256} for d in [*added, *rest]],
    }
    if redacted := job.job.get("redacted"):  # the job was redacted before it came here
        record["redacted"] = redacted
        facts.pop("tree_sha256", None)
    content = jsontext.pretty(record)
    file = spool / MARK
    file.write_bytes(content)
    yield Derived(MARK, str(file), len(content), hashlib.sha256(content).hexdigest())
    yield from rest


def _path_bytes(item: Content) -> bytes:
    return item.path.encode()


def members_of(
    store: Store, job: Manifest, contents: Iterable[Content], name: str, *, exact_modes: bool
) -> Iterator[NewMember]:
    """The contents as members of an archive with that top folder; `exact_modes` keeps all permission bits."""
    packs = store.contents(job)
    for item in contents:
        path = f"{name}/{item.path}"
        if isinstance(item, Derived):
            yield NewMember(path, item.size, executable=item.executable, chunks=partial(_once, item))
        elif item.kind == "directory":
            yield NewMember(path, directory=True, mode=item.mode if exact_modes else None)
        elif item.packed is not None:
            yield NewMember(
                path,
                item.size,
                executable=bool(item.mode & 0o100),
                chunks=partial(_stored, packs, item),
                mode=item.mode if exact_modes else None,
            )


def _once(item: Derived) -> Iterator[bytes]:
    """A derived content, whose file goes when it is in the archive."""
    yield from item.chunks()
    item.file.unlink(missing_ok=True)


def _stored(packs: PackReader, item: FileRow) -> Iterator[bytes]:
    assert item.packed is not None
    return packs.chunks(item.packed)


class _Names:
    """Watches names go by: how many were derived, and which cannot be extracted elsewhere. They are written anyway."""

    def __init__(self) -> None:
        self.derived = 0
        self._tree = NameTree(_ANY_SIZE)
        self._windows: tuple[int, str, str] = 0, "", ""

    def watch(self, contents: Iterator[Content]) -> Generator[Content, None, None]:
        for item in contents:
            self.derived += isinstance(item, Derived) and item.added
            if problem := windows_problem(item.path):
                count, path, first = self._windows
                self._windows = count + 1, path or item.path, first or problem
            self._tree.add(item.path, isinstance(item, FileRow) and item.kind == "directory")
            yield item

    def warnings(self) -> list[dict[str, Any]]:
        found = []
        count, path, problem = self._windows
        if count:
            message = f"{path}: {problem}; such names cannot be extracted on Windows"
            found.append({"code": "windows_name", "count": count, "message": message, "path": path})
        twin = self._tree.first_twin
        if twin is not None:
            message = f"{twin} is one file with another where case or Unicode form does not count"
            found.append({"code": "name_twin", "count": self._tree.twins, "message": message, "path": twin})
        return found
