"""Importers and readers of one store, each in a process of its own, for so many seconds.

A job says in every event which job and which revision it is, so that a reader knows what it must find.
"""

from __future__ import annotations

import io
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from traceflow_formats.errors import TraceflowError

from traceflow.query import grep_counts, sql
from traceflow.store import JobWriter, Store
from traceflow.store.testing import chunk

TRIALS, EVENTS = 2, 40


def job_id(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"job {number}"))


def write(writer: JobWriter, name: str, text: str) -> None:
    with writer:
        for trial in range(TRIALS):
            trial_id = f"{name}-{trial}"
            writer.add_events(trial_id, (chunk("agent", f"{name} {text} event {n}") for n in range(EVENTS)))
            writer.add_trial({"trial_id": trial_id, "trial_name": trial_id})
            writer.add_file(f"{trial_id}/log", io.BytesIO(f"{name} {text}".encode() * 50), trial_id=trial_id)
        writer.commit(job={"original_job_name": name})


def check(store: Store, name: str) -> None:
    """Everything of a job is there and of one revision."""
    job = store.job(name)
    said = set()
    trials = store.trials(job)
    assert len(trials) == TRIALS
    for trial in trials:
        texts = [line.data["update"]["content"]["text"].rsplit(" event ", 1) for line in store.trace(trial)]
        assert [int(number) for _, number in texts] == list(range(EVENTS))
        said |= {text for text, _ in texts}
    reader = store.contents(job)
    said |= {reader.read(f.packed).decode()[: len(next(iter(said)))] for f in store.files(job) if f.packed}
    assert len(said) == 1 or store.job(name).revision != job.revision, f"{name} is of several revisions: {said}"


def importer(url: str, number: int, seconds: float, told: Any) -> None:
    """Write one job after the other, and replace every other one."""
    problems: list[str] = []
    won: list[int] = []
    swapped = lost = at = 0
    end = time.monotonic() + seconds
    try:
        store = Store.open(url)
        while time.monotonic() < end or at < 2:
            name = job_id(at)
            try:
                write(store.writer(name), name, f"first by {number}")
                won.append(at)
            except TraceflowError as error:
                if error.code != "job_already_uploaded":
                    raise
                lost += 1
            if at % 2:
                try:
                    write(store.rewriter(store.job(name)), name, f"again by {number}")
                    swapped += 1
                except TraceflowError as error:
                    if error.code != "store_conflict":
                        raise
                    lost += 1
            at += 1
    except Exception as error:
        problems.append(f"importer {number}: {error!r}")
    told.put({"problems": problems, "won": won, "swapped": swapped, "lost": lost})


def readers(url: str, count: int, seconds: float, told: Any) -> None:
    with ThreadPoolExecutor(count) as pool:
        for result in pool.map(lambda number: _reader(url, number, seconds), range(count)):
            told.put(result)


def _reader(url: str, number: int, seconds: float) -> dict[str, Any]:
    problems: list[str] = []
    reads = 0
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end or reads < 2:
            store = Store.open(url)
            names = [name for name in store.job_ids() if not name.startswith("11111111")]
            if not names:
                time.sleep(0.05)
                continue
            name = names[(reads * 7 + number) % len(names)]
            if reads % 4 == 1:
                found = grep_counts(store, f"{name} again|{name} first")
                assert sum(trial.matches for trial in found) == TRIALS * EVENTS
            elif reads % 4 == 3:
                (row,) = sql(
                    store, f"SELECT count(*), count(DISTINCT trial_id) FROM events WHERE job_id = '{name}'"
                ).fetchall()
                assert row == (TRIALS * EVENTS, TRIALS)
            else:
                check(store, name)
            reads += 1
    except Exception as error:
        problems.append(f"reader {number}: {error!r}")
    return {"problems": problems, "reads": reads}
