"""A job redacted on its way out: what an export writes, with markers where secrets stand.

Everything is read twice. First all secrets are collected, from the records and by their form; then they are replaced
wherever they stand. A file that cannot be rewritten (`content`) or whose name holds a secret is left out and listed.
The archive's own record says all of it, so that it is never taken for the original.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from ..export.derive import Derived
from ..mark import MARK
from ..store import FileRow, Manifest, Store
from .content import Chunks, is_json_name
from .detector import Detector
from .files import RECORD_LIMIT, collect, collect_stated, examine, redaction_record
from .names import is_record
from .rewrite import rewritten
from .secrets import Matcher, Secrets

__all__ = ["JobRedaction"]

_SESSION_PARTS = ("trace-parsed.jsonl", "trajectory.json", "images/")

Item = Derived | FileRow


@dataclass(slots=True)
class _Change:
    """What became of a file: its new content, or None where it is left out."""

    kinds: dict[str, int]
    content: Derived | None
    reason: str = ""


class JobRedaction:
    """Redacts the contents of an export. `folder` takes what is rewritten, until it is in the archive."""

    def __init__(self, store: Store, job: Manifest, folder: Path, detector: Detector | None = None) -> None:
        self._store, self._job = store, job
        self._packs = store.contents(job)
        self._folder = folder
        self._detector = detector or Detector()
        before = job.job.get("redacted") or {}
        self._secrets = Secrets(before.get("secrets"))
        self._changes: dict[str, _Change] = {}
        self._derived: dict[str, Derived] = {}
        self._lists: list[Item] = []  # agent-home.json: digests of other files
        self._made = 0
        self.record: dict[str, Any] = {}

    def contents(self, found: Iterable[Item]) -> Iterator[Item]:
        """The contents with markers, in the same order. Raises invalid_input for a job that holds a traceflow.json of
        its own: nothing in its archive could say that it is redacted."""
        for item in found:
            if isinstance(item, Derived):
                self._derived[item.path] = item
            self._collect(item)
        if MARK not in self._derived:
            raise TraceflowError(
                "invalid_input", f"the job has a {MARK} of its own, so no archive of it can say that it is redacted"
            )
        matcher = self._secrets.matcher()
        self._check_name(matcher)
        if matcher is not None:
            for item in self._again():
                if item.path != MARK:
                    self._change(item, matcher)
        self._settle(matcher)
        for item in self._again():
            change = self._changes.get(item.path)
            if change is None:
                yield item
            elif change.content is not None:
                yield change.content

    def _again(self) -> Iterator[Item]:
        """The contents once more, in their order."""
        with self._store.file_table(self._job) as table:
            kept: Iterator[Item] = (row for row in table.rows() if not row.derived)
            yield from heapq.merge(kept, self._derived.values(), key=_path_bytes)

    def _check_name(self, matcher: Matcher | None) -> None:
        from ..export.archive import archive_name

        if matcher is not None and matcher.holds(archive_name(self._job).encode()):
            raise TraceflowError("invalid_input", f"the name of job {self._job.job_id} holds one of its secrets")

    def warnings(self) -> list[dict[str, Any]]:
        """What a user has to know: files that are left out."""
        left = self.record.get("left_out") or []
        if not left:
            return []
        first = left[0]
        message = f"{first['path']}: {first['reason']}; such files are left out"
        return [{"code": "redacted_left_out", "count": len(left), "message": message, "path": first["path"]}]

    # -- collecting --------------------------------------------------------------------------------------------

    def _open(self, item: Item) -> Chunks:
        if isinstance(item, Derived):
            return item.chunks
        assert item.packed is not None
        return partial(self._packs.chunks, item.packed)

    def _collect(self, item: Item) -> None:
        if isinstance(item, FileRow) and item.packed is None:
            return
        if item.path.endswith("/agent-home.json"):
            self._lists.append(item)
        chunks = self._open(item)
        if is_record(item.path) and item.size <= RECORD_LIMIT:
            collect_stated(b"".join(chunks()), self._secrets)
        collect(chunks, self._detector, self._secrets)

    # -- changing ----------------------------------------------------------------------------------------------

    def _change(self, item: Item, matcher: Matcher) -> None:
        chunks = None if isinstance(item, FileRow) and item.packed is None else self._open(item)
        kinds, reason = examine(item.path, chunks, matcher)
        if reason:
            self._changes[item.path] = _Change(kinds, None, reason)
        elif kinds and chunks is not None:
            counts: Counter[str] = Counter()
            content = self._write(item, rewritten(chunks(), matcher, counts, is_json=is_json_name(item.path)))
            if counts:
                self._changes[item.path] = _Change(dict(counts), content)

    def _write(self, item: Item, chunks: Iterable[bytes]) -> Derived:
        """The new content of a file, in the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._made += 1
        file = self._folder / f"{self._made:06d}"
        digest, size = hashlib.sha256(), 0
        with file.open("wb") as out:
            for chunk in chunks:
                out.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        original = isinstance(item, FileRow)
        executable = isinstance(item, FileRow) and bool(item.mode & 0o100)
        return Derived(item.path, str(file), size, digest.hexdigest(), executable=executable, added=not original)

    # -- saying so ---------------------------------------------------------------------------------------------

    def _settle(self, matcher: Matcher | None) -> None:
        """Lists of files get the digests of what is in the archive: with one of the original a secret could be tried.
        Then the archive's record says what was done."""
        for item in self._lists:
            change = self._changes.get(item.path)
            if change is None or change.content is not None:
                self._relist(item, change)
        mark = self._derived[MARK]
        record = jsontext.loads(b"".join(mark.chunks()))
        record["job"].pop("tree_sha256", None)
        record["derived"] = self._derived_list(record["derived"])
        record["redacted"] = self.record = self._record(matcher)
        content: Iterable[bytes] = (jsontext.pretty(record),)
        if matcher is not None:
            content = rewritten(content, matcher, Counter(), is_json=True)
        self._changes[MARK] = _Change({}, self._write(mark, content))

    def _relist(self, item: Item, change: _Change | None) -> None:
        base = item.path.rpartition("/")[0]
        chunks = self._open(item) if change is None or change.content is None else change.content.chunks
        try:
            value = jsontext.loads(b"".join(chunks()))
            rows = [self._listed(base, row) for row in value["files"]]
            if isinstance(item, Derived):
                rows += self._kept_parts(base)
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # somebody else's file of that name
        if rows != value["files"]:
            listed = sorted((row for row in rows if row), key=lambda row: str(row["path"]).encode())
            content = self._write(item, (jsontext.pretty({**value, "files": listed}),))
            self._changes[item.path] = _Change(change.kinds if change is not None else {}, content)

    def _listed(self, base: str, row: dict[str, Any]) -> dict[str, Any] | None:
        """A row of a list as it is in the archive; None for a file that is left out."""
        change = self._changes.get(f"{base}/{row['path']}")
        if change is None:
            return row
        if change.content is None:
            return None
        return {**row, "size": change.content.size, "sha256": change.content.sha256}

    def _kept_parts(self, base: str) -> list[dict[str, Any]]:
        """Rows for the trace and trajectory of an agent whose session was left out: an import takes them for
        originals, and lists those."""
        parts = tuple(f"{base}/{part}" for part in _SESSION_PARTS)
        if not parts[0].startswith(self._parts_of_left_out()):
            return []
        found = []
        for path, item in self._derived.items():
            change = self._changes.get(path)
            made = item if change is None else change.content
            if path.startswith(parts) and made is not None:
                row = {"path": path.removeprefix(f"{base}/"), "size": made.size, "sha256": made.sha256}
                found.append({**row, "mode": "0644"})
        return found

    def _parts_of_left_out(self) -> tuple[str, ...]:
        """The trace and trajectory of every agent of which a file was left out, as beginnings of paths."""
        bases = {
            path[: path.rindex("/agent/") + 7]
            for path, change in self._changes.items()
            if change.content is None and "/agent/" in path
        }
        return tuple(f"{base}{part}" for base in sorted(bases) for part in _SESSION_PARTS)

    def _derived_list(self, listed: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What an import will take for derived. Where a session was left out, its trace and trajectory are not among
        it: they are all that is left of the session."""
        parts = self._parts_of_left_out()
        out = []
        for entry in listed:
            change = self._changes.get(entry["path"])
            if entry["path"].startswith(parts) or (change is not None and change.content is None):
                continue
            if change is not None and change.content is not None:
                entry = {**entry, "size": change.content.size, "sha256": change.content.sha256}
            out.append(entry)
        return out

    def _record(self, matcher: Matcher | None) -> dict[str, Any]:
        files = [(path, c.content.sha256, c.kinds) for path, c in self._changes.items() if c.content is not None]
        left = [(path, c.reason, c.kinds) for path, c in self._changes.items() if c.content is None]
        return redaction_record(self._detector, self._secrets, matcher, files, left)


def _path_bytes(item: Item) -> bytes:
    return item.path.encode()
