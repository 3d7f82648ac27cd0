"""One interface to the files of a trial: status, listing, reading, search, changes, archive."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from traceflow_formats.errors import TraceflowError

from .manifests import COLUMNS, MANIFEST, manifest_line
from .model import Entry, FileTree, clean_name, clean_path, shown_path
from .stored import StoredTree

if TYPE_CHECKING:  # each verb imports what it alone needs
    from pathlib import Path

    from ..archive import NewMember, Written
    from ..store import FileTable, Manifest, Store
    from .capture import CaptureTree
    from .kept import Progress

__all__ = ["MAX_PAGE", "ByteRange", "TrialFiles", "parse_range"]

MAX_PAGE = 1000
_PHASES = ("setup", "agent", "verifier", "all")
_LINKS = 40
_TAR_GZ = re.compile(rb"\.t(?:ar\.)?gz", re.IGNORECASE)
_NO_CAPTURES = ("agent/", "steps/")  # archives among an agent's own files are no captures
_RANGE = re.compile(r"(?:bytes=)?(\d{0,18})-(\d{0,18})").fullmatch


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Part of a content, as HTTP has it: both ends inclusive, or the last so many bytes."""

    start: int | None
    end: int | None

    def within(self, size: int) -> tuple[int, int]:
        """(first byte, number of bytes) in a content of that size. Raises invalid_input beyond its end."""
        if self.start is None:
            count = min(self.end or 0, size)
            return size - count, count
        if self.start >= size and (self.start or size):
            raise TraceflowError("invalid_input", f"the range begins at byte {self.start} of {size}")
        return self.start, max(0, (size if self.end is None else min(self.end + 1, size)) - self.start)


def parse_range(text: str) -> ByteRange:
    """`bytes=a-b`, `a-b`, `a-` or `-n`. Raises invalid_input."""
    match = _RANGE(text.strip())
    if match is None or match[1] == match[2] == "":
        raise TraceflowError("invalid_input", f"{text[:80]!r} is no range: say bytes=0-99, bytes=100- or bytes=-100")
    start, end = (int(part) if part else None for part in match.groups())
    if start is not None and end is not None and end < start:
        raise TraceflowError("invalid_input", f"the range {text} ends before it begins")
    return ByteRange(start, end)


class TrialFiles(AbstractContextManager["TrialFiles"]):
    """The files of one trial (a row of `Store.trials`); use it as a context.

    There are two sources: `trial`, the folder as it was imported, and `capture`, the file system of the run where
    the trial has a capture of it. Every method takes `source`; without one it is the capture where there is one.
    Raises TraceflowError not_found for a path that is not there, not_captured for a file without content, and
    invalid_input for a path that leads outside, a source that the trial does not have, or a bad cursor or limit.
    """

    def __init__(self, store: Store, job: Manifest, trial: dict[str, Any], progress: Progress | None = None) -> None:
        self._store, self._job = store, job
        self._progress = progress  # of a capture that is read for the first time
        self._name: str = trial["trial_name"]
        self._table: FileTable = store.file_table(job)
        self._capture: CaptureTree | None = None
        self._looked = False

    def __enter__(self) -> TrialFiles:
        self._table.__enter__()
        self._stored = StoredTree(self._store, self._job, self._name, self._table)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._capture is not None:
            self._capture.close()
        self._table.__exit__()

    # -- the verbs -------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """FilesystemStatus: `state` captured or none, and what there is to read."""
        capture, failed = None, None
        try:
            capture = self._captured()
        except TraceflowError as error:
            failed = error.message
        sizes = self._table.table(f"{self._name}/", ("kind", "size"))
        record: dict[str, Any] | None = {"record": "failed", "message": failed} if failed else None
        if capture is not None:
            record = self._capture_record(capture)
        return {
            "state": "captured" if capture is not None else "none",
            "source": "capture" if capture is not None else "trial",
            "box": None,
            "watcher": None,
            "root": "/",
            "work_dir": None,
            "capture": record,
            "files": sum(kind == "file" for kind in sizes.column("kind").to_pylist()),
            "bytes": sum(sizes.column("size").to_pylist()),
        }

    def list(
        self, path: str = "/", *, source: str | None = None, cursor: str | None = None, limit: int = 500
    ) -> dict[str, Any]:
        """FilesystemListing: one page of a folder, sorted by name; `next_cursor` is the name it ends with."""
        began = time.monotonic()
        tree, inside = self._tree(source), clean_path(path)
        count = _limit(limit)
        entry = tree.entry(inside)
        if entry is None:
            raise _not_found(inside)
        after = clean_name(cursor or "")
        if entry.type == "dir":
            entries = tree.children(inside, after, count + 1)
        else:
            entries = [entry] if entry.name > after else []
        page = entries[:count]
        return {
            "path": f"/{inside}",
            "source": tree.source,
            "entries": [e.as_dict() for e in page],
            "next_cursor": page[-1].name if len(entries) > len(page) else None,
            "ms": round((time.monotonic() - began) * 1000, 1),
        }

    def read(
        self, path: str, *, source: str | None = None, byte_range: ByteRange | None = None
    ) -> tuple[int, Iterator[bytes]]:
        """The bytes of a file: how many will come, and the pieces. A link is followed inside the tree only."""
        tree = self._tree(source)
        inside, entry = self._resolved(tree, clean_path(path))
        if entry.type == "dir":
            raise TraceflowError("invalid_input", f"/{shown_path(inside)} is a folder; list it", path=f"/{inside}")
        if not entry.captured or entry.type != "file":
            why = f" ({entry.left_out})" if entry.left_out else "" if entry.type == "file" else f" (a {entry.type})"
            message = f"/{shown_path(inside)} was not captured, so there is nothing to read{why}"
            raise TraceflowError("not_captured", message, path=f"/{inside}", left_out=entry.left_out)
        size = entry.size or 0
        start, length = byte_range.within(size) if byte_range is not None else (0, size)
        return length, tree.read(inside, start, length)

    def search(
        self, query: str, *, path: str = "/", regex: bool = False, limit: int = 200, source: str | None = None
    ) -> dict[str, Any]:
        """FilesystemSearchResult: lines that hold a text, or that match an RE2 pattern. Binary files are passed by."""
        began = time.monotonic()
        tree, inside = self._tree(source), clean_path(path)
        if tree.entry(inside) is None:
            raise _not_found(inside)
        from .search import search_files

        found = search_files(tree.contents(inside), query, regex=regex, limit=_limit(limit))
        left_out = tree.uncaptured(inside)
        result = {
            "hits": [{"path": f"/{hit.path}", "line": hit.line, "snippet": hit.snippet} for hit in found.hits],
            "truncated": found.truncated,
            "scope": f"/{inside}",
            "source": tree.source,
            "ms": round((time.monotonic() - began) * 1000, 1),
        }
        return result | ({"image_files_excluded": left_out} if left_out else {})

    def changes(
        self, *, phase: str = "all", source: str | None = None, cursor: str | None = None, limit: int = 500
    ) -> dict[str, Any]:
        """FilesystemChanges: what manifests say was created, modified or removed, by path.

        `total` and `changed_bytes` are those of the whole list. Where no manifest tells, `reason` says so.
        """
        if phase not in _PHASES:
            raise TraceflowError("invalid_input", f"{phase[:40]!r} is no phase: say {', '.join(_PHASES)}")
        tree = self._tree(source)
        count = _limit(limit)
        found = tree.changes(phase, clean_name(cursor or "").lstrip("/"), count + 1)
        page = found.items[:count]
        result: dict[str, Any] = {
            "source": tree.source,
            "total": found.total,
            "changed_bytes": found.bytes,
            "items": [{"path": f"/{path}", **entry.as_dict()} for path, entry in page],
            "next_cursor": f"/{page[-1][0]}" if len(found.items) > count else None,
        }
        if not found.told:
            result["reason"] = "no manifest of this trial says what changed"
        return result

    def archive(self, path: str, output: Path | BinaryIO, *, source: str | None = None) -> Written:
        """Write a folder, or one file, as a .tar.gz, the same bytes every time. Its MANIFEST.tsv lists every file,
        and so what has no content."""
        tree, inside = self._tree(source), clean_path(path)
        if tree.entry(inside) is None:
            raise _not_found(inside)
        from ..archive import write_tar_gz

        with tree.reader(inside) as read:
            return write_tar_gz(_archived(tree, inside, read), output)

    # -- sources ---------------------------------------------------------------------------------------------

    def _tree(self, source: str | None) -> FileTree:
        if source not in (None, "trial", "capture"):
            raise TraceflowError("invalid_input", f"{str(source)[:40]!r} is no source: say trial or capture")
        if source == "trial":
            return self._stored
        capture = self._captured()
        if capture is not None:
            return capture
        if source == "capture":
            raise TraceflowError("invalid_input", f"trial {self._name} has no filesystem capture", source=source)
        return self._stored

    def _captured(self) -> CaptureTree | None:
        """The capture of the trial: its first .tar.gz, outside the agent's files, that holds a MANIFEST.tsv."""
        if self._looked:
            return self._capture
        prefix = f"{self._name}/"
        for full in self._table.paths(prefix, _TAR_GZ):
            name = full[len(prefix) :]
            if not name.lower().endswith((".tar.gz", ".tgz")) or name.startswith(_NO_CAPTURES):
                continue
            from .kept import open_capture

            row = self._stored.row(name)
            if row is None or row.packed is None:
                continue
            packed = row.packed
            tree = open_capture(
                name,
                packed.sha256,
                packed.size,
                lambda packed=packed: self._store.contents(self._job).open(packed),  # type: ignore[misc]
                progress=self._progress,
            )
            if tree.is_capture:
                self._capture = tree
                break
        self._looked = True
        return self._capture

    def _capture_record(self, capture: CaptureTree) -> dict[str, Any]:
        counts = capture.counts()
        return {
            "path": capture.name,
            "record": "incomplete" if counts.left_out or capture.unsafe else "ready",
            "left_out": counts.left_out + capture.unsafe,
            "files": counts.files,
            "bytes": counts.bytes,
            "image_files": counts.uncaptured,
        }

    def _resolved(self, tree: FileTree, path: str) -> tuple[str, Entry]:
        """The file that a path leads to, links inside the tree followed."""
        for _ in range(_LINKS):
            entry = tree.entry(path)
            if entry is None:
                raise _not_found(path)
            if entry.type != "symlink":
                return path, entry
            path = _link_target(path, entry.target or "")
        raise TraceflowError("invalid_input", f"/{shown_path(path)} is a link that leads to itself", path=f"/{path}")


def _link_target(path: str, target: str) -> str:
    """Where a link leads, from the root of the tree; refused where that is outside of it."""
    parts = [] if target.startswith("/") else path.split("/")[:-1]
    for part in target.split("/"):
        if part == "..":
            if not parts:
                message = (
                    f"/{shown_path(path)} is a link to {shown_path(target[:200])}, which is outside; it is not followed"
                )
                raise TraceflowError("not_captured", message, path=f"/{path}", target=target)
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _archived(tree: FileTree, path: str, read: Callable[[str], Iterator[bytes]]) -> Iterator[NewMember]:
    from ..archive import NewMember

    files = sorted(tree.below(path), key=lambda pair: pair[0].encode())
    skip = len(path.rpartition("/")[0]) + 1 if "/" in path else 0
    rows = ["\t".join(COLUMNS).encode() + b"\n", *(manifest_line(p[skip:], entry) for p, entry in files)]
    manifest = b"".join(rows)
    listed = NewMember(MANIFEST, len(manifest), chunks=lambda: (manifest,))
    members = (
        NewMember(
            inside[skip:],
            entry.size or 0,
            executable=bool(int(entry.mode or "0644", 8) & 0o100),
            chunks=lambda inside=inside: read(inside),  # type: ignore[misc]
        )
        for inside, entry in files
        if entry.captured and entry.type == "file" and inside[skip:] != MANIFEST
    )
    return heapq.merge((listed,), members, key=lambda member: member.path.encode())


def _limit(limit: int) -> int:
    if not 0 < limit <= MAX_PAGE:
        raise TraceflowError("invalid_input", f"a page has 1 to {MAX_PAGE} entries, not {limit}")
    return limit


def _not_found(path: str) -> TraceflowError:
    return TraceflowError("not_found", f"/{shown_path(path)}: the trial has no such file or folder", path=f"/{path}")
