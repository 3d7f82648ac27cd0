"""Options that several commands share, each worded once, and the opening of the store they name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from traceflow.store import Store

__all__ = ["AsJson", "JobOption", "Limit", "StoreOption", "default_store", "open_store"]

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="TRACEFLOW_STORE",
        help="The store: a folder or a URL. Default: the user's data folder.",
        show_envvar=True,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: one object a line for lists, one document else.")]
JobOption = Annotated[
    list[str] | None,
    typer.Option("--job", "-j", help="Only this job: its name, its id, or the first 8 characters of it. Repeatable."),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")]


def default_store() -> str:
    """The store that is used where none is named."""
    from platformdirs import user_data_path

    return str(Path(user_data_path("traceflow", appauthor=False)) / "store")


def open_store(url: str | None, *, create: bool = False) -> Store:
    """The store that the option, the environment or the default names."""
    from traceflow.store import Store

    return Store.open(url or default_store(), create=create)
