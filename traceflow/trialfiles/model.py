"""What the file verbs answer with: the shapes of the platform's file browser, as plain values."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from traceflow_formats.errors import TraceflowError

__all__ = ["Changes", "Entry", "FileTree", "Hints", "changes_of", "clean_name", "clean_path", "shown_path"]

_PATH_LIMIT = 8192
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Entry(NamedTuple):
    """A file, folder or link of a listing. What is not known is None; `size` is bytes, `mtime` ISO 8601 text.

    `type` is dir, file, symlink or other, `mode` four octal digits, `changed` created, modified or removed,
    `phase` setup, agent or verifier. `captured` false: there is no content, and `left_out` may say why. `target`
    is where a link points to; it is never followed out of the tree.
    """

    name: str
    type: str
    size: int | None = None
    mtime: str | None = None
    mode: str | None = None
    owner: str | None = None
    changed: str | None = None
    phase: str | None = None
    captured: bool = True
    left_out: str | None = None
    target: str | None = None

    def with_change(self, hint: Entry) -> Entry:
        """The entry with the change that a manifest tells."""
        return self._replace(changed=hint.changed, phase=hint.phase)

    def as_dict(self) -> dict[str, Any]:
        """The entry as JSON has it; `left_out` and `target` only where there is one."""
        found = self._asdict()
        for name in ("left_out", "target"):
            if found[name] is None:
                del found[name]
        return found


Hints = Mapping[str, Entry]  # by path: what a manifest says of a file, whether there is a content or not


class Changes(NamedTuple):
    """A page of changes by path, how many there are in all and their bytes; `told` is whether there is any of another
    phase, or of this one."""

    items: list[tuple[str, Entry]]
    total: int
    bytes: int
    told: bool


def changes_of(changed: Hints, phase: str, after: str, count: int) -> Changes:
    """Of what was changed the first so many of a phase, or of `all`, that come after a path."""
    chosen = sorted(path for path, entry in changed.items() if phase in ("all", entry.phase))
    size = sum(changed[path].size or 0 for path in chosen)
    first = bisect_right(chosen, after)
    page = [(path, changed[path]) for path in chosen[first : first + count]]
    return Changes(page, len(chosen), size, bool(changed))


class FileTree(Protocol):
    """A tree of files. Paths are relative to its root, POSIX, "" for the root; they come from `clean_path`."""

    source: str  # "trial" or "capture"

    def entry(self, path: str) -> Entry | None:
        """What stands at a path, or None."""

    def children(self, path: str, after: str = "", count: int | None = None) -> list[Entry]:
        """What lies directly in a folder, sorted by the bytes of the names: the first so many that come after one."""

    def below(self, path: str) -> Iterator[tuple[str, Entry]]:
        """Every file and link in a folder and below it, by path."""

    def contents(self, path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """The files with a content at a path and below it, each content to be read before the next one."""

    def read(self, path: str, start: int, length: int) -> Iterator[bytes]:
        """Part of the content of a file that has one."""

    def reader(self, path: str) -> AbstractContextManager[Callable[[str], Iterator[bytes]]]:
        """A way to read the whole contents of many files at a path and below it, in any order."""

    def changes(self, phase: str, after: str, count: int) -> Changes:
        """What manifests say was created, modified or removed, in a phase or in `all`; see `changes_of`."""

    def uncaptured(self, path: str) -> int:
        """How many files at a path and below it have no content, as manifests say."""


def clean_path(path: str) -> str:
    """A path as a user gives it, relative to the root: `/a//b/.` is `a/b`.

    Raises invalid_input for one with `..` in it: nothing leads out of a tree.
    """
    if not path.isascii():
        path = clean_name(path)
    if len(path) > _PATH_LIMIT or "\0" in path:
        raise TraceflowError("invalid_input", f"the path {shown_path(path[:80])} is too long or holds a NUL")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise TraceflowError("invalid_input", f"{shown_path(path)}: name the path without '..'", path=path)
    return "/".join(parts)


def clean_name(name: str) -> str:
    """A name as trees have it: bytes of it that are no UTF-8 are replaced."""
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    except UnicodeEncodeError:  # half of a character, which no bytes stand for
        return name.encode("utf-8", "replace").decode()


def shown_path(path: str) -> str:
    """A path for a message."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", path)
