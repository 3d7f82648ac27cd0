"""The commands, in the order that `traceflow --help` lists them."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from . import dataset, job, store, trial
from .convert import convert
from .export import export
from .grep import HELP as GREP_HELP
from .grep import grep
from .help import group, listed
from .import_ import import_
from .index import index
from .limits import limits
from .search import HELP as SEARCH_HELP
from .search import search
from .sql import sql
from .validate import validate

__all__ = ["app"]

app = group(
    "Bring agent runs that were made anywhere into one store, ask questions of them, and get them out unchanged.",
    name="traceflow",
)


@app.callback()
def root(
    store_url: Annotated[
        str | None,
        typer.Option("--store", metavar="URL", envvar="TRACEFLOW_STORE", help="The store: a folder or a URL."),
    ] = None,
) -> None:
    if store_url is not None:
        os.environ["TRACEFLOW_STORE"] = store_url  # the commands' own option stands above it


app.command("import")(import_)
listed(app, "export", export.help, export)
app.command()(validate)
app.command()(convert)


listed(app, "grep", GREP_HELP, grep)
listed(app, "search", SEARCH_HELP, search)
app.command()(sql)
app.command()(limits)
app.command()(index)
app.add_typer(job.app, name="job")
app.add_typer(trial.app, name="trial")
app.add_typer(dataset.app, name="dataset")
app.add_typer(store.app, name="store")
