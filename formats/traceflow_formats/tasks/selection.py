"""Which files of a task folder count: Harbor's rules for ignoring, and no link that leads out of the folder.

`.harborignore` files rule tests/, solution/ and the same two folders of each step: those of a folder and of its
sub-folders together, the last matching rule from the outermost to the innermost wins, and what is under an excluded
folder stays excluded. The root's `.gitignore`, or else a short list of editor and cache files, filters the digest.

Everything in a task folder is untrusted. Harbor 0.26 follows links out of the folder; here they are refused where
their target would count.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import re2
from pathspec import GitIgnoreSpec, PathSpec

from ..errors import TraceflowError

__all__ = ["DEFAULT_IGNORES", "DIGEST_FILES", "DIGEST_FOLDERS", "IGNORE_FILE", "TaskFolder", "refuse"]

IGNORE_FILE = ".harborignore"
DEFAULT_IGNORES = ("__pycache__/", "*.pyc", ".DS_Store", "*.swp", "*.swo", "*~")
DIGEST_FILES = ("task.toml", "instruction.md", "README.md", "trajectory.json")
DIGEST_FOLDERS = ("environment", "tests", "solution", "steps")
_RULED = ("tests", "solution")
_MAX_RULES = 1 << 18  # bytes of one ignore file
_MAX_ENTRIES = 1_000_000
_MAX_DEPTH = 200
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

Kind = Literal["file", "folder", "other"]
Spec = TypeVar("Spec")


def refuse(path: str, reason: str) -> TraceflowError:
    """The error for something in a task folder that cannot be read as a part of it."""
    return TraceflowError("invalid_input", f"{path}: {reason}", path=path)


class TaskFolder:
    """A task folder on disk and the rules that stand in it. Paths are POSIX and relative to it."""

    def __init__(self, folder: Path | str) -> None:
        self.root = os.path.realpath(folder)
        if not Path(self.root).is_dir():
            raise refuse(str(folder), "is no folder")
        self._chains: dict[str, tuple[tuple[str, GitIgnoreSpec], ...]] = {}
        self._excluded: dict[str, bool] = {}
        self._targets: dict[str, str | None] = {}

    # -- paths --------------------------------------------------------------------------------------------

    def path(self, name: str) -> Path:
        return Path(self.root, name)

    def target(self, name: str) -> str | None:
        """Where a path leads once links are followed, relative to the folder; None for a place outside of it.

        The targets of folders are kept: only the last part of a path is looked at, once its folder is known.
        """
        if not name:
            return ""
        folder, _, last = name.rpartition("/")
        if folder not in self._targets:
            self._targets[folder] = self.target(folder)
        above = self._targets[folder]
        if above is None:
            return None
        place = f"{above}/{last}" if above else last
        if not self.path(place).is_symlink():
            return place
        real = os.path.realpath(self.path(place))
        if real == self.root:
            return ""
        prefix = self.root.rstrip("/") + "/"
        return real[len(prefix) :] if real.startswith(prefix) else None

    def inside(self, name: str) -> str:
        """The path, having made sure that it leads to nothing outside of the folder."""
        if self.target(name) is None:
            raise refuse(name, "a link that leads out of the task folder")
        return name

    def kind(self, name: str) -> Kind | None:
        """What a path is, links followed; None for nothing: a missing file, a link to nowhere or to itself."""
        try:
            mode = self.path(name).stat().st_mode
        except OSError as error:
            if error.errno in _NOTHING:
                return None
            raise TraceflowError("io_error", f"{name}: {error.strerror}", path=name) from None
        return "file" if stat.S_ISREG(mode) else "folder" if stat.S_ISDIR(mode) else "other"

    def entries(self, name: str) -> list[os.DirEntry[str]]:
        """The entries of a folder in the order of their names."""
        try:
            with os.scandir(self.path(name)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            raise TraceflowError("io_error", f"{name or '.'}: {error.strerror}", path=name) from None
        for entry in entries:
            try:
                entry.name.encode("utf-8")
            except UnicodeEncodeError:
                raise refuse(repr(os.fsencode(entry.name)), "a file name that is no UTF-8") from None
        return entries

    # -- rules --------------------------------------------------------------------------------------------

    def excluded(self, name: str) -> bool:
        """Whether .harborignore keeps a path out, by its own name or by that of the place a link leads to."""
        if self._matches(name):
            return True
        target = self.target(name)
        return target not in (None, "", name) and self._matches(str(target))

    def digest_filter(self) -> PathSpec[Any]:
        """The second filter of the content digest: the root's .gitignore, which replaces the default list."""
        name = ".gitignore"
        if not self.kind(name):
            return self.default_filter()
        lines = self._rule_lines(name)
        return _rules(name, lines, lambda rules: PathSpec.from_lines("gitignore", rules, backend="re2"))

    def default_filter(self) -> PathSpec[Any]:
        return PathSpec.from_lines("gitignore", DEFAULT_IGNORES, backend="re2")

    def _matches(self, name: str) -> bool:
        if name.rpartition("/")[2] == IGNORE_FILE:
            return True
        parts = name.split("/")
        scope = _scope(parts)
        if scope is None or len(parts) == scope:
            return False  # the folder whose rules these are is not under them
        if len(parts) > _MAX_DEPTH:
            raise refuse(name, f"more than {_MAX_DEPTH} folders deep")
        folder = name.rpartition("/")[0]
        return self._folder_matches(folder, scope) or self._rule_says(name, folder, self.kind(name) == "folder")

    def _folder_matches(self, folder: str, scope: int) -> bool:
        """Whether a folder is excluded by rules above it, or any folder on the way to it is."""
        found = self._excluded.get(folder)
        if found is None:
            above = folder.rpartition("/")[0]
            inside = folder.count("/") + 1 > scope
            found = inside and (self._folder_matches(above, scope) or self._rule_says(folder, above, True))
            self._excluded[folder] = found
        return found

    def _rule_says(self, name: str, folder: str, is_folder: bool) -> bool:
        excluded = False
        for place, rules in self._chain(folder):
            answer = rules.check_file(name[len(place) + 1 :] + ("/" if is_folder else ""))
            excluded = excluded if answer.include is None else answer.include
        return excluded

    def _chain(self, folder: str) -> tuple[tuple[str, GitIgnoreSpec], ...]:
        """The rules of a folder and of those above it, outermost first, each with the place it stands in."""
        found = self._chains.get(folder)
        if found is None:
            parts = folder.split("/")
            found = () if len(parts) == _scope(parts) else self._chain(folder.rpartition("/")[0])
            name = f"{folder}/{IGNORE_FILE}"
            if os.path.lexists(self.path(name)):
                lines = self._rule_lines(name)
                rules = _rules(name, lines, lambda given: GitIgnoreSpec.from_lines(given, backend="re2"))
                found = (*found, (folder, rules))
            self._chains[folder] = found
        return found

    def _rule_lines(self, name: str) -> list[str]:
        if self.kind(self.inside(name)) != "file":
            raise refuse(name, "ignore rules must be a regular file")
        with self.path(name).open("rb") as stream:
            data = stream.read(_MAX_RULES + 1)
        if len(data) > _MAX_RULES:
            raise refuse(name, f"ignore rules of more than {_MAX_RULES} bytes")
        try:
            return data.decode("utf-8").splitlines()
        except UnicodeDecodeError as error:
            raise refuse(name, f"no UTF-8 at byte {error.start}") from None

    # -- files --------------------------------------------------------------------------------------------

    def files_below(self, top: str) -> Iterator[str]:
        """The files below one of the four folders that a digest covers, .harborignore applied, unordered.

        Links to files count, links to folders are not entered; `top` itself may be a link inside the folder.
        """
        kind = self.kind(top)
        if kind is None:
            return
        if kind != "folder":
            raise refuse(top, "must be a folder")
        self.inside(top)
        if self.excluded(top):
            return
        waiting, seen = [top], 0
        while waiting:
            folder = waiting.pop()
            if folder.count("/") >= _MAX_DEPTH:
                raise refuse(folder, f"more than {_MAX_DEPTH} folders deep")
            for entry in self.entries(folder):
                seen += 1
                if seen > _MAX_ENTRIES:
                    raise refuse(top, f"more than {_MAX_ENTRIES} entries")
                name = f"{folder}/{entry.name}"
                if self.excluded(name):
                    continue
                kind = self.kind(name)
                if kind == "file":
                    yield name
                elif kind == "folder" and not entry.is_symlink():
                    waiting.append(name)

    @cached_property
    def candidates(self) -> tuple[str, ...]:
        """The files that a digest may cover before the second filter, in code point order."""
        found = [name for name in DIGEST_FILES if self.kind(name)]
        for top in DIGEST_FOLDERS:
            found.extend(self.files_below(top))
        return tuple(sorted(found))

    @cached_property
    def digest_paths(self) -> tuple[str, ...]:
        """The files that count for the content digest, in code point order."""
        ignored = self.digest_filter()
        kept = [name for name in self.candidates if not ignored.match_file(name)]
        return tuple(map(self._counted, kept))

    @property
    def ignored_paths(self) -> tuple[str, ...]:
        """The files that only the second filter keeps out of the content digest."""
        counted = set(self.digest_paths)
        return tuple(self._counted(name) for name in self.candidates if name not in counted)

    def _counted(self, name: str) -> str:
        if self.kind(self.inside(name)) != "file":
            raise refuse(name, "must be a file")
        return name


def _scope(parts: list[str]) -> int | None:
    """How many parts of a path name the folder whose rules it is under, or None outside of such folders."""
    if parts[0] in _RULED:
        return 1
    if parts[0] == "steps" and len(parts) > 2 and parts[2] in _RULED:
        return 3
    return None


def _rules(name: str, lines: Iterable[str], make: Callable[[Iterable[str]], Spec]) -> Spec:
    """Compile rules for RE2, where no pattern takes more than linear time."""
    try:
        return make(lines)
    except (ValueError, re2.error) as error:
        raise refuse(name, f"ignore rules that cannot be used: {str(error)[:200]}") from None
