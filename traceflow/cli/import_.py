"""`traceflow import`: Harbor jobs into the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .options import AsJson, StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.importer.report import ImportReport


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Harbor job folders, or archives of them (.tar.gz, .zip, ...).")],
    store: StoreOption = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME[@VERSION]", help="The dataset that the tasks are from. Repeatable."
        ),
    ] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Skip trials whose result.json cannot be read; the rest lands.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Do all of it but write.")] = False,
    as_json: AsJson = False,
) -> int:
    """Import Harbor jobs. A job lands whole or not at all; one that is there already is refused.

    With several paths each is an outcome of its own, and the exit code is 1 when any was refused.
    """
    from traceflow.importer import import_job
    from traceflow.limits import load_limits

    limits = load_limits()
    opened = open_store(store, create=True)
    refused = 0
    for path in paths:
        try:
            with output.progress(f"importing {path.name}", _bytes_of(path)) as advance:
                report = import_job(
                    opened,
                    path,
                    limits=limits,
                    skip_invalid=skip_invalid,
                    dry_run=dry_run,
                    datasets=dataset or (),
                    progress=advance,
                )
        except (TraceflowError, OSError) as failure:
            if len(paths) == 1:
                raise
            error = failure if isinstance(failure, TraceflowError) else output.os_error(failure)
            output.print_error(error, as_json)
            refused += 1
            continue
        if as_json:
            output.print_json(report.as_dict())
        else:
            _print(report, path)
    return 1 if refused else 0


def _bytes_of(path: Path) -> int | None:
    """The work ahead, for the progress bar: bytes of a folder's files."""
    if not path.is_dir():
        return None
    return sum(p.stat().st_size for p in path.rglob("*") if p.is_file() and not p.is_symlink())


def _print(report: ImportReport, path: Path) -> None:
    verb = "would import" if report.dry_run else "imported"
    name = report.original_job_name or path.name
    output.write(f"{verb} {output.cell(name)} as {report.job_id}: scored {report.scored} of {report.trials} trial(s)\n")
    for skipped in report.skipped:
        output.note(f"skipped[{skipped['code']}]: {skipped['message']}")
    for warning in report.warnings:
        output.note(warning_line(warning))


def warning_line(warning: dict[str, Any]) -> str:
    """A warning of a report as one line."""
    times = f" ({warning['count']}x)" if warning["count"] > 1 else ""
    return f"warning[{warning['code']}]: {warning['message']}{times}"
