"""How fast a store is searched, as ratios to ripgrep over the raw files and to a scan by DuckDB.

    python tests/benchmarks/bench_query.py FOLDER [STORE]

FOLDER holds Harbor job folders (any number, any size); they are imported into STORE, a temporary folder by default,
unless it has jobs already. Ripgrep must be installed. Times are whole processes, the best of REPEATS (default 5).
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = int(os.environ.get("REPEATS", "5"))
PATTERNS = ("Xenolith_Quark_7731", "ewoulddeadlock", "create_subprocess_exec", "ThreadingMixIn", r"\d{3}-\d{4}")
QUESTIONS = ("econnrefused session", "error", '"invalid literal for"')
TRACEFLOW = [sys.executable, "-m", "traceflow"]


def run(*argv: str) -> tuple[float, float, int]:
    """Seconds of wall and processor, and lines printed."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began, before = time.perf_counter(), spent()
    done = subprocess.run(argv, capture_output=True, check=False)
    return time.perf_counter() - began, spent() - before, done.stdout.count(b"\n")


def best(*argv: str) -> tuple[float, float, int]:
    found = [run(*argv) for _ in range(REPEATS)]
    return min(f[0] for f in found), min(f[1] for f in found), found[0][2]


def size(root: Path, *names: str) -> int:
    return sum(p.stat().st_size for p in root.rglob("*") if p.is_file() and (not names or p.name in names))


def main(folder: Path, store: Path) -> None:
    os.environ["TRACEFLOW_STORE"] = str(store)
    if not (store / "jobs").is_dir():
        for job in sorted(p for p in folder.iterdir() if p.is_dir()):
            subprocess.run([*TRACEFLOW, "import", str(job)], check=True, capture_output=True)
    raw = size(folder)
    print(f"raw {raw / 1e6:.0f} MB, events.grep {size(store, 'events.grep') / raw:.2%} of it")
    print(f"{'pattern':<28}{'rg s':>8}{'grep s':>8}{'scan s':>8}{'to rg':>8}{'to scan':>8}{'cpu/rg':>8}{'hits':>8}")
    for pattern in PATTERNS:
        other = best("rg", "-i", pattern, str(folder))
        ours = best(*TRACEFLOW, "grep", pattern)
        scan = best(*TRACEFLOW, "grep", pattern, "--no-index")
        if ours[2] != scan[2]:
            raise SystemExit(f"index and scan disagree on {pattern}: {ours[2]} and {scan[2]}")
        print(
            f"{pattern:<28}{other[0]:>8.2f}{ours[0]:>8.2f}{scan[0]:>8.2f}{ours[0] / other[0]:>8.2f}"
            f"{ours[0] / scan[0]:>8.2f}{ours[1] / other[1]:>8.2f}{ours[2]:>8}"
        )
    wall, spent, _ = run(*TRACEFLOW, "index")
    words = size(store, "words.parquet", "docs.parquet")
    print(f"index for search: {wall:.1f} s, {spent:.1f} cpu s, {words / 1e6:.1f} MB")
    for question in QUESTIONS:
        wall, spent, _ = best(*TRACEFLOW, "search", question)
        print(f"search {question:<24}{wall:>8.2f} s{spent:>8.2f} cpu s")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(sys.argv[1]), Path(scratch, "store"))
