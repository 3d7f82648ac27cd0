"""Options that several commands share, each worded once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from .onetrial import AS_JSON, JOB, STORE, TRIAL, find_trial
from .opening import default_store, open_store

__all__ = ["AsJson", "JobOption", "Limit", "StoreOption", "default_store", "of_trial", "open_store"]

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", envvar="TRACEFLOW_STORE", help=STORE.help),
]
AsJson = Annotated[bool, typer.Option("--json", help=AS_JSON.help)]
JobOption = Annotated[
    list[str] | None,
    typer.Option("--job", "-j", help="Only this job: its name, its id, or the first 8 characters of it. Repeatable."),
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="At most so many.")]


_T = TypeVar("_T")


def _trial(
    trial: Annotated[str, typer.Argument(help=TRIAL.help)],
    job: Annotated[str | None, typer.Option("--job", "-j", help=JOB.help)] = None,
    store: StoreOption = None,
) -> None: ...


def of_trial(command: Callable[..., _T]) -> Callable[..., _T]:
    """Make a command whose first parameter is a FoundTrial one that is given TRIAL, --job and --store."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    trial, *shared = inspect.signature(_trial, eval_str=True).parameters.values()
    last = [own.pop()] if own and own[-1].name == "as_json" else []  # --json ends the help of every command

    @functools.wraps(command)
    def run(trial: str, job: str | None = None, store: str | None = None, **options: Any) -> _T:
        return command(find_trial(trial, job, store), **options)

    parameters = [trial, *own, *shared, *last]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run
