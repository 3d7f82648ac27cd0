"""docs/job.md names every option of `convert --to job`, and the examples in it are read as it says."""

from __future__ import annotations

import hashlib
import re
import uuid
from pathlib import Path

import typer
from pack_inputs import AGENTS, only_trial, sdk_log, stdout

from traceflow.cli import run
from traceflow.cli.app import app
from traceflow.pack import read_rewards

DOC = (Path(__file__).parents[2] / "docs" / "job.md").read_text()


def test_every_option_is_documented() -> None:
    command = typer.main.get_command(app)
    assert isinstance(command, typer.core.TyperGroup)
    params = command.commands["convert"].params
    options = [
        name
        for param in params
        for name in param.opts
        if (getattr(param, "help", "") or "").startswith("With --to job")
    ]
    assert len(options) >= 5
    assert [name for name in options if f"`{name}" not in DOC] == []


def test_the_example_of_scores_is_read(tmp_path: Path) -> None:
    (example,) = re.findall(r"`(\{\"RUN\": 1.*?\}\})`", DOC)
    path = tmp_path / "scores.json"
    path.write_text(example)
    assert read_rewards(path) == {"RUN": {"reward": 1}, "OTHER": {"tests": 3, "style": 0.5}}


def test_the_id_is_the_one_that_is_described(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(sdk_log("codex", stdout(AGENTS["codex"])))
    assert run(["convert", str(log), "--to", "job", "-o", str(tmp_path / "job"), "--task", "hello"]) == 0
    digest = hashlib.sha256(log.read_bytes()).hexdigest()
    assert only_trial(tmp_path / "job")[1]["id"] == str(uuid.uuid5(uuid.NAMESPACE_URL, f"{digest}:hello"))
