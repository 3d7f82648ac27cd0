"""Trials of a store as documents of other tools: a training set, or traces for an observability backend."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event
from traceflow_parsers.report import LineCounts, Report

from ..conversion import Conversion, build
from ..conversion.documents import Document, write_images
from ..conversion.outputs import given_time
from ..files import atomic_file
from ..store import Manifest, Store

__all__ = ["choose_trials", "write_trials"]

_KNOWN = {"id": "trial_id", "name": "trial_name", "task": "task_name", "status": "status", "reward": "reward"}
_RECORD_LIMIT = 64 << 20
_LINES = ("read", "parsed", "unknown", "malformed", "duplicate")


def choose_trials(
    store: Store, names: Iterable[str] = (), jobs: list[Manifest] | None = None, where: str | None = None
) -> list[dict[str, Any]]:
    """The trials of these names, or all, of these jobs, or all, that a condition in SQL over the view `trials` is
    true for, in the order of jobs and trials. Raises trial_not_found, and invalid_input for what is no condition."""
    of = store.jobs() if jobs is None else jobs
    wanted = None
    if names := list(names):
        only = of[0] if len(of) == 1 else None
        found = [store.trial(name, only) for name in names]
        wanted = {(row["job_id"], row["trial_id"]) for row in found}
    if where is not None:
        from ..query import sql

        fits = set(sql(store, f"SELECT job_id, trial_id FROM trials WHERE ({where}\n)").fetchall())
        wanted = fits if wanted is None else wanted & fits
    rows = [row for job in of for row in store.trials(job)]
    return [row for row in rows if wanted is None or (row["job_id"], row["trial_id"]) in wanted]


def write_trials(
    store: Store,
    trials: list[dict[str, Any]],
    to: str,
    out: Path,
    conversion: Conversion,
    *,
    redact: bool = False,
    at: str | None = None,
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Write `chat` records or an `otlp-json` document of the trials into a file, with `images/` beside it.

    Each record says which trial it is of and its reward. Trials without a trace, and for OTLP those without times,
    are warnings. Raises empty_trace when nothing is left, missing_extra.
    """
    time = given_time(at)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".traceflow-trials-", dir=out.parent) as place:
        folder = Path(place)
        with (folder / out.name).open("wb") as spool:
            document = Document(to, spool, conversion, at=time, lines=out.suffix == ".jsonl")
            for trial in trials:
                _write_trial(store, trial, document, to, folder, conversion)
                progress(1, trial["trial_name"])
            document.end()
        if not conversion.sessions:
            raise TraceflowError("empty_trace", f"none of {len(trials)} trial(s) has a trace that can be written")
        if redact:
            from ..redact.folder import redact_folder

            conversion.redacted = redact_folder(folder, _records(store, trials))
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            with atomic_file(out.parent / path.relative_to(folder)) as file, path.open("rb") as source:
                while piece := source.read(1 << 20):
                    file.write(piece)
    conversion.outputs.append(str(out))


def _write_trial(
    store: Store, trial: dict[str, Any], document: Document, to: str, folder: Path, conversion: Conversion
) -> None:
    images: dict[str, bytes] = {}
    events = (Event(line.type, line.data) for line in store.trace(trial)) if trial["n_events"] else iter(())
    with build(events, images, times=to == "otlp-json") as built:
        if built.is_empty:
            conversion.warn("empty_trace", f"trial {trial['trial_name']} has no trace")
            return
        known = {name: trial[column] for name, column in _KNOWN.items() if trial[column] is not None}
        try:
            document.write(built, _report(trial), {**known, "job": trial["job_id"]})
        except TraceflowError as error:
            if error.code != "invalid_trajectory":
                raise
            conversion.warn(error.code, f"trial {trial['trial_name']}: {error.message}")
            return
    write_images(folder, images)


def _report(trial: dict[str, Any]) -> Report:
    """What the import said of the trace."""
    return Report(
        harness=trial["trace_harness"] or "",
        source=trial["trace_source"] or "",
        version=trial["trace_version"],
        session_id=trial["trace_session_id"],
        lines=LineCounts(*(trial[f"lines_{name}"] or 0 for name in _LINES)),
        incomplete=bool(trial["incomplete"]),
    )


def _records(store: Store, trials: list[dict[str, Any]]) -> Iterator[bytes]:
    """Harbor's records of the trials and their jobs."""
    from ..redact.names import RECORDS

    for job_id in dict.fromkeys(trial["job_id"] for trial in trials):
        job = store.job(job_id)
        packs = store.contents(job)
        names = [trial["trial_name"] for trial in trials if trial["job_id"] == job_id]
        with store.file_table(job) as table:
            for path in (f"{base}{name}" for base in ("", *(f"{n}/" for n in names)) for name in RECORDS):
                row = table.find(path)
                if row is not None and row.packed is not None and row.size <= _RECORD_LIMIT:
                    yield packs.read(row.packed)
