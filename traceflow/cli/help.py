"""Help in one manner for all commands, whichever version of the option parser is installed.

Some commands read their own command lines (command.py); what the others print for `--help` is laid out as theirs is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .arguments import Option, help_text, rows_text

__all__ = ["Group", "group", "listed"]


class _Command(TyperCommand):
    """A command whose help is laid out as `help_text` does."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _usage(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_help(self, ctx))


class _Own(TyperCommand):
    """A command that reads its own command line: every word is its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.params["words"] = args
        return []


class Group(TyperGroup):
    """A group whose help lists its commands with the whole first sentence of each."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return _usage(self, ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_help(self, ctx))
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, c.get_short_help_str(limit=400)) for name, c in found if c is not None and not c.hidden]
        formatter.write("\n" + rows_text("Commands:", rows))


class _App(typer.Typer):
    """A group whose commands have this help."""

    def command(self, name: str | None = None, **given: Any) -> Any:
        return super().command(name, **{"cls": _Command, **given})


def group(help_: str, name: str | None = None, cls: type[Group] = Group) -> typer.Typer:
    """A group of commands."""
    return _App(
        name=name,
        help=help_,
        cls=cls,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def listed(app: typer.Typer, name: str, help_: str, command: Callable[[Sequence[str]], int]) -> None:
    """Put a command that reads its own command line among those of a group."""

    @app.command(name, help=help_, cls=_Own, add_help_option=False)
    def run(words: list[str] | None) -> int:
        return command(words or [])  # the option parser has None for no words


def _help(command: Any, ctx: Any) -> str:
    params = command.get_params(ctx)
    arguments = [(_named(p), p.help or "") for p in params if p.param_type_name == "argument"]
    options = [p for p in params if p.param_type_name == "option" and not p.hidden and "--help" not in p.opts]
    usage = " ".join([ctx.command_path, *_usage(command, ctx)])
    return help_text(usage, command.help or "", arguments, [_option(p) for p in options])


def _usage(command: Any, ctx: Any) -> list[str]:
    """What stands behind the command's name in a usage line."""
    arguments = [p for p in command.get_params(ctx) if p.param_type_name == "argument"]
    words = [_named(p) if p.required else f"[{_named(p)}]" for p in arguments]
    return ["[OPTIONS]", *words, *(["COMMAND [ARGS]..."] if isinstance(command, TyperGroup) else [])]


def _named(argument: Any) -> str:
    return _takes(argument) + ("..." if argument.nargs != 1 else "")


def _option(param: Any) -> Option:
    takes = "" if param.is_flag else _takes(param)
    names = (*param.opts, *param.secondary_opts)
    default = param.default if takes and not param.required and not callable(param.default) else None
    help_ = (param.help or "") + (" [required]" if param.required else "")
    return Option(names, param.name, help_, takes, default=getattr(default, "value", default))


def _takes(param: Any) -> str:
    """What the help calls the value: the word given for it, else the parameter's name."""
    if param.metavar is not None:
        return str(param.metavar)
    return str(param.name.strip("_").replace("_", "-")).upper()
