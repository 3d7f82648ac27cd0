"""`traceflow trial`: the trials of a store and their traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import TraceLine, text_of

from . import output
from .help import group, listed
from .onetrial import FoundTrial
from .options import AsJson, JobOption, Limit, StoreOption, of_trial, open_store
from .trialconvert import convert
from .trialdownload import download
from .trialfiles import files, logs

app = group("List and show trials, read their traces, and get at what they left behind.")

_COLUMNS = {
    "trial": "trial_name",
    "agent": "agent",
    "model": "model",
    "status": "status",
    "reward": "reward",
    "steps": "n_steps",
    "tools": "n_tool_calls",
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "completion": "completion_tokens",
    "cost": "cost_usd",
    "job": "job",
}


@app.command("list")
def list_(
    job: JobOption = None,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="Only trials of this status (SCORED, BUDGET, ...). Repeatable.")
    ] = None,
    limit: Limit = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """List trials with their outcome, tokens and cost."""
    opened = open_store(store)
    jobs = [opened.job(name) for name in job] if job else None
    wanted = {s.upper() for s in status or ()}
    columns = None if as_json else [column for column in _COLUMNS.values() if column != "job"]

    def rows() -> Iterator[dict[str, Any]]:
        for manifest, trials in opened.all_trials(jobs, columns):
            for row in trials:
                if not wanted or row["status"] in wanted:
                    yield {**row, "job": manifest.job.get("original_job_name") or manifest.job_id}

    found = [row for row, _ in zip(rows(), range(limit), strict=False)] if limit else list(rows())
    if as_json:
        for row in found:
            output.print_json(readable(row))
        return 0
    rows_ = ([row[c] for c in _COLUMNS.values()] for row in found)
    optional = ("job", "tools", "cached", "model", "steps", "agent")
    if not output.print_table(list(_COLUMNS), rows_, flexible="trial", optional=optional):
        output.note(f"no such trials in {opened.url}" if wanted or job else f"no trials in {opened.url}")
    return 0


@app.command()
@of_trial
def show(trial: FoundTrial, as_json: AsJson = False) -> None:
    """Show a trial: outcome, tokens, task link, and what was read for its trace."""
    document = readable(trial.row)
    if as_json:
        output.print_json(document, indent=True)
        return
    known = {key: value for key, value in document.items() if value not in (None, [], {})}
    width = max(map(len, known)) + 2
    for key, value in known.items():
        text = jsontext.dumps(value).decode() if isinstance(value, dict | list) else value
        output.write(f"{key:<{width}}{output.cell(text)}\n")


@app.command()
@of_trial
def trace(
    trial: FoundTrial,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only events of this type. Repeatable.")] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep", metavar="PATTERN", help="Only events whose type or content this RE2 pattern matches, any case."
        ),
    ] = None,
    tail: Annotated[
        int | None, typer.Option("--tail", min=1, metavar="N", help="The last so many, oldest first.")
    ] = None,
    cursor: Annotated[
        int | None, typer.Option("--cursor", metavar="SEQ", help="Only events after this position.")
    ] = None,
    limit: Limit = None,
    as_json: AsJson = False,
) -> int:
    """Print the trace of a trial: position, type, and the content cut to 140 characters; --json whole events."""
    from traceflow.query import trace_matcher

    row = trial.row
    if not row["n_events"]:
        raise TraceflowError("empty_trace", f"trial {row['trial_name']} has no trace", trial=row["trial_id"])
    matches = trace_matcher(grep) if grep is not None else None
    count = 0
    for event in trial.store.trace(row, types=type_, after=cursor, tail=tail, limit=limit, matches=matches):
        if as_json:
            output.print_json({"seq": event.seq, "type": event.type, "data": event.data})
        else:
            output.write(event_line(event))
        count += 1
    return 0 if count else 1


app.command()(convert)
app.command()(download)
listed(app, "logs", logs.help, logs)
listed(app, "files", files.help, files)


def event_line(event: TraceLine, indent: int = 0) -> str:
    """An event as one line: position, type, and what it says, cut to 140 characters and to the terminal."""
    head = f"{'':{indent}}{event.seq:>6}  {event.type:<20}  "
    words = output.cell(" ".join(summary(event)[:2000].split()))  # line feeds are blanks here
    return f"{head}{output.cut(words, 140, len(head))}\n"


def summary(event: TraceLine) -> str:
    """What an event says, for one line: its words, the title of a call, the numbers of a usage."""
    update = event.data.get("update")
    if not isinstance(update, dict):
        return text_of(event)
    if event.type == "tool_call":
        return f"{update.get('toolName') or update.get('kind')}: {update.get('title')}"
    if event.type == "tool_call_update":
        return f"[{update.get('status', '')}] {text_of(event)}"
    if event.type == "usage":
        return _usage(event, update)
    if event.type == "plan":
        entries = [e for e in update.get("entries") or () if isinstance(e, dict)]
        return "; ".join(f"[{e.get('status')}] {e.get('content')}" for e in entries)
    if event.type == "error":
        return f"{'fatal: ' if update.get('fatal') else ''}{update.get('message')}"
    text = text_of(event)
    return text if text else jsontext.dumps(update).decode()


def _usage(event: TraceLine, update: dict[str, Any]) -> str:
    usage = update.get("usage") or {}
    words = "gateway" if update.get("source") == "gateway" else str(update.get("scope"))
    model = event.data.get("model")
    parts = [f"{usage[key]} {name}" for key, name in _USAGE_WORDS.items() if usage.get(key) is not None]
    cost = f"${usage['costUsd']:.6g}" if isinstance(usage.get("costUsd"), int | float) else ""
    return " ".join(filter(None, (words, model if isinstance(model, str) else "", ", ".join(parts), cost)))


_USAGE_WORDS = {"promptTokens": "prompt", "completionTokens": "completion", "cachedTokens": "cached"}
_JSON_COLUMNS = ("unknown_types", "warnings", "step_results", "extra")


def readable(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the trials table as JSON: times as ISO text, JSON columns as values, rewards as an object."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if key in _JSON_COLUMNS and isinstance(value, str):
            out[key] = jsontext.loads(value)
        elif key == "rewards":
            out[key] = {r["name"]: _number(r) for r in value or ()}
        elif hasattr(value, "isoformat"):
            out[key] = value.isoformat().replace("+00:00", "Z")
        else:
            out[key] = value
    return out


def _number(reward: dict[str, Any]) -> Any:
    """A reward as it was written: 1 stays 1."""
    value = reward["value"]
    return int(value) if reward.get("text") is None and isinstance(value, float) and value.is_integer() else value
