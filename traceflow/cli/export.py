"""`traceflow export`: a job out of the store as a deterministic archive."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import output
from .import_ import warning_line
from .options import AsJson, StoreOption, open_store


def export(
    job: Annotated[str, typer.Argument(help="The job: its name, its id, or the first 8 characters of it.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The archive, or a folder for it. Default: <job>.tar.gz here; - is stdout."
        ),
    ] = None,
    original: Annotated[
        bool, typer.Option("--original", help="Exactly what was imported, without what an export adds.")
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Export a job as a .tar.gz that Harbor reads: the same bytes every time, on every machine.

    Every imported file comes out byte for byte. Added are agent/trajectory.json and agent/trace-parsed.jsonl where
    none was, agent/agent-home.json, and traceflow.json, which lists what was added.
    """
    from traceflow.export import export_job
    from traceflow.export.archive import archive_name

    opened = open_store(store)
    found = opened.job(job)
    file_name = f"{archive_name(found)}.tar.gz"
    if out is not None and str(out) == "-":
        if as_json:
            raise typer.BadParameter("-o - writes the archive to stdout, where --json would print")
        result = export_job(opened, found, sys.stdout.buffer, original=original)
        shown = "stdout"
    else:
        target = Path(file_name) if out is None else out / file_name if out.is_dir() else out
        with output.progress(f"exporting {file_name}") as advance:
            result = export_job(opened, found, target, original=original, progress=lambda done: advance(0, ""))
        shown = str(target)
    if as_json:
        output.print_json({"path": shown, **result.as_dict()}, indent=True)
        return
    written = result.written
    say = output.note if shown == "stdout" else lambda line: output.write(output.cell(line) + "\n")
    say(f"wrote {shown}: {written.members} members, {written.archive_bytes} bytes, {result.derived} file(s) added")
    say(f"sha256 {written.archive_sha256} archive")
    say(f"sha256 {written.tar_sha256} tar")
    for warning in result.warnings:
        output.note(warning_line(warning))
