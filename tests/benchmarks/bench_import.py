"""What an import costs: CPU as a ratio to unpacking, compressing and reading the same bytes; what workers bring.

    python tests/benchmarks/bench_import.py [TRIALS] [CORPUS]

TRIALS small trials (1000) are generated. CORPUS is a folder of Harbor jobs; without one twenty trials of longer
sessions are generated.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def shell(command: str) -> float:
    """CPU seconds of a command."""
    before = children()
    subprocess.run(command, shell=True, check=True)
    return children() - before


def import_with(workers: int, jobs: list[Path], script: Path) -> tuple[float, float, float, float]:
    """CPU of the importer and of its workers, wall seconds, MiB of memory."""
    with tempfile.TemporaryDirectory() as store:
        began = time.perf_counter()
        command = [sys.executable, str(script), store, str(workers), *map(str, jobs)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall = time.perf_counter() - began
    own, of_workers, memory = map(float, done.stdout.split())
    return own, of_workers, wall, memory / 1024


def floor(folder: Path, scratch: Path) -> float:
    """CPU of `tar xzf`, `zstd -3` of the same bytes, and reading them with orjson."""
    archive = scratch / "corpus.tar.gz"
    subprocess.run(["tar", "czf", str(archive), "-C", str(folder), "."], check=True)
    (scratch / "unpacked").mkdir()
    unpacking = shell(f"tar xzf {archive} -C {scratch}/unpacked")
    compressing = shell(f"find {folder} -type f -print0 | xargs -0 cat | zstd -q -3 -c > /dev/null")
    began = time.process_time()
    for path in folder.rglob("*.json*"):
        with path.open("rb") as stream:
            for line in stream if path.suffix == ".jsonl" else [stream.read()]:
                orjson.loads(line)
    reading = time.process_time() - began
    print(f"  tar xzf {unpacking:.2f} s, zstd -3 {compressing:.2f} s, orjson {reading:.2f} s CPU")
    return unpacking + compressing + reading


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
        least = floor(corpus, scratch)
        own, _, _, memory = import_with(1, jobs, script)
        print(f"  import {own:.2f} s CPU, {own / least:.2f} times the sum of the three; {memory:.0f} MiB")
        small = write_job_folder(scratch / "small", trials)
        one = import_with(1, [small], script)
        two = import_with(2, [small], script)
        print(f"{trials} small trials")
        for name, (own, of_workers, wall, memory) in (("one process", one), ("two workers", two)):
            print(f"  {name}: {wall:.1f} s, CPU {own:.1f} s + {of_workers:.1f} s in workers, {memory:.0f} MiB")
        print(f"  two workers are {one[2] / two[2]:.2f} times as fast")


if __name__ == "__main__":
    main()
