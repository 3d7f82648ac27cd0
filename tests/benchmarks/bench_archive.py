"""How fast archives are written and read, as ratios to `tar c | gzip -6` and `tar xzf` over the same tree.

    python tests/benchmarks/bench_archive.py [MEGABYTES]

The tree is generated: JSON lines of varied text, in files of very different sizes, as agent sessions are.
"""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from traceflow.archive import NewMember, file_chunks, scan, unpack, write_tar_gz


def make_tree(root: Path, megabytes: int) -> None:
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz_", k=rng.randint(2, 11))) for _ in range(20_000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    left, number = megabytes << 20, 0
    while left > 0:
        size = min(left, int(rng.lognormvariate(11.5, 1.6)))
        text = " ".join(rng.choices(words, weights, k=size // 6 + 1))
        lines = (f'{{"type":"message","seq":{i},"text":"{text[i : i + 300]}"}}\n' for i in range(0, len(text), 300))
        path = root / f"job/task__{number:05d}/agent/sessions/session.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(lines))
        left -= path.stat().st_size
        number += 1


def members(root: Path) -> list[NewMember]:
    files = sorted((p for p in root.rglob("*") if p.is_file()), key=lambda p: p.relative_to(root).as_posix().encode())
    return [NewMember(p.relative_to(root).as_posix(), p.stat().st_size, False, file_chunks(p)) for p in files]


def timed(what: Callable[[], object]) -> tuple[float, float]:
    """(wall, processor) seconds, children included."""

    def processor() -> float:
        both = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in both)

    wall, spent = time.perf_counter(), processor()
    what()
    return time.perf_counter() - wall, processor() - spent


def main() -> None:
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        make_tree(base, megabytes)
        shell = ["sh", "-c"]
        ours, theirs, out = base / "ours.tar.gz", base / "theirs.tar.gz", base / "out"
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "write vs tar c | gzip -6": (
                lambda: write_tar_gz(members(base / "job"), ours),
                lambda: subprocess.run([*shell, f"tar c -C {base}/job . | gzip -6 > {theirs}"], check=True),
            ),
            "scan vs tar tzf": (
                lambda: scan(ours),
                lambda: subprocess.run([*shell, f"tar tzf {theirs} > /dev/null"], check=True),
            ),
            "scan and unpack vs tar xzf": (
                lambda: unpack(ours, out / "ours", scan(ours)),
                lambda: subprocess.run(["tar", "xzf", theirs, "-C", out / "theirs"], check=True),
            ),
        }
        for name, (we, they) in pairs.items():
            runs = []
            for _ in range(3):
                shutil.rmtree(out, ignore_errors=True)
                (out / "theirs").mkdir(parents=True)
                runs.append((*timed(we), *timed(they)))
            wall, spent, their_wall, their_spent = map(min, zip(*runs, strict=True))
            print(
                f"{name}: {wall:.2f} s against {their_wall:.2f} s = {wall / their_wall:.2f} wall,"
                f" {spent / their_spent:.2f} processor"
            )
        print(f"size: {ours.stat().st_size / theirs.stat().st_size:.3f} of gzip -6")


if __name__ == "__main__":
    main()
