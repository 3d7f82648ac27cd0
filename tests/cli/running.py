"""Running the command line as users do: a process of its own, its output read as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"
DEMO = FIXTURES / "jobs" / "demo"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def traceflow(*arguments: object, store: Path | None = None, cwd: Path | None = None, **environment: str) -> Ran:
    """One run of `traceflow`."""
    env = {**os.environ, **environment}
    env.pop("TRACEFLOW_STORE", None)
    if store is not None:
        env["TRACEFLOW_STORE"] = str(store)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "traceflow", *map(str, arguments)],
        capture_output=True,
        cwd=cwd,
        env=env,
        timeout=120,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
