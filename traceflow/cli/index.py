"""`traceflow index`: make now what searches would make on their first use."""

from __future__ import annotations

from typing import Annotated

import typer

from . import output
from .options import AsJson, JobOption, StoreOption, open_store


def index(
    job: JobOption = None,
    words: Annotated[bool, typer.Option("--words/--no-words", help="The index of ranked search.")] = True,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Index jobs for search, and for grep where they were written without."""
    from traceflow.query import index_jobs
    from traceflow.store.grep_build import build_index
    from traceflow.store.grep_index import index_name

    opened = open_store(store)
    jobs = [opened.job(name) for name in job] if job else opened.jobs()
    missing = [found for found in jobs if index_name(opened.backend, found) is None]
    with output.progress("indexing", len(missing) + len(jobs) * words) as advance:
        for found in missing:
            build_index(opened.backend, found)
            advance(1, found.job_id)
        made = index_jobs(opened, [found for found in jobs if found.rows("events")], advance) if words else 0
    if as_json:
        output.print_json({"jobs": len(jobs), "grep": len(missing), "words": made}, indent=True)
    else:
        output.note(f"{len(jobs)} job(s): {len(missing)} indexed for grep, {made} for search")
