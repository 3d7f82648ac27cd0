"""Claude Code's recordings against what the model server really sent, and the laws that every parser keeps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.claude_code.files import HARNESS, is_session, is_stdout
from traceflow_parsers.claude_code.session import ClaudeSession
from traceflow_parsers.claude_code.stdout import ClaudeStdout
from traceflow_parsers.registry import harness_named
from traceflow_parsers.source import Source, head_records
from traceflow_parsers.testing import ParserContract, check_events, run

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = sorted((FIXTURES / "recordings").glob("claude-*/*"))
SUBAGENTS = ("sub", "sub2", "sub3")  # the server's names of the subagents' scripts


def session_files() -> list[Path]:
    return [p for r in RECORDINGS for p in sorted(r.rglob("*.jsonl")) if "projects" in p.parts]


def stdout_files() -> list[Path]:
    return [p for r in RECORDINGS for p in sorted(r.glob("stdout*.jsonl"))]


class TestClaudeSession(ParserContract):
    make = staticmethod(ClaudeSession)
    inputs = staticmethod(lambda: [p.read_bytes() for p in session_files()])
    prefixes = 12


class TestClaudeStdout(ParserContract):
    make = staticmethod(ClaudeStdout)
    inputs = staticmethod(lambda: [p.read_bytes() for p in stdout_files()])
    prefixes = 12


def named(paths: list[Path]) -> Any:
    return pytest.mark.parametrize("path", paths, ids=lambda p: "/".join(p.relative_to(FIXTURES).parts[1:3]))


# -- reading a trace back as model calls ---------------------------------------------------------------------


def calls_of(events: list[Event]) -> list[dict[str, Any]]:
    """Model calls in the order of their first event: agent, text, thoughts, tool calls, usage."""
    found: dict[tuple[str | None, str], dict[str, Any]] = {}
    for event in events:
        message_id, extra = event.data.get("messageId"), event.data.get("extra", {})
        if message_id is None or extra.get("abandoned"):
            continue
        call = found.setdefault(
            (extra.get("agentId"), message_id),
            {"agent": extra.get("agentId"), "text": "", "think": "", "tools": [], "usage": None, "model": None},
        )
        update = event.data.get("update", {})
        if event.type == "agent_message_chunk":
            call["text"] += text_of(event)
        elif event.type == "agent_thought_chunk":
            call["think"] += text_of(event)
        elif event.type == "tool_call":
            call["tools"].append((update["toolCallId"], update["toolName"], update["rawInput"]))
        elif event.type == "usage":
            assert call["usage"] is None, "one usage per model call"
            call["usage"] = update["usage"]
    return list(found.values())


def truth_of(recording: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows = [json.loads(line) for line in (recording / "truth.jsonl").read_text().splitlines()]
    rows = [r for r in rows if r.get("usage") and r["status"] == 200 and not r["scn"].startswith(("_side", "_summary"))]
    return [r for r in rows if r["scn"] not in SUBAGENTS], [r for r in rows if r["scn"] in SUBAGENTS]


def sent(row: dict[str, Any]) -> dict[str, int]:
    usage = row["usage"]
    prompt = usage["fresh"] + usage["cread"] + usage["cwrite"]
    return {"promptTokens": prompt, "completionTokens": usage["out"], "cachedTokens": usage["cread"]}


def counts(usage: dict[str, Any]) -> dict[str, int]:
    return {k: v for k, v in usage.items() if k.endswith("Tokens")}


def tools_sent(row: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [(i, name, arguments) for i, (name, arguments) in zip(row["ids"] or [], row["calls"], strict=True)]


def same_tools(calls: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    """The calls of the server, with its ids and arguments; the harness may add its defaults to the arguments."""
    assert len(calls) == len(rows)
    for call, row in zip(calls, rows, strict=True):
        want = tools_sent(row)
        assert [tool[:2] for tool in call["tools"]] == [tool[:2] for tool in want]
        for (_, _, have), (_, _, arguments) in zip(call["tools"], want, strict=True):
            assert {key: have.get(key) for key in arguments} == arguments


def session_of(recording: Path) -> tuple[list[Event], Any]:
    (source,) = HARNESS.sessions_in(recording / "home")
    parse = source.parse()
    events = list(parse)
    check_events(events)
    return events, parse.report


# -- session files against the truth -------------------------------------------------------------------------


@named(RECORDINGS)
def test_a_session_holds_the_calls_that_the_server_answered(path: Path) -> None:
    events, report = session_of(path)
    main, _ = truth_of(path)
    calls = [call for call in calls_of(events) if call["agent"] is None]
    same_tools(calls, main)
    assert [counts(call["usage"]) for call in calls] == [sent(row) for row in main]
    for call, row in zip(calls, main, strict=True):
        if "text" in row:
            assert call["text"].strip() == row["text"].strip()
            assert (row.get("think") or "") in call["think"]
    assert report.lines.unknown == report.lines.malformed == report.lines.duplicate == 0
    assert report.warning_list() == []
    assert report.version == path.parent.name.removeprefix("claude-")


@named(RECORDINGS)
def test_every_call_has_its_result_and_every_prompt_stands_once(path: Path) -> None:
    events, _ = session_of(path)
    called = [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call"]
    returned = [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call_update"]
    assert sorted(called) == sorted(returned)
    people = [
        text_of(e)
        for e in events
        if e.type in ("prompt", "user_message_chunk")
        and not {"injected", "compaction", "agentId"} & e.data.get("extra", {}).keys()
        and e.data.get("update", {}).get("content", {}).get("type") != "image"
    ]
    assert len(people) == len(list(path.glob("stdout*.jsonl")))
    assert all("[[scn:" in text for text in people)
    assert events[0].type == "prompt"
    assert events[0].data["extra"] == {"harness": "claude-code", "harnessVersion": path.parent.name[7:]}


@pytest.mark.parametrize("version", ["claude-2.0.76", "claude-2.1.197"])
def test_subagents_have_their_calls_and_name_the_call_that_spawned_them(version: str) -> None:
    recording = FIXTURES / "recordings" / version / "subagent"
    events, _ = session_of(recording)
    _, sub = truth_of(recording)
    calls = [call for call in calls_of(events) if call["agent"] is not None]
    by_tokens = sorted(calls, key=lambda call: call["usage"]["promptTokens"])
    same_tools(by_tokens, sorted(sub, key=lambda r: sent(r)["promptTokens"]))
    assert [counts(call["usage"]) for call in by_tokens] == sorted(map(sent, sub), key=lambda u: u["promptTokens"])
    spawned = {e.data["update"]["toolCallId"]: e.data["update"]["rawInput"]["prompt"] for e in events
               if e.type == "tool_call" and e.data["update"]["toolName"] in ("Agent", "Task")}  # fmt: skip
    prompts = {e.data.get("parentToolCallId"): text_of(e) for e in events
               if e.type == "user_message_chunk" and "agentId" in e.data["extra"] and "injected" not in e.data["extra"]
               and "abandoned" not in e.data["extra"]}  # fmt: skip
    assert prompts == spawned
    assert len({call["agent"] for call in calls}) == 3


def test_warm_ups_of_2_0_are_withdrawn() -> None:
    events, _ = session_of(FIXTURES / "recordings/claude-2.0.76/subagent")
    gone = [e for e in events if e.data.get("extra", {}).get("abandoned")]
    assert [text_of(e) for e in gone if e.type == "user_message_chunk"] == ["Warmup", "Warmup"]
    assert len({e.data["extra"]["agentId"] for e in gone}) == 2
    assert not any("parentToolCallId" in e.data for e in gone)


def test_a_failing_command_is_failed_and_has_its_exit_code() -> None:
    events, _ = session_of(FIXTURES / "recordings/claude-2.1.197/basic")
    updates = [(e.data["update"], e.data.get("extra", {})) for e in events if e.type == "tool_call_update"]
    assert [x["exitCode"] for u, x in updates if u["status"] == "failed"] == [1, 3]
    assert all("exitCode" not in x for u, x in updates if u["status"] == "completed")
    read = next(u for u, _ in updates if u.get("rawOutput", {}).get("file"))
    assert read["rawOutput"]["file"] == {
        "filePath": "/srv/app/hello.txt", "numLines": 3, "startLine": 1, "totalLines": 3,
    }  # fmt: skip


def test_a_provider_failure_is_an_error_and_never_the_agents_words() -> None:
    events, _ = session_of(FIXTURES / "recordings/claude-2.1.197/errors")
    (error,) = [e for e in events if e.type == "error"]
    assert error.data["update"]["message"] == "API Error: 400 messages.3: scripted bad request"
    assert error.data["update"]["fatal"] is True
    assert error.data["extra"]["apiErrorStatus"] == 400
    assert not any("API Error" in text_of(e) for e in events if e.type == "agent_message_chunk")


def test_compaction_is_one_event_with_its_numbers() -> None:
    for events in (
        session_of(FIXTURES / "recordings/claude-2.1.197/compact+win")[0],
        run(ClaudeStdout(), (FIXTURES / "recordings/claude-2.1.197/compact+win/stdout.jsonl").read_bytes()),
    ):
        (event,) = [e for e in events if "compaction" in e.data.get("extra", {})]
        assert text_of(event).startswith("This session is being continued")
        known = event.data["extra"]["compaction"]
        assert (known["trigger"], known["preTokens"], known["postTokens"]) == ("auto", 191092, 662)


def test_what_the_harness_injects_is_marked_with_its_kind() -> None:
    events, _ = session_of(FIXTURES / "recordings/claude-2.1.197/basic")
    kinds = [e.data["extra"]["injected"] for e in events if "injected" in e.data.get("extra", {})]
    assert kinds == ["agents", "skills"]


# -- stdout against the truth --------------------------------------------------------------------------------


def runs_of(recording: Path) -> list[tuple[list[Event], Any]]:
    runs = []
    for path in sorted(recording.glob("stdout*.jsonl")):
        parse = HARNESS.stdout_source(path).parse()
        events = list(parse)
        check_events(events)
        runs.append((events, parse.report))
    return runs


@named(RECORDINGS)
def test_stdout_holds_the_calls_and_the_totals_of_the_main_agent(path: Path) -> None:
    main, _ = truth_of(path)
    runs = runs_of(path)
    calls = [call for events, _ in runs for call in calls_of(events) if call["agent"] is None]
    same_tools(calls, main)
    for call, row in zip(calls, main, strict=True):
        want = sent(row)
        assert call["usage"]["promptTokens"] == want["promptTokens"]
        assert call["usage"].get("completionTokens", want["completionTokens"]) == want["completionTokens"]
        if "text" in row:
            assert call["text"].strip() == row["text"].strip()
    totals = [
        e.data["update"]["usage"]
        for events, _ in runs
        for e in events
        if e.data.get("update", {}).get("scope") == "run"
    ]
    for key in ("promptTokens", "completionTokens", "cachedTokens"):
        assert sum(total[key] for total in totals) == sum(sent(row)[key] for row in main)
    assert all(total["costUsd"] > 0 for total in totals)
    for _, report in runs:
        assert report.lines.parsed == report.lines.read
        assert report.warning_list() == []
        assert not report.incomplete


@pytest.mark.parametrize(
    ("scenario", "known"),
    [("claude-2.1.197/basic", 0), ("claude-2.1.197/basic+partial", 9), ("claude-2.0.76/basic", 8)],
)
def test_output_tokens_of_a_call_on_stdout_are_right_or_absent(scenario: str, known: int) -> None:
    """2.1 prints those of the message's beginning, 2.0 the final ones on blocks that have a stop reason."""
    recording = FIXTURES / "recordings" / scenario
    ((events, _),) = runs_of(recording)
    usages = [call["usage"] for call in calls_of(events)]
    assert sum("completionTokens" in usage for usage in usages) == known
    assert all(("completionTokens" in u) != ("output_tokens" in u["extra"]) for u in usages)


def test_stdout_names_subagents_by_their_real_id_where_it_is_printed() -> None:
    for version, real in (("claude-2.1.197", True), ("claude-2.0.76", False)):
        ((events, _),) = runs_of(FIXTURES / "recordings" / version / "subagent")
        side = [e for e in events if "agentId" in e.data.get("extra", {})]
        assert len({e.data["extra"]["agentId"] for e in side}) == 3
        assert all((e.data["extra"]["agentId"] != e.data["parentToolCallId"]) is real for e in side)
        (total,) = [e.data["update"]["usage"] for e in events if e.data.get("update", {}).get("scope") == "run"]
        everyone = total["extra"]["includingSubagents"]
        rows = (FIXTURES / "recordings" / version / "subagent/truth.jsonl").read_text().splitlines()
        answered = [row for row in map(json.loads, rows) if row["usage"]]  # with 2.0's warm-ups and title
        assert everyone["promptTokens"] == sum(sent(row)["promptTokens"] for row in answered)


def test_retries_are_errors_that_were_retried() -> None:
    ((events, _),) = runs_of(FIXTURES / "recordings/claude-2.1.197/retry")
    errors = [
        (e.data["update"]["message"], e.data["update"]["fatal"], e.data["extra"]) for e in events if e.type == "error"
    ]
    assert [(message, fatal, extra["retried"], extra["errorStatus"]) for message, fatal, extra in errors] == [
        ("overloaded", False, True, 529),
        ("server_error", False, True, 500),
    ]


def test_a_failed_run_has_one_fatal_error() -> None:
    ((events, _),) = runs_of(FIXTURES / "recordings/claude-2.1.197/errors")
    fatal = [e.data["update"]["message"] for e in events if e.type == "error" and e.data["update"]["fatal"]]
    assert fatal == ["API Error: 400 messages.3: scripted bad request"]
    assert not any("API Error" in text_of(e) for e in events if e.type == "agent_message_chunk")


def test_runs_one_after_the_other_are_summed() -> None:
    recording = FIXTURES / "recordings/claude-2.1.197/resume"
    log = b"".join(p.read_bytes() for p in sorted(recording.glob("stdout*.jsonl")))
    events = run(ClaudeStdout(), log)
    (total,) = [e.data["update"]["usage"] for e in events if e.data.get("update", {}).get("scope") == "run"]
    main, _ = truth_of(recording)
    assert total["promptTokens"] == sum(sent(r)["promptTokens"] for r in main)
    assert total["completionTokens"] == sum(sent(r)["completionTokens"] for r in main)


def test_todos_give_the_call_and_the_plan() -> None:
    for version, scenario in (("claude-2.1.197", "basic+todowrite"), ("claude-2.0.76", "basic")):
        events, _ = session_of(FIXTURES / "recordings" / version / scenario)
        at = [n for n, e in enumerate(events) if e.type == "tool_call" and e.data["update"]["toolName"] == "TodoWrite"]
        assert len(at) == 2
        for n in at:
            plan = events[n + 1]
            assert plan.type == "plan"
            assert plan.data["messageId"] == events[n].data["messageId"]
            assert plan.data["update"]["entries"][0]["content"] == "List the files"


# -- whose lines these are -----------------------------------------------------------------------------------

OTHERS = {
    "qwen stdout": [
        {"type": "system", "subtype": "init", "uuid": "a", "session_id": "a", "cwd": "/", "tools": [], "model": "q",
         "qwen_code_version": "0.15.10"},
        {"type": "assistant", "uuid": "b", "session_id": "a", "parent_tool_use_id": None,
         "message": {"id": "b", "type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]}},
        {"type": "result", "subtype": "success", "session_id": "a", "is_error": False, "result": "x",
         "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}},
    ],
    "qwen stdout without its first line": [
        {"type": "assistant", "uuid": "b", "session_id": "a",
         "message": {"id": "b", "type": "message", "role": "assistant", "content": []}},
    ],
    "qwen session": [
        {"uuid": "a", "parentUuid": None, "sessionId": "s", "type": "user", "version": "0.15.10", "cwd": "/",
         "message": {"role": "user", "parts": [{"text": "hi"}]}},
        {"uuid": "b", "parentUuid": "a", "sessionId": "s", "type": "system", "subtype": "ui_telemetry",
         "systemPayload": {}},
    ],
    "droid stdout": [
        {"type": "system", "subtype": "init", "cwd": "/", "session_id": "s", "tools": ["Read"], "model": "m",
         "reasoning_effort": "off"},
        {"type": "message", "role": "user", "id": "a", "text": "hi", "timestamp": 1, "session_id": "s"},
    ],
    "droid json": [
        {"type": "result", "subtype": "success", "is_error": False, "result": "x", "session_id": "s",
         "usage": {"input_tokens": 1, "factory_credits": 3}},
    ],
    "droid session": [
        {"type": "session_start", "id": "s", "title": "t", "version": 2, "cwd": "/"},
        {"type": "message", "id": "a", "message": {"role": "user", "content": [{"type": "text", "text": "hi"}]}},
    ],
    "codex stdout": [{"type": "thread.started", "thread_id": "t"}, {"type": "turn.started"}],
    "codex session": [{"timestamp": "2026-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "x"}}],
    "gemini stdout": [{"type": "init", "session_id": "s", "model": "g"},
                      {"type": "message", "role": "user", "content": "hi"}],
    "gemini session": [{"sessionId": "s", "projectHash": "p", "startTime": "t", "kind": "main"},
                       {"id": "a", "timestamp": "t", "type": "user", "content": [{"text": "hi"}]}],
    "kimi stdout": [{"role": "meta", "type": "system.version"}, {"role": "assistant", "content": "x"}],
    "opencode stdout": [{"type": "step_start", "timestamp": 1, "sessionID": "ses_1", "part": {}}],
    "a parsed trace": [{"seq": 0, "type": "prompt", "data": {"_prompt": {"text": "hi"}}}],
    "nothing": [],
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_lines_of_others_are_not_claimed(name: str) -> None:
    assert not is_session(OTHERS[name])
    assert not is_stdout(OTHERS[name])


def test_own_lines_are_claimed_as_what_they_are() -> None:
    assert all(is_session(head_records(p)) and not is_stdout(head_records(p)) for p in session_files())
    assert all(is_stdout(head_records(p)) and not is_session(head_records(p)) for p in stdout_files())


@pytest.mark.parametrize(
    "records",
    [
        [{"type": "summary", "summary": "Title", "leafUuid": "x"}],
        [{"type": "file-history-snapshot", "messageId": "x", "snapshot": {}}],
        [{"type": "queue-operation", "operation": "enqueue", "sessionId": "s", "content": "x"}],
        [{"type": "user", "uuid": "u", "parentUuid": None, "message": {"role": "user", "content": "x"}}],
    ],
)
def test_a_session_of_one_row_is_claimed(records: list[dict[str, Any]]) -> None:
    assert is_session(records)


def test_the_registry_knows_it() -> None:
    assert harness_named("claude-code") is HARNESS


# -- where sessions lie --------------------------------------------------------------------------------------


def names(sources: list[Source]) -> list[tuple[str, list[str]]]:
    return [(source.path.stem, [item.part.name for item in source.inputs]) for source in sources]


def test_roots_are_found_at_any_depth_and_nothing_else_is_one(tmp_path: Path) -> None:
    home = FIXTURES / "recordings/claude-2.1.197/subagent/home"
    (found,) = HARNESS.sessions_in(home)
    project = found.path.parent
    for place in (".claude/projects/-srv-app", "agent/sessions/projects/-srv-app"):
        shutil.copytree(project, tmp_path / place)
        (tmp_path / place / "journal.jsonl").write_text('{"type":"summary","summary":"x","leafUuid":"y"}\n')
    (tmp_path / ".claude/history.jsonl").write_text('{"display":"x","sessionId":"s"}\n')
    sources = HARNESS.sessions_in(tmp_path)
    assert [source.path.parent.relative_to(tmp_path).as_posix() for source in sources] == [
        ".claude/projects/-srv-app",
        "agent/sessions/projects/-srv-app",
    ]
    assert names(sources)[0] == names([found])[0]
    assert names(HARNESS.sessions_in(project)) == names([found])
    assert names([HARNESS.session_at(found.path)]) == names([found])
    assert found.session_id == found.path.stem
    assert len(found.files) == 1 + 3 + 3


def test_subagents_beside_the_main_file_belong_to_the_session_they_name() -> None:
    ((session, parts),) = names(HARNESS.sessions_in(FIXTURES / "recordings/claude-2.0.76/subagent/home"))
    assert parts[0] == f"{session}.jsonl"
    assert sorted(parts[1:]) == [f"agent-{i}.jsonl" for i in ("a0b178e", "a34bf19", "a79858f", "ae4b75c", "aede9e7")]


def test_a_subagents_file_alone_is_read_as_its_own_session() -> None:
    (path,) = (FIXTURES / "recordings/claude-2.1.197/subagent/home").rglob("agent-a3b*.jsonl")
    events = list(HARNESS.session_at(path).parse())
    assert events[0].type == "prompt"
    assert not any("agentId" in e.data.get("extra", {}) for e in events)


def test_links_are_not_followed(tmp_path: Path) -> None:
    (found,) = HARNESS.sessions_in(FIXTURES / "recordings/claude-2.1.197/basic/home")
    (tmp_path / "projects/-x").mkdir(parents=True)
    (tmp_path / "projects/-x" / found.path.name).symlink_to(found.path)
    assert HARNESS.sessions_in(tmp_path) == []
