"""The commands around datasets: what they print, their exit codes, and that their page tells the truth."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traceflow.cli import run

ROOT = Path(__file__).parents[2]
TASKS = str(ROOT / "fixtures" / "tasks")
DEMO = str(ROOT / "fixtures" / "jobs" / "demo")

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Call:
    """Run a command line over a store of its own: exit code, stdout, stderr."""
    monkeypatch.setenv("TRACEFLOW_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(ROOT)

    def command(*words: str) -> tuple[int, str, str]:
        capfdbinary.readouterr()
        code = run(list(words))
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return command


def as_json(answer: tuple[int, str, str]) -> Any:
    assert answer[0] == 0, answer
    return json.loads(answer[1])


def test_a_dataset_is_added_listed_shown_and_deleted(call: Call) -> None:
    added = as_json(call("dataset", "add", TASKS, "--name", "org/demo", "--version", "1.0", "--json"))
    assert (added["dataset"], added["n_tasks"], added["n_files"], added["warnings"]) == ("org/demo@1.0", 5, 27, [])
    assert as_json(call("dataset", "list", "--json")) == {k: v for k, v in added.items() if k != "warnings"}
    shown = as_json(call("dataset", "show", "org/demo", "--json"))
    assert [t["task_name"] for t in shown["tasks"]] == [
        f"demo/{name}" for name in ("delegate", "fragile", "relay", "toolbox", "tour")
    ]
    task = as_json(call("dataset", "show", "org/demo@1.0", "--task", "tour", "--json"))
    assert (task["task_name"], task["config"]["task"]["name"]) == ("demo/tour", "demo/tour")
    code, out, _ = call("dataset", "show", "org/demo", "-t", "tour")
    assert code == 0
    assert "digest instruction.md" in out
    assert as_json(call("dataset", "delete", "org/demo", "--yes", "--json")) == {"deleted": "org/demo@1.0"}
    code, out, err = call("dataset", "list")
    assert (code, out.splitlines()) == (0, ["dataset\tversion\ttasks\tfiles\tbytes\tadded"])
    assert "no datasets" in err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("dataset", "add", TASKS, "--name", "demo", "--version", "1"), "dataset_exists"),
        (("dataset", "add", TASKS, "--name", "../demo", "--version", "1"), "invalid_input"),
        (("dataset", "add", "nowhere", "--name", "x", "--version", "1"), "not_found"),
        (("dataset", "show", "other"), "dataset_not_found"),
        (("dataset", "show", "demo@9"), "dataset_version_not_found"),
        (("dataset", "show", "demo", "--task", "toor"), "task_not_found"),
        (("dataset", "delete", "demo@9", "--yes"), "dataset_version_not_found"),
        (("import", DEMO, "-d", "demo@9"), "dataset_version_not_found"),
        (("import", DEMO, "-d", "other"), "dataset_not_found"),
        (("job", "relink", "nowhere"), "job_not_found"),
    ],
)
def test_a_refusal_is_one_line_and_exit_1(call: Call, words: tuple[str, ...], code: str) -> None:
    assert call("dataset", "add", TASKS, "--name", "demo", "--version", "1")[0] == 0
    exit_code, out, err = call(*words)
    assert (exit_code, out) == (1, "")
    assert err.startswith(f"error[{code}]: ")
    assert err.count("\n") == 1
    exit_code, out, _ = call(*words, "--json")
    assert (exit_code, json.loads(out)["error"]["code"]) == (1, code)


def test_a_broken_dataset_lists_its_problems_in_json(call: Call, tmp_path: Path) -> None:
    task = tmp_path / "ds" / "t"
    task.mkdir(parents=True)
    (task / "task.toml").write_text("")
    exit_code, out, _ = call("dataset", "add", str(tmp_path / "ds"), "--name", "x", "--version", "1", "--json")
    problems = json.loads(out)["error"]["details"]["problems"]
    assert (exit_code, [p["path"] for p in problems]) == (1, ["environment", "instruction.md", "tests/test.sh"])
    assert {p["task"] for p in problems} == {"t"}


def test_a_job_shows_its_links(call: Call) -> None:
    assert as_json(call("import", DEMO, "--json"))["task_links"] == {"no_hash_match": 7}
    call("dataset", "add", TASKS, "--name", "demo", "--version", "1.0")
    done = as_json(call("job", "relink", "demo", "--json"))
    assert (done["changed"], done["link_counts"]) == (7, {"linked": 7})
    shown = as_json(call("job", "show", "demo", "--json"))
    assert shown["task_links"] == done["task_links"]
    assert set(shown["task_links"][0]) == {
        "task_name",
        "n_trials",
        "n_linked",
        "n_unlinked",
        "linked_by",
        "datasets",
        "link_reasons",
        "candidates",
    }
    trial = as_json(call("trial", "show", "delegate__aB3dE5f", "--json"))
    assert (trial["linked_by"], trial["dataset"], trial["link_reason"]) == ("job_dataset_record", "demo@1.0", None)
    code, out, _ = call("job", "show", "demo")
    assert code == 0
    assert "demo/tour: 3 of 3 linked to demo@1.0 by job_dataset_record" in out


def test_validate_exits_1_when_there_is_a_problem(call: Call) -> None:
    code, out, err = call("validate", DEMO)
    assert (code, out) == (0, "")
    assert err.endswith("0 problem(s), 0 warning(s)\n")
    code, out, _ = call("validate", "fixtures/cases/59-harbor-missing-partial-results/j", "--json")
    report = json.loads(out)
    assert (code, report["kind"], report["ok"], len(report["problems"])) == (1, "job", False, 3)
    assert report["problems"][0]["line"] == 9
    assert call("validate", "nowhere")[0] == 1


def test_the_page_prints_what_its_commands_print(call: Call) -> None:
    text = (ROOT / "docs" / "datasets.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    assert len(blocks) >= 5
    for commands, printed in blocks:
        out = ""
        for line in commands.splitlines():
            words = shlex.split(line)
            assert words[0] == "traceflow"
            code, said, _ = call(*words[1:])
            assert code == (1 if words[1] == "validate" else 0)
            out += said
        assert not printed or out == printed
