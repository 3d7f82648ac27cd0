"""`traceflow job`: the jobs of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import output
from .options import AsJson, StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.store import Manifest, Store

app = typer.Typer(help="List, show, delete and search jobs.", no_args_is_help=True, rich_markup_mode=None)

JobArgument = Annotated[str, typer.Argument(help="The job: its name, its id, or the first 8 characters of it.")]


@app.command("list")
def list_(store: StoreOption = None, as_json: AsJson = False) -> None:
    """List the jobs, by the time they were imported."""
    opened = open_store(store)
    jobs = sorted(opened.jobs(), key=lambda m: (str(m.job.get("imported_at")), m.job_id))
    if as_json:
        for job in jobs:
            output.print_json(_summary(job))
        return
    columns = ("job", "trials", "scored", "skipped", "events", "bytes", "imported", "id")
    rows = ((s := _summary(j))["name"] and tuple(s[c] if c != "job" else s["name"] for c in _KEYS) for j in jobs)
    if not output.print_table(columns, rows, flexible="job"):
        output.note(f"no jobs in {opened.url}; `traceflow import PATH` brings one in")


_KEYS = ("job", "n_trials", "n_scored", "n_skipped", "n_events", "size", "imported_at", "job_id")


def _summary(job: Manifest) -> dict[str, Any]:
    facts = job.job
    return {
        "job_id": job.job_id,
        "name": facts.get("original_job_name") or job.job_id,
        "original_job_id": facts.get("original_job_id"),
        "n_trials": facts.get("n_trials"),
        "n_scored": facts.get("n_scored"),
        "n_skipped": facts.get("n_skipped"),
        "n_events": job.rows("events"),
        "n_files": job.rows("files"),
        "size": job.size,
        "started_at": facts.get("started_at"),
        "finished_at": facts.get("finished_at"),
        "imported_at": facts.get("imported_at"),
    }


@app.command()
def show(job: JobArgument, store: StoreOption = None, as_json: AsJson = False) -> None:
    """Show a job: where it comes from, what it claimed, and what the import said."""
    opened = open_store(store)
    found = opened.job(job)
    from traceflow.query.reviews import job_reviews, review_line

    document = {**_summary(found), **found.job, "report": dict(found.report), "outcomes": _outcomes(opened, found)}
    reviews = job_reviews(opened, found)
    if reviews:
        document["reviews"] = reviews
    if as_json:
        output.print_json(document, indent=True)
        return
    for key in ("name", "job_id", "original_job_id", "imported_at", "imported_as", "started_at", "finished_at"):
        output.write(f"{key:<18}{output.cell(document.get(key))}\n")
    totals = document.get("reported_totals") or {}
    for key in ("n_trials", "n_scored", "n_skipped", "n_events", "n_files", "size"):
        output.write(f"{key:<18}{output.cell(document.get(key))}\n")
    for status, count in document["outcomes"].items():
        output.write(f"  {status:<16}{count}\n")
    output.write("reported_totals   " + ", ".join(f"{k} {output.cell(v)}" for k, v in totals.items()) + "\n")
    links = document.get("task_links") or {}
    output.write("task_links        " + ", ".join(f"{k} {v}" for k, v in links.items()) + "\n")
    for review in reviews:
        output.write(output.cell(review_line(review)) + "\n")
    report = document["report"]
    for skipped in report.get("skipped", ()):
        output.write(output.cell(f"skipped[{skipped['code']}]: {skipped['message']}") + "\n")
    from .import_ import warning_line

    for warning in report.get("warnings", ()):
        output.write(output.cell(warning_line(warning)) + "\n")


def _outcomes(store: Store, job: Manifest) -> dict[str, int]:
    counts: dict[str, int] = {}
    for trial in store.trials(job):
        counts[trial["status"]] = counts.get(trial["status"], 0) + 1
    return dict(sorted(counts.items()))


@app.command()
def delete(
    job: JobArgument,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a job. Its id is free again; what was exported stays as it is."""
    opened = open_store(store)
    found = opened.job(job)
    name = found.job.get("original_job_name") or found.job_id
    if not yes:
        typer.confirm(f"Delete {output.cell(name)} ({found.job_id}, {found.job.get('n_trials')} trials)?", abort=True)
    opened.delete_job(found)
    if as_json:
        output.print_json({"deleted": found.job_id})
    else:
        output.note(f"deleted {name} ({found.job_id})")
