"""`traceflow trial download`: a trial as a folder, or one stream of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .onetrial import FoundTrial
from .options import AsJson, of_trial

__all__ = ["download"]


@of_trial
def download(
    trial: FoundTrial,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Where the trial's folder goes; of a stream the file."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream", help="Only trace-parsed, trace-stdout, trace-stderr, trace-atif, agent-home or verifier."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trial as a folder, or one stream of it to stdout or a file."""
    from dataclasses import asdict

    from traceflow.export.download import download_trial

    if stream is not None:
        size = _download_stream(trial, stream, out, overwrite)
        if as_json and out is not None:
            output.print_json({"path": str(out), "stream": stream, "bytes": size}, indent=True)
        return
    name = trial.row["trial_name"]
    with output.progress(f"downloading {name}"):
        done = download_trial(*trial, (out or Path()) / name, overwrite=overwrite)
    if as_json:
        output.print_json(asdict(done), indent=True)
        return
    output.write(output.cell(f"wrote {done.path}: {done.files} files, {done.bytes} bytes") + "\n")
    if done.left_out:
        output.note(f"{len(done.left_out)} file(s) that are no text are only named in agent-home.json")


def _download_stream(trial: FoundTrial, stream: str, out: Path | None, overwrite: bool) -> int:
    from traceflow.export.download import write_stream
    from traceflow.files import atomic_file

    if out is None or str(out) == "-":
        sys.stdout.flush()
        return write_stream(*trial, stream, sys.stdout.buffer)
    if out.exists() and not overwrite:
        raise TraceflowError("invalid_input", f"{out} is there already: say --overwrite to replace it", path=str(out))
    with atomic_file(out) as file:
        return write_stream(*trial, stream, file)
