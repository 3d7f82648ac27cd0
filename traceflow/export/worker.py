"""Deriving the files of trials: in this process, or in several that are told what to do line by line.

The traces are decoded and rebuilt in Python, so that only processes make it faster. They are started as programs of
their own, which works in every caller's script and whatever threads it has. Of a job that is not large one share of the
work is done in this process, which mostly waits for the packing threads; so is that of a process that does not start.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from ..store import FileTable, Manifest, PackReader, Store, TraceReader
from ..store.reading import read_table
from .derive import Derived, derive_trial, stated_rewards

__all__ = ["Deriver", "Trials", "derived_in_order", "hold_little"]

_WORTH_IT = 20_000  # events of a job from which other processes are worth their start
_SHARED = 500_000  # events of a job up to which this process does a share: beyond it a start is nothing, memory counts
_BATCH = 4_000  # events that are given to one at a time: some row groups
_ROWS = 64  # trials whose rows are made at once
_RECORD_LIMIT = 64 << 20
_COMMAND = "from traceflow.export.worker import serve; serve()"


class Trials:
    """The trials of a job in the order of their files: a row is made when it is asked for, some at a time.

    A job may have very many, and each process of an export would hold all of them.
    """

    def __init__(self, store: Store, job: Manifest) -> None:
        self._table = read_table(store.backend, job, "trials")
        names = self._table.column("trial_name").to_pylist()
        self._order = sorted(range(len(names)), key=lambda row: f"{names[row]}/".encode())
        self._held: tuple[int, list[dict[str, Any]]] = -1, []
        self.names = [names[row] for row in self._order]

    def events(self) -> list[int]:
        """How many events each has."""
        counts = self._table.column("n_events").to_pylist()
        return [counts[row] or 0 for row in self._order]

    def __getitem__(self, number: int) -> dict[str, Any]:
        row = self._order[number]
        first = row - row % _ROWS
        held, rows = self._held
        if held != first:
            rows = self._table.slice(first, _ROWS).to_pylist()
            self._held = first, rows
        return rows[row - first]


class Deriver:
    """Derives trials of one job from its open tables; use it as a context. `folder` takes the contents."""

    def __init__(self, store: Store, job: Manifest, folder: Path) -> None:
        self._files: FileTable = store.file_table(job)
        self._traces: TraceReader = store.trace_reader(job)
        self._contents: PackReader = store.contents(job)
        self._folder = folder

    def __enter__(self) -> Deriver:
        self._files.__enter__()
        try:
            self._traces.__enter__()
        except BaseException:
            self._files.__exit__()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        self._traces.__exit__()
        self._files.__exit__()

    def trial(self, number: int, trial: Mapping[str, Any]) -> list[Derived]:
        """What an export adds to the trial: nothing to one of which nothing was taken in."""
        name = trial["trial_name"]
        own = [row for row in self._files.rows(f"{name}/") if not row.derived]
        if trial["skipped_code"] is not None and not own:
            return []
        rewards: dict[str, Any] = {}
        result = next((row for row in own if row.path == f"{name}/result.json"), None)
        if trial["rewards"] and result is not None and result.packed is not None and result.size <= _RECORD_LIMIT:
            rewards = stated_rewards(self._contents.read(result.packed))
        folder = self._folder / f"{number:06d}"
        return derive_trial(trial, lambda: self._traces.trace(trial), own, folder, rewards)


def derived_in_order(
    store: Store, job: Manifest, trials: Trials, folder: Path, workers: int | None = None
) -> Generator[list[Derived], None, None]:
    """What an export adds to each trial, in the order of `trials`; several processes where it is worth it.

    `workers` is how many (0: none, in this process; default: by the size of the job and the processors).
    """
    count = _how_many(store, job) if workers is None else workers
    if count < 2:
        with Deriver(store, job, folder) as deriver:
            for number in range(len(trials.names)):
                yield deriver.trial(number, trials[number])
        return
    with _Team(store, job, trials, folder, count) as team:
        yield from team.results()


def _how_many(store: Store, job: Manifest) -> int:
    if job.rows("events") < _WORTH_IT or store.url.startswith("memory://") or not sys.executable:
        return 0
    with contextlib.suppress(AttributeError):
        return min(len(os.sched_getaffinity(0)), 8)
    return min(os.cpu_count() or 1, 8)


class _Team:
    """Processes that derive batches of trials; results come in the order of the trials."""

    def __init__(self, store: Store, job: Manifest, trials: Trials, folder: Path, count: int) -> None:
        self._store, self._job, self._folder = store, job, folder
        self._trials = trials
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="traceflow-derive")
        self._own = threading.local()  # of each thread: its process, or the Deriver it works with here
        self._to_start = threading.Semaphore(count - (job.rows("events") < _SHARED))
        self._given_up = False
        self._processes: list[subprocess.Popen[bytes]] = []
        self._derivers: list[Deriver] = []
        self._futures: list[Future[list[list[Derived]]]] = []

    def __enter__(self) -> _Team:
        batch: list[int] = []
        events = 0
        for number, count in enumerate(self._trials.events()):
            batch.append(number)
            events += count
            if events >= _BATCH or len(batch) >= 1000:
                self._futures.append(self._pool.submit(self._derive, batch))
                batch, events = [], 0
        if batch:
            self._futures.append(self._pool.submit(self._derive, batch))
        return self

    def results(self) -> Iterator[list[Derived]]:
        for future in self._futures:
            yield from future.result()

    def __exit__(self, *exception: Any) -> None:
        self._given_up = any(exception)
        for future in self._futures:
            future.cancel()
        for process in self._processes:
            if any(exception):
                process.kill()
            elif process.stdin is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
        self._pool.shutdown()
        for deriver in self._derivers:
            deriver.__exit__()
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            process.wait()

    def _derive(self, batch: list[int]) -> list[list[Derived]]:
        process = self._process()
        answer = _ask(process, {"trials": batch}) if process is not None else None
        if self._given_up:
            return []
        if answer is None:  # there is none, or it has died
            self._own.process = None
            deriver = self._deriver()
            return [deriver.trial(number, self._trials[number]) for number in batch]
        if "error" in answer:
            error = answer["error"]
            raise TraceflowError(error["code"], error["message"], **error["details"])
        return [[Derived(d["path"], d["file"], d["size"], d["sha256"]) for d in made] for made in answer["made"]]

    def _deriver(self) -> Deriver:
        """What this thread works with here."""
        if not hasattr(self._own, "deriver"):
            deriver = Deriver(self._store, self._job, self._folder / f"here-{len(self._derivers)}")
            self._own.deriver = deriver.__enter__()
            self._derivers.append(deriver)
        found: Deriver = self._own.deriver
        return found

    def _process(self) -> subprocess.Popen[bytes] | None:
        """The process of this thread; None for the one thread that works here."""
        if not hasattr(self._own, "process"):
            self._own.process = None
            if not self._to_start.acquire(blocking=False):
                return None
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _COMMAND],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # an interrupt is for the one that gives the orders
                )
            except OSError:
                return None
            self._processes.append(process)
            hello = {"store": self._store.url, "job": self._job.job_id, "folder": str(self._folder)}
            if _ask(process, hello) == {"ready": self._job.revision}:
                self._own.process = process
        found: subprocess.Popen[bytes] | None = self._own.process
        return found


def _ask(process: subprocess.Popen[bytes], request: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to one request; None when the process is no longer there."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(jsontext.dumps(request) + b"\n")
        process.stdin.flush()
        answer = jsontext.loads(process.stdout.readline())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


def hold_little() -> None:
    """Make this process give back what Arrow no longer needs.

    Arrow's own choice of allocator (mimalloc in pyarrow 26) keeps 20 MB more of a large export, at the same speed.
    Where jemalloc is not built in, nothing changes.
    """
    with contextlib.suppress(NotImplementedError):
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def serve() -> None:
    """Be one of the processes: requests on stdin, an answer a line on stdout, until stdin ends."""
    hold_little()
    hello = jsontext.loads(sys.stdin.buffer.readline())
    answers = sys.stdout.buffer
    store = Store.open(hello["store"])
    job = store.job(hello["job"])
    trials = Trials(store, job)
    with Deriver(store, job, Path(hello["folder"])) as deriver:
        answers.write(jsontext.dumps({"ready": job.revision}) + b"\n")
        answers.flush()
        for line in sys.stdin.buffer:
            answers.write(jsontext.dumps(_answer(deriver, trials, jsontext.loads(line))) + b"\n")
            answers.flush()


def _answer(deriver: Deriver, trials: Trials, request: dict[str, Any]) -> dict[str, Any]:
    try:
        made = [deriver.trial(number, trials[number]) for number in request["trials"]]
    except TraceflowError as error:
        return {"error": {"code": error.code, "message": error.message, "details": error.details}}
    return {"made": [[{"path": d.path, "file": d.place, "size": d.size, "sha256": d.sha256} for d in m] for m in made]}
