"""Droid: `droid exec` as stream-json and json, and session files with their settings beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traceflow_parsers.droid import HARNESS, DroidSession, DroidStdout
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import ParserContract, run
from traceflow_parsers.tools.droid import show, todo_plan
from truth_check import RECORDINGS, Told, read, sent, sent_tokens, sent_tools, told

FOLDER = RECORDINGS / "droid-0.215.0"
STDOUTS = sorted(p for p in FOLDER.glob("*/stdout*.jsonl") if p.stat().st_size)
SESSIONS = sorted(FOLDER.glob("*/home/.factory/sessions/*/*.jsonl"))
SCENARIOS = sorted(p.parent for p in FOLDER.glob("*/truth.jsonl"))


class TestStdoutContract(ParserContract):
    make = DroidStdout
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in STDOUTS])


class TestSessionContract(ParserContract):
    make = DroidSession
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in SESSIONS])


def ran(agents: dict[str | None, Told]) -> tuple[int, int]:
    usage = agents[None].run or {}
    return usage.get("promptTokens", 0), usage.get("completionTokens", 0)


# -- recordings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda p: p.name)
def test_a_session_tells_what_the_model_server_sent(folder: Path) -> None:
    main, _ = sent(folder)
    sources = HARNESS.sessions_in(folder / "home")
    assert len(sources) == (2 if folder.name == "resume" else 1)  # without a login each run is a new session
    answers, tools, tokens = [], [], [0, 0]
    for source in sorted(sources, key=lambda s: "scn:short" not in s.path.read_text("utf-8")):
        agents, report = read(source)
        assert report["session_id"] == source.path.stem
        assert not report["incomplete"]
        assert ["[[scn:" in prompt for prompt in agents[None].prompts] == [True]
        assert {kind for kind, _ in agents[None].injected} == {"system_reminder", "context"}
        answers += list(agents[None].calls.values())
        tools += agents[None].tools
        tokens = [a + b for a, b in zip(tokens, ran(agents), strict=True)]
    assert tools == sent_tools(main)
    assert tuple(tokens) == sent_tokens(main)
    for call, row in zip(answers, main, strict=True):
        if "text" in row:
            assert call.message.strip() == row["text"].strip()
            assert row["think"] in call.thought
        assert call.model == "custom:fake-0"


@pytest.mark.parametrize("path", STDOUTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_stdout_tells_the_calls_and_the_total(path: Path) -> None:
    agents, report = read(HARNESS.stdout_source(path))
    main, _ = sent(path.parent)
    if path.parent.name == "resume":
        main = main[:2] if path.name == "stdout.1.jsonl" else main[2:]
    assert not report["incomplete"]
    if path.parent.name == "basic+json":  # one result object
        assert [call.message for call in agents[None].calls.values()] == [main[-1]["text"].rstrip()]
    else:
        assert agents[None].tools == sent_tools(main)
        assert len(agents[None].calls) == len(main)
        assert ["[[scn:" in prompt for prompt in agents[None].prompts] == [True]
    if path.parent.name != "errors":
        assert ran(agents) == sent_tokens(main)


def test_a_failed_run_is_one_error() -> None:
    agents, report = read(HARNESS.stdout_source(FOLDER / "errors/stdout.jsonl"))
    (error,) = agents[None].errors
    assert error["fatal"]
    assert "messages.3: scripted bad request" in error["message"]
    assert report["lines"]["duplicate"] == 1, "the second error line repeats the last answer"
    (source,) = HARNESS.sessions_in(FOLDER / "errors/home")
    agents, _ = read(source)
    (error,) = agents[None].errors
    assert (error["fatal"], error["reason"]) == (True, "model_request_rejected")
    assert error["message"].startswith("BYOK Error: 400 ")
    assert [call.message for call in agents[None].calls.values()] == ["Listing first."]


def test_exit_codes_stand_at_the_end_of_a_result() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "basic/home")
    for events in (list(source.parse()), list(HARNESS.stdout_source(FOLDER / "basic/stdout.jsonl").parse())):
        results = [e.data for e in events if e.type == "tool_call_update"]
        codes = [data.get("extra", {}).get("exitCode") for data in results]
        assert codes == [0, None, None, 1, 0, 3, None, None, None, None]
        failed = [data["update"]["status"] == "failed" for data in results]
        assert failed == [False, False, False, True, False, True, False, True, False, True]


# -- what recordings do not show ---------------------------------------------------------------------------


def lines(*records: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(record).encode() for record in records)


def spoken(number: int, role: str, content: Any, **message: Any) -> dict[str, Any]:
    record = {"type": "message", "id": f"m{number}", "timestamp": f"2026-01-01T00:00:0{number}.000Z"}
    return {**record, "message": {"role": role, "content": content, **message}}


def test_the_session_of_a_task_is_a_subagent_of_its_call(tmp_path: Path) -> None:
    folder = tmp_path / "home/.factory/sessions/-srv"
    folder.mkdir(parents=True)
    task = {"type": "tool_use", "id": "call_1", "name": "Task", "input": {"description": "List", "prompt": "list"}}
    (folder / "root.jsonl").write_bytes(
        lines(
            {"type": "session_start", "id": "root", "version": 2, "cwd": "/srv"},
            spoken(1, "user", [{"type": "text", "text": "go"}]),
            spoken(2, "assistant", [task], modelId="m"),
            spoken(3, "user", [{"type": "tool_result", "tool_use_id": "call_1", "content": "done"}]),
        )
    )
    start = {"type": "session_start", "id": "child", "callingSessionId": "root", "callingToolUseId": "call_1"}
    (folder / "child.jsonl").write_bytes(
        lines(start, spoken(1, "user", "list"), spoken(2, "assistant", "one file", modelId="m"))
    )
    own = {"inputTokens": 100, "outputTokens": 10, "cacheReadTokens": 1000, "cacheCreationTokens": 50}
    whole = {"inputTokens": 300, "outputTokens": 30, "cacheReadTokens": 1000, "cacheCreationTokens": 50}
    settings = {"tokenUsage": own, "inclusiveTokenUsage": whole, "childInclusiveTokenUsageBySessionId": {"child": {}}}
    (folder / "root.settings.json").write_text(json.dumps(settings))
    (source,) = HARNESS.sessions_in(tmp_path)
    assert [path.name for path in source.files] == ["root.jsonl", "child.jsonl", "root.settings.json"]
    agents, report = read(source)
    assert (agents["child"].parent, agents["child"].prompts) == ("call_1", ["list"])
    assert [call.message for call in agents["child"].calls.values()] == ["one file"]
    assert agents[None].run is not None
    assert (agents[None].run["promptTokens"], agents[None].run["cachedTokens"]) == (1150, 1000)
    including = agents[None].run["extra"]["includingSubagents"]
    assert including == {"promptTokens": 1350, "completionTokens": 30, "cachedTokens": 1000}
    assert report["incomplete"], "the last word of the main agent is missing"
    assert [s.session_id for s in HARNESS.sessions_in(folder)] == ["root"]


def test_a_compaction_and_a_todo_state() -> None:
    todos = {"todos": [{"content": "List", "status": "in_progress"}]}
    events = run(
        DroidSession(),
        lines(
            {"type": "session_start", "id": "s", "version": 2},
            {"type": "compaction_state", "id": "c", "summaryText": "so far", "summaryKind": "llm", "removedCount": 4},
            {"type": "todo_state", "todos": todos},
        ),
    )
    agents = told(events)
    assert agents[None].summaries == ["so far"]
    assert events[0].data["extra"]["compaction"] == {"summaryKind": "llm", "removedCount": 4}
    assert agents[None].plans == [[{"content": "List", "status": "in_progress", "priority": "medium"}]]


def test_a_notice_without_a_failure_is_no_error() -> None:
    records = [
        spoken(1, "user", "go"),
        spoken(2, "user", [{"type": "text", "text": "Update available"}], visibility="user_only"),
        spoken(3, "assistant", "done", modelId="m"),
    ]
    agents = told(run(DroidSession(), lines(*records)))
    assert (agents[None].errors, agents[None].injected) == ([], [("notice", "Update available")])


def test_a_run_that_was_killed_is_incomplete() -> None:
    head = (FOLDER / "basic/stdout.jsonl").read_bytes().split(b"\n")[:5]
    parser = DroidStdout()
    agents = told(run(parser, b"\n".join(head)))
    assert [name for _, name, _ in agents[None].tools] == ["Execute"]
    assert agents[None].results == {}
    assert parser.report.incomplete


def test_init_lines_of_other_harnesses_are_not_claimed() -> None:
    claude = {"type": "system", "subtype": "init", "session_id": "s", "tools": ["Task"], "claude_code_version": "2.1"}
    qwen = {"type": "system", "subtype": "init", "session_id": "s", "tools": ["edit"], "qwen_code_version": "0.15"}
    result = {"type": "result", "subtype": "success", "session_id": "s", "usage": {"input_tokens": 1}, "result": "x"}
    gemini = {"type": "message", "role": "user", "content": "hi", "session_id": "s", "timestamp": "2026-01-01"}
    assert not HARNESS.is_stdout([claude, qwen, result, gemini])
    pi = {"type": "message", "id": "1", "parentId": None, "message": {"role": "user", "content": [], "model": "m"}}
    assert not HARNESS.is_session([claude, pi, {"type": "session", "version": 1, "id": "x"}])
    assert all(HARNESS.is_stdout(head_records(p)) and not HARNESS.is_session(head_records(p)) for p in STDOUTS)
    assert all(HARNESS.is_session(head_records(p)) and not HARNESS.is_stdout(head_records(p)) for p in SESSIONS)


@pytest.mark.parametrize(
    ("name", "given", "kind", "title", "places"),
    [
        ("Read", {"file_path": "/a"}, "read", "Read /a", [{"path": "/a"}]),
        ("LS", {"directory_path": "/a"}, "search", "LS", None),
        ("Execute", {"command": "ls", "summary": "list"}, "execute", "Execute ls", None),
        ("execute-cli", {"command": "ls"}, "execute", "execute-cli ls", None),
        ("Skill", {}, "execute", "Skill", None),
        ("Edit", {"file_path": "/a", "old_str": "x", "new_str": "y"}, "edit", "Edit /a", [{"path": "/a"}]),
        ("Create", {"file_path": "/a", "content": "x"}, "edit", "Create /a", [{"path": "/a"}]),
        ("ApplyPatch", {"input": "*** Begin"}, "edit", "ApplyPatch", None),
        ("Grep", {"pattern": "x", "path": "/a"}, "search", "Grep /a", [{"path": "/a"}]),
        ("Glob", {}, "search", "Glob", None),
        ("FetchUrl", {"url": "http://x"}, "fetch", "FetchUrl http://x", None),
        ("web_search", {"query": "q"}, "fetch", "web_search", None),
        ("Task", {"description": "d"}, "think", "Task", None),
        ("TodoWrite", {"todos": []}, "other", "TodoWrite", None),
        ("ToolSearch", None, "other", "ToolSearch", None),
    ],
)
def test_kinds_and_titles(name: str, given: Any, kind: str, title: str, places: Any) -> None:
    shown = show(name, given)
    assert (shown.kind, shown.title, shown.locations) == (kind, title, places)


def test_edits_show_a_diff() -> None:
    assert show("Create", {"file_path": "/a", "content": "x"}).content == [
        {"type": "diff", "path": "/a", "oldText": None, "newText": "x"}
    ]
    assert show("Edit", {"file_path": "/a", "old_str": "x", "new_str": "y"}).content == [
        {"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}
    ]


def test_todos_as_a_text() -> None:
    wanted = [("List", "completed"), ("Write", "in_progress"), ("Report", "pending")]
    for todos in (
        "1. [completed] List\n2. [in_progress] Write\n3. [pending] Report",
        "- [completed] List\n\n[in_progress] Write\n* [pending] Report",
        [{"content": text, "status": status} for text, status in wanted],
    ):
        assert [(e["content"], e["status"]) for e in todo_plan(todos) or []] == wanted
    assert show("TodoWrite", {"todos": "1. [pending] x"}).plan == [
        {"content": "x", "status": "pending", "priority": "medium"}
    ]
