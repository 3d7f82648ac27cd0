"""`traceflow convert`: sessions, stdout logs and traces into trajectories and what other tools read."""

from __future__ import annotations

import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import output
from .conversion_report import print_report

if TYPE_CHECKING:
    from traceflow.pack import PackOptions


class Target(StrEnum):
    """What `convert` writes."""

    atif = "atif"
    trace = "trace"
    job = "job"
    chat = "chat"
    otlp_json = "otlp-json"


_JOB = "With --to job"


def convert(
    path: Annotated[
        Path, typer.Argument(help="A session file, a stdout log, a trajectory, or a folder that holds sessions.")
    ],
    to: Annotated[
        Target,
        typer.Option(
            "--to",
            metavar="|".join(Target),
            help="atif: an ATIF v1.7 trajectory; trace: the parsed trace, one event a line; job: a Harbor job folder; "
            "chat: OpenAI-style messages, one trajectory a line; otlp-json: an OpenTelemetry trace.",
        ),
    ] = Target.atif,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="FILE.json or .jsonl for one session (chat, otlp-json: all of them), or a folder: "
            "DIR/<session id>/trajectory.json; the new folder of a job. Without it: stdout.",
        ),
    ] = None,
    harness: Annotated[
        str | None, typer.Option("--harness", metavar="NAME", help="Read it as this harness's, whatever it looks like.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on stdout (needs -o).")] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="With --to otlp-json: the time of sessions that state none."),
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Replace secrets in what is written by markers.")] = False,
    task: Annotated[
        str | None, typer.Option("--task", help=f"{_JOB}: the task of every run. Without it: each session's own.")
    ] = None,
    job_name: Annotated[
        str | None,
        typer.Option("--job-name", metavar="NAME", help=f"{_JOB}: the job's name. Without it: that of the folder."),
    ] = None,
    rewards: Annotated[
        Path | None,
        typer.Option(
            "--rewards",
            metavar="FILE",
            help=f"{_JOB}: scores, CSV or JSON {{RUN: number or {{name: number}}}}; RUN: session id, file or path.",
        ),
    ] = None,
    exceptions: Annotated[
        Path | None,
        typer.Option(
            "--exceptions",
            metavar="FILE",
            help=f"{_JOB}: recorded exceptions of failed runs, JSON {{RUN: exception_info}}.",
        ),
    ] = None,
    system_prompt: Annotated[
        Path | None,
        typer.Option(
            "--system-prompt", metavar="FILE", help=f"{_JOB}: the system prompt, which logs lack; the first step."
        ),
    ] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help=f"{_JOB}: leave out runs that may not be packed, and say so.")
    ] = False,
) -> None:
    """Convert agent sessions into ATIF v1.7, parsed traces, a Harbor job, chat records or OpenTelemetry traces.

    The report (what was read, what was left out, tokens, warnings) goes to stderr, or with --json -o to stdout.
    """
    from traceflow.conversion import Conversion
    from traceflow.conversion.outputs import emit, save
    from traceflow.sources import open_any

    if as_json and out is None:
        raise typer.BadParameter("--json prints the report on stdout; say where the result goes with -o")
    given = {
        "--task": task,
        "--job-name": job_name,
        "--rewards": rewards,
        "--exceptions": exceptions,
        "--system-prompt": system_prompt,
        "--skip-invalid": skip_invalid or None,
    }
    if to is not Target.job and (stray := [name for name, value in given.items() if value is not None]):
        raise typer.BadParameter(f"{', '.join(stray)}: only with --to job")
    if at is not None and to is not Target.otlp_json:
        raise typer.BadParameter("--at: only with --to otlp-json")
    if to is Target.job and out is None:
        raise typer.BadParameter("--to job writes a folder; name it with -o")
    packing = None
    if to is Target.job:
        prompt = None if system_prompt is None else system_prompt.read_text("utf-8-sig", "replace")
        packing = _pack_options(task, job_name, rewards, exceptions, prompt, skip_invalid)
    sources = open_any(path, harness)
    conversion = Conversion()
    if out is None:
        with tempfile.TemporaryFile() as spool:  # nothing is printed of a session that fails half way
            emit(sources, to.value, spool, conversion, root=path, redact=redact, at=at)
            spool.seek(0)
            sys.stdout.flush()
            while chunk := spool.read(1 << 20):
                sys.stdout.buffer.write(chunk)
    else:
        with output.progress("converting" if packing is None else "packing", len(sources)) as advance:
            save(
                sources,
                to.value,
                out,
                conversion,
                root=path,
                redact=redact,
                at=at,
                job=packing,
                progress=advance,
            )
    print_report(conversion.as_dict(), as_json)


def _pack_options(
    task: str | None,
    job_name: str | None,
    rewards: Path | None,
    exceptions: Path | None,
    system_prompt: str | None,
    skip_invalid: bool,
) -> PackOptions:
    from traceflow.pack import PackOptions, read_exceptions, read_rewards

    return PackOptions(
        job_name=job_name,
        task=task,
        system_prompt=system_prompt,
        rewards=None if rewards is None else (rewards, read_rewards(rewards)),
        exceptions=None if exceptions is None else (exceptions, read_exceptions(exceptions)),
        skip_invalid=skip_invalid,
    )
