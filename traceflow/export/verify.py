"""Checking an archive against the store: is it what an export of the job would write, and if not, where it differs."""

from __future__ import annotations

import gzip
import hashlib
import tempfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from ..archive import Scan, read_members, scan, tar_digest
from ..mark import MARK
from ..store import FileRow, Manifest, Store
from .archive import Content, archive_name, contents_of, members_of

__all__ = ["Checked", "find_job", "verify_archive"]

_RECORD_LIMIT = 64 << 20
_PROBLEMS_KEPT = 1000


@dataclass(slots=True)
class Checked:
    """What a check found. `exact`: the tar is byte for byte the export's. Without problems and not exact it has the
    same files, packed by another program. `original`: it was compared with what was imported, without additions."""

    path: str
    job_id: str
    original: bool
    exact: bool
    archive_sha256: str
    tar_sha256: str | None
    members: int
    problems: list[dict[str, str]] = field(default_factory=list)


def find_job(store: Store, archive: Path) -> Manifest:
    """The job in the store that an archive holds, by the id in its result.json, else by the name of its top folder.

    Raises job_not_found, and what `scan` raises.
    """
    found = scan(archive)
    record = f"{found.root}/result.json" if found.root is not None else "result.json"
    for member, chunks in read_members(archive, found):
        if member.name != record or member.size > _RECORD_LIMIT:
            continue
        try:
            job_id = jsontext.loads(b"".join(chunks)).get("id")
        except (ValueError, AttributeError):
            break
        if isinstance(job_id, str) and job_id:
            return store.job(job_id)
        break
    if found.root is None:
        raise TraceflowError("job_not_found", f"{archive} names no job: say which one it is compared with")
    return store.job(found.root)


def verify_archive(store: Store, job: Manifest, archive: Path) -> Checked:
    """Compare an archive with the job. Everything is read: each file of the archive, and each content in the store,
    whose digests are checked on the way. Raises what `scan` raises for an archive that cannot be read."""
    found = scan(archive)
    base = f"{found.root}/" if found.root is not None else ""
    names = {m.name.removeprefix(base) for m in found.members if m.name.count("/") == base.count("/")}
    imported = any(r.path == MARK and not r.derived for r in store.files(job))
    original = MARK not in names and not imported
    checked = Checked(
        str(archive),
        job.job_id,
        original,
        False,
        _sha256_of(archive),
        _tar_sha256_of(archive, found),
        len(found.members),
    )
    name = archive_name(job)
    with tempfile.TemporaryDirectory(prefix="traceflow-verify-") as spool:
        try:
            contents = contents_of(store, job, Path(spool) / "1", original=original)
            expected = tar_digest(members_of(store, job, contents, name, exact_modes=original))
            checked.exact = expected == checked.tar_sha256
            if checked.exact:
                return checked
        except TraceflowError as error:
            if error.code != "store_corrupt":
                raise
    with tempfile.TemporaryDirectory(prefix="traceflow-verify-") as spool:
        _compare(store, job, archive, found, Path(spool), checked)
    if found.root not in (None, name):
        _problem(checked, str(found.root), f"the top folder is not {name}")
    return checked


def _compare(store: Store, job: Manifest, archive: Path, found: Scan, spool: Path, checked: Checked) -> None:
    """Name what differs: file by file, whatever the order."""
    expected: dict[str, tuple[str, bool] | None] = {}  # path -> digest and whether it may be run; None for a folder
    packs = store.contents(job)
    try:
        for item in contents_of(store, job, spool, original=checked.original):
            expected[item.path] = _expected(item)
            if isinstance(item, FileRow) and item.packed is not None:
                try:
                    for _ in packs.chunks(item.packed):
                        pass
                except TraceflowError as error:
                    _problem(checked, item.path, error.message)
    except TraceflowError as error:
        if error.code != "store_corrupt":
            raise
        _problem(checked, "", error.message)
        return
    base = f"{found.root}/" if found.root is not None else ""
    for member, chunks in read_members(archive, found):
        path = member.name.removeprefix(base)
        if member.directory:
            if path in expected and expected[path] is None:
                del expected[path]
            continue
        digest = hashlib.sha256()
        for chunk in chunks:
            digest.update(chunk)
        if path not in expected:
            _problem(checked, path, "the store has no such file")
            continue
        wanted = expected.pop(path)
        if wanted is None or digest.hexdigest() != wanted[0]:
            _problem(checked, path, "its content is not that of the store")
        elif member.executable != wanted[1] and not checked.original:
            _problem(checked, path, "its mode is not that of the store")
    for path in expected:
        _problem(checked, path, "it is missing in the archive")


def _expected(item: Content) -> tuple[str, bool] | None:
    if not isinstance(item, FileRow):
        return item.sha256, False
    return None if item.kind == "directory" else (item.sha256 or "", bool(item.mode & 0o100))


def _problem(checked: Checked, path: str, message: str) -> None:
    if len(checked.problems) < _PROBLEMS_KEPT:
        checked.problems.append({"path": path, "message": message})


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tar_sha256_of(path: Path, found: Scan) -> str | None:
    """The digest of the tar inside; None for an archive of another format."""
    if found.format == "tar":
        return _sha256_of(path)
    if found.format != "tar.gz":
        return None
    digest: Any = hashlib.sha256()
    try:
        with gzip.open(path) as stream:
            while chunk := stream.read(1 << 20):
                digest.update(chunk)
    except (OSError, EOFError, zlib.error):  # what follows the end of the tar; the scan has told of it
        return None
    return str(digest.hexdigest())
