"""`traceflow job`: the jobs of a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .help import group
from .limits import LimitValues, limits_of
from .options import AsJson, StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.importer.stale import StaleTrial
    from traceflow.store import Manifest, Store

app = group("List, show, search, check and delete jobs.")

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
    if not output.print_table(columns, rows, flexible="job", optional=("bytes", "events", "skipped", "imported")):
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
    document = {**_summary(found), **found.job, "report": dict(found.report), "outcomes": _outcomes(opened, found)}
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
    stated = ", ".join(f"{k} {output.cell(v)}" for k, v in totals.items() if v is not None)
    output.write(f"reported_totals   {stated}".rstrip() + "\n")
    links = document.get("link_counts") or {}
    output.write("task_links        " + ", ".join(f"{k} {v}" for k, v in links.items()) + "\n")
    for row in document.get("task_links") or ():
        output.write(f"  {output.cell(link_line(row))}\n")
    for name, counts in _review_counts(document.get("reviews") or ()).items():
        output.write(output.cell(f"review {name}: " + ", ".join(f"{n} {o}" for o, n in sorted(counts.items()))) + "\n")
    report = document["report"]
    for skipped in report.get("skipped", ()):
        output.write(output.cell(f"skipped[{skipped['code']}]: {skipped['message']}") + "\n")
    from .import_ import warning_line

    for warning in report.get("warnings", ()):
        output.write(output.cell(warning_line(warning)) + "\n")


def link_line(row: dict[str, Any]) -> str:
    """A row of `task_links` as one line: how many trials of the task are linked, to what, and why others are not."""
    where = f" to {', '.join(row['datasets'])} by {row['linked_by']}" if row["datasets"] else ""
    reasons = [f"{reason} {count}" for reason, count in row["link_reasons"].items()]
    candidates = [f"candidates {', '.join(row['candidates'])}"] if row["candidates"] else []
    return "; ".join(
        [f"{row['task_name']}: {row['n_linked']} of {row['n_trials']} linked{where}", *reasons, *candidates]
    )


@app.command()
def relink(
    job: JobArgument,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", "-d", metavar="NAME[@VERSION]", help="The dataset that the tasks are from. Repeatable."
        ),
    ] = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Link the trials of a job to tasks again, as an import would now: after a dataset was added, for instance."""
    from traceflow.importer import relink_job

    opened = open_store(store)
    found = opened.job(job)
    report = relink_job(opened, found, dataset or ())
    if as_json:
        output.print_json(report.as_dict(), indent=True)
        return
    counts = ", ".join(f"{reason} {count}" for reason, count in report.link_counts.items())
    name = found.job.get("original_job_name") or found.job_id
    output.write(f"{output.cell(name)}: {report.changed} link(s) changed; {counts or 'no trials'}\n")
    for row in report.task_links:
        output.write(f"  {output.cell(link_line(dict(row)))}\n")


def _review_counts(reviews: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Of a wrapper job: criterion -> outcome -> how many reviews say it."""
    counts: dict[str, dict[str, int]] = {}
    for review in reviews:
        for name, check in (review.get("checks") or {}).items():
            found = counts.setdefault(name, {})
            outcome = str(check.get("outcome") or "unknown")
            found[outcome] = found.get(outcome, 0) + 1
    return counts


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


@app.command()
def grep(
    job: JobArgument,
    pattern: Annotated[str, typer.Argument(help="An RE2 pattern over type and content, any case unless told.")],
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=200, metavar="N", help="At most so many trials, up to 200.")
    ] = 50,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="TRIAL_ID", help="Only trials after this trial id.")
    ] = None,
    type_: Annotated[list[str] | None, typer.Option("--type", help="Only events of this type. Repeatable.")] = None,
    fixed: Annotated[bool, typer.Option("-F", "--fixed-strings", help="The pattern is plain text.")] = False,
    case_sensitive: Annotated[bool, typer.Option("--case-sensitive", "-s", help="Case counts.")] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """Search a job trial by trial, in the order of their ids: the exact count and the first five events of each."""
    from traceflow.query import job_grep

    from .trial import event_line

    opened = open_store(store)
    found = job_grep(
        opened,
        opened.job(job),
        pattern,
        limit=limit,
        cursor=cursor,
        types=type_,
        fixed=fixed,
        case_sensitive=case_sensitive,
    )
    for trial in found:
        if as_json:
            events = [{"seq": e.seq, "type": e.type, "data": e.data} for e in trial.events]
            named = {"trial_id": trial.trial_id, "trial_name": trial.trial_name, "task_name": trial.task_name}
            output.print_json({**named, "match_count": trial.match_count, "events": events})
            continue
        output.write(f"{output.cell(trial.trial_name)}: {trial.match_count} event(s), {trial.trial_id}\n")
        for event in trial.events:
            output.write(event_line(event, indent=2))
    if len(found) == limit and not as_json:
        output.note(f"more trials may match: go on with --cursor {found[-1].trial_id}")
    return 0 if found else 1


@app.command()
def verify(
    job: JobArgument,
    contents: Annotated[bool, typer.Option("--contents", help="Unpack every file as well.")] = False,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> int:
    """Compare every object of a job with its manifest. Exit 1 when something is wrong."""
    from .store import verify as verify_store

    return verify_store(job, contents, store, as_json)


@app.command()
def reparse(
    names: Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="Jobs, as in `job show`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All jobs of the store.")] = False,
    stale: Annotated[
        bool, typer.Option("--stale", help="Only jobs with trials that an older version of a parser read.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which trials an older parser read.")] = False,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Processes that parse trials. Default: one for each CPU, for large jobs."),
    ] = None,
    limit: LimitValues = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Parse the kept files of jobs anew, with the parsers of this version. Each job changes in one step."""
    from traceflow.importer.reparse import reparse_job
    from traceflow.importer.stale import stale_trials
    from traceflow.importer.workers import Workers, usable_cpus

    from .import_ import print_report

    opened = open_store(store)
    if bool(names) == every:
        raise TraceflowError("invalid_input", "name the jobs to parse anew, or add --all")
    found = [opened.job(name) for name in names] if names else opened.jobs()
    limits = limits_of(limit)
    current = 0
    with Workers(jobs or usable_cpus(), always=jobs is not None) as workers:
        for job in found:
            older = stale_trials(opened, job) if stale or dry_run else []
            if dry_run:
                _print_stale(job, older, as_json)
            elif stale and not older:
                current += 1
            else:
                with output.progress(f"parsing {_name(job)}") as advance:
                    report = reparse_job(opened, job, limits=limits, progress=advance, workers=workers)
                if as_json:
                    output.print_json(report.as_dict(), indent=len(names or ()) == 1)
                else:
                    print_report(report, "parsed")
    if current:
        output.note(f"{current} job(s) were read by the parsers of this version")


def _name(job: Manifest) -> str:
    return str(job.job.get("original_job_name") or job.job_id)


def _print_stale(job: Manifest, older: list[StaleTrial], as_json: bool) -> None:
    if as_json:
        output.print_json({"job_id": job.job_id, "name": _name(job), "stale": [trial.as_dict() for trial in older]})
        return
    for trial in older:
        read = (
            f"{trial.parser} {trial.parsed_with or 'before 1'}, now {trial.current}"
            if trial.parser
            else "no trace found"
        )
        output.write(f"{output.cell(_name(job))}  {output.cell(trial.trial)}  {read}\n")
