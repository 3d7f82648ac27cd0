"""`traceflow grep`: a pattern over the events of a store.

This command must be done before an option parser or an engine would have been loaded: it reads its own command line,
and everything that it imports is small until the index cannot answer.
"""

from __future__ import annotations

from itertools import islice

from traceflow.lean_typing import TYPE_CHECKING

from . import output
from .arguments import Option, UsageError, help_text, parse
from .opening import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from traceflow.query import Hit

__all__ = ["AGENT", "AS_JSON", "HELP", "JOB", "MODEL", "STORE", "TRIAL", "TYPE", "document", "grep"]

HELP = "Find events whose text matches: words, thoughts, commands, results, errors. Exit 1 when none does."
_WIDTH = 160  # characters of a hit's line around the match
_USAGE = "traceflow grep [OPTIONS] PATTERN"
_ARGUMENTS = [("PATTERN", "An RE2 pattern, at most 512 characters; any case unless told.")]
JOB = Option(
    ("--job", "-j"),
    "jobs",
    "Only this job: its name, its id, or the first 8 characters of it. Repeatable.",
    "JOB",
    many=True,
)
TRIAL = Option(
    ("--trial", "-t"), "trials", "Only this trial: name, id or its beginning. Repeatable.", "TRIAL", many=True
)
TYPE = Option(("--type",), "types", "Only events of this type. Repeatable.", "TYPE", many=True)
AGENT = Option(("--agent",), "agents", "Only trials of this agent. Repeatable.", "AGENT", many=True)
MODEL = Option(("--model",), "models", "Only trials of this model. Repeatable.", "MODEL", many=True)
STORE = Option(
    ("--store",), "store", "The store: a folder or a URL. Default: TRACEFLOW_STORE, else the user's data folder.", "URL"
)
AS_JSON = Option(("--json",), "json", "Print JSON: one object a line.")
_OPTIONS = (
    *(JOB, TRIAL, TYPE, AGENT, MODEL),
    Option(("--fixed-strings", "-F"), "fixed", "The pattern is plain text."),
    Option(("--case-sensitive", "-s"), "case_sensitive", "Case counts."),
    Option(("--context", "-C"), "context", "Lines around each matching line.", "N", least=0, default=0),
    Option(("--tail",), "tail", "The last so many, oldest first.", "N", least=1),
    Option(("--limit", "-n"), "limit", "At most so many.", "N", least=1),
    Option(("--count", "-c"), "count", "How many events match, per trial."),
    Option(("--files-with-matches", "-l"), "names", "Only the names of the trials that match."),
    Option(("--no-index",), "no_index", "Read everything. The answer is the same."),
    *(STORE, AS_JSON),
)
_SCOPE = ("jobs", "trials", "types", "agents", "models", "fixed", "case_sensitive")


def grep(argv: Sequence[str]) -> int:
    """Run the command with these words and return the exit code."""
    try:
        values, words = parse(_OPTIONS, argv)
        if "help" in values:
            output.write(help_text(_USAGE, HELP, _ARGUMENTS, _OPTIONS))
            return 0
        if len(words) != 1:
            raise UsageError(f"Got unexpected extra argument ({words[1]})" if words else "Missing argument 'PATTERN'.")
    except UsageError as error:
        output.usage_error(_USAGE, str(error))
        return 2
    return _grep(words[0], values)


def _grep(pattern: str, values: dict[str, Any]) -> int:
    from traceflow.query import matching

    opened = open_store(values["store"])
    scope = {key: values[key] for key in _SCOPE}
    scope["use_index"] = not values["no_index"]
    if values["count"] or values["names"]:
        return _counts(matching.grep_counts(opened, pattern, **scope), values["names"], values["json"])
    limit, tail = values["limit"], values["tail"]
    more = None if limit is None or tail is not None else limit + 1  # to know whether there are others
    found = 0
    hits = matching.grep(opened, pattern, **scope, limit=more, tail=tail)
    for hit in islice(hits, limit):
        found += 1
        if values["json"]:
            output.print_json(document(hit))
        else:
            _print(hit, values["context"])
    if limit is not None and next(hits, None) is not None:
        output.note(f"incomplete: more events match than --limit {limit}; --count says how many")
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


def document(hit: Hit) -> dict[str, Any]:
    """A hit as JSON."""
    from datetime import UTC, datetime

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
    out, at = ["…" if begin else ""], begin
    for a, b in marks:
        if a < at or b > end:
            continue
        out += [output.cell(line[at:a]), output.painted(output.cell(line[a:b]), output.MATCH)]
        at = b
    out.append(output.cell(line[at:end]))
    return "".join(out) + ("…" if end < len(line) else "")
