"""`traceflow trial convert`: trials of a store as a training set or as OpenTelemetry traces."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from . import output
from .conversion_report import print_report
from .options import AsJson, JobOption, StoreOption, open_store


class Document(StrEnum):
    """What `trial convert` writes."""

    chat = "chat"
    otlp_json = "otlp-json"


def convert(
    out: Annotated[
        Path, typer.Option("--output", "-o", help="The file; images go to images/ beside it.", metavar="FILE")
    ],
    trials: Annotated[
        list[str] | None,
        typer.Argument(help="The trials: name, id, or the first 8 characters of it. Default: all.", metavar="TRIAL..."),
    ] = None,
    to: Annotated[
        Document,
        typer.Option(
            "--to", help="chat: OpenAI-style messages, one trajectory a line; otlp-json: an OpenTelemetry trace."
        ),
    ] = Document.chat,
    job: JobOption = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where", metavar="SQL", help="Only trials for which this is true, of the columns of the view trials."
        ),
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Replace secrets in what is written by markers.")] = False,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="With --to otlp-json: the time of trials that state none."),
    ] = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """Write trials into one file for other tools: a training set of chat records, or traces.

    Each record says its trial, task and reward. The report goes to stderr, with --json to stdout.
    """
    from traceflow.conversion import Conversion
    from traceflow.export.documents import choose_trials, write_trials

    if at is not None and to is not Document.otlp_json:
        raise typer.BadParameter("--at: only with --to otlp-json")
    opened = open_store(store)
    found = choose_trials(opened, trials or (), [opened.job(name) for name in job] if job else None, where)
    if not found:
        output.note("no trial fits")
        return 1
    conversion = Conversion()
    with output.progress("converting", len(found)) as advance:
        write_trials(opened, found, to.value, out, conversion, redact=redact, at=at, progress=advance)
    print_report(conversion.as_dict(), as_json)
    return 0
