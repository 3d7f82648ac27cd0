"""`traceflow convert`: sessions, stdout logs and traces into trajectories or parsed traces."""

from __future__ import annotations

import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from traceflow_formats.errors import TraceflowError

from . import output


class Target(StrEnum):
    """What `convert` writes."""

    atif = "atif"
    trace = "trace"


def convert(
    path: Annotated[
        Path, typer.Argument(help="A session file, a stdout log, a trajectory, or a folder that holds sessions.")
    ],
    to: Annotated[
        Target, typer.Option("--to", help="atif: an ATIF v1.7 trajectory; trace: the parsed trace, one event a line.")
    ] = Target.atif,
    out: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="FILE.json for one session, or a folder: DIR/<session id>/trajectory.json. Without it: stdout.",
        ),
    ] = None,
    harness: Annotated[
        str | None, typer.Option("--harness", help="Read it as this harness's, whatever it looks like.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON on stdout (needs -o).")] = False,
) -> None:
    """Convert agent sessions into ATIF v1.7 or parsed traces.

    The report (what was read, what was left out, tokens, warnings) goes to stderr, or with --json -o to stdout.
    """
    from traceflow.conversion import Conversion, convert_all, convert_one
    from traceflow.sources import open_any

    if as_json and out is None:
        raise typer.BadParameter("--json prints the report on stdout; say where the result goes with -o")
    sources = open_any(path, harness)
    conversion = Conversion()
    suffix = ".jsonl" if to is Target.trace else ".json"
    if out is None or out.suffix in (".json", ".jsonl"):
        if len(sources) > 1:
            raise TraceflowError(
                "invalid_input",
                f"{path} holds {len(sources)} sessions; give a folder with -o (here {suffix} is one file)",
                sessions=[str(s.path) for s in sources[:20]],
            )
        if out is None:
            with tempfile.TemporaryFile() as spool:  # nothing is printed of a session that fails half way
                convert_one(sources[0], to.value, spool, conversion)
                spool.seek(0)
                sys.stdout.flush()
                while chunk := spool.read(1 << 20):
                    sys.stdout.buffer.write(chunk)
        else:
            from traceflow.files import atomic_file

            with atomic_file(out) as file:
                convert_one(sources[0], to.value, file, conversion)
            conversion.outputs.append(str(out))
    else:
        with output.progress("converting", len(sources)) as advance:
            convert_all(sources, to.value, out, conversion, advance)
    report = conversion.as_dict()
    if as_json:
        output.print_json(report, indent=True)
    else:
        _print_report(report)


def _print_report(report: dict[str, Any]) -> None:
    tokens, lines = report["tokens"], report["lines"]
    version = f" {report['version']}" if report["version"] else ""
    output.note(
        f"{report['harness']}{version} {report['source']}: {report['sessions']} session(s), {report['steps']} steps, "
        f"{report['model_calls']} model calls, {report['tool_calls']} tool calls"
    )
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
    for path in report["outputs"]:
        output.note(f"wrote {path}")
