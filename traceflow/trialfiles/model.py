"""What the file verbs answer with: the shapes of the platform's file browser, as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from traceflow_formats.errors import TraceflowError

__all__ = ["Entry", "FileTree", "Hints", "clean_path", "shown_path"]

_PATH_LIMIT = 8192
_CONTROL = re.compile("[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Entry:
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

    def as_dict(self) -> dict[str, Any]:
        """The entry as JSON has it; `left_out` and `target` only where there is one."""
        found: dict[str, Any] = {
            "name": self.name,
            "type": self.type,
            "size": self.size,
            "mtime": self.mtime,
            "mode": self.mode,
            "owner": self.owner,
            "changed": self.changed,
            "phase": self.phase,
            "captured": self.captured,
        }
        if self.left_out is not None:
            found["left_out"] = self.left_out
        if self.target is not None:
            found["target"] = self.target
        return found


Hints = Mapping[str, Entry]  # by path: what a manifest says of a file, whether there is a content or not


class FileTree(Protocol):
    """A tree of files. Paths are relative to its root, POSIX, "" for the root; they come from `clean_path`."""

    source: str  # "trial" or "capture"

    def entry(self, path: str) -> Entry | None:
        """What stands at a path, or None."""

    def children(self, path: str) -> list[Entry]:
        """What lies directly in a folder, sorted by the bytes of the names."""

    def below(self, path: str) -> Iterator[tuple[str, Entry]]:
        """Every file and link in a folder and below it, by path."""

    def contents(self, path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """The files with a content at a path and below it, each content to be read before the next one."""

    def read(self, path: str, start: int, length: int) -> Iterator[bytes]:
        """Part of the content of a file that has one."""

    def reader(self, path: str) -> AbstractContextManager[Callable[[str], Iterator[bytes]]]:
        """A way to read the whole contents of many files at a path and below it, in any order."""

    def changed(self) -> Hints:
        """What manifests say was created, modified or removed, by path."""

    def uncaptured(self, path: str) -> int:
        """How many files at a path and below it have no content, as manifests say."""


def clean_path(path: str) -> str:
    """A path as a user gives it, relative to the root: `/a//b/.` is `a/b`.

    Raises invalid_input for one with `..` in it: nothing leads out of a tree.
    """
    if len(path) > _PATH_LIMIT or "\0" in path:
        raise TraceflowError("invalid_input", f"the path {shown_path(path[:80])} is too long or holds a NUL")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise TraceflowError("invalid_input", f"{shown_path(path)}: name the path without '..'", path=path)
    return "/".join(parts)


def shown_path(path: str) -> str:
    """A path for a message."""
    return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", path)
