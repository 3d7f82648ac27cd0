"""Options that several commands share, each worded once."""

from __future__ import annotations

from typing import Annotated

import typer

from .opening import default_store, open_store

__all__ = ["AsJson", "JobOption", "Limit", "StoreOption", "default_store", "open_store"]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        envvar="TRACEFLOW_STORE",
        help="The store: a folder or a URL. Default: TRACEFLOW_STORE, else the user's data folder.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one object a line for lists, one document else.")]
JobOption = Annotated[
    list[str] | None,
    typer.Option("--job", "-j", help="Only this job: its name, its id, or the first 8 characters of it. Repeatable."),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many.")]
