"""`traceflow limits`, and the option that sets a limit for one command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .options import AsJson

if TYPE_CHECKING:
    from traceflow.limits import Limits

__all__ = ["LimitValues", "limits", "limits_of"]

LimitValues = Annotated[
    list[str] | None,
    typer.Option("--limit", metavar="NAME=VALUE", help="Another value for a limit of `traceflow limits`. Repeatable."),
]


def limits_of(given: list[str] | None) -> Limits:
    """The limits in force, with those given on the command line."""
    from traceflow.limits import load_limits

    pairs = [text.partition("=") for text in given or ()]
    for name, equals, _ in pairs:
        if not equals:
            raise TraceflowError("invalid_input", f"--limit {name}: write NAME=VALUE, such as file_bytes=10GiB")
    return load_limits({name.strip(): value for name, _, value in pairs})


def limits(given: LimitValues = None, as_json: AsJson = False) -> None:
    """Print the bounds on what is read from outside, with their values here.

    They are set by --limit, by environment variables TRACEFLOW_LIMIT_<NAME>, or by [limits] in config.toml in the
    user's configuration folder.
    """
    from traceflow.limits import format_size

    rows = limits_of(given).describe()
    if as_json:
        for row in rows:
            output.print_json(row._asdict())
        return
    shown = (
        (r.name, format_size(r.value) if r.unit == "bytes" else f"{r.value} {r.unit}", r.over, r.meaning) for r in rows
    )
    output.print_table(("limit", "value", "over it", "what it bounds"), shown, flexible="what it bounds")
