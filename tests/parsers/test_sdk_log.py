"""SDK session logs: the harness's own stdout between the log's own lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event
from traceflow_parsers.detect import open_file, open_path
from traceflow_parsers.source import Parse
from traceflow_parsers.testing import check_events

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
STDOUT = {
    "claude": RECORDINGS / "claude-2.1.197" / "basic" / "stdout.jsonl",
    "codex": RECORDINGS / "codex-0.171.0" / "basic" / "stdout.jsonl",
    "gemini": RECORDINGS / "gemini-0.61.0" / "basic" / "stdout.jsonl",
    "qwen": RECORDINGS / "qwen-0.15.10" / "basic" / "stdout.jsonl",
    "kimi": RECORDINGS / "kimi-code-2.1.0" / "basic" / "stdout.jsonl",
    "opencode": RECORDINGS / "opencode-1.18.33" / "basic" / "stdout.jsonl",
    "droid": RECORDINGS / "droid-0.215.0" / "basic" / "stdout.jsonl",
}
NAMES = {"claude": "claude-code", "gemini": "gemini-cli", "qwen": "qwen-code", "kimi": "kimi-code"}


def line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def meta(agent: str, tag: str = "tag-1") -> bytes:
    return line({"_meta": {"tag": tag, "provider": "e2b", "agent": agent, "timestamp": "2026-11-30T12:00:00.000Z"}})


def prompt(text: str) -> bytes:
    return line({"_prompt": {"text": text}})


END = line({"_sessionEnd": {"timestamp": "2026-11-30T12:01:00.000Z"}})


def log(path: Path, *parts: bytes) -> Path:
    file = path / "log.jsonl"
    file.write_bytes(b"".join(parts))
    return file


def parsed(path: Path) -> tuple[list[Event], Parse]:
    parse = open_file(path).parse()
    events = list(parse)
    check_events(events)
    return events, parse


@pytest.mark.parametrize("agent", STDOUT)
def test_the_harness_is_known_by_its_lines_and_the_prompt_comes_from_the_log(agent: str, tmp_path: Path) -> None:
    raw = STDOUT[agent].read_bytes()
    events, parse = parsed(log(tmp_path, meta(agent), prompt("do it"), raw, END))
    report = parse.report
    assert (report.harness, report.source) == (NAMES.get(agent, agent), "sdk")
    assert report.lines.read == len([row for row in raw.split(b"\n") if row.strip()]) + 3
    assert "no_end_mark" not in report.warnings
    prompts = [e.data["_prompt"]["text"] for e in events if e.type == "prompt" and "role" not in e.data["_prompt"]]
    assert prompts == ["do it"]
    own = list(open_file(STDOUT[agent]).parse())
    calls = [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call"]
    assert calls == [e.data["update"]["toolCallId"] for e in own if e.type == "tool_call"]


def test_a_prompt_that_no_line_follows_is_a_command_and_no_prompt(tmp_path: Path) -> None:
    raw = STDOUT["claude"].read_bytes()
    events, _ = parsed(log(tmp_path, meta("claude"), prompt("ls -la"), prompt("do it"), raw, prompt("rm x"), END))
    assert [e.data["_prompt"]["text"] for e in events if e.type == "prompt"] == ["do it"]
    injected = [e for e in events if (e.data.get("extra") or {}).get("injected") == "sdk_command"]
    assert [e.data["update"]["content"]["text"] for e in injected] == ["ls -la", "rm x"]


def test_several_runs_stand_in_one_log(tmp_path: Path) -> None:
    folder = RECORDINGS / "claude-2.1.197" / "resume"
    runs = [path.read_bytes() for path in sorted(folder.glob("stdout.*.jsonl"))]
    parts = [part for at, raw in enumerate(runs) for part in (prompt(f"run {at}"), raw)]
    events, _ = parsed(log(tmp_path, meta("claude"), *parts, END))
    words = [
        e.data["_prompt"]["text"] if e.type == "prompt" else e.data["update"]["content"]["text"]
        for e in events
        if e.type in ("prompt", "user_message_chunk") and "injected" not in (e.data.get("extra") or {})
    ]
    assert [word for word in words if word.startswith("run ")] == [f"run {at}" for at in range(len(runs))]


def test_a_log_without_its_end_is_unfinished_and_not_broken(tmp_path: Path) -> None:
    _, parse = parsed(log(tmp_path, meta("codex"), prompt("x"), STDOUT["codex"].read_bytes()[:-40]))
    assert "no_end_mark" in parse.report.warnings


def test_a_parsed_download_is_a_trace(tmp_path: Path) -> None:
    chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "hi"}}
    path = log(tmp_path, meta("claude"), prompt("do it"), line({"sessionId": "s", "update": chunk}), END)
    events, parse = parsed(path)
    assert [event.type for event in events] == ["prompt", "agent_message_chunk"]
    assert parse.report.source == "sdk"


def test_a_log_of_nobody_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError, match="of agent 'pi' whose lines no parser claims") as caught:
        open_path(log(tmp_path, meta("pi"), prompt("x"), line({"type": "whatever"})))
    assert caught.value.code == "unrecognized_trace"
