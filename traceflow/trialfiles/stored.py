"""The files of a trial as they were imported: its folder in the store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from traceflow_formats.errors import TraceflowError

from ..store import FileRow, FileTable, Manifest, Store
from .manifests import agent_home_hints, artifact_hints
from .model import Changes, Entry, Hints, changes_of

__all__ = ["StoredTree"]

_COLUMNS = ("kind", "size", "mode", "target")
_TYPES = {"file": "file", "directory": "dir", "link": "symlink"}
_MANIFEST_LIMIT = 64 << 20
_HOME, _ARTIFACTS = "agent/agent-home.json", "artifacts/manifest.json"


class StoredTree:
    """The folder of one trial. It reads from an open table of files, which belongs to the caller."""

    source = "trial"

    def __init__(self, store: Store, job: Manifest, trial_name: str, table: FileTable) -> None:
        self._table = table
        self._base = f"{trial_name}/"
        self._packs = store.contents(job)
        self._hints: dict[str, Entry] | None = None

    def entry(self, path: str) -> Entry | None:
        if not path:
            return Entry("", "dir")
        row = self.row(path)
        if row is not None:
            return self._with_hint(path, _entry_of(row))
        hint = self.hints().get(path)
        if hint is not None and not hint.captured:
            return hint
        if self._is_folder(f"{self._base}{path}/") or self._is_told(path):
            return Entry(path.rpartition("/")[2], "dir")
        return None

    def _is_folder(self, prefix: str) -> bool:
        return next(self._table.children(prefix), None) is not None

    def children(self, path: str, after: str = "", count: int | None = None) -> list[Entry]:
        prefix = f"{self._base}{path}/" if path else self._base
        inside = f"{path}/" if path else ""
        hints = self.hints() if self._may_tell(path) else {}
        found: dict[str, Entry] = {}
        for name, row in self._table.children(prefix, after, _COLUMNS):
            if name > after:
                found[name] = Entry(name, "dir") if row is None else _told(_listed(name, row), hints.get(inside + name))
            if count is not None and len(found) > count:
                # in the order of paths `a-b` comes before what is in `a`: folders that belong among those found may
                # follow, and their names are beginnings of this one
                for folder in (name[:end] for end, character in enumerate(name) if end and character < "/"):
                    if folder > after and self._is_folder(f"{prefix}{folder}/"):
                        found[folder] = Entry(folder, "dir")
                break
        for told, hint in hints.items():
            if told.startswith(inside) and not hint.captured:
                name, slash, _ = told[len(inside) :].partition("/")
                if name > after:
                    found.setdefault(name, Entry(name, "dir") if slash else hint)
        return [found[name] for name in sorted(found)[:count]]

    def below(self, path: str) -> Iterator[tuple[str, Entry]]:
        hints = self.hints()
        seen: set[str] = set()
        for row in self._rows(path):
            inside = row.path[len(self._base) :]
            if hints:
                seen.add(inside)
            if row.kind != "directory":
                yield inside, _told(_entry_of(row), hints.get(inside))
        for told, hint in hints.items():
            if told not in seen and not hint.captured and (not path or told == path or told.startswith(f"{path}/")):
                yield told, hint

    def contents(self, path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        for row in self._rows(path):
            if row.packed is not None:
                yield row.path[len(self._base) :], self._packs.chunks(row.packed)

    def read(self, path: str, start: int, length: int) -> Iterator[bytes]:
        row = self.row(path)
        if row is None or row.packed is None:
            raise TraceflowError("not_captured", f"/{path}: there is no content", path=f"/{path}")
        if start == 0 and length >= row.size:
            yield from self._packs.chunks(row.packed)
            return
        step = 4 << 20
        for at in range(start, min(start + length, row.size), step):
            yield self._packs.read_range(row.packed, at, min(step, start + length - at))

    def reader(self, path: str) -> AbstractContextManager[Callable[[str], Iterator[bytes]]]:
        return nullcontext(self._whole)

    def _whole(self, path: str) -> Iterator[bytes]:
        row = self.row(path)
        return self._packs.chunks(row.packed) if row is not None and row.packed is not None else iter(())

    def row(self, path: str) -> FileRow | None:
        """The store's row of a path."""
        return self._table.find(self._base + path)

    def changes(self, phase: str, after: str, count: int) -> Changes:
        told = ((path, hint, self.entry(path)) for path, hint in self.hints().items() if hint.changed is not None)
        changed = {path: hint if there is None else there.with_change(hint) for path, hint, there in told}
        return changes_of(changed, phase, after, count)

    def uncaptured(self, path: str) -> int:
        return sum(e.type == "file" and not e.captured for _, e in self.below(path)) if self.hints() else 0

    def hints(self) -> Hints:
        """Everything that manifests say, by path."""
        if self._hints is None:
            self._hints = {}
            for base in self._bases():
                home = self._small(base + _HOME)
                if home is not None:
                    self._hints.update({f"{base}agent/{p}": e for p, e in agent_home_hints(home).items()})
                artifacts = self._small(base + _ARTIFACTS)
                if artifacts is not None:
                    self._hints.update({base + p: e for p, e in artifact_hints(artifacts).items()})
        return self._hints

    def _bases(self) -> list[str]:
        """Where manifests may lie: the trial, and its steps."""
        prefix = f"{self._base}steps/"
        paths = self._table.table(prefix, ("path",)).column("path").to_pylist()
        steps = dict.fromkeys(path[len(prefix) :].partition("/")[0] for path in paths)
        return ["", *(f"steps/{step}/" for step in steps)]

    def _rows(self, path: str) -> Iterator[FileRow]:
        if path and (row := self.row(path)) is not None:
            yield row
            return
        yield from self._table.rows(f"{self._base}{path}/" if path else self._base)

    def _small(self, path: str) -> bytes | None:
        row = self.row(path)
        if row is None or row.packed is None or row.derived or row.size > _MANIFEST_LIMIT:
            return None
        return self._packs.read(row.packed)

    def _may_tell(self, path: str) -> bool:
        first = path.partition("/")[0]
        return first in ("", "agent", "artifacts", "steps")

    def _is_told(self, path: str) -> bool:
        return any(told.startswith(f"{path}/") and not hint.captured for told, hint in self.hints().items())

    def _with_hint(self, path: str, entry: Entry) -> Entry:
        return _told(entry, self.hints().get(path)) if self._may_tell(path) else entry


def _listed(name: str, row: dict[str, Any]) -> Entry:
    kind = _TYPES.get(row["kind"], "other")
    return Entry(name, kind, row["size"], mode=_mode(row["mode"]), target=row["target"])


def _entry_of(row: FileRow) -> Entry:
    name = row.path.rpartition("/")[2]
    return Entry(name, _TYPES.get(row.kind, "other"), row.size, mode=_mode(row.mode), target=row.target)


def _told(entry: Entry, hint: Entry | None) -> Entry:
    """An entry with what a manifest says beyond what is known."""
    if hint is None:
        return entry
    return entry._replace(mtime=hint.mtime, owner=hint.owner, changed=hint.changed, phase=hint.phase)


def _mode(mode: int) -> str:
    return f"{mode & 0o7777:04o}"
