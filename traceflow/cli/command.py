"""Commands that read their own command line: a function, with a table of what it is given.

They start before an option parser would have been loaded. `help.listed` puts one among the commands of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from . import output
from .arguments import Option, UsageError, help_text, parse, rows_text

__all__ = ["Argument", "Command", "Family"]


class Argument(NamedTuple):
    """A word of a command, known by its place: the key of its value and what it is for. It may be missing where there
    is a default."""

    key: str
    help: str
    default: str | None = None


@dataclass(frozen=True)
class Command:
    """A command. Called with the words behind its name it runs and returns the exit code.

    `path` is how it is called, `run` takes the value of every argument and option by its key.
    """

    path: str
    help: str
    run: Callable[..., int | None]
    arguments: Sequence[Argument] = ()
    options: Sequence[Option] = ()

    def __call__(self, argv: Sequence[str]) -> int:
        try:
            values, words = parse(self.options, argv)
            if "help" in values:
                shown = [(argument.key.upper(), argument.help) for argument in self.arguments]
                output.write(help_text(self._usage(), self.help, shown, self.options))
                return 0
            values |= self._placed(words)
        except UsageError as error:
            output.usage_error(self._usage(), str(error))
            return 2
        return self.run(**values) or 0

    def _usage(self) -> str:
        names = [(a.key.upper() if a.default is None else f"[{a.key.upper()}]") for a in self.arguments]
        return " ".join([self.path, "[OPTIONS]", *names])

    def _placed(self, words: Sequence[str]) -> dict[str, str]:
        if more := words[len(self.arguments) :]:
            raise UsageError(f"Got unexpected extra argument(s) ({' '.join(more)})")
        values: dict[str, str] = {}
        for argument, word in zip_longest(self.arguments, words):
            value = argument.default if word is None else word
            if value is None:
                raise UsageError(f"Missing argument '{argument.key.upper()}'.")
            values[argument.key] = value
        return values


@dataclass(frozen=True)
class Family:
    """Commands under one word, by name. Their first argument may stand before the name as well as behind it."""

    path: str
    help: str
    commands: dict[str, Command]

    def __call__(self, argv: Sequence[str]) -> int:
        words = list(argv)
        if len(words) > 1 and words[0] not in self.commands and words[1] in self.commands:
            words[:2] = words[1], words[0]
        usage = f"{self.path} [OPTIONS] COMMAND [ARGS]..."
        if words and words[0] in self.commands:
            return self.commands[words[0]](words[1:])
        if not words or words[0] in ("--help", "-h"):
            rows = [
                (name, command.help.partition(". ")[0].rstrip(".") + ".") for name, command in self.commands.items()
            ]
            output.write(help_text(usage, self.help, (), ()) + "\n" + rows_text("Commands:", rows))
            return 0 if words else 2
        unknown = "No such option: {}" if words[0].startswith("-") else "No such command '{}'."
        output.usage_error(usage, unknown.format(words[0]))
        return 2
