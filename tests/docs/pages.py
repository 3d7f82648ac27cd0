"""Pages whose commands are run: what a block prints stands behind it, as text or as a picture.

    ```sh                     commands; `sh exit 1` where they end with 1; `python` is a program
    ```text                   what they print on a terminal
    ![words](pictures/x.svg)  the same, as a picture

A page is one session: its blocks run in one folder, one after the other, and what is exported stays.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from terminal import on_terminal

__all__ = ["Block", "Session", "Shown", "blocks_of", "broken_at", "comparable", "without_colour", "written"]

_BLOCK = re.compile(
    r"```(?P<language>sh|python)(?: exit (?P<code>\d+))?\n(?P<body>.*?)```\n"
    r"(?:\n```text\n(?P<text>.*?)```\n|\n!\[[^\]]+\]\(pictures/(?P<picture>[\w-]+)\.svg\)\n)?",
    re.S,
)
_INSTALL = "pip install ."  # done beforehand: the environment of the test is a fresh one
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_SHOWN_TIME = "2026-12-01T09:30:00Z"
_SHOWN_FOLDER = "/home/you/traceflow"
_COLOUR = re.compile(r"\x1b\[[\d;]*m")

# What depends on the versions of the libraries that pack and compress or on the machine's speed, and on nothing that a
# page is about.
_OF_THE_MACHINE = (
    (re.compile(r"^(size +)\d+$", re.M), r"\1N"),
    (re.compile(r"(?<=members, )\d+ bytes"), "N bytes"),
    (re.compile(r"(?<=objects, )\d+ bytes"), "N bytes"),
    (re.compile(r"sha256 [0-9a-f]{64} archive \(\S+\)"), "sha256 N archive (N)"),
    (re.compile(r'(?<="ms": )[\d.]+'), "N"),
)


@dataclass(frozen=True)
class Block:
    """One block of commands, what the page says that they print, and its place in the page."""

    language: str
    body: str
    code: int
    text: str | None
    picture: str | None
    span: tuple[int, int]


def blocks_of(page: str) -> list[Block]:
    return [
        Block(m["language"], m["body"].strip("\n"), int(m["code"] or 0), m["text"], m["picture"], m.span("text"))
        for m in _BLOCK.finditer(page)
    ]


@dataclass(frozen=True)
class Shown:
    """What a block showed: its exit code, and each of its commands with what it printed, colours included."""

    code: int
    commands: list[tuple[str, str]]

    @property
    def text(self) -> str:
        return without_colour("".join(text for _, text in self.commands))

    @property
    def typed(self) -> str:
        """The same as it stands on a terminal, with the commands."""
        return without_colour("".join(f"$ {command}\n{text}" for command, text in self.commands))


class Session:
    """A newcomer's folder: the fixtures as a clone has them, and an environment of its own."""

    def __init__(self, folder: Path, fixtures: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._exports: list[str] = []
        self._began = datetime.now(UTC) - timedelta(seconds=2)
        shutil.copytree(fixtures, folder / "fixtures", symlinks=True)
        for path in (folder / "fixtures").rglob("*"):  # whatever the umask of who cloned it
            if path.is_file() and not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)

    def run(self, block: Block) -> Shown:
        """What a block prints, with the values of this run replaced by those that the pages show."""
        if block.body == _INSTALL:
            return Shown(0, [])
        commands = [f"python -c {shlex.quote(block.body)}"] if block.language == "python" else _commands(block.body)
        script = [*self._exports, *(f"printf '\\036'\n{command}" for command in commands)]
        code, text = on_terminal("\n".join(script), self.folder, self._programs)
        self._exports += [command for command in commands if command.startswith("export ")]
        text = _TIME.sub(self._time, text.replace(str(self.folder), _SHOWN_FOLDER))
        return Shown(code, list(zip(commands, text.split("\x1e")[1:], strict=False)))

    def _time(self, found: re.Match[str]) -> str:
        now = self._began <= datetime.fromisoformat(found[0]) <= datetime.now(UTC)
        return _SHOWN_TIME if now else found[0]


def _commands(body: str) -> list[str]:
    """The commands of a block: a line each, and more where a quote goes on."""
    found: list[str] = []
    lines: list[str] = []
    for line in body.splitlines():
        lines.append(line)
        try:
            shlex.split("\n".join(lines))
        except ValueError:  # no closing quotation
            continue
        found.append("\n".join(lines))
        lines = []
    return found + lines


def without_colour(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in _COLOUR.sub("", text).splitlines())


def comparable(text: str) -> str:
    """A text with what is another on another machine masked."""
    for pattern, mask in _OF_THE_MACHINE:
        text = pattern.sub(mask, text)
    return text


def broken_at(text: str, columns: int) -> str:
    """A text as a terminal shows it: longer lines are broken."""

    def pieces() -> Iterator[str]:
        for line in text.splitlines():
            for at in range(0, max(len(line), 1), columns):
                yield line[at : at + columns].rstrip() + "\n"

    return "".join(pieces())


def written(page: str, texts: dict[Block, str]) -> str:
    """The page with what its blocks print now."""
    for block, text in sorted(texts.items(), key=lambda item: -item[0].span[0]):
        start, end = block.span
        page = page[:start] + text + page[end:]
    return page
