"""`traceflow convert`: what goes in, what comes out, what is refused and how."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from running import FIXTURES, traceflow

RECORDINGS = FIXTURES / "recordings"
CASES = FIXTURES / "cases"
CLAUDE = CASES / "01-claude-usage-per-content-block" / "session.jsonl"

HARNESS = {
    "claude": "claude-code",
    "codex": "codex",
    "gemini": "gemini-cli",
    "qwen": "qwen-code",
    "opencode": "opencode",
    "opencode-compat": "opencode",
    "droid": "droid",
    "kimi-code": "kimi-code",
    "kimi-cli": "kimi-cli",
    "codex-gpt6": "codex",
}
BASIC = sorted(path.parent for path in RECORDINGS.glob("*/basic/truth.jsonl"))


def steps_of(path: Path) -> list[dict[str, Any]]:
    document: dict[str, Any] = json.loads(path.read_text())
    steps: list[dict[str, Any]] = document["steps"]
    return steps


@pytest.mark.parametrize("folder", BASIC, ids=lambda p: p.parent.name)
def test_a_home_folder_gives_a_trajectory_per_root_session_and_a_report_that_adds_up(
    folder: Path, tmp_path: Path
) -> None:
    ran = traceflow("convert", folder / "home", "-o", tmp_path / "out", "--json")
    assert ran.code == 0, ran.err
    report = ran.json()
    assert report["harness"] == HARNESS[folder.parent.name.rsplit("-", 1)[0]]
    assert report["source"] == "session"
    lines = report["lines"]
    assert lines["read"] == lines["parsed"] + lines["unknown"] + lines["malformed"] + lines["duplicate"] > 0
    (path,) = (tmp_path / "out").glob("*/trajectory.json")
    assert report["outputs"] == [str(path)]
    assert len(steps_of(path)) == report["steps"]
    if folder.parent.name != "gemini-0.22.4":  # it drops the usage of a call without text and thoughts
        rows = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
        usages = [(r["api"], r["usage"]) for r in rows if r.get("usage") and not r["scn"].startswith("_")]
        sent = sum(u["fresh"] + u["cread"] + (u["cwrite"] if api == "anthropic" else 0) for api, u in usages)
        assert report["tokens"]["prompt"] == sent


@pytest.mark.parametrize("folder", BASIC, ids=lambda p: p.parent.name)
def test_session_and_stdout_hold_the_same_calls_in_the_same_order(folder: Path, tmp_path: Path) -> None:
    """Wherever both hold them: codex prints items without ids, kimi-cli cuts arguments, opencode prints calls late."""
    name = HARNESS[folder.parent.name.rsplit("-", 1)[0]]
    found = {}
    for source in ("home", "stdout.jsonl"):
        out = tmp_path / Path(source).stem
        ran = traceflow("convert", folder / source, "-o", out)
        assert ran.code == 0, ran.err
        (path,) = out.glob("*/trajectory.json")
        found[source] = [c for step in steps_of(path) for c in step.get("tool_calls") or []]
    session, stdout = found["home"], found["stdout.jsonl"]
    if name == "codex":
        ran_in_session = [c for c in session if c["function_name"] in ("exec_command", "shell_command", "exec")]
        commands = [c for c in stdout if c["function_name"] == "command_execution"]
        assert len(commands) >= len(ran_in_session)
        return
    if name != "gemini-cli":
        order = {call["tool_call_id"]: at for at, call in enumerate(session)}
        if name == "opencode":
            stdout = sorted(stdout, key=lambda call: order[call["tool_call_id"]])
        assert [c["tool_call_id"] for c in stdout] == [c["tool_call_id"] for c in session]
    assert [c["function_name"] for c in stdout] == [c["function_name"] for c in session]
    if name != "kimi-cli":
        assert [c["arguments"] for c in stdout] == [c["arguments"] for c in session]


def test_a_session_goes_to_stdout_a_file_or_a_folder_and_is_the_same_each_time(tmp_path: Path) -> None:
    printed = traceflow("convert", CLAUDE)
    assert printed.code == 0
    assert traceflow("convert", CLAUDE, "-o", tmp_path / "one.json").code == 0
    assert traceflow("convert", CLAUDE, "-o", tmp_path / "folder").code == 0
    (inside,) = (tmp_path / "folder").glob("*/trajectory.json")
    assert (tmp_path / "one.json").read_text() == inside.read_text() == printed.out
    assert inside.parent.name == "11111111-1111-4111-8111-111111111111"


def test_the_numbers_of_a_claude_session_are_those_that_were_paid_for(tmp_path: Path) -> None:
    document = json.loads(traceflow("convert", CLAUDE).out)
    second, third = document["steps"][1:]
    assert second["metrics"]["prompt_tokens"] == 1110
    assert (second["metrics"]["cached_tokens"], second["metrics"]["completion_tokens"]) == (1000, 40)
    assert (third["metrics"]["prompt_tokens"], third["metrics"]["completion_tokens"]) == (1105, 7)
    totals = document["final_metrics"]
    assert (totals["total_prompt_tokens"], totals["total_completion_tokens"]) == (2215, 47)
    assert totals["total_cached_tokens"] == 2100


def test_a_trace_is_converted_and_its_trace_gives_the_same_trajectory(tmp_path: Path) -> None:
    trace = tmp_path / "trace-parsed.jsonl"
    report = traceflow("convert", CLAUDE, "--to", "trace", "-o", trace, "--json").json()
    counted = report["steps"], report["model_calls"], report["tool_calls"], report["tokens"]["prompt"]
    assert counted == (None, None, None, None), "of a trace they are not counted, and not 0"
    events = [json.loads(line) for line in trace.read_text().splitlines()]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert json.loads(traceflow("convert", trace).out) == json.loads(traceflow("convert", CLAUDE).out)


def test_a_trajectory_is_read_and_written_strictly(tmp_path: Path) -> None:
    old = {"agent": {"name": "a", "version": "1"}, "schema_version": "ATIF-v1.2"}
    old["steps"] = [{"step_id": "1", "source": "user", "message": "x"}]  # type: ignore[assignment]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old, indent=4))
    document = json.loads(traceflow("convert", path).out)
    assert document["schema_version"] == "ATIF-v1.7"
    assert document["steps"][0]["step_id"] == 1


def test_two_sessions_do_not_fit_one_file(tmp_path: Path) -> None:
    folder = CASES / "11-claude-resumed-session-copies-prefix"
    ran = traceflow("convert", folder, "-o", tmp_path / "one.json")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "error[invalid_input]" in ran.err
    assert traceflow("convert", folder, "-o", tmp_path / "both").code == 0
    first, second = sorted((tmp_path / "both").glob("*/trajectory.json"))
    copied = [step.get("is_copied_context") for step in steps_of(second)]
    assert copied == [True, True, None, None]
    totals = [json.loads(path.read_text())["final_metrics"] for path in (first, second)]
    assert sum(t["total_prompt_tokens"] for t in totals) == 35
    assert sum(t["total_completion_tokens"] for t in totals) == 3


def empty(path: Path) -> Path:
    path.write_bytes(b"")
    return path


def blank(path: Path) -> Path:
    path.write_bytes(b"\n  \n")
    return path


def words(path: Path) -> Path:
    path.write_text("hello\nworld\n")
    return path


def strange(path: Path) -> Path:
    path.write_text('{"type":"mystery","who":1}\n')
    return path


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def database(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    return path


def two_harnesses(path: Path) -> Path:
    codex = RECORDINGS / "codex-0.171.0" / "basic" / "stdout.jsonl"
    claude = RECORDINGS / "claude-2.1.197" / "basic" / "stdout.jsonl"
    path.write_bytes(codex.read_bytes() + claude.read_bytes())
    return path


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        (empty, "empty_trace", "empty"),
        (blank, "empty_trace", "blank lines"),
        (words, "unrecognized_trace", "no JSON lines"),
        (strange, "unrecognized_trace", "'mystery', keys type, who"),
        (folder, "unrecognized_trace", "no session of claude-code, codex"),
        (database, "unrecognized_trace", ""),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_what_no_parser_recognises_is_refused_in_one_line_and_nothing_is_written(
    make: Any, code: str, says: str, as_json: bool, tmp_path: Path
) -> None:
    path = make(tmp_path / "input")
    ran = traceflow("convert", path, "-o", tmp_path / "out", *(["--json"] if as_json else []))
    assert ran.code == 1
    assert ran.err.startswith(f"error[{code}]: ")
    assert ran.err.count("\n") == 1
    assert says in ran.err
    assert not (tmp_path / "out").exists()
    if as_json:
        assert ran.json()["error"]["code"] == code
    else:
        assert ran.out == ""


def test_two_harnesses_in_one_file_are_refused_by_name(tmp_path: Path) -> None:
    ran = traceflow("convert", two_harnesses(tmp_path / "both.jsonl"), "-o", tmp_path / "out", "--json")
    error = ran.json()["error"]
    assert (ran.code, error["code"]) == (1, "unrecognized_trace")
    assert error["details"]["claims"] == ["claude-code stdout", "codex stdout"]
    assert not (tmp_path / "out").exists()


def test_a_wrong_harness_is_refused(tmp_path: Path) -> None:
    ran = traceflow("convert", CLAUDE, "--harness", "codex")
    assert (ran.code, "not what codex writes" in ran.err) == (1, True)
    ran = traceflow("convert", CLAUDE, "--harness", "nobody")
    assert "no harness is called 'nobody'; known are claude-code" in ran.err
    assert traceflow("convert", CLAUDE, "--harness", "claude-code").code == 0
    assert traceflow("convert", tmp_path / "missing.jsonl").err.startswith("error[not_found]: ")


def test_a_file_without_permission_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "secret.jsonl"
    shutil.copy(CLAUDE, path)
    path.chmod(0)
    ran = traceflow("convert", path)
    if ran.code == 0:
        pytest.skip("this user may read everything")
    assert ran.err == f"error[io_error]: {path}: permission denied\n"


def test_sessions_with_only_a_header_are_empty() -> None:
    case = CASES / "33-empty-and-header-only-sessions"
    for name in (
        "zero.jsonl",
        "blank.jsonl",
        "claude-only-summary.jsonl",
        "codex-only-meta.jsonl",
        "gemini-empty.json",
    ):
        ran = traceflow("convert", case / name)
        assert (name, ran.code) == (name, 1)
        assert ran.err.startswith("error[empty_trace]: "), (name, ran.err)
    document = json.loads(traceflow("convert", case / "user-only.jsonl").out)
    assert len(document["steps"]) == 1
    assert "total_prompt_tokens" not in document["final_metrics"]


def test_noise_on_stdout_is_counted_and_the_rest_is_right() -> None:
    ran = traceflow("convert", CASES / "15-stdout-noise-lines" / "stdout.txt")
    assert ran.code == 0
    document = json.loads(ran.out)
    assert [s["source"] for s in document["steps"]] == ["agent"]
    totals = document["final_metrics"]
    assert (totals["total_prompt_tokens"], totals["total_completion_tokens"]) == (7, 2)
    assert totals["total_cost_usd"] == 0.5
    assert "warning[non_event_line]" in ran.err
    assert "(6x" in ran.err


def test_output_is_the_same_under_any_locale(tmp_path: Path) -> None:
    path = CASES / "21-invalid-utf8" / "session.jsonl"
    plain = traceflow("convert", path, LC_ALL="C.UTF-8")
    assert plain.code == 0
    for environment in ({"LC_ALL": "C"}, {"LANG": "de_DE.ISO-8859-1"}, {"PYTHONUTF8": "0", "LC_ALL": "POSIX"}):
        assert traceflow("convert", path, **environment).out == plain.out
    texts = [step["message"] for step in json.loads(plain.out)["steps"]]
    assert texts[1:] == ["caf\ufffd \ufffd end", "box ─ “q” 日本"]


def test_help_says_what_each_command_does() -> None:
    ran = traceflow("--help")
    assert ran.code == 0
    for command in ("import", "export", "convert", "grep", "sql", "job", "trial", "store"):
        assert command in ran.out
        assert traceflow(command, "--help").code == 0
    assert traceflow("convert").code == 2
    assert traceflow("nonsense").code == 2
    assert traceflow("--version").out == "traceflow 0.1.0\n"
