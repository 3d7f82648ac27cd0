"""What reading a session costs, for every harness and source: processor seconds over those of orjson alone.

Writes a synthetic run of each harness (see `synthetic/`), once with texts of the sizes of real runs and once with
texts as short as those of the recordings. Ours is all of a reading: finding the session, a first pass where there is
one, every event. The other side is `orjson.loads` of each line of the same file, of the database's the same rows.
Both run in turn in one process, each with the collector set as the commands set it; the least of several runs counts.
Memory is the peak of a process of its own that reads the file and keeps nothing.

usage: bench_parsers.py [--megabytes 100] [--short-megabytes 100] [--runs 3] [--only NAME]
"""

from __future__ import annotations

import argparse
import gc
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson
from synthetic.files import SHAPES, write_run
from traceflow_parsers.detect import open_path
from traceflow_parsers.source import Source


def read_with_orjson(path: Path) -> None:
    """Every JSON text of a file, and nothing else."""
    if path.suffix == ".db":
        connection = sqlite3.connect(path)
        connection.text_factory = bytes
        for table in ("message", "part"):
            for (data,) in connection.execute(f"SELECT data FROM {table}"):
                orjson.loads(data)
        connection.close()
        return
    with path.open("rb", buffering=1 << 20) as stream:
        for line in stream:
            orjson.loads(line)


def source_of(path: Path) -> Source:
    (source,) = open_path(path)
    return source


def read_events(path: Path) -> None:
    """Every event of a session or stdout."""
    for _ in source_of(path).parse():
        pass


def checked(path: Path, harness: str, kind: str) -> int:
    """How many events a file gives; the bench measures nothing that was not read, or not as what it is."""
    source = source_of(path)
    parse = source.parse()
    events = sum(1 for _ in parse)
    lines = parse.report.lines
    if (
        (source.harness, source.kind) != (harness, kind)
        or lines.parsed + lines.duplicate != lines.read
        or parse.report.warnings
    ):
        raise SystemExit(f"{harness} {kind}: read as {source.harness} {source.kind}: {parse.report.as_dict()}")
    return events


def seconds(task: Callable[[Path], None], path: Path) -> float:
    gc.collect()
    begun = time.process_time()
    task(path)
    return time.process_time() - begun


def peak_memory(path: Path) -> float:
    """MiB of a process that reads a file. It says so itself: what a parent sees may be the parent's own."""
    command = [sys.executable, __file__, "--read", str(path)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) / 1024


def measure(harness: str, kind: str, megabytes: int, short: bool, runs: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(harness, kind, Path(folder), megabytes * 1_000_000, short)
        events = checked(path, harness, kind)
        pairs = [(seconds(read_with_orjson, path), seconds(read_events, path)) for _ in range(runs)]
        memory = peak_memory(path)
        size = path.stat().st_size
    theirs, ours = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
    return (
        f"{size / events:7.0f} {ours * 1e6 / events:7.1f} {theirs:7.2f} {ours:7.2f} {ours / theirs:6.2f} {memory:5.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument(
        "--short-megabytes", type=int, default=100, help="for the short lines, which take long to write"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="only inputs whose name holds this, such as kimi or stdout")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    gc.set_threshold(100_000, 20, 20)  # as the commands set it
    if options.read:
        read_events(options.read)
        status = Path("/proc/self/status").read_text()
        print(status.partition("VmHWM:")[2].split()[0])
        return
    columns = "  bytes      us  orjson    ours  times   MiB"
    sizes = f"{options.megabytes} MB and {options.short_megabytes} MB of short lines"
    print(f"{sizes}, least of {options.runs} runs; bytes and microseconds are of one event")
    print(f"{'':20}{'real sizes':>41}{'':3}{'short lines':>41}")
    print(f"{'':20}{columns}   {columns}")
    for harness, kinds in SHAPES.items():
        for kind in kinds:
            name = f"{harness} {kind}"
            if options.only in name:
                cells = [
                    measure(harness, kind, options.megabytes, False, options.runs),
                    measure(harness, kind, options.short_megabytes, True, options.runs),
                ]
                print(f"{name:20}{'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
