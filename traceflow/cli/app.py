"""The commands, in the order that `traceflow --help` lists them."""

from __future__ import annotations

import typer

from .convert import convert

__all__ = ["app"]

app = typer.Typer(
    name="traceflow",
    help="Bring agent runs that were made anywhere into one store, ask questions of them, and get them out unchanged.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command()(convert)
