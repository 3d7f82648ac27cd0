"""The README does what it says: in a fresh environment, with its own commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SHELL = re.findall(r"```sh\n(.*?)```", README, re.S)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.S)


def block(beginning: str) -> str:
    (found,) = [command.strip() for command in SHELL if command.startswith(beginning)]
    return found


def shell(command: str, path: Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "error", **more}
    env.pop("TRACEFLOW_STORE", None)
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=cwd, env=env, capture_output=True, text=True, timeout=300
    )


def test_the_first_command_imports_the_shipped_job_and_shows_what_is_in_it(fresh: Path, tmp_path: Path) -> None:
    assert block("pip install .") == "pip install ."
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    ran = shell(block("export TRACEFLOW_STORE"), fresh / "bin", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "imported demo as a31db0bc-ee63-5485-a6b5-46cebbf3a208: scored 4 of 7 trial(s)" in ran.stdout
    rows = [line.split("\t") for line in ran.stdout.splitlines() if "\t" in line]
    heads = rows[0]
    trial = dict(zip(heads, next(row for row in rows if row[0] == "tour__rS2tU4v"), strict=True))
    assert (trial["reward"], trial["prompt"], trial["completion"]) == ("0.5", "37602", "216")
    assert re.search(r"^ +0  prompt +Please run the scripted tour", ran.stdout, re.M)
    assert re.search(r"^\S+:\d+:tool_call_update: .*No such file", ran.stdout, re.M)
    assert ["codex", "3", "0", "40449"] in rows
    assert (tmp_path / "demo-store" / "store.json").is_file()


def test_one_session_is_converted(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    ran = shell(block("traceflow convert"), fresh / "bin", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "trajectory.json").read_text().startswith('{"schema_version":"ATIF-v1.7"')


def test_the_test_command_runs_the_tests() -> None:
    command = block("pytest")
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()
    bin_folder = Path(sys.executable).parent
    ran = shell(f"{command} -p no:cacheprovider -k limits", bin_folder, ROOT, PYTHONWARNINGS="")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_python_example_runs(fresh: Path, tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    assert shell("traceflow --store demo-store import fixtures/jobs/demo", fresh / "bin", tmp_path).returncode == 0
    source = ROOT / "fixtures/recordings/codex-0.171.0/basic/stdout.jsonl"
    (tmp_path / "session.jsonl").write_bytes(source.read_bytes())
    (tmp_path / "example.py").write_text(PYTHON[0])
    ran = shell("python example.py", fresh / "bin", tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "tool_call" in ran.stdout.splitlines()
