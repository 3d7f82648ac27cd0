"""Why a task folder has another digest than a lock says: what would have to differ for the two to agree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from .digest import FileDigest, digest_files, digest_of, hash_file
from .selection import TaskFolder

__all__ = ["Mismatch", "explain_mismatch"]

_MAX_TEXT = 8 << 20  # a file over this is not looked at for its line endings
_MAX_DROPPED = 1_000  # files that are left out one by one


class Mismatch(NamedTuple):
    """`matches` says whether the folder has the digest; if not, `hints` are changes under which it would."""

    matches: bool
    found: str
    hints: tuple[str, ...]


def explain_mismatch(folder: Path, digest: str) -> Mismatch:
    """Compare a task folder with a content digest ("sha256:" and 64 hex digits) and look for why they differ.

    A hint is only given where the changed content really has the digest: "matches after CRLF->LF", "matches after
    LF->CRLF", "extra file PATH" (one per file), "matches with PATH" (a file that was ignored: packages of a registry
    carry no .gitignore, so that files their author counted are ignored now). Raises as `content_digest` does.
    """
    files = digest_files(folder)
    found = digest_of(files)
    if found == digest:
        return Mismatch(True, found, ())
    task = TaskFolder(folder)
    for change, relined in (("", None), ("CRLF->LF", _to_lf), ("LF->CRLF", _to_crlf)):
        hints = tuple(_hints(task, files, relined, digest))
        if hints:
            after = [f"matches after {change}"] if change else []
            return Mismatch(False, found, (*after, *filter(None, hints)))
    return Mismatch(False, found, ())


def _hints(
    task: TaskFolder, files: list[FileDigest], relined: Callable[[bytes], bytes] | None, digest: str
) -> Iterator[str]:
    """The hints under one change of line endings; "" where that change alone is enough."""
    if relined is not None:
        files = [_changed(task, file, relined) for file in files]
        if digest_of(files) == digest:
            yield ""
            return
    # What the other second filter would leave out, or let in.
    usual = task.default_filter()
    kept = [file for file in files if not usual.match_file(file.path)]
    if digest_of(kept) == digest:
        yield from (f"extra file {file.path}" for file in files if file not in kept)
        return
    ignored = [FileDigest(name, *hash_file(task.path(name))) for name in task.ignored_paths]
    if ignored and digest_of(sorted([*files, *ignored])) == digest:
        yield from (f"matches with {file.path}" for file in ignored)
        return
    for index, file in enumerate(files[:_MAX_DROPPED]):
        if digest_of(files[:index] + files[index + 1 :]) == digest:
            yield f"extra file {file.path}"
            return


def _changed(task: TaskFolder, file: FileDigest, relined: Callable[[bytes], bytes]) -> FileDigest:
    if file.size > _MAX_TEXT:
        return file
    data = task.path(file.path).read_bytes()
    if b"\0" in data:
        return file
    data = relined(data)
    return FileDigest(file.path, len(data), hashlib.sha256(data).hexdigest())


def _to_lf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n")


def _to_crlf(data: bytes) -> bytes:
    return _to_lf(data).replace(b"\n", b"\r\n")
