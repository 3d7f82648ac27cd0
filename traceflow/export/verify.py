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
from ..mark import MARK, redacted_id
from ..store import FileRow, Manifest, Store
from .archive import Content, archive_name, contents_of, members_of

__all__ = ["Checked", "find_job", "verify_archive"]

_RECORD_LIMIT = 64 << 20
_PROBLEMS_KEPT = 1000


@dataclass(slots=True)
class Checked:
    """What a check found. `exact`: the tar is byte for byte the export's. Without problems and not exact it has the
    same files, packed by another program. `original`: it was compared with what was imported, without additions.
    `redacted`: it says that it is a redacted export, and is what it says."""

    path: str
    job_id: str
    original: bool
    exact: bool
    archive_sha256: str
    tar_sha256: str | None
    members: int
    problems: list[dict[str, str]] = field(default_factory=list)
    redacted: dict[str, Any] | None = None


def find_job(store: Store, archive: Path) -> Manifest:
    """The job in the store that an archive holds, by the id in its result.json, else by the name of its top folder.

    Raises job_not_found, and what `scan` raises.
    """
    found = scan(archive)
    base = f"{found.root}/" if found.root is not None else ""
    records: dict[str, Any] = {}
    for member, chunks in read_members(archive, found):
        name = member.name.removeprefix(base)
        if name in ("result.json", MARK) and member.size <= _RECORD_LIMIT:
            try:
                records[name] = jsontext.loads(b"".join(chunks))
            except ValueError:
                continue
    job_id = _field(records.get("result.json"), "id")
    if isinstance(job_id, str) and job_id:
        own = redacted_id(job_id)
        redacted = _field(records.get(MARK), "redacted") is not None
        return store.job(own if redacted and store.has_job(own) else job_id)
    if found.root is None:
        raise TraceflowError("job_not_found", f"{archive} names no job: say which one it is compared with")
    return store.job(found.root)


def _field(record: Any, name: str) -> Any:
    return record.get(name) if isinstance(record, dict) else None


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
    if not original and not job.job.get("redacted") and (record := _redaction(archive, found)) is not None:
        with tempfile.TemporaryDirectory(prefix="traceflow-verify-") as spool:
            _compare(store, job, archive, found, Path(spool), checked, record)
        checked.redacted = record["redacted"]
        return checked
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


def _redaction(archive: Path, found: Scan) -> dict[str, Any] | None:
    """The record of a redacted export in an archive."""
    path = f"{found.root}/{MARK}" if found.root is not None else MARK
    for member, chunks in read_members(archive, found):
        if member.name == path and member.size <= _RECORD_LIMIT:
            try:
                value = jsontext.loads(b"".join(chunks))
            except ValueError:
                return None
            return value if isinstance(_field(value, "redacted"), dict) else None
    return None


def _compare(
    store: Store,
    job: Manifest,
    archive: Path,
    found: Scan,
    spool: Path,
    checked: Checked,
    redaction: dict[str, Any] | None = None,
) -> None:
    """Name what differs: file by file, whatever the order. Of a redacted export the changed files are compared with
    its own record of them, all others with the store."""
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
    left_out = _as_redacted(expected, redaction) if redaction is not None else 0
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
        if redaction is not None and path == MARK:
            continue  # it says what the others are
        if wanted is None or digest.hexdigest() != wanted[0]:
            of = "the store" if redaction is None else "the store, nor what the export wrote"
            _problem(checked, path, f"its content is not that of {of}")
        elif member.executable != wanted[1] and not checked.original:
            _problem(checked, path, "its mode is not that of the store")
    if redaction is not None and len(expected) == left_out:
        return  # files that hold a secret and could not be rewritten; their names may be secret too
    for path in expected:
        _problem(checked, path, "it is missing in the archive")


def _as_redacted(expected: dict[str, tuple[str, bool] | None], record: dict[str, Any]) -> int:
    """Expect what the record of a redacted export says of the files that it changed. Returns how many it left out
    under a name that the record does not give."""
    for entry in (*record["redacted"].get("files", ()), *record.get("derived", ())):
        if (wanted := expected.get(entry["path"])) is not None:
            expected[entry["path"]] = entry["sha256"], wanted[1]
    left_out = record["redacted"].get("left_out", ())
    return sum(expected.pop(entry["path"], 0) == 0 for entry in left_out)


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
