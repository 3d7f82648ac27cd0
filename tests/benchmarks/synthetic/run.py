"""Synthetic agent runs for benchmarks: what a model said and did, call by call, before any harness writes it down.

The sizes follow real runs: a quarter of the model calls think and most of them say a few sentences, nine in ten call
a tool, and what a tool returns is mostly a stretch of a file. The text is the source code of this Python and prose of
its words. `short` takes the texts of the recordings instead (`fixtures/recordings`), a few words each.
"""

from __future__ import annotations

import math
import random
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["START", "Call", "Run", "Turn"]

_SYLLABLES = re.findall(r"\w+", "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo zu st ing er ed ion al ent")
_SOURCE_BYTES = 20_000_000
START = 1_796_040_000_000  # milliseconds since 1970: 2026-11-30


@dataclass(slots=True)
class Call:
    """One tool call and what it returned."""

    id: str
    tool: str  # shell | read | edit
    path: str
    command: str
    described: str
    old: str
    new: str
    output: str
    failed: bool


@dataclass(slots=True)
class Turn:
    """One call of the model."""

    number: int
    time: int  # milliseconds since 1970
    thought: str
    text: str
    calls: list[Call]
    fresh: int  # tokens of the prompt that were not in the cache
    cached: int
    written: int
    thinking: int


class Run:
    """A run of one agent in one session, as long as it is asked for."""

    def __init__(self, seed: int, short: bool) -> None:
        self.dice = random.Random(seed)
        self.short = short
        self.session = self.uuid()
        self.kept: dict[str, Any] = {}  # what a harness's next record goes on from: its last id, its totals
        self.prompt = "Please run the scripted tour of this directory."
        self._files = [("/srv/app/hello.txt", ["Hello, world!", "line 2"])] if short else _sources(self.dice)
        self._prose = "" if short else _prose(self.dice)

    def hexes(self, digits: int) -> str:
        return f"{self.dice.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        text = self.hexes(32)
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def turns(self) -> Iterator[Turn]:
        """The model calls of the run, without end."""
        dice, cached = self.dice, 0
        number = 0
        while True:
            number += 1
            thought = text = ""
            if dice.random() < 0.25:
                thought = self._said("Now write the greeting.", 6.0, 0.8)
            if dice.random() < 0.8:
                text = self._said("I'll look at the workspace first.", 5.2, 0.9)
            calls = [self._call()] if dice.random() < 0.9 or not (thought or text) else []
            fresh, written = dice.randrange(20, 9000), dice.randrange(20, 1500)
            time = START + number * 9000 + dice.randrange(1000)
            yield Turn(number, time, thought, text, calls, fresh, cached, written, len(thought) // 4)
            cached = (cached + fresh) % 180_000  # a run of this length is compacted now and then

    def _said(self, short: str, mean: float, spread: float) -> str:
        return short if self.short else self._words(max(8, int(self.dice.lognormvariate(mean, spread))))

    def _words(self, length: int) -> str:
        start = self.dice.randrange(len(self._prose) - length - 20)
        return self._prose[start : start + length]

    def _call(self) -> Call:
        dice = self.dice
        share = dice.random()
        path, lines = dice.choice(self._files)
        start = dice.randrange(len(lines))
        tool = "shell" if share < 0.45 else "read" if share < 0.75 else "edit"
        failed = dice.random() < 0.05
        if self.short:
            outputs = {"shell": "README.md\n", "read": "Hello, world!\nline 2\n", "edit": "Edited /srv/app/hello.txt"}
            command, described, output = "cat missing.txt" if failed else "ls", "List the files", outputs[tool]
        else:
            command = f"cd /srv/app && {dice.choice(('pytest -q', 'grep -rn', 'ls -la', 'python -m'))} {path}"
            described = self._words(40)
            output = self._output() if tool == "shell" else self._stretch() if tool == "read" else f"Edited {path}"
        old = "\n".join(lines[start : start + 8])
        new = "\n".join(lines[start : start + dice.randint(4, 30)])
        return Call(self.hexes(24), tool, path, command, described, old, new, output, failed)

    def _stretch(self) -> str:
        _, lines = self.dice.choice(self._files)
        start = self.dice.randrange(len(lines))
        stop = min(len(lines), start + self.dice.choice((20, 40, 60, 120, 250)))
        return "\n".join(f"{number + 1:6d}\t{lines[number]}" for number in range(start, stop))

    def _output(self) -> str:
        dice, share = self.dice, self.dice.random()
        if share < 0.4:
            return self._stretch()
        if share < 0.6:
            return "\n".join(
                f"tests/test_{dice.choice(self._files)[0].rsplit('/', 1)[-1]}::test_{dice.randrange(400)} PASSED"
                for _ in range(dice.randint(5, 60))
            )
        if share < 0.8:
            return "\n".join(
                f"-rw-r--r-- 1 root root {dice.randrange(200_000):7d} Nov 30 12:10 {dice.choice(self._files)[0]}"
                for _ in range(dice.randint(4, 50))
            )
        return self._words(dice.randint(200, 4000))


def _sources(dice: random.Random) -> list[tuple[str, list[str]]]:
    """Files of the standard library, as their lines."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    dice.shuffle(paths)
    found: list[tuple[str, list[str]]] = []
    size = 0
    for path in paths:
        text = path.read_text("utf-8", "replace")
        if 800 < len(text) < 200_000:
            found.append((f"/srv/app/{path.parent.name}/{path.name}", text.split("\n")))
            size += len(text)
        if size > _SOURCE_BYTES:
            break
    return found


def _prose(dice: random.Random, words: int = 400_000) -> str:
    """Prose of a large vocabulary, its words as frequent as those of a language."""
    vocabulary = [
        "".join(dice.choice(_SYLLABLES) for _ in range(dice.randint(1, 4))) + dice.choice(("", "", "", "()", ",", "."))
        for _ in range(30_000)
    ]
    top = math.log(len(vocabulary))
    return " ".join(vocabulary[int(math.exp(dice.random() * top)) - 1] for _ in range(words))
