"""kimi-cli: print mode and wire mode on stdout, the wire and the contexts of sessions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traceflow_parsers.kimi.cli import HARNESS, KimiCliSession, KimiCliStdout
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import ParserContract, run
from truth_check import CASES, RECORDINGS, assert_said, read, sent, sent_tokens, sent_tools, told

FOLDER = RECORDINGS / "kimi-cli-1.40.0"
STDOUTS = sorted(FOLDER.glob("*/stdout*.jsonl"))
WIRES = sorted(FOLDER.glob("*/home/.kimi/sessions/**/wire.jsonl"))
CONTEXTS = sorted(FOLDER.glob("*/home/.kimi/sessions/*/*/context*.jsonl"))
SCENARIOS = sorted(p.parent for p in FOLDER.glob("*/truth.jsonl"))
RAW_NEWLINES = CASES / "52-kimi-stdout-raw-newlines/stdout.txt"


class TestStdoutContract(ParserContract):
    make = KimiCliStdout
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [p.read_bytes() for p in (*STDOUTS, RAW_NEWLINES)])


class TestWireContract(ParserContract):
    make = KimiCliSession
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in WIRES])


class TestContextContract(ParserContract):
    make = KimiCliSession
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in CONTEXTS])


# -- recordings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda p: p.name)
def test_a_session_tells_what_the_model_server_sent(folder: Path) -> None:
    main, sub = sent(folder)
    (source,) = HARNESS.sessions_in(folder / "home")
    agents, report = read(source)
    assert_said(agents[None], main)
    assert all("[[scn:" in prompt for prompt in agents[None].prompts)
    assert len(agents[None].prompts) == len(list(folder.glob("stdout*.jsonl")))
    assert report["session_id"] == source.path.parent.name
    assert (report["lines"]["unknown"], report["incomplete"]) == (0, False)
    children = {name: agent for name, agent in agents.items() if name is not None}
    assert len(children) == len({row["scn"] for row in sub})
    calls = {call: given["prompt"] for call, name, given in agents[None].tools if name == "Agent"}
    assert {child.parent: child.prompts for child in children.values()} == {c: [p] for c, p in calls.items()}
    tools = [tool for child in children.values() for tool in child.tools]
    assert sorted(tools, key=str) == sorted(sent_tools(sub), key=str)
    totals = [child.tokens for child in children.values()]
    assert (sum(p for p, _ in totals), sum(c for _, c in totals)) == sent_tokens(sub)


@pytest.mark.parametrize("path", STDOUTS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_stdout_tells_the_calls_in_their_order(path: Path) -> None:
    main, _ = sent(path.parent)
    if path.parent.name == "resume":
        at = 2 * (int(path.name.split(".")[1]) - 1)
        main = main[at : at + 2]
    agents, report = read(HARNESS.stdout_source(path))
    wanted = sent_tools(main)
    assert [(i, name) for i, name, _ in agents[None].tools] == [(i, name) for i, name, _ in wanted]
    whole = [
        (have, want) for (_, _, have), (_, _, want) in zip(agents[None].tools, wanted, strict=True) if have != want
    ]
    cut = sum(w["count"] for w in report["warnings"] if w["code"] == "cut_arguments")
    assert [type(have) for have, _ in whole] == [str] * cut
    assert cut == (2 if path.parent.name == "basic" else 0), "the race of parallel calls"
    assert len(agents[None].calls) == len(main)
    assert not report["incomplete"]


def test_a_call_is_whole_though_a_result_came_in_between() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "basic/home")
    agents, _ = read(source)
    third = agents[None].calls["call-5"].tools
    assert [given for _, _, given in third] == [
        {"command": "echo one", "description": "scripted: echo one"},
        {"command": "echo two >&2; exit 3", "description": "scripted: echo two >&2; exit 3"},
        {"path": "/srv/app/hello.txt"},
    ]


def test_failed_calls_and_their_exit_codes() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "basic/home")
    for events in (list(source.parse()), list(HARNESS.stdout_source(FOLDER / "basic/stdout.jsonl").parse())):
        results = [e.data for e in events if e.type == "tool_call_update"]
        failed = [(d["update"]["status"], d["extra"]["exitCode"]) for d in results if "exitCode" in d.get("extra", {})]
        assert failed == [("failed", 1), ("failed", 3)]
    (source,) = HARNESS.sessions_in(FOLDER / "badtool/home")
    for agents in (read(source)[0], read(HARNESS.stdout_source(FOLDER / "badtool/stdout.jsonl"))[0]):
        assert [status for status, _ in agents[None].results.values()] == ["failed", "failed"]


def test_the_text_of_a_result_is_its_output_and_the_note_is_a_fact() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "basic/home")
    results = [e.data["update"] for e in source.parse() if e.type == "tool_call_update"]
    texts = ["".join(b["content"]["text"] for b in r["content"]) for r in results]
    assert texts[:2] == ["README.md\n", "File successfully overwritten. Current size: 21 bytes."]
    assert results[0]["rawOutput"] == {"message": "Command executed successfully."}


def test_a_compaction_takes_its_summary_from_the_context() -> None:
    (source,) = HARNESS.sessions_in(FOLDER / "compact/home")
    agents, _ = read(source)
    (summary,) = agents[None].summaries
    assert summary.startswith("<analysis>The user ran a scripted scenario.")


def test_the_words_that_ended_a_run_are_an_error() -> None:
    agents, report = read(HARNESS.stdout_source(FOLDER / "errors/stdout.jsonl"))
    (error,) = agents[None].errors
    assert error["fatal"]
    assert error["message"].endswith("'type': 'invalid_request_error', 'code': None, 'param': None}}")
    assert report["lines"]["malformed"] == 2


@pytest.mark.parametrize("folder", SCENARIOS, ids=lambda p: p.name)
def test_contexts_alone_tell_the_same_calls_without_times_and_tokens(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "home", tmp_path / "home")
    for wire in (tmp_path / "home").rglob("wire.jsonl"):
        wire.unlink()
    (source,) = HARNESS.sessions_in(tmp_path)
    assert source.path.name in ("context.jsonl", "context_1.jsonl")
    agents, _ = read(source)
    main, _ = sent(folder)
    assert agents[None].tools == sent_tools(main)
    assert [call.message.strip() for call in agents[None].calls.values()] == [
        row.get("text", call.message).strip() for call, row in zip(agents[None].calls.values(), main, strict=True)
    ]
    assert {call.usage for call in agents[None].calls.values()} == {None}
    assert len(agents[None].summaries) == (folder.name == "compact")
    assert all("[[scn:" in prompt for prompt in agents[None].prompts)
    assert not any("timestamp" in event.data for event in source.parse())


# -- cases -------------------------------------------------------------------------------------------------


def test_case_51_a_wire_and_its_context(tmp_path: Path) -> None:
    session = CASES / "51-kimi-wire-old-new/kimi/sessions/ab/s1"
    shutil.copy(session / "context.jsonl", tmp_path)
    (alone,) = HARNESS.sessions_in(tmp_path)
    (source,) = HARNESS.sessions_in(CASES / "51-kimi-wire-old-new")
    assert next(iter(source.parse())).data["timestamp"] == "2026-03-04T05:06:07.250Z"
    for agents, tokens in ((read(source)[0], (130, 5)), (read(alone)[0], (0, 0))):
        (call,) = agents[None].calls.values()
        assert agents[None].prompts == ["hi"]
        assert (call.message, call.tools) == ("let me look", [("Shell:0", "Shell", {"command": "ls"})])
        assert agents[None].results == {"Shell:0": ("completed", "a.txt")}
        assert agents[None].tokens == tokens
    (call,) = read(source)[0][None].calls.values()
    assert call.thought == "hm"
    assert call.usage is not None
    assert call.usage["cachedTokens"] == 100


def test_case_52_line_feeds_inside_strings() -> None:
    assert HARNESS.is_stdout(head_records(RAW_NEWLINES))
    agents, report = read(HARNESS.stdout_source(RAW_NEWLINES))
    assert [call.message for call in agents[None].calls.values()] == ["line one\nline two after"]
    assert report["lines"] == {"read": 6, "parsed": 5, "unknown": 0, "malformed": 1, "duplicate": 0}
    assert report["malformed_at"] == [{"path": "stdout.txt", "line": 4, "byte": 203}]
    assert not report["incomplete"]


# -- what recordings do not show ---------------------------------------------------------------------------


def wire(*events: tuple[str, dict[str, Any]]) -> bytes:
    lines = ({"timestamp": 1772600767.0 + n, "message": {"type": t, "payload": p}} for n, (t, p) in enumerate(events))
    return b"\n".join(json.dumps(line).encode() for line in lines)


def tool_call(call_id: str, arguments: str) -> tuple[str, dict[str, Any]]:
    return "ToolCall", {"type": "function", "id": call_id, "function": {"name": "Shell", "arguments": arguments}}


def test_arguments_that_never_became_whole_stay_text() -> None:
    parser = KimiCliSession()
    agents = told(
        run(parser, wire(("TurnBegin", {"user_input": "go"}), ("StepBegin", {"n": 1}), tool_call("c", '{"comm')))
    )
    assert agents[None].tools == [("c", "Shell", '{"comm')]
    assert "cut_arguments" in parser.report.warnings
    assert parser.report.incomplete


def test_a_retried_step_begins_anew_and_an_interruption_is_an_error() -> None:
    events = wire(
        ("TurnBegin", {"user_input": [{"type": "text", "text": "go"}]}),
        ("StepBegin", {"n": 1}),
        ("ContentPart", {"type": "text", "text": "cut"}),
        ("StepRetry", {"n": 1, "next_attempt": 2, "error_type": "APIStatusError", "status_code": 503}),
        ("ContentPart", {"type": "text", "text": "whole"}),
        ("StepInterrupted", {}),
    )
    agents = told(run(KimiCliSession(), events))
    assert [call.message for call in agents[None].calls.values()] == ["cut", "whole"]
    assert [(e["message"], e["fatal"], e.get("retried")) for e in agents[None].errors] == [
        ("APIStatusError", False, True),
        ("StepInterrupted", True, None),
    ]


def test_an_agent_in_the_background_is_read_from_its_own_wire(tmp_path: Path) -> None:
    session = tmp_path / ".kimi/sessions/ab/s1"
    (session / "subagents/a1").mkdir(parents=True)
    result = {"tool_call_id": "c1", "return_value": {"is_error": False, "output": "agent_id: a1\nstatus: running"}}
    main = wire(
        ("TurnBegin", {"user_input": "go"}),
        ("StepBegin", {"n": 1}),
        tool_call("c1", '{"prompt": "list"}'),
        ("ToolResult", result),
    )
    (session / "wire.jsonl").write_bytes(main)
    child = wire(("TurnBegin", {"user_input": "list"}), ("ContentPart", {"type": "text", "text": "one file"}))
    (session / "subagents/a1/wire.jsonl").write_bytes(child)
    (source,) = HARNESS.sessions_in(tmp_path)
    agents, _ = read(source)
    assert (agents["a1"].parent, agents["a1"].prompts) == ("c1", ["list"])
    assert [call.message for call in agents["a1"].calls.values()] == ["one file"]


def test_older_subagent_events_name_only_their_call() -> None:
    inner = {"type": "ContentPart", "payload": {"type": "text", "text": "hello"}}
    events = wire(("SubagentEvent", {"task_tool_call_id": "c1", "event": inner}))
    assert [call.message for call in told(run(KimiCliSession(), events))["c1"].calls.values()] == ["hello"]


def test_what_follows_a_torn_line_is_not_lost() -> None:
    whole = b'{"role":"assistant","content":"one"}'
    parser = KimiCliStdout()
    agents = told(run(parser, b"\n".join([whole, b'{"role":"assistant","content":"to', b"words", b"", whole])))
    assert [call.message for call in agents[None].calls.values()] == ["one", "one"]
    assert parser.report.lines.as_dict() == {"read": 4, "parsed": 2, "unknown": 0, "malformed": 2, "duplicate": 0}
