"""Kimi Code: stream-json on stdout, and sessions with a journal for each agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traceflow_parsers.kimi.code import HARNESS, KimiCodeSession, KimiCodeStdout
from traceflow_parsers.registry import HARNESSES
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import ParserContract, run
from traceflow_parsers.tools.kimi import show
from truth_check import CASES, RECORDINGS, assert_said, read, sent, sent_tokens, sent_tools, told

FOLDER = RECORDINGS / "kimi-code-2.1.0"
STDOUTS = sorted(FOLDER.glob("*/stdout*.jsonl"))
JOURNALS = sorted(FOLDER.glob("*/home/.kimi-code/sessions/*/*/agents/*/wire.jsonl"))
SCENARIOS = sorted(p.parent for p in FOLDER.glob("*/truth.jsonl"))


class TestStdoutContract(ParserContract):
    make = KimiCodeStdout
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in STDOUTS])


class TestSessionContract(ParserContract):
    make = KimiCodeSession
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in JOURNALS])


# -- recordings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda p: p.name)
def test_a_session_tells_what_the_model_server_sent(folder: Path) -> None:
    main, sub = sent(folder)
    (source,) = HARNESS.sessions_in(folder / "home")
    agents, report = read(source)
    assert_said(agents[None], main)
    assert all("[[scn:" in prompt for prompt in agents[None].prompts)
    assert len(agents[None].prompts) == len(list(folder.glob("stdout*.jsonl")))
    assert {kind for kind, _ in agents[None].injected} == {"system_reminder"}
    assert {call.model for call in agents[None].calls.values()} == {"kimi-k2"}
    assert report["session_id"].startswith("session_")
    assert report["lines"]["unknown"] == 0
    assert not report["incomplete"]
    children = {name: agent for name, agent in agents.items() if name is not None}
    assert len(children) == sum(row["turn"] == 0 for row in sub)
    calls = {call: given["prompt"] for call, name, given in agents[None].tools if name == "Agent"}
    assert {child.parent: child.prompts for child in children.values()} == {c: [p] for c, p in calls.items()}
    tools = [tool for child in children.values() for tool in child.tools]
    assert sorted(tools, key=str) == sorted(sent_tools(sub), key=str)
    totals = [child.tokens for child in children.values()]
    assert (sum(p for p, _ in totals), sum(c for _, c in totals)) == sent_tokens(sub)


@pytest.mark.parametrize("path", STDOUTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_stdout_tells_calls_and_answers(path: Path) -> None:
    main, _ = sent(path.parent)
    if path.parent.name == "resume":
        at = 2 * (int(path.name.split(".")[1]) - 1)
        main = main[at : at + 2]
    agents, report = read(HARNESS.stdout_source(path))
    assert agents[None].tools == sent_tools(main)
    assert len(agents[None].calls) == len(main)
    assert [c.message for c in agents[None].calls.values()] == [
        r.get("text", c.message) for c, r in zip(agents[None].calls.values(), main, strict=True)
    ]
    assert (report["version"], report["incomplete"]) == ("2.1.0", path.parent.name == "errors")
    if path.parent.name != "errors":
        assert report["session_id"].startswith("session_")


def test_failed_calls_and_their_exit_codes() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "basic/home")
    for events in (list(source.parse()), list(HARNESS.stdout_source(FOLDER / "basic/stdout.jsonl").parse())):
        results = [e.data for e in events if e.type == "tool_call_update"]
        failed = [(d["update"]["status"], d["extra"]["exitCode"]) for d in results if "exitCode" in d.get("extra", {})]
        assert failed == [("failed", 1), ("failed", 3)]
    (source,) = HARNESS.sessions_in(FOLDER / "badtool/home")
    for agents in (read(source)[0], read(HARNESS.stdout_source(FOLDER / "badtool/stdout.jsonl"))[0]):
        assert [status for status, _ in agents[None].results.values()] == ["failed", "failed"]


def test_retries_and_the_error_that_ended_the_run() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "errors/home")
    agents, _ = read(source)
    errors = [(e["message"], e["fatal"], e.get("retried"), e["statusCode"]) for e in agents[None].errors]
    retried = [("503 Overloaded", False, True, 503), ("500 Internal server error", False, True, 500)]
    assert errors == [*retried, ("400 messages.3: scripted bad request", True, None, 400)]
    agents, _ = read(HARNESS.stdout_source(FOLDER / "errors/stdout.jsonl"))
    errors = [(e["message"], e["fatal"], e.get("retried"), e["statusCode"]) for e in agents[None].errors]
    assert errors == retried, "the error itself is on stderr"


def test_a_compaction_with_the_tokens_of_the_call_that_wrote_it() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "compact/home")
    agents, _ = read(source)
    (summary,) = agents[None].summaries
    assert summary.startswith("<analysis>The user ran a scripted scenario.")
    assert [(u["promptTokens"], u["completionTokens"]) for u in agents[None].summary_usage] == [(100, 20)]
    (marked,) = [e.data["extra"]["compaction"] for e in source.parse() if isinstance(_compaction(e), dict)]
    assert marked == {"trigger": "auto", "preTokens": 20326, "postTokens": 20712}


def _compaction(event: Any) -> Any:
    return event.data.get("extra", {}).get("compaction")


def test_a_todo_list_is_a_call_and_a_plan() -> None:
    agents, _ = read(HARNESS.stdout_source(FOLDER / "basic/stdout.jsonl"))
    assert [name for _, name, _ in agents[None].tools].count("TodoList") == 2
    assert agents[None].plans[0] == [
        {"content": "List the files", "status": "completed", "priority": "medium"},
        {"content": "Write hello.txt", "status": "in_progress", "priority": "medium"},
        {"content": "Report", "status": "pending", "priority": "medium"},
    ]


def test_what_the_journal_says_twice_is_told_once() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "basic/home")
    _, report = read(source)
    text = source.path.read_bytes()
    assert report["lines"]["duplicate"] == text.count(b'"agent.message.appended"') == 20
    agents, _ = read(HARNESS.session_at(source.path))
    assert agents[None].tokens == sent_tokens(sent(FOLDER / "basic")[0]), "usage.record and step.end: counted once"


# -- cases -------------------------------------------------------------------------------------------------


def test_case_51_an_older_wire() -> None:
    (source,) = HARNESS.sessions_in(CASES / "51-kimi-wire-old-new")
    events = list(source.parse())
    assert events[0].data["timestamp"] == "2026-03-04T05:06:07.250Z"
    agent = told(events)[None]
    (call,) = agent.calls.values()
    assert agent.prompts == ["hi"]
    assert (call.message, call.thought, call.tools) == ("let me look", "hm", [("Shell:0", "Shell", {"command": "ls"})])
    assert agent.results == {"Shell:0": ("completed", "a.txt")}
    assert call.usage is not None
    assert (agent.tokens, call.usage["cachedTokens"]) == ((130, 5), 100)


# -- what recordings do not show ---------------------------------------------------------------------------


def journal(*records: dict[str, Any]) -> bytes:
    stamped = ({"time": 1772600767000 + n, **record} for n, record in enumerate(records))
    return b"\n".join(json.dumps(record).encode() for record in stamped)


def loop(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": "context.append_loop_event", "event": {"type": kind, **data}}


def said(role: str, text: str, **data: Any) -> dict[str, Any]:
    message = {"role": role, "content": [{"type": "text", "text": text}], **data}
    return {"type": "context.append_message", "message": message}


def asked(text: str) -> list[dict[str, Any]]:
    origin = {"kind": "user"}
    parts = [{"type": "text", "text": text}]
    return [{"type": "turn.prompt", "input": parts, "origin": origin}, said("user", text, origin=origin)]


def answered(number: int, text: str) -> list[dict[str, Any]]:
    usage = {"inputOther": 10 * number, "output": number, "inputCacheRead": 0, "inputCacheCreation": 0}
    return [
        loop("step.begin", uuid=f"s{number}"),
        loop("content.part", part={"type": "text", "text": text}),
        loop("step.end", uuid=f"s{number}", finishReason="end_turn", usage=usage),
    ]


def test_what_was_undone_is_abandoned(tmp_path: Path) -> None:
    path = tmp_path / "session_1/agents/main/wire.jsonl"
    path.parent.mkdir(parents=True)
    undo = {"type": "context.undo", "count": 2}
    turns = [record for n in (1, 2, 3) for record in (*asked(f"prompt {n}"), *answered(n, f"answer {n}"))]
    path.write_bytes(journal({"type": "metadata", "created_at": 1, "protocol_version": "1.5"}, *turns, undo))
    (source,) = HARNESS.sessions_in(tmp_path)
    events = list(source.parse())
    kept = [e for e in events if not e.data.get("extra", {}).get("abandoned")]
    assert told(kept)[None].prompts == ["prompt 1"]
    assert told(kept)[None].tokens == (10, 1)
    assert len(events) == 9


def test_a_killed_run_keeps_its_call_open() -> None:
    call = loop("tool.call", toolCallId="c1", name="Bash", args={"command": "sleep 300"})
    record = {"type": "usage.record", "usage": {"inputOther": 5, "output": 1}, "usageScope": "turn"}
    parser = KimiCodeSession()
    agents = told(run(parser, journal(*asked("go"), loop("step.begin", uuid="s1"), record, call)))
    assert (agents[None].tools, agents[None].results) == ([("c1", "Bash", {"command": "sleep 300"})], {})
    assert agents[None].tokens == (5, 1), "the record stands in for the end that never came"
    assert parser.report.incomplete


def test_a_refused_answer_has_words_tokens_and_an_error() -> None:
    error = {"code": "provider.filtered", "message": "Provider safety policy blocked the response."}
    ended = {"type": "turn.ended", "reason": "failed", "error": error}
    agents = told(run(KimiCodeSession(), journal(*asked("go"), *answered(1, "I cannot"), ended)))
    assert agents[None].tokens == (10, 1)
    assert [(e["message"], e["fatal"], e["code"]) for e in agents[None].errors] == [
        ("Provider safety policy blocked the response.", True, "provider.filtered")
    ]


def test_an_interruption_without_an_end_is_an_error_of_its_own() -> None:
    interrupted = {"type": "turn.step.interrupted", "reason": "error", "message": "broken"}
    agents = told(run(KimiCodeSession(), journal(*asked("go"), interrupted)))
    assert [(e["message"], e["fatal"]) for e in agents[None].errors] == [("broken", True)]


def test_a_session_moved_from_kimi_cli_has_whole_messages() -> None:
    calls = [{"type": "function", "id": "c1", "function": {"name": "Shell", "arguments": '{"command":"ls"}'}}]
    tool = said("tool", "a.txt", toolCallId="c1")
    agents = told(run(KimiCodeSession(), journal(said("user", "hi"), said("assistant", "look", toolCalls=calls), tool)))
    (call,) = agents[None].calls.values()
    assert (call.message, call.tools) == ("look", [("c1", "Shell", {"command": "ls"})])
    assert agents[None].results == {"c1": ("completed", "a.txt")}


def test_a_resumed_subagent_belongs_to_the_call_of_each_turn(tmp_path: Path) -> None:
    agents = tmp_path / "session_1/agents"
    (agents / "main").mkdir(parents=True)
    (agents / "agent-0").mkdir()
    spawned = [{"type": "subagent.spawned", "subagentId": "agent-0", "parentToolCallId": call} for call in ("c1", "c2")]
    (agents / "main/wire.jsonl").write_bytes(journal(*asked("go"), *spawned))
    turns = [record for n in (1, 2) for record in (*asked(f"task {n}"), *answered(n, "done"))]
    (agents / "agent-0/wire.jsonl").write_bytes(journal(*turns))
    (source,) = HARNESS.sessions_in(tmp_path)
    parents = [e.data.get("parentToolCallId") for e in source.parse() if e.data.get("extra", {}).get("agentId")]
    assert sorted(parents) == ["c1"] * 3 + ["c2"] * 3


# -- detection, kinds and titles ---------------------------------------------------------------------------


def test_the_two_kimis_are_told_apart() -> None:
    cli = RECORDINGS / "kimi-cli-1.40.0"
    for folder, name in ((FOLDER, "kimi-code"), (cli, "kimi-cli")):
        for path in sorted(folder.glob("*/stdout*.jsonl")):
            records = head_records(path)
            assert [h.name for h in HARNESSES if h.is_stdout(records)] == [name]
            assert not any(h.is_session(records) for h in HARNESSES)
            without_meta = [record for record in records if record["role"] != "meta"]
            claimed = [h.name for h in HARNESSES if h.is_stdout(without_meta)]
            assert claimed in ([name], []), "without the meta lines: by evidence, or not at all"
        for path in sorted(folder.glob("*/home/*/sessions/**/wire.jsonl")):
            assert [h.name for h in HARNESSES if h.is_session(head_records(path))] == [name]


@pytest.mark.parametrize(
    "records",
    [
        [{"role": "assistant", "content": "hi"}],
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}],
        [{"role": "system", "content": "x"}, {"role": "tool", "tool_call_id": "1", "content": "<system>x</system>"}],
        [{"type": "system", "subtype": "init", "session_id": "x"}],
    ],
)
def test_chat_messages_of_other_programs_are_nobodys(records: list[dict[str, Any]]) -> None:
    assert not any(h.name.startswith("kimi") and h.is_stdout(records) for h in HARNESSES)


@pytest.mark.parametrize(
    ("name", "given", "kind", "title", "places"),
    [
        ("Read", {"path": "/a"}, "read", "Read /a", [{"path": "/a"}]),
        ("ReadFile", {"path": "/a"}, "read", "Read /a", [{"path": "/a"}]),
        ("ReadMediaFile", {"path": "/a.png"}, "read", "Read media /a.png", [{"path": "/a.png"}]),
        ("Write", {"path": "/a", "content": "x"}, "edit", "Write /a", [{"path": "/a"}]),
        ("WriteFile", {"file_path": "/a"}, "edit", "Write /a", [{"path": "/a"}]),
        ("Edit", {"path": "/a", "old_string": "x", "new_string": "y"}, "edit", "Edit /a", [{"path": "/a"}]),
        ("StrReplaceFile", {"path": "/a", "edit": {"old": "x", "new": "y"}}, "edit", "Edit /a", [{"path": "/a"}]),
        ("Bash", {"command": "ls"}, "execute", "`ls`", None),
        ("Shell", {}, "execute", "Run command", None),
        ("Glob", {"pattern": "*.py", "path": "/a"}, "search", "Find *.py", [{"path": "/a"}]),
        ("Grep", {"pattern": "x"}, "search", 'grep "x"', None),
        ("WebSearch", {"query": "q"}, "fetch", '"q"', None),
        ("SearchWeb", {"query": "q"}, "fetch", '"q"', None),
        ("FetchURL", {"url": "http://x"}, "fetch", "Fetch http://x", None),
        ("Agent", {"description": "d"}, "think", "d", None),
        ("AgentSwarm", {}, "think", "Subagent task", None),
        ("Task", {}, "think", "Subagent task", None),
        ("Think", {"thought": "hm"}, "think", "hm", None),
        ("CreateSubagent", {"name": "n"}, "think", "Subagent: n", None),
        ("TodoList", {"todos": []}, "other", "Update todos", None),
        ("SetTodoList", {"todos": []}, "other", "Update todos", None),
        ("ExitPlanMode", {}, "switch_mode", "Ready to code?", None),
        ("mcp__x__y", None, "other", "mcp__x__y", None),
    ],
)
def test_kinds_and_titles(name: str, given: Any, kind: str, title: str, places: Any) -> None:
    shown = show(name, given)
    assert (shown.kind, shown.title, shown.locations) == (kind, title, places)


def test_edits_show_diffs() -> None:
    wanted = [{"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}]
    assert show("Edit", {"path": "/a", "old_string": "x", "new_string": "y"}).content == wanted
    assert show("StrReplaceFile", {"path": "/a", "edit": {"old": "x", "new": "y"}}).content == wanted
    assert show("StrReplaceFile", {"path": "/a", "edit": [{"old": "x", "new": "y"}] * 2}).content == wanted * 2
    assert show("Write", {"path": "/a", "content": "y"}).content == [{**wanted[0], "oldText": None}]
