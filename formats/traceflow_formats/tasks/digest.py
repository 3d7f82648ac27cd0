"""The digests of a task folder, as Harbor 0.26 computes them.

The content digest is a task's identity: it is in every trial's lock.json and links a trial to its task. The task
checksum (deprecated, in result.json) covers the whole folder and changes with files that no agent ever sees. The
environment id names images. No digest looks at modes, owners, times or line endings.
"""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import NamedTuple

from ..errors import TraceflowError
from .selection import TaskFolder, refuse

__all__ = ["FileDigest", "content_digest", "digest_files", "digest_of", "environment_id", "hash_file", "task_checksum"]

_CHUNK = 1 << 20
_MAX_DEPTH = 200
_MAX_LINKED = 5_000  # entries seen through folder links, which can fan out exponentially without forming a cycle
_ENVIRONMENT_SKIPS = frozenset({".DS_Store", ".git", "__pycache__"})


class FileDigest(NamedTuple):
    """One file that counts: POSIX path below the task folder, size in bytes, sha256 in hex."""

    path: str
    size: int
    sha256: str


def content_digest(folder: Path) -> str:
    """The content digest of a task folder, "sha256:" and 64 hex digits.

    Raises TraceflowError("invalid_input") for a link out of the folder, unusable ignore rules and names that are no
    UTF-8, and TraceflowError("io_error") for what cannot be read.
    """
    return digest_of(digest_files(folder))


def digest_files(folder: Path) -> list[FileDigest]:
    """The files that count for the content digest, in its order. Raises as `content_digest` does."""
    task = TaskFolder(folder)
    return [FileDigest(name, *hash_file(task.path(name))) for name in task.digest_paths]


def digest_of(files: list[FileDigest]) -> str:
    """The content digest of files in code point order of their paths."""
    outer = hashlib.sha256()
    for file in files:
        outer.update(f"{file.path}\0{file.sha256}\n".encode())
    return "sha256:" + outer.hexdigest()


def hash_file(path: Path) -> tuple[int, str]:
    """The bytes read from a file and their sha256 in hex."""
    inner, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                inner.update(chunk)
                size += len(chunk)
    except OSError as error:
        raise TraceflowError("io_error", f"{path.name}: {error.strerror}", path=str(path)) from None
    return size, inner.hexdigest()


def task_checksum(folder: Path) -> str:
    """The task checksum of a folder, 64 hex digits: all files and folders, links followed, .harborignore applied.

    Raises as `content_digest` does; also for links that form a cycle and for a folder without any file.
    """
    walk = _Checksum(TaskFolder(folder))
    found = walk.folder("", (), linked=False)
    if found is None:
        raise refuse(str(folder), "holds no file")
    return found


class _Checksum:
    """The hash of a tree: a folder is the sorted texts of its entries, two NUL bytes between them."""

    def __init__(self, task: TaskFolder) -> None:
        self.task = task
        self.linked = 0  # entries seen through a folder link
        self.hashes: dict[str, str] = {}  # by target, so that many links to one file read it once

    def folder(self, name: str, above: tuple[str, ...], linked: bool) -> str | None:
        here = self.task.target(name)
        if here is None:
            raise refuse(name, "a link that leads out of the task folder")
        if here in above:
            raise refuse(name, "links to folders form a cycle")
        if len(above) > _MAX_DEPTH:
            raise refuse(name, f"more than {_MAX_DEPTH} folders deep")
        texts: list[str] = []
        for entry in self.task.entries(name):
            self.linked += linked
            if self.linked > _MAX_LINKED:
                raise refuse(name, f"more than {_MAX_LINKED} entries below links to folders")
            path = f"{name}/{entry.name}" if name else entry.name
            if self.task.excluded(path):
                continue
            kind = self.task.kind(path)
            if kind == "folder":
                inner = self.folder(path, (*above, here), linked or entry.is_symlink())
                if inner is not None:
                    texts.append(f"dirhash:{inner}\0name:{entry.name}")
            elif kind == "file":
                texts.append(f"data:{self.file(path)}\0name:{entry.name}")
            else:
                raise refuse(path, "neither a file nor a folder")
        if not texts:
            return None
        return hashlib.sha256("\0\0".join(sorted(texts)).encode()).hexdigest()

    def file(self, name: str) -> str:
        target = self.task.target(self.task.inside(name)) or ""
        found = self.hashes.get(target)
        if found is None:
            found = self.hashes[target] = hash_file(self.task.path(name))[1]
        return found


def environment_id(folder: Path) -> str:
    """The environment id of a task folder, 32 hex digits: its environment/ folder, links left out.

    Without any file there it names the image that task.toml names, else the word environment. Raises as
    `content_digest` does.
    """
    task = TaskFolder(folder)
    top = "environment"
    names: list[str] = []
    waiting = [task.inside(top)] if task.kind(top) == "folder" else []
    while waiting:
        here = waiting.pop()
        for entry in task.entries(here):
            if entry.name in _ENVIRONMENT_SKIPS or entry.is_symlink():
                continue
            if entry.is_dir():
                waiting.append(f"{here}/{entry.name}")
            elif entry.is_file():
                names.append(f"{here}/{entry.name}")
    if not names:
        return hashlib.sha256((_image(task) or top).encode()).hexdigest()[:32]
    return _length_framed(task, sorted(names), len(top) + 1)


def _length_framed(task: TaskFolder, names: list[str], skip: int) -> str:
    sizes = [task.path(name).stat().st_size for name in names]
    wide = any(size >= 1 << 32 for size in sizes)
    outer = hashlib.sha256(b"\x01" if wide else b"")
    for name, size in zip(names, sizes, strict=True):
        path = name[skip:].encode()
        outer.update(len(path).to_bytes(4, "big") + path + size.to_bytes(8 if wide else 4, "big"))
        with task.path(name).open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                outer.update(chunk)
    return outer.hexdigest()[:32]


def _image(task: TaskFolder) -> str | None:
    """The docker_image of a task.toml that can be read."""
    try:
        data = task.path(task.inside("task.toml")).read_text("utf-8")
        image = tomllib.loads(data)["environment"]["docker_image"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return image if isinstance(image, str) and image else None
