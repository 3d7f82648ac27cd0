"""`traceflow validate`: everything that is wrong with a job, a trial, a task or a trajectory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import output
from .options import AsJson

if TYPE_CHECKING:
    from traceflow.validate import Finding


def validate(
    path: Annotated[
        Path,
        typer.Argument(
            help="A job's folder or archive, a trial's folder, a task's folder or a folder of tasks, a trajectory."
        ),
    ],
    digest: Annotated[
        str | None,
        typer.Option(
            "--digest", metavar="sha256:HEX", help="The digest that a task must have, and why it has another."
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """List every problem at once, each with its file and line. Exit 1 when there is any; nothing is written."""
    from traceflow.limits import load_limits
    from traceflow.validate import validate as check

    with output.progress(f"checking {path.name}"):
        report = check(path, load_limits(), digest)
    if as_json:
        output.print_json(report.as_dict(), indent=True)
        return 0 if report.ok else 1
    for problem in report.problems:
        output.write(_line("error", problem))
    for warning in report.warnings:
        output.write(_line("warning", warning))
    checked = "".join(f", {what} {count}" for what, count in report.checked.items())
    output.note(
        f"{report.path}: {report.kind}{checked}: {len(report.problems)} problem(s), {len(report.warnings)} warning(s)"
    )
    return 0 if report.ok else 1


def _line(word: str, finding: Finding) -> str:
    place = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
    code = f"[{finding.code}]" if finding.code else ""
    times = f" ({finding.count}x)" if finding.count > 1 else ""
    return f"{output.cell(place)}: {output.label(f'{word}{code}:')} {output.cell(finding.message)}{times}\n"
