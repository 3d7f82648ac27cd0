"""`--help` of every command: whole words, lines that fit, every option explained; and the end of a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from running import DEMO, traceflow

from traceflow.cli import run
from traceflow.cli.app import app
from traceflow.cli.trialfiles import files


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, (*path, name))


COMMANDS = [*commands(typer.main.get_command(app)), *(("trial", "files", name) for name in files.commands)]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal_and_explains_everything(
    path: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run([*path, "--help"]) == 0
    text = capfd.readouterr().out
    assert text.startswith(" ".join(["Usage: traceflow", *path, "[OPTIONS]"]))
    assert max(map(len, text.splitlines())) <= min(columns, 100)
    assert "<str>" not in text
    assert "-h, --help" in text
    options = text.split("Options:\n")[1].split("\n\n")[0].splitlines()
    for number, line in enumerate(options):
        if line.startswith("  -") and "  " not in line.strip():
            assert options[number + 1].startswith(" " * 8), f"nothing is said of {line.strip()}"
    if path in {p[:-1] for p in COMMANDS}:
        listed = text.split("Commands:\n")[1]
        assert "..." not in listed
        assert [line.split()[0] for line in listed.splitlines() if line[2:3].strip()] == [
            p[-1] for p in COMMANDS if p and p[:-1] == path
        ]


def test_a_word_that_no_option_knows_points_to_the_help() -> None:
    ran = traceflow("trial", "list", "--nothing")
    assert ran.code == 2
    assert "Try 'traceflow trial list --help' for help." in ran.err


@pytest.mark.parametrize(
    "words",
    ["trial trace tour__rS2tU4v --json", "trial list", "grep . --json", "limits", "job show demo --json", "--help"],
)
def test_a_reader_that_has_enough_is_no_error(words: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    store = tmp_path_factory.getbasetemp() / "piped"
    if not store.exists():
        assert traceflow("import", DEMO, store=store).code == 0
    command = [sys.executable, "-W", "error", "-m", "traceflow", *words.split()]
    read, write = os.pipe()
    os.close(read)  # nobody reads
    env = {**os.environ, "TRACEFLOW_STORE": str(store)}
    ran = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=env, timeout=120)
    os.close(write)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
@pytest.mark.parametrize("words", ["limits --json", "limits", "convert {demo}/tour__rS2tU4v/agent/claude-code.txt"])
def test_a_disk_that_is_full_is_one_line(words: str) -> None:
    command = [sys.executable, "-W", "error", "-m", "traceflow", *words.format(demo=DEMO).split()]
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=120)
    assert ran.returncode == 1
    assert ran.stderr.decode().splitlines()[-1] == (
        "error[io_error]: no space left on the disk; free some and run it again"
    )
