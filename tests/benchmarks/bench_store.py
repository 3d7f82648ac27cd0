"""What a store of many small jobs costs to open, with and without its catalog, here and on an S3 server.

    python tests/benchmarks/bench_store.py [JOBS] [--s3] [--delay SECONDS]

JOBS (default 1,000) jobs of three trials are written to a temporary folder by the library; then each command runs in
a process of its own, without the catalog and with it, in turn, the best of REPEATS (default 3) for each: seconds of
wall and of processor. With --s3 the same on a server on loopback (moto, as in tests/remote) that waits SECONDS (default
0.02) before each answer; the cache of this machine is empty at first.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from traceflow.store import Store
from traceflow.store.testing import call, chunk, prompt, result, usage

REPEATS = int(os.environ.get("REPEATS", "3"))
TRIALS = 3
COMMANDS = (
    ("job", "list"),
    ("trial", "list"),
    ("store", "info"),
    ("job", "show", "nightly-00007"),
    ("grep", "rareword"),
    ("sql", "SELECT count(*) FROM trials"),
    ("sql", "SELECT task_name, avg(reward) FROM trials GROUP BY 1"),
)


def write(store: Store, number: int) -> None:
    """One small job."""
    rnd = random.Random(number)
    job_id, name = str(uuid.UUID(int=rnd.getrandbits(128), version=4)), f"nightly-{number:05}"
    with store.writer(job_id) as writer:
        writer.add_file("config.json", io.BytesIO(f'{{"job_name": "{name}"}}'.encode()))
        for trial in range(TRIALS):
            trial_id = str(uuid.UUID(int=rnd.getrandbits(128), version=4))
            words = " ".join(rnd.choices(["alpha", "beta", "gamma", "delta", "create", "exec"], k=60))
            events = [
                prompt("Fix the failing test in the parser module."),
                call("c1", "Bash", {"command": "ls -la src"}),
                result("c1", words),
                chunk("agent", "rareword" if number % 997 == 7 and not trial else f"Done with {number}."),
                usage(1000 + number, 50, 10, messageId="m1"),
            ]
            totals = writer.add_events(trial_id, events)
            row = {"trial_id": trial_id, "trial_name": f"task-{trial}__{trial_id[:7]}", "task_name": f"task-{trial}"}
            reward = float(rnd.random() < 0.5)
            writer.add_trial({**row, "agent": "claude-code", "status": "SCORED", "reward": reward, **totals.as_row()})
            writer.add_file(f"{row['trial_name']}/result.json", io.BytesIO(b"{}"), trial_id=trial_id)
        facts = {"original_job_id": job_id, "original_job_name": name, "n_trials": TRIALS, "n_scored": TRIALS}
        writer.commit(job={**facts, "imported_at": "2026-11-30T00:00:00Z"})


def run(command: tuple[str, ...]) -> tuple[float, float]:
    """Seconds of wall and of processor of one process."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began, before = time.perf_counter(), spent()
    subprocess.run([sys.executable, "-m", "traceflow", *command], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, spent() - before


def compare(store: Store, cache: Path) -> None:
    """The table of all commands, with the catalog and without it."""

    def kinds() -> Iterator[bool]:
        for _ in range(REPEATS):
            yield from (False, True)

    began = time.process_time()
    made = store.compact()
    print(f"compact: {made.jobs} jobs, {made.size} bytes, {time.process_time() - began:.1f} cpu s")
    names = [found.name for found in store.backend.objects("catalog")]
    latest = next(name for name in names if name.endswith("latest.json"))
    kept = store.backend.read_bytes(latest)
    os.environ["TRACEFLOW_CACHE"] = str(cache)
    print(f"{'':<54}{'without':>16}{'with catalog':>16}{'ratio':>7}")
    for command in COMMANDS:
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for with_catalog in kinds():
            store.backend.delete(latest)
            if with_catalog:
                with store.backend.create(latest) as stream:
                    stream.write(kept)
            found[with_catalog].append(run(command))
        (wall, cpu), (wall2, cpu2) = ([min(x[n] for x in found[kind]) for n in (0, 1)] for kind in (False, True))
        told = f"{wall:>7.2f} {cpu:>6.2f}cpu {wall2:>8.2f} {cpu2:>6.2f}cpu"
        print(f"{' '.join(command)[:52]:<54}{told}{cpu2 / cpu:>7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", nargs="?", type=int, default=1000)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--delay", default="0.02")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if not options.s3:
            store = Store.open(str(folder / "store"), create=True)
            fill(store, options.jobs)
            compare(store, folder / "cache")
            return
        sys.path.append(str(Path(__file__).parents[1] / "remote"))
        from s3_server import BUCKET, S3Server

        with S3Server(folder / "s3") as server:
            store = Store.open(f"s3://{BUCKET}/store", create=True)
            fill(store, options.jobs)
            server.kill()
            server.options = {"delay": options.delay}
            server.start()
            compare(store, folder / "cache")


def fill(store: Store, jobs: int) -> None:
    began = time.process_time()
    for number in range(jobs):
        write(store, number)
    print(f"{jobs} jobs of {TRIALS} trials written in {time.process_time() - began:.1f} cpu s")
    os.environ["TRACEFLOW_STORE"] = store.url


if __name__ == "__main__":
    main()
