"""SDK session logs in a job: the official packing's places, ids and refusals, and logs of several runs."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest
from pack_inputs import AGENTS, ENDED, PROMPT, STARTED, only_trial, pack, sdk_log, stdout, trajectory, tree, trials
from traceflow_formats.errors import TraceflowError

from traceflow.sources import open_any

PLACES = {
    "claude": ".claude/projects/sdk-upload/{id}.jsonl",
    "codex": ".codex/sessions/2026/01/02/rollout-{id}.jsonl",
    "gemini": ".gemini/tmp/sdk-upload/chats/session-{id}.jsonl",
    "qwen": ".qwen/projects/sdk-upload/chats/{id}.jsonl",
    "kimi": ".kimi-code/sessions/sdk-upload/session_{id}/agents/main/wire.jsonl",
    "opencode": ".local/share/opencode/sdk-upload/{id}.jsonl",
    "droid": ".factory/sessions/sdk-upload/{id}.jsonl",
}


def written(tmp_path: Path, data: bytes, name: str = "log.jsonl") -> Path:
    path = tmp_path / "logs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def refusal(path: Path, out: Path, **options: Any) -> str:
    with pytest.raises(TraceflowError) as caught:
        pack(path, out, **options)
    assert not out.exists()
    return f"{caught.value.code}: {caught.value.message}"


@pytest.mark.parametrize("agent", AGENTS)
def test_a_log_is_packed_whole_at_the_official_path(agent: str, tmp_path: Path) -> None:
    data = sdk_log(agent, stdout(AGENTS[agent]))
    pack(written(tmp_path, data), tmp_path / "job", task="hello")
    trial, result = only_trial(tmp_path / "job")
    ident = str(uuid5(NAMESPACE_URL, f"{hashlib.sha256(data).hexdigest()}:hello"))
    assert trial.name == "hello__sdk"
    assert result["id"] == ident == json.loads((tmp_path / "job/result.json").read_text())["id"]
    raw = {name: found for name, found in tree(trial / "agent").items() if name != "trajectory.json"}
    assert raw == {PLACES[agent].format(id=ident): data}


@pytest.mark.parametrize("agent", AGENTS)
def test_what_is_packed_reads_as_the_log_does(agent: str, tmp_path: Path) -> None:
    log = written(tmp_path, sdk_log(agent, stdout(AGENTS[agent])))
    pack(log, tmp_path / "job")
    trial, _ = only_trial(tmp_path / "job")
    (name,) = (name for name in tree(trial / "agent") if name != "trajectory.json")
    (before,), (after,) = open_any(log), open_any(trial / "agent" / name)
    assert list(after.parse()) == list(before.parse())


@pytest.mark.parametrize("agent", AGENTS)
def test_agent_model_and_times_are_those_of_the_header(agent: str, tmp_path: Path) -> None:
    pack(written(tmp_path, sdk_log(agent, stdout(AGENTS[agent]), model="model-of-the-header")), tmp_path / "job")
    _, result = only_trial(tmp_path / "job")
    assert result["agent_info"]["name"] == agent
    assert result["agent_info"]["model_info"] == {"name": "model-of-the-header"}
    assert (result["started_at"], result["finished_at"]) == (STARTED, ENDED)
    assert {"task_checksum": "", "trial_uri": ""}.items() <= result.items()
    assert not {"verifier_result", "exception_info"} & set(result)


def test_without_a_model_in_the_header_it_is_the_streams(tmp_path: Path) -> None:
    pack(written(tmp_path, sdk_log("claude", stdout(AGENTS["claude"]))), tmp_path / "job")
    assert only_trial(tmp_path / "job")[1]["agent_info"]["model_info"] == {"name": "claude-sonnet-4-5-20250929"}
    pack(written(tmp_path, sdk_log("codex", stdout(AGENTS["codex"]))), tmp_path / "other")
    assert "model_info" not in only_trial(tmp_path / "other")[1]["agent_info"]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_trajectory_has_the_tag_and_the_prompt(agent: str, tmp_path: Path) -> None:
    pack(written(tmp_path, sdk_log(agent, stdout(AGENTS[agent]))), tmp_path / "job", system_prompt="Be brief.")
    document = trajectory(only_trial(tmp_path / "job")[0])
    assert document["session_id"] == "evolve-0123456789abcdef"
    assert (document["steps"][0]["source"], document["steps"][0]["message"]) == ("system", "Be brief.")
    users = [step["message"] for step in document["steps"] if step["source"] == "user"]
    assert users == [PROMPT]


def test_the_tag_of_the_files_name_is_trusted(tmp_path: Path) -> None:
    data = sdk_log("claude", stdout(AGENTS["claude"]), tag="changed")
    log = written(tmp_path, data, "evolve_my-tag_e2b_sbx_1_claude_2026-01-02T03-04-05-678Z.jsonl")
    conversion = pack(log, tmp_path / "job")
    assert trajectory(only_trial(tmp_path / "job")[0])["session_id"] == "evolve_my-tag"
    assert [warning["code"] for warning in conversion.warnings] == ["tag_differs"]


def test_a_parsed_download_is_packed_at_its_agents_path(tmp_path: Path) -> None:
    events = [
        {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hello."}}},
        {"update": {"sessionUpdate": "tool_call", "toolCallId": "t1", "title": "ls", "kind": "execute"}},
    ]
    data = sdk_log("codex", b"".join(json.dumps(event).encode() + b"\n" for event in events))
    pack(written(tmp_path, data), tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    assert f"agent/.codex/sessions/2026/01/02/rollout-{result['id']}.jsonl" in tree(trial)
    assert [step["source"] for step in trajectory(trial)["steps"]] == ["user", "agent"]


# -- refusals --------------------------------------------------------------------------------------------------

CLAUDE = stdout("claude-2.1.197/basic")
CODEX = stdout("codex-0.171.0/basic")
GOOD = sdk_log("claude", CLAUDE)
LINES = GOOD.splitlines(keepends=True)
META, ASKED, END = LINES[0], LINES[1], LINES[-1]

REFUSED = {
    "two logs in one file": (GOOD + GOOD, "2 _meta lines"),
    "no prompt": (META + CLAUDE + END, "no _prompt line"),
    "not closed": (META + ASKED + CLAUDE, "no _sessionEnd"),
    "a run that failed": (sdk_log("claude", stdout("claude-2.1.197/errors")), "says that the run failed"),
    "no result": (META + ASKED + b"".join(CLAUDE.splitlines(keepends=True)[:-1]) + END, "0 closing lines"),
    "two results": (META + ASKED + CLAUDE + CLAUDE.splitlines(keepends=True)[-1] + END, "2 closing lines"),
    "a failed turn": (sdk_log("codex", stdout("codex-0.171.0/errors")), "says that the run failed"),
    "two turns": (sdk_log("codex", CODEX + CODEX.splitlines(keepends=True)[-1]), "2 closing lines"),
    "gemini failed": (sdk_log("gemini", stdout("gemini-0.61.0/errors")), "says that the run failed"),
    "qwen failed without saying so": (sdk_log("qwen", stdout("qwen-0.15.10/errors")), "ends with an error"),
    "opencode failed": (sdk_log("opencode", stdout("opencode-1.18.33/errors")), "ends with an error"),
    "prompts between the lines of one run": (
        META + ASKED + b"".join(CLAUDE.splitlines(keepends=True)[:9]) + ASKED
        + b"".join(CLAUDE.splitlines(keepends=True)[9:]) + END,
        "2 _prompt lines, and the harness does not mark",
    ),
    "runs that opencode does not mark": (
        sdk_log("opencode", stdout("opencode-1.18.33/resume", ".1"), stdout("opencode-1.18.33/resume", ".2")),
        "2 _prompt lines",
    ),
    "runs of one codex thread": (
        sdk_log("codex", stdout("codex-0.171.0/resume", ".1"), stdout("codex-0.171.0/resume", ".2")),
        "go on with one thread",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_official_packing_refuses_is_refused(name: str, tmp_path: Path) -> None:
    data, why = REFUSED[name]
    said = refusal(written(tmp_path, data), tmp_path / "job")
    assert said.startswith("invalid_input: ")
    assert why in said


def test_a_log_without_a_line_of_the_harness_is_empty(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, META + ASKED + END), tmp_path / "job").startswith("empty_trace: ")


def test_a_failed_run_is_packed_with_its_recorded_exception(tmp_path: Path) -> None:
    recorded = {
        "exception_type": "ApiError",
        "exception_message": "400 scripted bad request",
        "exception_traceback": "",
        "occurred_at": "2026-01-02T03:08:59Z",
    }
    log = written(tmp_path, sdk_log("claude", stdout("claude-2.1.197/errors")))
    pack(log, tmp_path / "job", exceptions=(tmp_path / "e.json", {"evolve-0123456789abcdef": recorded}))
    _, result = only_trial(tmp_path / "job")
    assert result["exception_info"] == recorded
    assert "verifier_result" not in result
    stats = json.loads((tmp_path / "job/result.json").read_text())["stats"]
    assert (stats["n_completed_trials"], stats["n_errored_trials"]) == (1, 1)


def test_one_refused_log_stops_the_job_unless_it_is_left_out(tmp_path: Path) -> None:
    written(tmp_path, GOOD, "good.jsonl")
    bad = written(tmp_path, META + ASKED + CLAUDE, "bad.jsonl")
    assert "bad.jsonl: no _sessionEnd" in refusal(bad.parent, tmp_path / "job")
    conversion = pack(bad.parent, tmp_path / "job", skip_invalid=True)
    only_trial(tmp_path / "job")
    assert [warning["code"] for warning in conversion.warnings] == ["invalid_input"]
    assert conversion.sessions == 1


def test_a_folder_of_logs_and_a_home_give_one_job(tmp_path: Path) -> None:
    for agent, recording in AGENTS.items():
        written(tmp_path, sdk_log(agent, stdout(recording), tag=f"evolve-{agent}"), f"{agent}.jsonl")
    conversion = pack(tmp_path / "logs", tmp_path / "job")
    assert sorted(result["task_name"] for result in trials(tmp_path / "job").values()) == sorted(
        f"evolve-{agent}" for agent in AGENTS
    )
    assert (conversion.sessions, conversion.source) == (7, "sdk")
    assert [path.rpartition("/")[2] for path in conversion.outputs] == list(trials(tmp_path / "job"))


# -- several runs ----------------------------------------------------------------------------------------------


def claude_runs() -> bytes:
    runs = [stdout("claude-2.1.197/resume", f".{number}") for number in (1, 2, 3)]
    return sdk_log("claude", *runs, prompts=["First.", "Second.", "Third."])


def test_runs_that_the_stream_marks_are_one_trial_each(tmp_path: Path) -> None:
    pack(written(tmp_path, claude_runs()), tmp_path / "job")
    found = {result["task_name"]: name for name, result in trials(tmp_path / "job").items()}
    assert sorted(found) == [f"evolve-0123456789abcdef#{number}" for number in (1, 2, 3)]
    for number, asked in ((1, "First."), (2, "Second."), (3, "Third.")):
        trial = tmp_path / "job" / found[f"evolve-0123456789abcdef#{number}"]
        (raw,) = (data for name, data in tree(trial / "agent").items() if name != "trajectory.json")
        assert raw == sdk_log("claude", stdout("claude-2.1.197/resume", f".{number}"), prompts=[asked])
        assert [s["message"] for s in trajectory(trial)["steps"] if s["source"] == "user"] == [asked]


def test_a_run_may_have_shell_commands_around_it(tmp_path: Path) -> None:
    command = b'{"_prompt":{"text":"npm test"}}\n'
    data = META + command + ASKED + CLAUDE + command + END
    pack(written(tmp_path, data), tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    assert data in tree(trial).values()
    assert result["task_name"] == "evolve-0123456789abcdef"
    assert [s["message"] for s in trajectory(trial)["steps"] if s["source"] == "user"] == [PROMPT]


def test_of_several_runs_one_that_failed_is_refused_by_its_number(tmp_path: Path) -> None:
    data = sdk_log("claude", CLAUDE, re.sub(rb'"is_error":false', b'"is_error":true', CLAUDE))
    log = written(tmp_path, data)
    assert "run 2: claude-code says that the run failed" in refusal(log, tmp_path / "job")
    pack(log, tmp_path / "job", skip_invalid=True)
    assert only_trial(tmp_path / "job")[1]["task_name"] == "evolve-0123456789abcdef#1"
