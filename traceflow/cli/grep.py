"""`traceflow grep`: a pattern over the events of a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import output
from .options import AsJson, JobOption, Limit, StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.query import Hit

_WIDTH = 160  # characters of a hit's line around the match


def grep(
    pattern: Annotated[str, typer.Argument(help="An RE2 pattern, at most 512 characters; any case unless told.")],
    job: JobOption = None,
    trial: Annotated[
        list[str] | None, typer.Option("--trial", "-t", help="Only this trial: name, id or its beginning. Repeatable.")
    ] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only events of this type. Repeatable.")] = None,
    agent: Annotated[list[str] | None, typer.Option("--agent", help="Only trials of this agent. Repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Only trials of this model. Repeatable.")] = None,
    fixed: Annotated[bool, typer.Option("-F", "--fixed-strings", help="The pattern is plain text.")] = False,
    case_sensitive: Annotated[bool, typer.Option("--case-sensitive", "-s", help="Case counts.")] = False,
    context: Annotated[int, typer.Option("-C", "--context", min=0, help="Lines around each matching line.")] = 0,
    tail: Annotated[int | None, typer.Option("--tail", min=1, help="The last so many, oldest first.")] = None,
    limit: Limit = None,
    count: Annotated[bool, typer.Option("--count", "-c", help="How many events match, per trial.")] = False,
    files: Annotated[
        bool, typer.Option("--files-with-matches", "-l", help="Only the names of the trials that match.")
    ] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """Find events whose text matches: words, thoughts, commands, results, errors. Exit 1 when none does."""
    from traceflow import query

    opened = open_store(store)
    scope: dict[str, Any] = {
        "jobs": job,
        "trials": trial,
        "types": type_,
        "agents": agent,
        "models": model,
        "fixed": fixed,
        "case_sensitive": case_sensitive,
    }
    if count or files:
        return _counts(query.grep_counts(opened, pattern, **scope), files, as_json)
    found = 0
    for hit in query.grep(opened, pattern, **scope, limit=limit, tail=tail):
        found += 1
        if as_json:
            output.print_json(_document(hit))
        else:
            _print(hit, context)
    return 0 if found else 1


def _counts(rows: Any, names_only: bool, as_json: bool) -> int:
    found = 0
    for row in rows:
        found += 1
        if as_json:
            document = {"job_id": row.job_id, "trial_id": row.trial_id, "trial_name": row.trial_name}
            output.print_json(document if names_only else {**document, "matches": row.matches})
        elif names_only:
            output.write(output.cell(row.trial_name) + "\n")
        else:
            output.write(f"{output.cell(row.trial_name)}\t{row.matches}\n")
    return 0 if found else 1


def _document(hit: Hit) -> dict[str, Any]:
    when = None if hit.timestamp is None else datetime.fromtimestamp(hit.timestamp / 1e6, UTC)
    return {
        "job_id": hit.job_id,
        "trial_id": hit.trial_id,
        "trial_name": hit.trial_name,
        "seq": hit.seq,
        "type": hit.type,
        "tool_name": hit.tool_name,
        "agent_id": hit.agent_id,
        "timestamp": when.isoformat().replace("+00:00", "Z") if when else None,
        "text": hit.text,
        "spans": [list(span) for span in hit.spans],
    }


def _print(hit: Hit, context: int) -> None:
    tool = f" {hit.tool_name}" if hit.tool_name else ""
    where = f"{output.cell(hit.trial_name)}:{hit.seq}:{hit.type}{output.cell(tool)}: "
    spans = hit.spans or ((0, 0),)
    first = True
    for line, marks in _lines(hit.text, spans, context):
        output.write((where if first else " " * 4) + _marked(line, marks) + "\n")
        first = False


def _lines(text: str, spans: Any, context: int) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """The lines that hold the first match, with those around them; the marks are places in each line."""
    start, end = spans[0]
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", end)
    stop = len(text) if stop < 0 else stop
    for _ in range(context):
        begin = text.rfind("\n", 0, max(begin - 1, 0)) + 1 if begin else 0
        following = text.find("\n", stop + 1)
        stop = stop if stop >= len(text) else len(text) if following < 0 else following
    at = begin
    for line in text[begin:stop].split("\n"):
        inside = [(max(a - at, 0), min(b - at, len(line))) for a, b in spans if a < at + len(line) + 1 and b > at]
        yield line, [(a, b) for a, b in inside if a < b]
        at += len(line) + 1


def _marked(line: str, marks: list[tuple[int, int]]) -> str:
    """The part of the line around its first match, matches coloured on a terminal."""
    begin = max(marks[0][0] - _WIDTH // 2, 0) if marks and len(line) > _WIDTH else 0
    end = min(begin + _WIDTH, len(line)) if len(line) > _WIDTH else len(line)
    colour = sys.stdout.isatty()
    out, at = ["…" if begin else ""], begin
    for a, b in marks:
        if a < at or b > end:
            continue
        out += [output.cell(line[at:a]), "\x1b[1;31m" if colour else "", output.cell(line[a:b])]
        out.append("\x1b[0m" if colour else "")
        at = b
    out.append(output.cell(line[at:end]))
    return "".join(out) + ("…" if end < len(line) else "")
