"""What a conversion costs, as a ratio to reading the same file with orjson alone, both as whole processes in turn.

usage: bench_convert.py SESSION.jsonl [RUNS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ORJSON = "import orjson, sys\nfor line in open(sys.argv[1], 'rb'):\n    orjson.loads(line)"


def measured(command: list[str]) -> tuple[float, int]:
    """Processor seconds and peak memory (KiB) of a process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{command} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def main() -> None:
    source = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as folder:
        convert = [sys.executable, "-m", "traceflow", "convert", source, "-o", str(Path(folder) / "out.json")]
        floor = [sys.executable, "-c", ORJSON, source]
        measured(convert), measured(floor)
        pairs = [(measured(convert), measured(floor)) for _ in range(runs)]
    ratios = [ours[0] / theirs[0] for ours, theirs in pairs]
    print(f"{Path(source).stat().st_size / 1e6:.0f} MB, {runs} pairs")
    print(f"convert  {statistics.median(ours[0] for ours, _ in pairs):.2f} s cpu, {pairs[0][0][1] / 1024:.0f} MiB")
    print(f"orjson   {statistics.median(theirs[0] for _, theirs in pairs):.2f} s cpu, {pairs[0][1][1] / 1024:.0f} MiB")
    print(f"ratio    {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
