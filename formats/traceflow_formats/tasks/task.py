"""A task folder: what it says, and everything about it that Harbor 0.26 would refuse.

Reading never stops at the first fault: `Task.problems` holds all of them, each with the path it is about. A task
without problems is one that Harbor loads and runs. Texts are verbatim.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import TraceflowError
from .config import ConfigCheck, Problem
from .digest import FileDigest, digest_of, hash_file
from .selection import TaskFolder

__all__ = ["Problem", "Task", "TaskStep", "read_task"]

_MAX_CONFIG = 1 << 20
_MAX_INSTRUCTION = 16 << 20
_MAX_DEPTH = 200
_MAX_VISITS = 200_000
_BUNDLES = ("Dockerfile", "docker-compose.yaml")  # beside tests: the verifier's image brings its own tests


@dataclass(frozen=True, slots=True)
class TaskStep:
    """One step of a multi-step task."""

    name: str
    instruction: str | None


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its folder tells it; fields are None where the folder does not say or cannot be read.

    `name` is [task].name, else the folder's name, which is also in `folder_name` (a local trial's lock has that).
    `instruction` is None for a multi-step task. `config` is the parsed task.toml. `digest` is the content digest
    over `files`.
    """

    name: str
    folder_name: str
    version: str | None
    description: str
    keywords: tuple[str, ...]
    schema_version: str | None
    instruction: str | None
    steps: tuple[TaskStep, ...]
    config: Mapping[str, Any]
    digest: str | None
    files: tuple[FileDigest, ...]
    problems: tuple[Problem, ...]


def read_task(folder: Path) -> Task:
    """Read a task folder. Raises TraceflowError("invalid_input") only where there is no folder at all."""
    return _Reader(TaskFolder(folder), Path(folder)).task()


class _Reader:
    def __init__(self, folder: TaskFolder, given: Path) -> None:
        self.folder = folder
        self.given = given
        self.problems: list[Problem] = []

    def task(self) -> Task:
        config = self._config()
        check = ConfigCheck(config, self.problems)
        check.all()
        if not (check.docker_image or self._kind("environment") == "folder"):
            self._problem("environment", "no folder, and task.toml names no docker_image")
        instruction = None
        steps: tuple[TaskStep, ...] = ()
        if check.steps:
            steps = tuple(TaskStep(name, self._step(name, table, check)) for name, table in check.steps)
        else:
            instruction = self._text("instruction.md")
            self._tests(None, None, check)
        for top in ("tests", "solution", *(f"steps/{name}" for name, _ in check.steps)):
            self._links(top)
        files = self._files()
        package = config.get("task")
        package = package if isinstance(package, dict) else {}
        keywords = package.get("keywords")
        version = config.get("schema_version", config.get("version"))
        folder_name = Path(self.folder.root).name
        return Task(
            name=_text(package.get("name")) or folder_name,
            folder_name=folder_name,
            version=_text(package.get("version")),
            description=_text(package.get("description")) or "",
            keywords=tuple(k for k in keywords if isinstance(k, str)) if isinstance(keywords, list) else (),
            schema_version=_text(version),
            instruction=instruction,
            steps=steps,
            config=config,
            digest=None if files is None else digest_of(files),
            files=tuple(files or ()),
            problems=tuple(self.problems),
        )

    # -- parts --------------------------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        text = self._text("task.toml", _MAX_CONFIG)
        if text is None:
            return {}
        try:
            return tomllib.loads(text)
        except RecursionError:
            self._problem("task.toml", "nested too deeply")
        except ValueError as error:  # TOMLDecodeError names line and column; numbers of 4,300 digits are a ValueError
            self._problem("task.toml", f"no TOML: {str(error)[:200]}")
        return {}

    def _step(self, name: str, table: Mapping[str, Any], check: ConfigCheck) -> str | None:
        place = f"steps/{name}"
        if self._kind(place) != "folder":
            self._problem(place, "no such folder, task.toml names the step")
            return None
        text = self._text(f"{place}/instruction.md")
        self._tests(place, table, check)
        return text

    def _tests(self, place: str | None, step: Mapping[str, Any] | None, check: ConfigCheck) -> None:
        """A test script for the verifier's system, unless the verifier has an image with its own tests."""
        folders = ["tests"] if place is None else [f"{place}/tests", "tests"]
        system = check.system
        if check.separate(step):
            images = check.verifier_images(step)
            for image, folder in zip(images, folders, strict=True):
                if image or any(self._kind(f"{folder}/{name}") == "file" for name in _BUNDLES):
                    return
            system = check.verifier_system(step)
        script = "test.bat" if system == "windows" else "test.sh"
        found = [f"{folder}/{script}" for folder in folders if self._kind(f"{folder}/{script}")]
        if not found:
            self._problem(f"{folders[0]}/{script}", f"missing: a task for {system} needs a test script")
        elif self.folder.excluded(found[0]):
            self._problem(found[0], "excluded by .harborignore, but needed")

    def _links(self, top: str) -> None:
        """Links in what is copied into a container: none may lead out of the folder, and none may form a cycle."""
        visits = 0
        waiting: list[tuple[str, tuple[str, ...]]] = [(top, ())]
        while waiting:
            name, above = waiting.pop()
            try:
                if self.folder.excluded(name):
                    continue
                target, kind = self.folder.target(name), self.folder.kind(name)
                if target is None:
                    self._problem(name, "a link that leads out of the task folder")
                elif kind == "folder":
                    visits += 1
                    if target in above:
                        self._problem(name, "links to folders form a cycle")
                    elif len(above) > _MAX_DEPTH or visits > _MAX_VISITS:
                        self._problem(top, "too many folders, links followed")
                        return
                    else:
                        entries = reversed(self.folder.entries(name))
                        waiting.extend((f"{name}/{entry.name}", (*above, target)) for entry in entries)
            except TraceflowError as error:
                self._refused(name, error)

    def _files(self) -> list[FileDigest] | None:
        try:
            return [FileDigest(name, *hash_file(self.folder.path(name))) for name in self.folder.digest_paths]
        except TraceflowError as error:
            self._refused(".", error)
            return None

    # -- reading ------------------------------------------------------------------------------------------

    def _kind(self, name: str) -> str | None:
        """What a path is; a link out of the folder counts as nothing here, and is a problem."""
        try:
            kind = self.folder.kind(name)
            if kind is not None:
                self.folder.inside(name)
        except TraceflowError as error:
            self._refused(name, error)
            return None
        return kind

    def _text(self, name: str, limit: int = _MAX_INSTRUCTION) -> str | None:
        kind = self._kind(name)
        if kind != "file":
            self._problem(name, "missing" if kind is None else "must be a file")
            return None
        try:
            with self.folder.path(name).open("rb") as stream:
                data = stream.read(limit + 1)
        except OSError as error:
            self._problem(name, error.strerror or "cannot be read")
            return None
        if len(data) > limit:
            self._problem(name, f"larger than {limit} bytes")
            return None
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._problem(name, f"no UTF-8 at byte {error.start}")
            return None

    def _refused(self, name: str, error: TraceflowError) -> None:
        path = error.details.get("path")
        message = error.message.removeprefix(f"{path}: ")
        self._problem(path if isinstance(path, str) else name, message)

    def _problem(self, path: str, message: str) -> None:
        problem = Problem(path, message)
        if problem not in self.problems:
            self.problems.append(problem)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
