"""`traceflow convert`: sessions, stdout logs and traces into trajectories and what other tools read."""

from __future__ import annotations

import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import output

if TYPE_CHECKING:
    from traceflow_parsers.source import Source

    from traceflow.conversion import Conversion


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
    from traceflow.outputs import write_output
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
    sources = open_any(path, harness)
    conversion = Conversion()
    if to is Target.job:
        assert out is not None
        _pack(sources, path, out, conversion, task, job_name, rewards, exceptions, system_prompt, skip_invalid)
        _report(conversion.as_dict(), as_json)
        return
    if out is None:
        _print(sources, to.value, conversion, at)
    else:
        with output.progress("converting", len(sources)) as advance:
            write_output(sources, to.value, out, conversion, at=at, progress=advance)
    _report(conversion.as_dict(), as_json)


def _print(sources: list[Source], to: str, conversion: Conversion, at: str | None) -> None:
    from traceflow.outputs import write_to

    with tempfile.TemporaryFile() as spool:  # nothing is printed of a session that fails half way
        write_to(sources, to, spool, conversion, at=at)
        spool.seek(0)
        sys.stdout.flush()
        while chunk := spool.read(1 << 20):
            sys.stdout.buffer.write(chunk)


def _pack(
    sources: list[Source],
    path: Path,
    out: Path,
    conversion: Conversion,
    task: str | None,
    job_name: str | None,
    rewards: Path | None,
    exceptions: Path | None,
    system_prompt: Path | None,
    skip_invalid: bool,
) -> None:
    from traceflow.pack import PackOptions, pack_job, read_exceptions, read_rewards

    options = PackOptions(
        job_name=job_name,
        task=task,
        system_prompt=None if system_prompt is None else system_prompt.read_text("utf-8-sig", "replace"),
        rewards=None if rewards is None else (rewards, read_rewards(rewards)),
        exceptions=None if exceptions is None else (exceptions, read_exceptions(exceptions)),
        skip_invalid=skip_invalid,
    )
    with output.progress("packing", len(sources)) as advance:
        pack_job(sources, out, options, conversion, root=path, progress=advance)


def _report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(report, indent=True)
    else:
        _print_report(report)


def _print_report(report: dict[str, Any]) -> None:
    tokens, lines = report["tokens"], report["lines"]
    version = f" {report['version']}" if report["version"] else ""
    counts = f"{report['sessions']} session(s)"
    if report["steps"]:  # a trace has none: they are counted where a trajectory is made
        counts += f", {report['steps']} steps, {report['model_calls']} model calls, {report['tool_calls']} tool calls"
    output.note(f"{report['harness']}{version} {report['source']}: {counts}")
    known = {name: value for name, value in tokens.items() if value is not None}
    if known:
        cost = "" if report["cost_usd"] is None else f", cost ${report['cost_usd']:.6g}"
        output.note("tokens: " + ", ".join(f"{value} {name}" for name, value in known.items()) + cost)
    output.note(
        f"lines: {lines['read']} read = {lines['parsed']} parsed + {lines['unknown']} unknown"
        f" + {lines['malformed']} malformed + {lines['duplicate']} duplicate"
    )
    if report["unknown_types"]:
        output.note("unknown types: " + ", ".join(f"{name} ({n})" for name, n in report["unknown_types"].items()))
    for warning in report["warnings"]:
        place = "".join(
            f" {word} {warning[key]}"
            for key, word in (("path", "in"), ("line", "line"), ("byte", "byte"))
            if key in warning
        )
        output.note(
            f"warning[{warning['code']}]: {warning['message']} ({warning['count']}x{',' if place else ''}{place})"
        )
    if losses := report.get("losses"):
        output.note("not in it: " + ", ".join(f"{name} ({count})" for name, count in losses.items()))
    for path in report["outputs"]:
        output.note(f"wrote {path}")
