"""`traceflow import`: Harbor jobs into the store."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .limits import LimitValues, limits_of
from .options import AsJson, StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.importer.report import ImportReport
    from traceflow.store import Store


def import_(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH|URL", help="Harbor job folders, or archives of them (.tar.gz, .tar.zst, .tar, .zip)."
        ),
    ],
    store: StoreOption = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME[@VERSION]", help="The dataset that the tasks are from. Repeatable."
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="A folder of jobs stands for all job folders and archives in it.")
    ] = False,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Skip trials whose result.json cannot be read; the rest lands.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put the job in the place of the one with its id, in one step.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do all of it but write.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, metavar="N", help="Processes that parse trials. Default: one for each CPU, for large jobs."
        ),
    ] = None,
    limit: LimitValues = None,
    as_json: AsJson = False,
) -> int:
    """Import Harbor jobs. A job lands whole or not at all; one that is there already is refused.

    With several sources each is an outcome of its own, and the exit code is 1 when any was refused.
    """
    from traceflow.importer import import_job
    from traceflow.importer.incoming import source_name
    from traceflow.importer.workers import Workers, usable_cpus

    limits = limits_of(limit)
    named = _expanded(sources) if every else sources
    refused = 0
    with (
        _target(store, dry_run) as opened,
        Workers(jobs or usable_cpus(), always=jobs is not None) as workers,
    ):
        for source in named:
            try:
                with output.progress(f"importing {source_name(source)}", _bytes_of(source)) as advance:
                    report = import_job(
                        opened,
                        source,
                        limits=limits,
                        skip_invalid=skip_invalid,
                        replace=replace,
                        dry_run=dry_run,
                        datasets=dataset or (),
                        progress=advance,
                        workers=workers,
                    )
            except (TraceflowError, OSError) as failure:
                error = failure if isinstance(failure, TraceflowError) else output.os_error(failure)
                if error.code == "invalid_trial":
                    what = "`traceflow validate` lists every one, --skip-invalid imports the others"
                    error = TraceflowError(error.code, f"{error.message}; {what}", **error.details)
                if len(named) == 1:
                    raise error from failure
                output.print_error(error, as_json)
                refused += 1
                continue
            if as_json:
                output.print_json(report.as_dict())
            else:
                print_report(report, _verb(report))
    return 1 if refused else 0


@contextmanager
def _target(store: str | None, dry_run: bool) -> Iterator[Store]:
    """The store to import to; a dry run makes none where there is none."""
    with ExitStack() as stack:
        try:
            opened = open_store(store, create=not dry_run)
        except TraceflowError as error:
            if not dry_run or error.code != "store_not_found":
                raise
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="traceflow-dry-run-"))
            opened = open_store(folder, create=True)
        yield opened


def _expanded(sources: list[str]) -> list[str]:
    """The jobs of the sources: a folder that is no job stands for those in it."""
    from traceflow.importer.incoming import is_job_folder, jobs_below

    out: list[str] = []
    for source in sources:
        path = Path(source)
        if not path.is_dir() or is_job_folder(path):
            out.append(source)
            continue
        found = jobs_below(path)
        if not found:
            raise TraceflowError("not_a_job_dir", f"{path}: no job folder and no archive in it", path=source)
        out.extend(map(str, found))
    return out


def _bytes_of(source: str) -> int | None:
    """The work ahead, for the progress bar: bytes of a folder's files."""
    path = Path(source)
    if not output.shows_progress() or not path.is_dir():
        return None
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())


def print_report(report: ImportReport, verb: str) -> None:
    """One line for the job and one for each problem."""
    name = report.original_job_name or report.job_id
    output.write(f"{verb} {output.cell(name)} as {report.job_id}: scored {report.scored} of {report.trials} trial(s)\n")
    sys.stdout.flush()  # what is said of the job comes after it
    for skipped in report.skipped:
        output.note(f"skipped[{skipped['code']}]: {skipped['message']}")
    for warning in report.warnings:
        output.note(warning_line(warning))


def _verb(report: ImportReport) -> str:
    if report.dry_run:
        return "would replace" if report.replaced else "would import"
    return "replaced" if report.replaced else "imported"


def warning_line(warning: dict[str, Any]) -> str:
    """A warning of a report as one line."""
    times = f" ({warning['count']}x)" if warning["count"] > 1 else ""
    return f"warning[{warning['code']}]: {warning['message']}{times}"
