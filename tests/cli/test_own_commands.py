"""`trial files`, `trial logs` and `export` read their own command lines, and say what the option parser would say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from running import DEMO, FIXTURES

from traceflow.cli import run
from traceflow.cli.arguments import Option
from traceflow.cli.command import Argument, Command, Family

TOUR = "tour__rS2tU4v"
CAPTURED = "tour__cP3tR5e"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("own") / "store")
    for job in (DEMO, FIXTURES / "jobs" / "captured"):
        assert run(["import", str(job), "--store", url]) == 0
    return url


Printed = tuple[int, str, str]


def printed(argv: list[str], capfd: pytest.CaptureFixture[str]) -> Printed:
    code = run(argv)
    said = capfd.readouterr()
    return code, "\n".join(line for line in said.out.splitlines() if '"ms"' not in line), said.err


LINES = [
    (f"files status {TOUR}", 0, "state"),
    (f"files ls {TOUR}", 0, "verifier/"),
    (f"files {TOUR} ls verifier -n1", 0, "reward-details.json"),
    (f"files ls {CAPTURED} srv/app --limit=1 --cursor .cache", 0, "README.md"),
    (f"files ls {CAPTURED} --source trial", 0, "result.json"),
    (f"files cat {TOUR} verifier/reward.json --range bytes=0-8", 0, '{"reward"'),
    (f"files {CAPTURED} cat --json /srv/app/hello.txt", 0, '"base64"'),
    (f"files search {TOUR} hello --path artifacts -n 1", 0, "/artifacts/"),
    (f"files search {TOUR} --regex ^hello$ --path=trial.log", 1, ""),
    (f"files changes {CAPTURED} --phase agent", 0, "/srv/app/hello.txt"),
    (f"logs {TOUR} verifier --cursor 0", 0, "tests_passed"),
    (f"logs {TOUR} verifier -n 1 --json", 0, '"next_cursor": 0'),
]
REFUSED = [
    (f"files ls {TOUR} ../{TOUR}/result.json", 1, "error[invalid_input]"),
    (f"files cat {TOUR} agent/../../config.json", 1, "error[invalid_input]"),
    (f"files cat {TOUR} /etc/passwd", 1, "error[not_found]"),
    (f"files ls {TOUR} nope\x1b[31m", 1, "error[not_found]: /nope\\x1b[31m"),
    (f"files cat {CAPTURED} srv/app/README.md", 1, "error[not_captured]"),
    (f"files ls {TOUR} -n 0", 1, "error[invalid_input]: a page has 1 to 1000 entries"),
    ("files ls nobody", 1, "error[trial_not_found]"),
    (f"files {TOUR} ls --job nobody", 1, "error[job_not_found]"),
    (f"logs {TOUR} elsewhere", 1, "error[invalid_input]"),
    ("files ls", 2, "Error: Missing argument 'TRIAL'."),
    (f"files {TOUR} cat", 2, "Error: Missing argument 'PATH'."),
    (f"files ls {TOUR} a b c", 2, "Error: Got unexpected extra argument(s) (b c)"),
    (f"files ls {TOUR} --nothing", 2, "Error: No such option: --nothing"),
    (f"files ls {TOUR} --limit many", 2, "Error: Invalid value for '--limit': 'many' is not a valid integer."),
    (f"files {TOUR}", 2, f"Error: No such command '{TOUR}'."),
    ("files --nothing", 2, "Error: No such option: --nothing"),
    ("logs", 2, "Error: Missing argument 'TRIAL'."),
]


@pytest.mark.parametrize(("line", "code", "said"), LINES + REFUSED, ids=[line for line, _, _ in LINES + REFUSED])
def test_they_say_the_same_whichever_way_they_are_called(
    line: str, code: int, said: str, store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEFLOW_STORE", "nowhere")
    words = ["trial", *line.split(" ")]
    known = code != 2 or "ls" in words
    at_once = printed([*words, *(["--store", store] if known else [])], capfd)
    assert at_once[0] == code
    assert said in (at_once[1] if code == 0 else at_once[2])
    assert bool(at_once[1]) == (code == 0)
    assert printed(["--store", store, *words], capfd) == at_once
    assert printed([f"--store={store}", *words], capfd) == at_once  # this one the option parser reads first


def test_a_name_that_looks_like_an_option_stands_behind_two_dashes(
    store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEFLOW_STORE", "nowhere")
    for root in (["--store", store], [f"--store={store}"]):
        assert printed([*root, "trial", "files", "cat", TOUR, "--", "--json"], capfd)[2].startswith("error[not_found]")


def test_a_family_without_a_word_shows_its_help(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = printed(["trial", "files"], capfd)
    assert (code, out) == (2, printed(["trial", "files", "--help"], capfd)[1])
    assert [line.split()[0] for line in out.partition("Commands:\n")[2].splitlines() if line[2] != " "] == (
        ["status", "ls", "cat", "search", "changes", "archive"]
    )


def test_a_command_is_a_function_and_a_table() -> None:
    seen = []
    number = Option(("--number", "-n"), "number", "A number.", "N", number=True, default=3)
    command = Command(
        "x go",
        "Go.",
        lambda **v: seen.append(v),
        [Argument("A", "a", "One."), Argument("B", "b", "Two.", "b")],
        [number],
    )
    family = Family("x", "Things.", {"go": command})
    assert [family(line.split()) for line in ("go 1", "1 go -n-2", "go go go", "2 go 3 --number=4")] == [0, 0, 0, 0]
    assert [tuple(values.values()) for values in seen] == [
        (3, "1", "b"),
        (-2, "1", "b"),
        (3, "go", "go"),
        (4, "2", "3"),
    ]


EXPORT_REFUSED = [
    ("export", "Error: Invalid value: name one job or several, or say --all"),
    ("export demo --all", "Error: Invalid value: name one job or several, or say --all"),
    ("export demo other --verify file", "Error: Invalid value: --verify takes one archive and at most one job"),
    ("export demo --original --redact", "Error: Invalid value: --original writes exactly what was imported"),
    ("export demo -o - --json", "Error: Invalid value: -o - writes one archive to stdout"),
    ("export --output", "Error: Option '--output' requires an argument."),
]


@pytest.mark.parametrize(("line", "said"), EXPORT_REFUSED)
def test_an_export_that_makes_no_sense_is_refused(
    line: str, said: str, store: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEFLOW_STORE", "nowhere")
    at_once = printed(["--store", store, *line.split()], capfd)
    assert at_once[:2] == (2, "")
    assert said in at_once[2]
    assert printed([f"--store={store}", *line.split()], capfd) == at_once


def test_an_export_is_the_same_bytes_whichever_way_it_is_called(
    store: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEFLOW_STORE", "nowhere")
    monkeypatch.chdir(tmp_path)
    assert run(["export", "demo", "-oone.tar.gz", "--store", store]) == 0
    assert run(["--store", store, "export", "--output=two.tar.gz", "--", "demo"]) == 0
    assert run([f"--store={store}", "export", "demo", "-o", "three.tar.gz"]) == 0
    made = [Path(name).read_bytes() for name in ("one.tar.gz", "two.tar.gz", "three.tar.gz")]
    assert made == made[:1] * 3
    assert run(["export", "--verify", "one.tar.gz", "--store", store]) == 0
    capfd.readouterr()


# what would be a fifth of what an answer may take, or more
SLOW_TO_IMPORT = {"typer", "click", "pydantic", "duckdb", "numpy", "pandas", "pyarrow.compute", "rich"}


ANSWERED = [f"trial {line}" for line, code, _ in LINES if not code]


@pytest.mark.parametrize("line", [*ANSWERED, f"trial files archive {TOUR} agent -o -", "export demo -o -"])
def test_they_answer_without_what_is_slow_to_import(line: str, store: str) -> None:
    program = (
        "import sys; from traceflow.cli import run; code = run(sys.argv[1:]);"
        f"print(code, sorted({SLOW_TO_IMPORT!r} & sys.modules.keys()), file=sys.stderr)"
    )
    command = [sys.executable, "-c", program, *line.split(), "--store", store]
    done = subprocess.run(command, capture_output=True, check=True, cwd=Path(store).parent)
    assert done.stderr.decode().splitlines()[-1] == "0 []"
