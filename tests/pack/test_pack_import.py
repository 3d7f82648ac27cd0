"""A packed job is imported with the events that its sources have."""

from __future__ import annotations

from pathlib import Path

import pytest
from pack_inputs import AGENTS, RECORDINGS, only_trial, pack, sdk_log, stdout
from traceflow_formats.trace import Event

from traceflow.importer.trial_trace import find_trace
from traceflow.sources import open_any

SESSIONS = sorted(path for path in RECORDINGS.glob("*/basic/home") if path.is_dir())


def imported(trial: Path, agent: str) -> tuple[list[Event], list[str]]:
    """The events that an import takes from a trial, and the files it read them from."""
    trace = find_trace(trial / "agent", agent)
    events = list(trace.events)
    assert trace.problems == []
    return events, trace.files


@pytest.mark.parametrize("home", SESSIONS, ids=[path.parent.parent.name for path in SESSIONS])
def test_sessions(home: Path, tmp_path: Path) -> None:
    pack(home, tmp_path / "job", system_prompt="Be brief.")
    trial, result = only_trial(tmp_path / "job")
    (source,) = open_any(home)
    events, files = imported(trial, result["agent_info"]["name"])
    assert events == list(source.parse())
    assert files != ["trajectory.json"]


def test_a_folder_that_is_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(RECORDINGS / "kimi-code-2.1.0/basic/home", tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    monkeypatch.chdir(tmp_path)
    assert imported(trial.relative_to(tmp_path), result["agent_info"]["name"])[0]


@pytest.mark.parametrize("agent", AGENTS)
def test_sdk_logs(agent: str, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(sdk_log(agent, stdout(AGENTS[agent])))
    pack(log, tmp_path / "job", system_prompt="Be brief.")
    trial, result = only_trial(tmp_path / "job")
    (source,) = open_any(log)
    assert imported(trial, result["agent_info"]["name"])[0] == list(source.parse())


@pytest.mark.parametrize("agent", AGENTS)
def test_stdout(agent: str, tmp_path: Path) -> None:
    path = RECORDINGS / AGENTS[agent] / "stdout.jsonl"
    pack(path, tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    (source,) = open_any(path)
    assert imported(trial, result["agent_info"]["name"])[0] == list(source.parse())
