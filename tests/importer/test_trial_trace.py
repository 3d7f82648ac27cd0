"""Which file of a trial is its trace: the order, twins, and files that are not what their place says."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from job_builder import FIXTURES, claude_rows
from traceflow_formats import jsontext

from traceflow.importer.trial_trace import TrialTrace, find_trace

RECORDINGS = FIXTURES / "recordings"
SESSION = "5e55105e-0000-4000-8000-000000000001"
CLAUDE = f"sessions/projects/-app/{SESSION}.jsonl"
TRAJECTORY = {
    "schema_version": "ATIF-v1.7",
    "agent": {"name": "claude-code", "version": "2"},
    "steps": [
        {"step_id": 1, "source": "user", "message": "from the trajectory"},
        {"step_id": 2, "source": "agent", "message": "ok", "model_name": "m"},
    ],
}
PARSED = b"".join(
    jsontext.dumps({"seq": n, "type": kind, "data": data}) + b"\n"
    for n, (kind, data) in enumerate(
        [
            ("prompt", {"_prompt": {"text": "from the parsed trace"}}),
            (
                "agent_message_chunk",
                {"update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "ok"}}},
            ),
        ]
    )
)


def agent_folder(tmp_path: Path, files: dict[str, bytes]) -> Path:
    agent = tmp_path / "agent"
    for name, data in files.items():
        (agent / name).parent.mkdir(parents=True, exist_ok=True)
        (agent / name).write_bytes(data)
    return agent


def prompts(trace: TrialTrace) -> list[str]:
    return [e.data["_prompt"]["text"] for e in trace.events if e.type == "prompt" and "role" not in e.data["_prompt"]]


def stdout_of(recording: str) -> bytes:
    return (RECORDINGS / recording / "stdout.jsonl").read_bytes()


def sdk_log(agent: str, recording: str) -> bytes:
    lines = [{"_meta": {"tag": "t", "agent": agent}}, {"_prompt": {"text": "from the SDK log"}}]
    head = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return head + stdout_of(recording) + b'{"_sessionEnd":{}}\n'


ATIF = json.dumps(TRAJECTORY).encode()
ORDER = [
    (CLAUDE, claude_rows(SESSION, 2), "session"),
    ("trace-parsed.jsonl", PARSED, "trace"),
    ("trajectory.json", ATIF, "atif"),
    ("claude-code.txt", stdout_of("claude-2.1.197/basic"), "stdout"),
]


@pytest.mark.parametrize("first", range(4))
def test_the_first_source_that_is_there_is_the_trace(first: int, tmp_path: Path) -> None:
    files = {name: data for name, data, _ in ORDER[first:]}
    trace = find_trace(agent_folder(tmp_path, files), "claude-code")
    assert list(trace.events)
    report = trace.report()
    assert report is not None
    assert report["source"] == ORDER[first][2]
    assert report["files"][0] == ORDER[first][0]


@pytest.mark.parametrize(
    ("name", "data", "prompt"),
    [("trace-parsed.jsonl", PARSED, "from the parsed trace"), ("trajectory.json", ATIF, "from the trajectory")],
)
def test_a_packed_twin_is_read_where_the_plain_file_is_absent(
    name: str, data: bytes, prompt: str, tmp_path: Path
) -> None:
    packed = find_trace(agent_folder(tmp_path / "a", {name + ".gz": gzip.compress(data)}))
    assert prompts(packed) == [prompt]
    assert packed.report()["files"] == [name + ".gz"]  # type: ignore[index]
    both = find_trace(agent_folder(tmp_path / "b", {name: data, name + ".gz": b"no gzip"}))
    assert prompts(both) == [prompt]
    assert both.report()["files"] == [name]  # type: ignore[index]


def test_a_damaged_or_oversized_twin_is_a_problem_and_the_next_source_is_tried(tmp_path: Path) -> None:
    files = {"trace-parsed.jsonl.gz": gzip.compress(PARSED)[:40], "trajectory.json.gz": gzip.compress(b" " * 100_000)}
    stream = stdout_of("claude-2.1.197/basic")
    trace = find_trace(agent_folder(tmp_path, {**files, "claude-code.txt": stream}), atif_limit=50_000)
    assert list(trace.events)
    report: Any = trace.report()
    assert [p["code"] for p in report["problems"]][-1] == "trial_too_large"
    assert report["source"] in ("stdout", "trace")  # a torn gzip gives what was whole, or nothing


STREAMS = [
    ("claude-code", "claude", "claude-2.1.197/basic", ".claude/projects/sdk-upload/x.jsonl"),
    ("codex", "codex", "codex-0.171.0/basic", ".codex/sessions/2026/01/02/rollout-x.jsonl"),
]


@pytest.mark.parametrize(("harness", "agent", "recording", "place"), STREAMS)
def test_stdout_lines_at_a_sessions_path_are_stdout_and_never_half_of_a_pair(
    harness: str, agent: str, recording: str, place: str, tmp_path: Path
) -> None:
    stream = stdout_of(recording)
    alone = find_trace(agent_folder(tmp_path / "a", {f"{harness}.txt": stream}), harness)
    expected = list(alone.events)
    moved = find_trace(agent_folder(tmp_path / "b", {place: stream, f"{harness}.txt": stream}), harness)
    assert list(moved.events) == expected
    report: Any = moved.report()
    assert (report["source"], report["harness"], report["files"]) == ("stdout", harness, [place])
    assert "lacks" not in report


@pytest.mark.parametrize(("harness", "agent", "recording", "place"), STREAMS)
def test_a_whole_sdk_log_at_a_sessions_path_is_that_log(
    harness: str, agent: str, recording: str, place: str, tmp_path: Path
) -> None:
    log = sdk_log(agent, recording)
    trace = find_trace(agent_folder(tmp_path, {place: log, "trajectory.json": ATIF}), agent)
    assert prompts(trace) == ["from the SDK log"]
    report: Any = trace.report()
    assert (report["source"], report["harness"]) == ("sdk", harness)


def test_a_session_that_stands_at_two_places_counts_once(tmp_path: Path) -> None:
    rows = claude_rows(SESSION, 3)
    once = list(find_trace(agent_folder(tmp_path / "a", {CLAUDE: rows}), "claude").events)
    twice = {CLAUDE: rows, f".claude/projects/-app/{SESSION}.jsonl": rows}
    assert list(find_trace(agent_folder(tmp_path / "b", twice), "claude").events) == once
    older = {f"sessions/.claude/projects/-app/{SESSION}.jsonl": rows}  # an older download: the home below sessions/
    assert list(find_trace(agent_folder(tmp_path / "c", older), "claude").events) == once


def test_evidence_is_never_read_as_a_trace(tmp_path: Path) -> None:
    files = {f"source/{CLAUDE}": claude_rows(SESSION, 3), "source/claude-code.txt": stdout_of("claude-2.1.197/basic")}
    trace = find_trace(agent_folder(tmp_path, files), "claude-code")
    assert list(trace.events) == []
    assert trace.report() is None


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    outside.write_bytes(claude_rows(SESSION, 3))
    agent = agent_folder(tmp_path, {"sessions/projects/-app/note.txt": b"x"})
    (agent / CLAUDE).symlink_to(outside)
    (agent / "claude-code.txt").symlink_to(outside)
    assert list(find_trace(agent, "claude-code").events) == []


def test_a_download_without_binaries_falls_back_to_its_parsed_trace(tmp_path: Path) -> None:
    """Text views name opencode.db in agent-home.json but do not carry it."""
    home = json.dumps({"files": [{"path": ".local/share/opencode/opencode.db", "size": 4096}], "skipped": []}).encode()
    agent = agent_folder(tmp_path, {"agent-home.json": home, "trace-parsed.jsonl": PARSED})
    assert prompts(find_trace(agent, "opencode")) == ["from the parsed trace"]


HOMES = [
    path
    for path in sorted(RECORDINGS.glob("*/basic/home"))
    if any(path.rglob("*.jsonl")) or any(path.rglob("*.db")) or any(path.rglob("*.json"))
]


@pytest.mark.parametrize("home", HOMES, ids=lambda path: path.parents[1].name)
def test_the_home_of_each_harness_is_found_below_agent(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "agent")
    trace = find_trace(tmp_path / "agent")
    assert any(event.type == "agent_message_chunk" for event in trace.events)
    assert trace.report()["source"] == "session"  # type: ignore[index]


def test_there_is_a_home_of_most_harnesses() -> None:
    assert len({path.parents[1].name.rpartition("-")[0] for path in HOMES}) >= 6
