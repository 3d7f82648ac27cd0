"""How fast a store is searched, beside ripgrep over the raw files, measured in turn, and beside the peers' figures.

    python tests/benchmarks/bench_query.py FOLDER [STORE]

FOLDER holds Harbor job folders (any number, any size); they are imported into STORE, a temporary folder by default,
unless it has jobs already. Ripgrep must be installed. Times are whole processes with a warm cache: each pair is run in
turn REPEATS times (default 7), and the best and the median of it are shown, so that a machine that is busy for a while
is busy for both. Peers are `PEERS`: figures of another machine for the same kind of corpus, as ratios to ripgrep there.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPEATS = int(os.environ.get("REPEATS", "7"))
GREP = (  # pattern, what the wall time may be at most as a ratio to ripgrep
    ("Xenolith_Quark_7731", 0.15),
    ("create_subprocess_exec", 0.4),
    ("ThreadingMixIn", 0.4),
    ("ewoulddeadlock", None),
    ("Xenolith_Quark_7731|no_such_thing_9", None),
)
SCAN = ((r"\d{3}-\d{4}", 2.0),)
QUESTIONS = ("xenolith_quark_7731", "econnrefused session", "error", "the", "error failed test", '"invalid literal"')
SEARCH_LIMIT = 0.3  # seconds
# 1.79 GB of raw sessions, 1.08 GB of text; 2 cores, polars 2.1, DuckDB 2.0.1, tantivy 0.27, SQLite FTS5, ripgrep 13
PEERS = """
grep, wall time to that of ripgrep in the same run           rare literal     \\d{3}-\\d{4}
  polars, scan, in a process that runs / whole process             1.02 / 1.65     1.09 / -
  DuckDB, scan, in a process that runs / whole process             1.8 / 2.21      1.3 / -
  trigram index, verified by DuckDB / by Python's re               0.47 / 0.16     - / -
search, 261 MB of text, inside a process that runs: build cpu s, size to text, ms for rare, two words, "error"
  tantivy                                                      65, 37%, 0.04, 0.14, 0.56
  SQLite FTS5, all detail / none                               31, 41%, 0.13, 7.7, 96 / 25, 18%, 0.07, 4.5, 87
  DuckDB's full-text extension                                 108, 60%, 412, 600, 796
  importing them costs 0.035 (tantivy), 0.053 (sqlite3), 0.36 s (DuckDB) of wall time there"""


class Run(NamedTuple):
    """A whole process: seconds of wall and processor, lines printed."""

    wall: float
    cpu: float
    lines: int


def environment() -> dict[str, str]:
    """Without what would make Python compile its modules each time, or write line by line."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}


def command() -> list[str]:
    """The installed command, which is what people run; the module where there is none."""
    beside = Path(sys.executable).with_name("traceflow")
    return [str(beside)] if beside.exists() else [sys.executable, "-m", "traceflow"]


def run(*argv: str) -> Run:
    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    began, before = time.perf_counter(), spent()
    done = subprocess.run(argv, capture_output=True, check=False, env=environment())
    if done.returncode > 1:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr.decode(errors='replace')}")
    return Run(time.perf_counter() - began, spent() - before, done.stdout.count(b"\n"))


def pairs(ours: list[str], other: list[str], repeats: int = REPEATS) -> list[tuple[Run, Run]]:
    """Both in turn, after once to warm up."""
    run(*other), run(*ours)
    return [(run(*ours), run(*other)) for _ in range(repeats)]


def size(root: Path, *names: str) -> int:
    return sum(p.stat().st_size for p in root.rglob("*") if p.is_file() and (not names or p.name in names))


def verdict(value: float, most: float | None) -> str:
    return "" if most is None else f"{most:g} {'met' if value <= most else 'MISSED'}"


def grep_line(folder: Path, pattern: str, most: float | None, repeats: int) -> None:
    ours = [*command(), "grep", pattern]
    found = pairs(ours, ["rg", "-i", pattern, str(folder)], repeats)
    scan = run(*ours, "--no-index")
    if found[0][0].lines != scan.lines:
        raise SystemExit(f"index and scan disagree on {pattern}: {found[0][0].lines} and {scan.lines}")
    best = [min(pair[n].wall for pair in found) for n in (0, 1)]
    cpu = [min(pair[n].cpu for pair in found) for n in (0, 1)]
    ratio = statistics.median(a.wall / b.wall for a, b in found)
    print(
        f"{pattern:<36}{best[1]:>8.3f}{best[0]:>8.3f}{best[0] / best[1]:>8.2f}{ratio:>8.2f}{cpu[0] / cpu[1]:>8.2f}"
        f"{cpu[0]:>8.3f}{scan.wall:>8.2f}{scan.lines:>7}  {verdict(ratio, most)}",
        flush=True,
    )


def main(folder: Path, store: Path) -> None:
    os.environ["TRACEFLOW_STORE"] = str(store)
    if shutil.which("rg") is None:
        raise SystemExit("ripgrep (rg) is not installed")
    if not (store / "jobs").is_dir():
        for job in sorted(p for p in folder.iterdir() if p.is_dir()):
            subprocess.run([*command(), "import", str(job)], check=True, capture_output=True)
    raw, index = size(folder), size(store, "events.grep")
    print(f"raw {raw / 1e6:.0f} MB; events.grep {index / raw:.2%} of it, {verdict(index / raw, 0.02)}")
    print(
        f"load {os.getloadavg()[0]:.1f}; seconds of wall: best of {REPEATS}; ratios to ripgrep: of the best, median of "
        "the pairs, of processor time"
    )
    heads = ("rg", "grep", "best", "median", "cpu", "cpu s", "scan s", "hits")
    print(f"{'pattern':<36}{''.join(f'{head:>8}' for head in heads[:-1])}{heads[-1]:>7}  at most")
    for pattern, most in GREP:
        grep_line(folder, pattern, most, REPEATS)
    for pattern, most in SCAN:
        grep_line(folder, pattern, most, max(1, REPEATS // 2))
    made = run(*command(), "index")
    words, text = size(store, "words.parquet", "docs.parquet", "words.pages"), text_of(store)
    print(
        f"index for search: {made.wall:.1f} s, {made.cpu:.1f} cpu s (nothing to do where it was there); "
        f"{words / 1e6:.1f} MB, {words / text:.1%} of the text, {verdict(words / text, 0.25)}"
    )
    print(f"{'search':<36}{'best s':>8}{'median':>8}{'cpu s':>8}")
    for question in QUESTIONS:
        words = [question] if '"' in question else question.split()  # one word of the shell with a space is a phrase
        run(*command(), "search", *words)
        some = [run(*command(), "search", *words) for _ in range(REPEATS)]
        best = min(each.wall for each in some)
        print(
            f"{question:<36}{best:>8.3f}{statistics.median(each.wall for each in some):>8.3f}"
            f"{(cpu := min(each.cpu for each in some)):>8.3f}  wall {verdict(best, SEARCH_LIMIT)}, "
            f"processor {verdict(cpu, SEARCH_LIMIT)}",
            flush=True,
        )
    print(PEERS)


def text_of(store: Path) -> int:
    """Bytes of text in all events."""
    import duckdb

    tables = [str(path) for path in store.rglob("events.parquet")]
    return int(duckdb.execute("SELECT sum(strlen(text)) FROM read_parquet(?)", [tables]).fetchall()[0][0])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if len(sys.argv) > 2:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(sys.argv[1]), Path(scratch, "store"))
