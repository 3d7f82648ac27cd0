"""`traceflow grep` and `search` read their own command lines, as other commands read theirs, to the same exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traceflow_formats import jsontext

from traceflow.cli import run
from traceflow.cli.arguments import Option, UsageError, parse
from traceflow.store import Store
from traceflow.store.testing import chunk, write_job

OPTIONS = (
    Option(("--flag", "-f"), "flag", "A flag."),
    Option(("--other", "-o"), "other", "Another."),
    Option(("--name", "-n"), "name", "A text.", "TEXT"),
    Option(("--number", "-c"), "number", "A number.", "N", least=0, default=7),
    Option(("--many",), "many", "Texts.", "TEXT", many=True),
)


@pytest.mark.parametrize(
    ("line", "changed", "words"),
    [
        ("", {}, []),
        ("word -f", {"flag": True}, ["word"]),
        ("-fo word", {"flag": True, "other": True}, ["word"]),
        ("--name=a=b", {"name": "a=b"}, []),
        ("--name -x", {"name": "-x"}, []),
        ("-na -c0", {"name": "a", "number": 0}, []),
        ("-fna", {"flag": True, "name": "a"}, []),
        ("--many a --many b", {"many": ["a", "b"]}, []),
        ("-f -- -o --name", {"flag": True}, ["-o", "--name"]),
        ("- a", {}, ["-", "a"]),
    ],
)
def test_options_are_read(line: str, changed: dict[str, object], words: list[str]) -> None:
    before = {"flag": False, "other": False, "name": None, "number": 7, "many": None}
    assert parse(OPTIONS, line.split()) == ({**before, **changed}, words)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--nam x", "No such option: --nam Did you mean --name?"),
        ("-x", "No such option: -x"),
        ("--name", "'--name' requires an argument"),
        ("--flag=1", "does not take a value"),
        ("-c x", "not a valid integer"),
        ("--number=-1", "not in the range"),
    ],
)
def test_what_cannot_be_read_is_said(line: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(OPTIONS, line.split())


@pytest.fixture
def url(tmp_path: Path) -> str:
    store = Store.open(str(tmp_path / "s"), create=True)
    events = [chunk("agent", f"line one\nneedle {n} \x1b[31m") for n in range(3)]
    write_job(store, "j", [({"trial_id": "t", "trial_name": "trial-1"}, [*events, chunk("agent", "hay")])])
    return store.url


@pytest.mark.parametrize(
    ("line", "code", "out"),
    [
        ("grep needle", 0, "trial-1:0:agent_message_chunk: needle 0 \\x1b[31m\n" * 1),
        ("grep -c needle", 0, "trial-1\t3\n"),
        ("grep -l needle", 0, "trial-1\n"),
        ("grep absent-word", 1, ""),
        ("grep -F --tail 1 needle", 0, "trial-1:2:agent_message_chunk: needle 2 \\x1b[31m\n"),
        ("grep Needle -s", 1, ""),
        ("grep --no-index -c needle", 0, "trial-1\t3\n"),
        ("search absentword", 1, ""),
    ],
)
@pytest.mark.parametrize("root", [False, True], ids=["at once", "after --store"])
def test_commands_print_and_exit(
    url: str, line: str, code: int, out: str, root: bool, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    words = line.split()
    argv = ["--store", url, *words] if root else [*words, "--store", url]
    assert run(argv) == code
    printed = capfdbinary.readouterr().out.decode()
    assert printed.startswith(out)
    assert bool(printed) == bool(out)


def test_a_limit_that_ended_the_search_is_said(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["grep", "needle", "-n", "2", "--json", "--store", url]) == 0
    printed = capfd.readouterr()
    assert [json.loads(line)["seq"] for line in printed.out.splitlines()] == [0, 1]
    assert printed.err.startswith("incomplete: more events match than --limit 2")
    assert run(["grep", "needle", "-n", "3", "--store", url]) == 0
    assert capfd.readouterr().err == ""


def test_search_prints_the_best_event_of_each_trial(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["search", "needle", "-absentword", "--store", url]) == 0
    assert "trial-1:0:agent_message_chunk (+2)\n        line one needle 0 \\x1b[31m\n" in capfd.readouterr().out
    assert run(["search", "needle", "--json", "--store", url]) == 0
    found = jsontext.loads(capfd.readouterr().out)
    assert (found["trial_name"], found["matches"], found["seq"]) == ("trial-1", 3, 0)


def test_index_makes_what_is_missing(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["index", "--json", "--store", url]) == 0
    assert jsontext.loads(capfd.readouterr().out) == {"jobs": 1, "grep": 0, "words": 1}
    assert run(["index", "--json", "--store", url]) == 0
    assert jsontext.loads(capfd.readouterr().out) == {"jobs": 1, "grep": 0, "words": 0}


@pytest.mark.parametrize("line", ["grep", "grep a b", "grep --nothing a", "search", "grep -n 0 a"])
def test_a_command_line_that_is_wrong_is_code_two(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 2
    printed = capfd.readouterr()
    assert (printed.out, printed.err.splitlines()[0].split()[0]) == ("", "Usage:")


@pytest.mark.parametrize("command", ["grep", "search"])
def test_help_names_every_option(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    text = capfd.readouterr().out
    assert text.startswith(f"Usage: traceflow {command} ")
    assert all(option in text for option in ("--job", "--trial", "--type", "--limit", "--store", "--json"))
    assert max(map(len, text.splitlines())) <= 100
