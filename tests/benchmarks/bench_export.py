"""How fast a job is exported, as a ratio to `tar c | gzip -6` over the very same tree, and how much memory it takes.

    python tests/benchmarks/bench_export.py [MEGABYTES] [TRIALS]

The job is generated: Claude Code sessions of varied text, tool calls and results, one per trial. It is imported
once; the export runs as its own process, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROUNDS = 3


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    trials = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        make_job(base / "job", megabytes, trials)
        command = [sys.executable, "-m", "traceflow", "--store", str(base / "store")]
        subprocess.run([*command, "import", str(base / "job")], check=True, capture_output=True)
        out = base / "ours.tar.gz"
        runs = [_timed([*command, "export", "bench", "-o", str(out)]) for _ in range(ROUNDS)]
        (base / "tree").mkdir()
        subprocess.run(["tar", "xzf", str(out), "-C", str(base / "tree")], check=True)
        shell = f"tar c -C {base}/tree . | gzip -6 > {base}/theirs.tar.gz"
        theirs = [_timed(["sh", "-c", shell]) for _ in range(ROUNDS)]
        wall, memory = min(run[0] for run in runs), max(run[2] for run in runs)
        size = sum(path.stat().st_size for path in (base / "tree").rglob("*") if path.is_file())
        their_wall = min(run[0] for run in theirs)
        print(f"{trials} trials, {size / 1e6:.0f} MB in the archive, {out.stat().st_size / 1e6:.1f} MB packed")
        print(f"export {wall:.2f} s, tar c | gzip -6 {their_wall:.2f} s: {their_wall / wall:.2f} times as fast")
        spent, their_spent = min(run[1] for run in runs), min(run[1] for run in theirs)
        print(f"processor time {spent:.2f} s against {their_spent:.2f} s, over all processes and threads")
        print(f"peak memory {memory:.0f} MB in the largest process")
        packed = (base / "theirs.tar.gz").stat().st_size
        print(f"size {out.stat().st_size / packed:.3f} of gzip -6")


def _timed(command: list[str]) -> tuple[float, float, float]:
    """(seconds, seconds of processors, peak memory in MB of the largest process)"""
    start = time.perf_counter()
    done = subprocess.run(["/usr/bin/env", "time", "-v", *command], capture_output=True, text=True, check=True)
    took = time.perf_counter() - start
    user, system, memory = (
        float(re.findall(rf"{name}.*: ([0-9.]+)", done.stderr)[0])
        for name in ("User time", "System time", "Maximum res")
    )
    return took, user + system, memory / 1000


# -- the job -----------------------------------------------------------------------------------------------------


def make_job(root: Path, megabytes: int, trials: int) -> None:
    """A job of Claude Code sessions, so many megabytes in all, of very different sizes."""
    rng = random.Random(7)
    weights = [rng.lognormvariate(0, 0.8) for _ in range(trials)]
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=rng.randint(2, 11))) for _ in range(20_000)]
    spread = [1 / (rank + 1) for rank in range(len(words))]
    prose = " ".join(rng.choices(words, spread, k=400_000))
    root.mkdir()
    (root / "config.json").write_text(json.dumps({"job_name": "bench"}))
    (root / "result.json").write_text(
        json.dumps({"id": "00000000-0000-4000-8000-0000000000be", "n_total_trials": trials, "stats": {}})
    )
    for number, weight in enumerate(weights):
        trial = root / f"task__{number:05d}"
        session = trial / "agent/sessions/projects/-app" / f"session-{number:05d}.jsonl"
        session.parent.mkdir(parents=True)
        (trial / "result.json").write_text(json.dumps(_result(trial.name)))
        with session.open("w") as out:
            left = int(megabytes * 1e6 * weight / sum(weights))
            for record in _session(rng, prose, f"session-{number:05d}"):
                line = json.dumps(record)
                out.write(line + "\n")
                left -= len(line)
                if left <= 0:
                    break


def _result(name: str) -> dict[str, Any]:
    return {
        "task_name": "task",
        "trial_name": name,
        "trial_uri": "",
        "task_id": {},
        "task_checksum": "",
        "config": {},
        "agent_info": {"name": "claude-code", "version": "2.1.0"},
        "verifier_result": {"rewards": {"reward": 1}},
    }


def _session(rng: random.Random, prose: str, session: str) -> Iterator[dict[str, Any]]:
    def text(length: int) -> str:
        start = rng.randrange(len(prose) - length)
        return prose[start : start + length]

    base = {"sessionId": session, "version": "2.1.0", "cwd": "/app", "isSidechain": False, "userType": "external"}
    parent = None
    number = 0

    def record(kind: str, message: dict[str, Any]) -> dict[str, Any]:
        nonlocal parent, number
        number += 1
        clock = f"{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}"
        made = {
            "parentUuid": parent,
            "uuid": f"{session}-{number}",
            "timestamp": f"2026-01-01T{clock}.{rng.randrange(1000):03d}Z",
            "type": kind,
            "message": message,
            **base,
        }
        parent = made["uuid"]
        return made

    yield record("user", {"role": "user", "content": text(400)})
    call = 0
    while True:
        call += 1
        usage = {"input_tokens": 10, "output_tokens": 200, "cache_read_input_tokens": 4000}
        message = {"role": "assistant", "model": "model-1", "id": f"msg_{call}", "usage": usage}
        yield record("assistant", {**message, "content": [{"type": "text", "text": text(rng.randint(50, 900))}]})
        block = {"type": "tool_use", "id": f"toolu_{call}", "name": "Bash", "input": {"command": text(80)}}
        yield record("assistant", {**message, "content": [block]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{call}", "content": text(rng.randint(200, 6000))}
        yield record("user", {"role": "user", "content": [result]})


if __name__ == "__main__":
    main()
