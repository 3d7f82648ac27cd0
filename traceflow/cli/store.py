"""`traceflow store`: the care of a store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import output
from .help import group
from .options import AsJson, StoreOption, open_store

app = group("Look at a store, check it, clean it.")


@app.command()
def info(store: StoreOption = None, as_json: AsJson = False) -> None:
    """What the store holds, from its manifests alone."""
    found = asdict(open_store(store).info())
    if as_json:
        output.print_json(found, indent=True)
        return
    cache = found.pop("cache")
    if cache is not None:
        found["cache"] = f"{cache['folder']}: {cache['files']} file(s), {cache['size']} bytes"
    for key, value in found.items():
        output.write(f"{key:<10}{output.cell(value)}\n")


@app.command()
def verify(
    job: Annotated[str | None, typer.Argument(help="Only this job.")] = None,
    contents: Annotated[bool, typer.Option("--contents", help="Unpack every file as well.")] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """Compare every object with its manifest. Exit 1 when something is wrong."""
    opened = open_store(store)
    with output.progress("verifying"):
        report = opened.verify(opened.job(job) if job else None, contents=contents)
    if as_json:
        output.print_json(asdict(report), indent=True)
    else:
        for problem in report.problems:
            output.write(output.cell(f"{problem.job_id} {problem.name}: {problem.message}") + "\n")
        output.note(
            f"{report.jobs} job(s), {report.datasets} dataset(s), {report.objects} objects, {report.size} bytes, "
            f"{report.contents} contents read: {len(report.problems)} problem(s)"
        )
    return 1 if report.problems else 0


@app.command()
def gc(
    minutes: Annotated[
        float,
        typer.Option("--minutes", min=0, metavar="N", help="Leave alone what was written to within so many minutes."),
    ] = 60,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    cache: Annotated[
        bool, typer.Option("--cache", help="Empty the cache of stores elsewhere on this machine, and nothing else.")
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove what killed imports left behind, and what was replaced."""
    if cache:
        _empty_cache(dry_run, as_json)
        return
    report = open_store(store).gc(minutes, dry_run)
    if as_json:
        output.print_json(asdict(report), indent=True)
        return
    for name in report.removed:
        output.write(output.cell(name) + "\n")
    output.note(f"{'would remove' if dry_run else 'removed'} {len(report.removed)} item(s), {report.size} bytes")


def _empty_cache(dry_run: bool, as_json: bool) -> None:
    from traceflow.store.cache import CacheInfo, open_cache

    kept = open_cache()
    found = CacheInfo("", 0, 0) if kept is None else kept.info() if dry_run else kept.clear()
    if as_json:
        output.print_json(asdict(found), indent=True)
        return
    output.note(f"{'would remove' if dry_run else 'removed'} {found.files} file(s), {found.size} bytes")


@app.command()
def compact(store: StoreOption = None, as_json: AsJson = False) -> None:
    """Write the catalog anew, from which many small jobs are listed and opened quickly. Imports do so by themselves."""
    opened = open_store(store)
    with output.progress("reading jobs") as advance:
        made = opened.compact(lambda jobs: advance(jobs, "jobs"))
    if as_json:
        output.print_json(asdict(made), indent=True)
        return
    output.note(f"{made.jobs} job(s), {made.read} of them read anew, {made.trials} trials, {made.size} bytes")
