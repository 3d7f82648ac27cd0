"""What every command about one trial shares: the argument that names it, and the options that say where it is."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

from .options import StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.store import Manifest, Store

__all__ = ["FoundTrial", "of_trial"]

TrialArgument = Annotated[str, typer.Argument(help="The trial: its name, its id, or the first 8 characters of it.")]
OneJob = Annotated[str | None, typer.Option("--job", "-j", help="The job it belongs to, where the name is not enough.")]


class FoundTrial(NamedTuple):
    """A trial that was asked for: the store, the manifest of its job, and its row of `Store.trials`."""

    store: Store
    job: Manifest
    row: dict[str, Any]


def _find(trial: TrialArgument, job: OneJob = None, store: StoreOption = None) -> FoundTrial:
    opened = open_store(store)
    row = opened.trial(trial, opened.job(job) if job else None)
    return FoundTrial(opened, opened.job(row["job_id"]), row)


_T = TypeVar("_T")


def of_trial(command: Callable[..., _T]) -> Callable[..., _T]:
    """Make a command whose first parameter is a FoundTrial one that is given TRIAL, --job and --store."""
    _, *own = inspect.signature(command, eval_str=True).parameters.values()
    trial, *shared = inspect.signature(_find, eval_str=True).parameters.values()
    last = [own.pop()] if own and own[-1].name == "as_json" else []  # --json ends the help of every command

    @functools.wraps(command)
    def run(trial: str, job: str | None = None, store: str | None = None, **options: Any) -> _T:
        return command(_find(trial, job, store), **options)

    parameters = [trial, *own, *shared, *last]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    del run.__wrapped__
    return run
