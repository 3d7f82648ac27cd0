"""`traceflow convert --to job` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pack_inputs import AGENTS, RECORDINGS, only_trial, sdk_log, stdout, trajectory

from traceflow.cli import run

HOME = str(RECORDINGS / "claude-2.1.197/basic/home")


def test_the_report_names_the_trials(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["convert", HOME, "--to", "job", "-o", str(tmp_path / "job"), "--json"]) == 0
    report = json.loads(capfdbinary.readouterr().out)
    trial, _ = only_trial(tmp_path / "job")
    assert report["outputs"] == [str(trial)]
    assert (report["harness"], report["source"], report["sessions"]) == ("claude-code", "session", 1)
    assert report["tokens"] == {"prompt": 37602, "completion": 216, "cached": 36000}


def test_every_option_reaches_the_job(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    for name, recording in (("good", "basic"), ("failed", "errors"), ("cut", "basic")):
        data = sdk_log("claude", stdout(f"claude-2.1.197/{recording}"), tag=name)
        (tmp_path / "logs" / f"{name}.jsonl").write_bytes(data if name != "cut" else data[: data.rindex(b'{"_sess')])
    recorded = {
        "exception_type": "ApiError",
        "exception_message": "400",
        "exception_traceback": "...",
        "occurred_at": "2026-01-02T03:08:59Z",
    }
    (tmp_path / "scores.csv").write_text("good,1\n")
    (tmp_path / "failures.json").write_text(json.dumps({"failed": recorded}))
    (tmp_path / "system.md").write_text("Be brief.")
    options = {
        "--rewards": tmp_path / "scores.csv",
        "--exceptions": tmp_path / "failures.json",
        "--system-prompt": tmp_path / "system.md",
        "--task": "hello",
        "--job-name": "nightly",
    }
    given = [str(word) for pair in options.items() for word in pair]
    assert run(["convert", str(tmp_path / "logs"), "--to", "job", "-o", str(tmp_path / "job"), *given]) == 1
    assert not (tmp_path / "job").exists()
    given.append("--skip-invalid")
    assert run(["convert", str(tmp_path / "logs"), "--to", "job", "-o", str(tmp_path / "job"), *given]) == 0
    results = [json.loads(path.read_bytes()) for path in sorted((tmp_path / "job").glob("*/result.json"))]
    assert {result["task_name"] for result in results} == {"hello"}
    assert [result.get("verifier_result") for result in results].count({"rewards": {"reward": 1}}) == 1
    assert [result.get("exception_info") for result in results].count(recorded) == 1
    assert json.loads((tmp_path / "job/config.json").read_text())["job_name"] == "nightly"
    for result in results:
        assert trajectory(tmp_path / "job" / result["trial_name"])["steps"][0]["message"] == "Be brief."


def test_a_refusal_is_an_error_with_its_code(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(sdk_log("codex", stdout("codex-0.171.0/errors")))
    assert run(["convert", str(log), "--to", "job", "-o", str(tmp_path / "job"), "--json"]) == 1
    error = json.loads(capfdbinary.readouterr().out)["error"]
    assert (error["code"], error["details"]["path"]) == ("invalid_input", str(log))


@pytest.mark.parametrize(
    "words", [["--to", "job"], ["--to", "atif", "--task", "hello"], ["--rewards", "scores.csv", "-o", "out"]]
)
def test_options_that_make_no_sense_are_usage_errors(words: list[str]) -> None:
    assert run(["convert", HOME, *words]) == 2


def test_agents_are_known(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(sdk_log("claude", stdout(AGENTS["claude"])))
    assert run(["convert", str(log), "--to", "job", "-o", str(tmp_path / "job"), "--harness", "claude"]) == 0
    assert only_trial(tmp_path / "job")[1]["agent_info"]["name"] == "claude"
