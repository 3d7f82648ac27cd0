"""A small reader of command lines for commands that must start at once: options are a table, and so is the help.

It reads what the other commands read: `--name value`, `--name=value`, `-n value`, `-n5`, flags joined (`-Fc`), `--`
before words that begin with a dash. What it refuses ends with code 2 and a line that says why.
"""

from __future__ import annotations

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["Option", "UsageError", "help_text", "parse", "rows_text"]


class Option(NamedTuple):
    """An option: its spellings, the key of its value, what it takes and what it is for.

    `takes` is "" for a flag, else what the help calls the value. `many` collects values in a list; the value is a
    number where it says so, or has a `least`.
    """

    names: tuple[str, ...]
    key: str
    help: str
    takes: str = ""
    many: bool = False
    least: int | None = None
    default: Any = None
    number: bool = False


class UsageError(Exception):
    """A command line that cannot be understood."""


def parse(options: Sequence[Option], argv: Sequence[str], *, loose: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The values of all options by key, and the other words. `--help` and `-h` give {"help": True}.

    With `loose` a word such as `-docker` is a word: short options stand alone.
    """
    by_name = {name: option for option in options for name in option.names}
    values: dict[str, Any] = {o.key: o.default if o.takes else False for o in options}
    words: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word in ("--help", "-h"):
            return {"help": True}, []
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            option = _known(by_name, name)
            if not option.takes:
                if equals:
                    raise UsageError(f"Option '{name}' does not take a value.")
                values[option.key] = True
            else:
                _take(values, option, name, value if equals else _next(rest, name))
        elif word.startswith("-") and len(word) > 1 and not (loose and len(word) > 2):
            _short(word[1:], rest, by_name, values)
        else:
            words.append(word)
    return values, words


def _short(letters: str, rest: list[str], by_name: dict[str, Option], values: dict[str, Any]) -> None:
    while letters:
        name, letters = f"-{letters[0]}", letters[1:]
        option = _known(by_name, name)
        if option.takes:
            _take(values, option, name, letters or _next(rest, name))
            return
        values[option.key] = True


def _known(by_name: dict[str, Option], name: str) -> Option:
    if name not in by_name:
        close = [known for known in by_name if len(name) > 3 and known.startswith(name)]
        hint = f" Did you mean {' or '.join(sorted(close))}?" if close else ""
        raise UsageError(f"No such option: {name}{hint}")
    return by_name[name]


def _next(rest: list[str], name: str) -> str:
    if not rest:
        raise UsageError(f"Option '{name}' requires an argument.")
    return rest.pop(0)


def _take(values: dict[str, Any], option: Option, name: str, text: str) -> None:
    value: Any = text
    if option.number or option.least is not None:
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"Invalid value for '{name}': {text!r} is not a valid integer.") from None
        if option.least is not None and value < option.least:
            raise UsageError(f"Invalid value for '{name}': {value} is not in the range x>={option.least}.")
    if option.many:
        values[option.key] = [*(values[option.key] or ()), value]
    else:
        values[option.key] = value


def help_text(usage: str, what: str, arguments: Sequence[tuple[str, str]], options: Sequence[Option]) -> str:
    """The help of a command, as wide as the terminal, 100 columns at most."""
    rows = [(_spelled(option), _described(option)) for option in options] + [
        ("-h, --help", "Show this message and exit.")
    ]
    column = _column([*rows, *arguments])
    out = [f"Usage: {usage}", ""]
    for paragraph in what.split("\n\n"):
        out += [*_wrapped(paragraph, 2, _width()), ""]
    text = "\n".join(out) + "\n"
    if arguments:
        text += rows_text("Arguments:", arguments, column) + "\n"
    return text + rows_text("Options:", rows, column)


def rows_text(title: str, rows: Sequence[tuple[str, str]], column: int | None = None) -> str:
    """Names and what they are for, under a title; the words begin at `column`, else where the names allow."""
    column = column or _column(rows)
    return "\n".join([title, *(line for row in rows for line in _row(*row, column, _width()))]) + "\n"


def _width() -> int:
    import shutil

    return min(shutil.get_terminal_size((100, 24)).columns, 100)


def _column(rows: Sequence[tuple[str, str]]) -> int:
    return min(max(len(left) for left, _ in rows) + 4, 34)


def _spelled(option: Option) -> str:
    names = ", ".join(sorted(option.names, key=lambda name: (name.startswith("--"), name)))
    return f"{names} {option.takes}" if option.takes else names


def _described(option: Option) -> str:
    return f"{option.help} [default: {option.default}]" if option.default is not None else option.help


def _row(left: str, right: str, column: int, width: int) -> list[str]:
    lines = _wrapped(right, column, width)
    if len(left) + 4 > column:
        return [f"  {left}", *lines]
    return [f"  {left}".ljust(column) + lines[0][column:], *lines[1:]]


def _wrapped(text: str, indent: int, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split():
        if line and indent + len(line) + 1 + len(word) > width:
            lines.append(" " * indent + line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*lines, " " * indent + line]
