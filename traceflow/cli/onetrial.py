"""What every command about one trial shares: the argument that names it, and the options that say where it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from .arguments import Option
from .command import Argument, Command
from .grep import STORE
from .opening import open_store

if TYPE_CHECKING:
    from traceflow.store import Manifest, Store

__all__ = ["AS_JSON", "JOB", "STORE", "TRIAL", "FoundTrial", "about_trial", "find_trial"]

TRIAL = Argument("TRIAL", "trial", "The trial: its name, its id, or the first 8 characters of it.")
JOB = Option(("--job", "-j"), "job", "The job it belongs to, where the name is not enough.", "JOB")
AS_JSON = Option(("--json",), "as_json", "Print JSON: one object a line for lists, one document else.")


class FoundTrial(NamedTuple):
    """A trial that was asked for: the store, the manifest of its job, and its row of `Store.trials`."""

    store: Store
    job: Manifest
    row: dict[str, Any]


def find_trial(trial: str, job: str | None = None, store: str | None = None) -> FoundTrial:
    """The trial that these name."""
    opened = open_store(store)
    row = opened.trial(trial, opened.job(job) if job else None)
    return FoundTrial(opened, opened.job(row["job_id"]), row)


def about_trial(path: str, *own: Argument | Option) -> Callable[[Callable[..., int | None]], Command]:
    """Make a function whose first parameter is a FoundTrial a command that is given TRIAL, --job and --store.

    The other parameters are its `own` arguments and options, and `as_json`; its docstring is its help.
    """
    arguments = [one for one in own if isinstance(one, Argument)]
    options = [one for one in own if isinstance(one, Option)]

    def made(function: Callable[..., int | None]) -> Command:
        def run(trial: str, job: str | None, store: str | None, **values: Any) -> int | None:
            return function(find_trial(trial, job, store), **values)

        return Command(path, function.__doc__ or "", run, [TRIAL, *arguments], [*options, JOB, STORE, AS_JSON])

    return made
