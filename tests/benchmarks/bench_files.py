"""How long the verbs on a trial's files take as whole processes, on a trial of 100,000 files.

    python tests/benchmarks/bench_files.py [FILES] [RUNS]

Once the files lie in the trial's folder, once in a capture of its file system that says that all of them were created.
Beside each stands what Python needs to import the Parquet engine and nothing else, in the same run.
"""

from __future__ import annotations

import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

TRIAL = "task__abc"
FOLDER = [
    "status {}",
    "ls {}",
    "ls {} data",
    "ls {} data/d050 --cursor f00500",
    "cat {} data/d050/f00500",
    "cat {} data/d050/f00500 --range bytes=0-3",
    "search {} hello --path data/d050",
    "changes {}",
]
CAPTURE = [line.replace(" data", " srv") for line in FOLDER]
CAPTURE += ["changes {} --phase agent --cursor /srv/d050"]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRACEFLOW_CACHE"] = str(Path(folder, "cache"))
        command = [shutil.which("traceflow", path=str(Path(sys.executable).parent)) or "traceflow"]
        print("  wall  processor")
        _print([sys.executable, "-c", "import pyarrow.parquet"], runs, "import pyarrow.parquet")
        for name, verbs in (("folder", FOLDER), ("capture", CAPTURE)):
            job, store = Path(folder, name), str(Path(folder, f"{name}.store"))
            make_job(job, count, captured=name == "capture")
            subprocess.run([*command, "import", job, "--store", store], check=True, capture_output=True)
            shutil.rmtree(job)
            print(f"{count} files in a {name}")
            for number, verb in enumerate([verbs[1], *verbs]):
                words = ["trial", "files", *verb.format(TRIAL).split(), "--store", store]
                first = "" if number else ", for the first time"
                _print([*command, *words], runs if number else 0, verb.format("T") + first)


def _print(command: list[str], runs: int, what: str) -> None:
    """Wall and processor seconds, the best of so many runs and one before them; of none the one."""
    took = []
    for _ in range(runs + 1):
        began, spent = time.perf_counter(), _spent()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took.append((time.perf_counter() - began, _spent() - spent))
    wall, processor = zip(*(took[1:] or took), strict=True)
    print(f"{min(wall):6.3f}  {min(processor):9.3f}  {what}", flush=True)


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make_job(root: Path, count: int, *, captured: bool) -> None:
    """A job of one trial with so many small files, a thousand in each folder."""
    trial = root / TRIAL
    trial.mkdir(parents=True)
    result = dict.fromkeys(("task_name", "trial_uri", "task_checksum"), "") | {"task_id": {}, "config": {}}
    result |= {"trial_name": TRIAL, "agent_info": {"name": "nop", "version": "1"}}
    (root / "config.json").write_text(json.dumps({"job_name": root.name}))
    (root / "result.json").write_text(json.dumps({"n_total_trials": 1, "stats": {}}))
    (trial / "result.json").write_text(json.dumps(result))
    files = [(f"d{n // 1000:03d}/f{n % 1000:05d}", f"content {n}\nhello\n".encode()) for n in range(count)]
    if not captured:
        for path, content in files:
            file = trial / "data" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return
    rows = ["path\ttype\tsize\tmtime\tmode\towner\tchanged\tphase\tcaptured"]
    rows += [
        f"/srv/{path}\tfile\t{len(data)}\t2026-01-01T00:00:00Z\t0644\troot\tcreated\tagent\ttrue"
        for path, data in files
    ]
    with tarfile.open(trial / "fs.tar.gz", "w:gz", compresslevel=6) as tar:
        for name, content in [
            *((f"srv/{path}", data) for path, data in files),
            ("MANIFEST.tsv", "\n".join(rows).encode()),
        ]:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


if __name__ == "__main__":
    main()
