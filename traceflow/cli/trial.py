"""`traceflow trial`: the trials of a store and their traces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import TraceLine, text_of

from . import output
from .options import AsJson, JobOption, Limit, StoreOption, open_store
from .trialconvert import convert
from .trialfiles import download, files, logs

app = typer.Typer(help="List and show trials, and read their traces.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(files, name="files")
app.command()(logs)
app.command()(download)
app.command()(convert)

TrialArgument = Annotated[str, typer.Argument(help="The trial: its name, its id, or the first 8 characters of it.")]
OneJob = Annotated[str | None, typer.Option("--job", "-j", help="The job it belongs to, where the name is not enough.")]

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
    jobs = [opened.job(name) for name in job] if job else opened.jobs()
    wanted = {s.upper() for s in status or ()}

    def rows() -> Iterator[dict[str, Any]]:
        for manifest in jobs:
            for row in opened.trials(manifest):
                if not wanted or row["status"] in wanted:
                    yield {**row, "job": manifest.job.get("original_job_name") or manifest.job_id}

    found = [row for row, _ in zip(rows(), range(limit), strict=False)] if limit else list(rows())
    if as_json:
        for row in found:
            output.print_json(readable(row))
        return 0
    output.print_table(
        list(_COLUMNS),
        ([row[c] for c in _COLUMNS.values()] for row in found),
        flexible="trial",
        optional=("job", "tools", "cached", "model", "steps", "agent"),
    )
    return 0


@app.command()
def show(trial: TrialArgument, job: OneJob = None, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Show a trial: outcome, tokens, task link, and what was read for its trace."""
    opened = open_store(store)
    row = opened.trial(trial, opened.job(job) if job else None)
    document = readable(row)
    if as_json:
        output.print_json(document, indent=True)
        return
    for key, value in document.items():
        if value is None or value == [] or value == {}:
            continue
        text = jsontext.dumps(value).decode() if isinstance(value, dict | list) else value
        output.write(f"{key:<26}{output.cell(text)}\n")


@app.command()
def trace(
    trial: TrialArgument,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only events of this type. Repeatable.")] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", help="Only events whose type or content this RE2 pattern matches, any case.")
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=1, help="The last so many, oldest first.")] = None,
    cursor: Annotated[int | None, typer.Option("--cursor", help="Only events after this position.")] = None,
    limit: Limit = None,
    job: OneJob = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """Print the trace of a trial: position, type, and the content cut to 140 characters; --json whole events."""
    from traceflow.query import trace_matcher

    opened = open_store(store)
    row = opened.trial(trial, opened.job(job) if job else None)
    if not row["n_events"]:
        raise TraceflowError("empty_trace", f"trial {row['trial_name']} has no trace", trial=row["trial_id"])
    matches = trace_matcher(grep) if grep is not None else None
    count = 0
    for event in opened.trace(row, types=type_, after=cursor, tail=tail, limit=limit, matches=matches):
        if as_json:
            output.print_json({"seq": event.seq, "type": event.type, "data": event.data})
        else:
            words = " ".join(summary(event)[:2000].split())[:140]  # one line: line feeds are blanks here
            output.write(f"{event.seq:>6}  {event.type:<20}  {output.cell(words)}\n")
        count += 1
    return 0 if count else 1


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
