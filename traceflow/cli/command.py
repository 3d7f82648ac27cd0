"""Commands that read their own command line: a function, with a table of what it is given.

They start before an option parser would have been loaded. `help.listed` puts one among the commands of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import output
from .arguments import Option, UsageError, help_text, parse, rows_text

__all__ = ["Argument", "Command", "Family"]


class Argument(NamedTuple):
    """A word of a command, known by its place: what the help calls it, the key of its value, and what it is for.

    It may be missing where there is a default. Of `many`, the last, there are as many as come, or none: a list.
    """

    name: str
    key: str
    help: str
    default: str | None = None
    many: bool = False

    @property
    def shown(self) -> str:
        """What the help calls it."""
        return f"{self.name}..." if self.many else self.name


@dataclass(frozen=True)
class Command:
    """A command. Called with the words behind its name it runs and returns the exit code.

    `path` is how it is called, `run` takes the value of every argument and option by its key; it may raise UsageError.
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
                shown = [(argument.shown, argument.help) for argument in self.arguments]
                output.write(help_text(self._usage(), self.help, shown, self.options))
                return 0
            return self.run(**values, **self._placed(words)) or 0
        except UsageError as error:
            output.usage_error(self._usage(), str(error))
            return 2

    def _usage(self) -> str:
        names = [f"[{a.shown}]" if a.many or a.default is not None else a.shown for a in self.arguments]
        return " ".join([self.path, "[OPTIONS]", *names])

    def _placed(self, words: Sequence[str]) -> dict[str, Any]:
        left = list(words)
        values: dict[str, Any] = {}
        for argument in self.arguments:
            if argument.many:
                values[argument.key], left = left, []
            elif left:
                values[argument.key] = left.pop(0)
            elif argument.default is not None:
                values[argument.key] = argument.default
            else:
                raise UsageError(f"Missing argument '{argument.name}'.")
        if left:
            raise UsageError(f"Got unexpected extra argument(s) ({' '.join(left)})")
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
