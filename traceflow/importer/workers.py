"""Worker processes that parse trials while the importer stores their files.

Each worker has a pipe of its own, so it ends with the importer whatever ends that; it takes a few trials at a time
and leaves their rows in a file of the spool (Arrow IPC), with the totals and the report of each as the answer. The
importer takes the answers in the order of the trials, so that the result does not depend on who was faster, and has
only so many trials under way that neither memory nor spool grow with the job.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
from traceflow_formats.errors import TraceflowError

from ..store import JobWriter, Totals
from .parse import Parsing, TrialTask

if TYPE_CHECKING:  # most jobs are parsed here
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

__all__ = ["ParsedTrials", "Workers", "parsed_trials", "usable_cpus"]

_BATCH_TRIALS = 32
_BATCH_BYTES = 4 << 20
_WORTH = 24 << 20  # bytes of a job that take longer to parse than workers take to start
_TRIAL_COST = 40_000  # what a trial costs beyond its bytes, in bytes
_LONG_TASK = 200  # paths to ignore that make a task a long message
_AHEAD = 2  # batches per worker that wait in its pipe or are in hand


Parsed = tuple[Totals, dict[str, Any] | None]  # what the events of a trial add up to, and the report of its parse


class ParsedTrials(Protocol):
    """Parsed trials in the order of their tasks."""

    def ready(self) -> bool:
        """Whether the next one can be had without waiting or working for it."""

    def store_next(self, writer: JobWriter) -> Parsed:
        """Store the events of the next trial."""


@contextmanager
def parsed_trials(tasks: Iterable[TrialTask], workers: Workers | None, count: int, size: int) -> Iterator[ParsedTrials]:
    """The trials of one job, parsed by the workers when they are worth it, else here, one after the other.

    There are `count` tasks of `size` bytes in all; each is taken shortly before it is needed.
    """
    if workers is not None and workers.worth(count, size):
        with workers.parsing(tasks) as stream:
            yield stream
    else:
        yield _Here(tasks)


class _Here:
    """Parses in this process, each trial when it is asked for."""

    def __init__(self, tasks: Iterable[TrialTask]) -> None:
        self._tasks = iter(tasks)

    def ready(self) -> bool:
        return False

    def store_next(self, writer: JobWriter) -> Parsed:
        task = next(self._tasks)
        parsing = Parsing(task)
        writer.add_rows(task.trial_id, parsing.rows)
        return parsing.totals(), parsing.report()


@dataclass(eq=False, repr=False)
class _Worker:
    process: BaseProcess
    pipe: Connection
    pending: deque[int]


class _Answer(NamedTuple):
    """What became of one batch of tasks: the file of their rows, and for each trial what it holds."""

    path: str | None
    trials: tuple[tuple[str, Parsed], ...] = ()
    error: TraceflowError | OSError | None = None
    crash: str | None = None


def usable_cpus() -> int:
    """CPUs that this process may use, at most eight: the importer's own work bounds what more would bring."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, 8)


class Workers:
    """`count` worker processes for any number of jobs, started when they are first needed. Close it at the end.

    `always` starts them for every job with more than one trial; else only for those that are larger than their start
    costs. With a count of 1 there are none: one process parses fastest by itself.
    """

    def __init__(self, count: int, always: bool = True) -> None:
        self.count = count
        self.always = always
        self._workers: list[_Worker] = []
        self._spool: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def worth(self, count: int, size: int) -> bool:
        """Whether a job of so many trials and bytes is for the workers."""
        if self.count < 2 or count < 2:
            return False
        return self.always or size + count * _TRIAL_COST > _WORTH

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.pipe.close()
            worker.process.terminate()
        for worker in workers:
            worker.process.join(5)
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
        if self._spool is not None:
            self._spool.cleanup()
            self._spool = None

    def _start(self) -> None:
        import multiprocessing

        if self._workers:
            return
        self._spool = tempfile.TemporaryDirectory(prefix="traceflow-parse-")
        forks = _may_fork()
        context: Any = multiprocessing.get_context("fork" if forks else "spawn")
        with _interrupts_ignored(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of any thread when it forks
            for _ in range(self.count):
                ours, theirs = context.Pipe()
                # a forked child has our ends of all pipes; with them open it would not see the importer end
                inherited = [ours, *(w.pipe for w in self._workers)] if forks else []
                args = (theirs, self._spool.name, inherited)
                process = context.Process(target=_serve, args=args, daemon=True)
                process.start()
                theirs.close()
                self._workers.append(_Worker(process, ours, deque()))

    @contextmanager
    def parsing(self, tasks: Iterable[TrialTask]) -> Iterator[ParsedStream]:
        """A stream of the parsed trials of one job, in the order of the tasks."""
        self._start()
        stream = ParsedStream(self._workers, tasks)
        try:
            yield stream
        except BaseException:
            self.close()  # what is under way is no longer wanted
            raise


class ParsedStream:
    """Parsed trials in order. `ready()` tells whether the next one can be had without waiting."""

    def __init__(self, workers: list[_Worker], tasks: Iterable[TrialTask]) -> None:
        self._workers = workers
        self._source = _batches(tasks)
        self._sent = 0
        self._next = 0
        self._answers: dict[int, _Answer] = {}
        self._done = False
        self._held: list[TrialTask] | None = None
        self._stored: deque[Parsed] = deque()  # trials whose events are stored already, with those of others
        self._fill()

    def ready(self) -> bool:
        """Whether the next trial has come."""
        if self._stored:
            return True
        self._collect(0)
        return self._next in self._answers

    def store_next(self, writer: JobWriter) -> Parsed:
        if not self._stored:
            while self._next not in self._answers:
                self._collect(None)
            answer = self._answers.pop(self._next)
            self._next += 1
            if answer.error is not None:
                raise answer.error
            if answer.crash is not None:
                raise RuntimeError(answer.crash)
            self._fill()
            _store(answer, writer)
            self._stored.extend(parsed for _, parsed in answer.trials)
        return self._stored.popleft()

    def _fill(self) -> None:
        """Give each worker something to do; the batches that wait for their turn are bounded as well."""
        most = _AHEAD * len(self._workers) * 2
        while not self._done and self._sent - self._next < most:
            worker = min(self._workers, key=lambda w: len(w.pending))
            if len(worker.pending) >= _AHEAD:
                return
            batch = self._held or next(self._source, None)
            if batch is None:
                self._done = True
                return
            self._held = batch
            if worker.pending and sum(len(task.ignored) for task in batch) > _LONG_TASK:
                return  # it may not fit into the pipe of a worker that waits to be heard
            self._held = None
            try:
                worker.pipe.send((self._sent, batch))
            except OSError:
                raise _died(worker) from None
            worker.pending.append(self._sent)
            self._sent += 1

    def _collect(self, timeout: float | None) -> None:
        """Take the answers that are there; with no timeout wait for one."""
        from multiprocessing.connection import wait

        busy = [w for w in self._workers if w.pending]
        for pipe in wait([w.pipe for w in busy], timeout):
            worker = next(w for w in busy if w.pipe is pipe)
            try:
                number, answer = worker.pipe.recv()
            except (EOFError, OSError):
                raise _died(worker) from None
            worker.pending.remove(number)
            self._answers[number] = answer
        self._fill()


def _died(worker: _Worker) -> TraceflowError:
    worker.process.join(5)
    return TraceflowError(
        "io_error",
        f"a worker process ended (exit code {worker.process.exitcode}), perhaps for want of memory; nothing was "
        "imported: run it again with --jobs 1",
    )


def _batches(tasks: Iterable[TrialTask]) -> Iterator[list[TrialTask]]:
    """Tasks in groups that are worth a message: few trials, or few bytes."""
    group: list[TrialTask] = []
    size = 0
    for task in tasks:
        if group and (len(group) >= _BATCH_TRIALS or size + task.size > _BATCH_BYTES):
            yield group
            group, size = [], 0
        group.append(task)
        size += task.size
    if group:
        yield group


def _store(answer: _Answer, writer: JobWriter) -> None:
    """Store the events of the trials of one answer, and remove the file that held them."""
    assert answer.path is not None
    counts = [(trial_id, totals.n_events) for trial_id, (totals, _) in answer.trials]
    try:
        options = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.memory_map(answer.path) as file, pa.ipc.open_stream(file, options=options) as batches:
            writer.add_batches(counts, batches)
    finally:
        with suppress(OSError):
            os.unlink(answer.path)  # noqa: PTH108


# -- in the worker -----------------------------------------------------------------------------------------


def _serve(pipe: Connection, spool: str, inherited: Iterable[Connection]) -> None:
    """Answer tasks until the importer is gone. An interrupt is the importer's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    while True:
        try:
            number, tasks = pipe.recv()
            pipe.send((number, _answer(Path(spool, f"{os.getpid()}-{number}.arrow"), tasks)))
        except (EOFError, OSError):
            return


def _answer(path: Path, tasks: list[TrialTask]) -> _Answer:
    from ..store.encoder import RowBatches
    from ..store.schema import arrow_schema

    found: list[tuple[str, Parsed]] = []
    try:
        with (
            pa.OSFile(str(path), "wb") as file,
            pa.ipc.new_stream(file, arrow_schema("events")) as out,
        ):
            rows = RowBatches(out.write_batch)
            for task in tasks:
                parsing = Parsing(task)
                rows.extend(parsing.rows)
                found.append((task.trial_id, (parsing.totals(), parsing.report())))
            rows.flush()
    except (TraceflowError, OSError) as error:
        return _Answer(None, error=error)
    except Exception:
        import traceback

        return _Answer(None, crash=traceback.format_exc())
    return _Answer(str(path), tuple(found))


_HARMLESS = "jemalloc_bg_thd"  # Arrow's allocator has it from the start, and sees to it that a child can do without


def _may_fork() -> bool:
    """Whether workers may be forks of this process: a new interpreter takes as long as hundreds of small trials.

    Other threads would be missing in the child while it waits for what they hold, those of Arrow's pool included. So
    there must be none, which only Linux can tell; macOS has some of its own.
    """
    try:
        names = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    except OSError:
        return False
    return sys.platform == "linux" and len([name for name in names if name != _HARMLESS]) == 1


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Children begin with interrupts ignored: Ctrl-C goes to all of them, and the importer ends them.

    A request to end waits until they have begun: a child that is told half of what it is to do complains.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked: list[tuple[int, FrameType | None]] = []
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    ending = signal.signal(signal.SIGTERM, lambda number, frame: asked.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, ending or signal.SIG_DFL)  # None: not set from Python
        if asked:
            signal.raise_signal(signal.SIGTERM)
