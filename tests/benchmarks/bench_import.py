"""What an import costs: CPU as a ratio to unpacking, compressing and reading the same bytes; what workers bring.

    python tests/benchmarks/bench_import.py [TRIALS] [CORPUS]

TRIALS small trials (1000) are generated. CORPUS is a folder of Harbor jobs; without one twenty trials of longer
sessions are generated. Everything is run in turn several times. The least of each counts, and of the ratio to the floor
the median of the pairs as well: a machine that others use changes its speed from minute to minute. Modules are
compiled before, as they are when a package is installed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

import orjson

sys.path.insert(0, str(Path(__file__).parents[1] / "importer"))
from job_builder import claude_rows, write_job_folder, write_trial_folder

IMPORT = """
import resource, sys
from pathlib import Path
from traceflow.importer import import_job
from traceflow.importer.workers import Workers
from traceflow.store import Store
def cpu(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime
if __name__ == "__main__":
    store = Store.open(sys.argv[1], create=True)
    with Workers(int(sys.argv[2])) as workers:
        for job in sys.argv[3:]:
            import_job(store, Path(job), workers=workers)
    print(cpu(resource.RUSAGE_SELF), cpu(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


RUNS = 3
PAIRS = 9


class Run(NamedTuple):
    own: float  # CPU seconds of the importer
    workers: float  # CPU seconds of its workers
    wall: float
    memory: float  # MiB, of the importer


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shell(command: str) -> float:
    """CPU seconds of a command."""
    before = children()
    subprocess.run(command, shell=True, check=True)
    return children() - before


def import_with(workers: int, jobs: list[Path], script: Path) -> Run:
    """CPU of the importer and of its workers, wall seconds, MiB of memory."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(script.parent / "compiled")
    with tempfile.TemporaryDirectory() as store:
        began = time.perf_counter()
        command = [sys.executable, str(script), store, str(workers), *map(str, jobs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        wall = time.perf_counter() - began
    own, of_workers, memory = map(float, done.stdout.split())
    return Run(own, of_workers, wall, memory / 1024)


def floor(folder: Path, scratch: Path) -> tuple[float, float, float]:
    """CPU of `tar xzf`, `zstd -3` of the same bytes, and reading them with orjson."""
    archive, unpacked = scratch / "corpus.tar.gz", scratch / "unpacked"
    if not archive.exists():
        subprocess.run(["tar", "czf", str(archive), "-C", str(folder), "."], check=True)
    unpacked.mkdir()
    unpacking = shell(f"tar xzf {archive} -C {unpacked}")
    shutil.rmtree(unpacked)
    compressing = shell(f"find {folder} -type f -print0 | xargs -0 cat | zstd -q -3 -c > /dev/null")
    began = time.process_time()
    for path in folder.rglob("*.json*"):
        with path.open("rb") as stream:
            for line in stream if path.suffix == ".jsonl" else [stream.read()]:
                orjson.loads(line)
    return unpacking, compressing, time.process_time() - began


def against_floor(corpus: Path, jobs: list[Path], scratch: Path, script: Path) -> None:
    import_with(1, jobs[:1], script)  # compiles the modules
    floors, runs = [], []
    for _ in range(PAIRS):
        floors.append(floor(corpus, scratch))
        runs.append(import_with(1, jobs, script))
    least, run = min(floors, key=sum), min(runs)
    ratios = [one.own / sum(other) for one, other in zip(runs, floors, strict=True)]
    print("  tar xzf {:.2f} s, zstd -3 {:.2f} s, orjson {:.2f} s CPU".format(*least))
    print(f"  import {run.own:.2f} s CPU, {run.own / sum(least):.2f} times the sum of the three; {run.memory:.0f} MiB")
    print(f"  in {PAIRS} pairs {median(ratios):.2f} times, {min(ratios):.2f} to {max(ratios):.2f}")


def one_against_two(jobs: list[Path], script: Path) -> None:
    ones, twos = [], []
    for _ in range(RUNS):
        ones.append(import_with(1, jobs, script))
        twos.append(import_with(2, jobs, script))
    for name, runs in (("one process", ones), ("two workers", twos)):
        run = min(runs, key=lambda run: run.wall)
        print(f"  {name}: {run.wall:.1f} s, CPU {run.own:.1f} s + {run.workers:.1f} s in workers, {run.memory:.0f} MiB")
    faster = min(run.wall for run in ones) / min(run.wall for run in twos)
    print(f"  two workers are {faster:.2f} times as fast")


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        script = scratch / "bench_run.py"
        script.write_text(IMPORT)
        if len(sys.argv) > 2:
            corpus = Path(sys.argv[2])
            jobs = sorted(path for path in corpus.iterdir() if path.is_dir())
        else:
            corpus = scratch / "corpus"
            jobs = [write_job_folder(corpus / "long", 0)]
            for n in range(20):
                rows = claude_rows(f"session-{n}", 2000, json.dumps({"words": "lorem ipsum " * 20}))
                write_trial_folder(jobs[0], f"t{n}__0000000", {"agent/sessions/projects/-a/s.jsonl": rows})
        size = sum(path.stat().st_size for path in corpus.rglob("*") if path.is_file())
        print(f"corpus: {size / 1e6:.0f} MB, {len(jobs)} job(s)")
        against_floor(corpus, jobs, scratch, script)
        one_against_two(jobs, script)
        small = write_job_folder(scratch / "small", trials)
        print(f"{trials} small trials")
        one_against_two([small], script)


if __name__ == "__main__":
    main()
