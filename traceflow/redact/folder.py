"""A folder of files that were just written, redacted in place before anybody sees them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..archive import file_chunks
from .content import is_json_name
from .detector import Detector
from .files import RECORD_LIMIT, collect, collect_stated, examine, redaction_record
from .names import RECORDS
from .rewrite import rewritten
from .secrets import Secrets

__all__ = ["records_near", "redact_folder"]

_ABOVE = 8  # folders above a session in which a trial's records are looked for


def records_near(path: Path) -> Iterator[bytes]:
    """Harbor's records of the job or trial that a path is, or lies in: they state secrets of its sessions."""
    path = path.absolute()
    folders = [folder for folder in (path, *path.parents[:_ABOVE]) if _holds_records(folder)]
    if path.is_dir():
        folders += [folder for folder in sorted(path.iterdir()) if _holds_records(folder)]
    for record in (folder / name for folder in folders for name in RECORDS):
        if record.is_file() and record.stat().st_size <= RECORD_LIMIT:
            yield record.read_bytes()


def _holds_records(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / "result.json").is_file()


def redact_folder(folder: Path, records: Iterable[bytes]) -> dict[str, Any]:
    """Replace secrets in the files of a folder, remove what cannot be rewritten, and return the record of it.

    `records` state secrets, besides those that are found by their form. Raises missing_extra.
    """
    detector, secrets = Detector(), Secrets()
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    for record in records:
        collect_stated(record, secrets)
    for path in paths:
        collect(file_chunks(path), detector, secrets)
    matcher = secrets.matcher()
    files: list[tuple[str, str, dict[str, int]]] = []
    left: list[tuple[str, str, dict[str, int]]] = []
    for path in paths if matcher is not None else ():
        assert matcher is not None
        name, chunks = path.relative_to(folder).as_posix(), file_chunks(path)
        kinds, reason = examine(name, chunks, matcher)
        if reason:
            path.unlink()
            left.append((name, reason, kinds))
        elif kinds:
            counts: Counter[str] = Counter()
            new, digest = path.with_name(f"{path.name[:100]}.redacted"), hashlib.sha256()
            with new.open("wb") as out:
                for chunk in rewritten(chunks(), matcher, counts, is_json=is_json_name(name)):
                    out.write(chunk)
                    digest.update(chunk)
            new.replace(path)
            files.append((name, digest.hexdigest(), dict(counts)))
    return redaction_record(detector, secrets, matcher, files, left)
