"""qwen-code: stdout and session files against what the model server sent, and what only telemetry knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recording_truth import CASES, RECORDINGS, lines_of, sent, sorted_out, tokens
from traceflow_parsers.qwen_code.files import is_session, withdrawn_lines
from traceflow_parsers.qwen_code.stdout import HARNESS, QwenSession, QwenStdout, is_stdout
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import ParserContract, run
from traceflow_parsers.tools import qwen

FOLDERS = sorted(p.parent for p in RECORDINGS.glob("qwen-*/*/truth.jsonl"))
NAMES = [f"{p.parent.name}/{p.name}" for p in FOLDERS]
FAILED = {"errors"}


def session(folder: Path) -> Any:
    [source] = HARNESS.sessions_in(folder / "home")
    return source


class TestStdoutContract(ParserContract):
    make = staticmethod(QwenStdout)
    inputs = staticmethod(lambda: [p.read_bytes() for p in sorted(RECORDINGS.glob("qwen-*/*/stdout*.jsonl"))])
    prefixes = 15


class TestSessionContract(ParserContract):
    make = staticmethod(QwenSession)
    inputs = staticmethod(
        lambda: [p.read_bytes() for p in sorted(RECORDINGS.glob("qwen-*/*/home/.qwen/projects/*/chats/*"))]
    )
    prefixes = 15


# -- recordings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_session_holds_what_the_server_sent(folder: Path) -> None:
    truth, parsed = sent(folder), sorted_out(session(folder))
    assert [c.tools for c in parsed.main] == [c.tools for c in truth["main"]]
    assert [c.tokens for c in parsed.main] == [c.tokens for c in truth["main"]]
    for call, want in zip(parsed.main, truth["main"], strict=True):
        assert want.text in ("?", call.text) or want.text.strip() == call.text  # the harness trims the end
        assert want.thought in call.thought
    assert len(parsed.prompts) == len(list(folder.glob("stdout*.jsonl")))
    assert all("[[scn:" in prompt for prompt in parsed.prompts)
    assert tokens(parsed.sub) == tokens(truth["sub"])
    assert [(u["promptTokens"], u["completionTokens"]) for u in parsed.compaction] == [
        c.tokens for c in truth["summary"]
    ]
    assert bool(parsed.errors) == (folder.name in FAILED)
    assert set(parsed.report.warnings) == set()


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_stdout_holds_what_the_server_sent(folder: Path) -> None:
    truth = sent(folder)
    runs = [sorted_out(HARNESS.stdout_source(path)) for path in sorted(folder.glob("stdout*.jsonl"))]
    main = [call for r in runs for call in r.main]
    assert [c.tools for c in main] == [c.tools for c in truth["main"]]
    assert [c.tokens for c in main] == [c.tokens for c in truth["main"]]
    for call, want in zip(main, truth["main"], strict=True):
        assert want.text in ("?", call.text)
    total = runs[-1].total or {}
    assert total["facts"]["cumulative"] is True
    if truth["sub"]:
        assert "promptTokens" not in total
        total = total["extra"]["includingSubagents"]
    everything = truth["main"] + truth["sub"] + truth["summary"]
    assert (total["promptTokens"], total["completionTokens"]) == tokens(everything)
    assert all(r.prompts == [] for r in runs)  # the prompt is not printed
    assert bool(runs[-1].errors) == (folder.name in FAILED)


@pytest.mark.parametrize("version", ["0.15.10", "0.5.0"])
def test_subagents_of_a_session_are_rebuilt_from_telemetry(version: str) -> None:
    folder = RECORDINGS / f"qwen-{version}/subagent"
    truth, parsed = sent(folder), sorted_out(session(folder))
    spawned = [
        e.data["update"]["toolCallId"]
        for e in parsed.events
        if e.type == "tool_call" and e.data["update"]["toolName"] in qwen.AGENT_TOOLS
    ]
    children = {agent: call for agent, call in parsed.parents.items() if agent is not None}
    assert list(children.values()) == spawned
    assert all(agent.startswith("general-purpose-") for agent in children)
    assert [c.tools for c in parsed.sub] == [c.tools for c in truth["sub"]]
    assert [c.tokens for c in parsed.sub] == [c.tokens for c in truth["sub"]]
    if version == "0.15.10":  # 0.5 does not log the text of an answer in telemetry
        assert [c.text for c in parsed.sub] == [c.text for c in truth["sub"]]
    summary = parsed.results[spawned[0]]["rawOutput"]
    assert summary["executionSummary"]["rounds"] == 2
    assert summary["terminateReason"] == "GOAL"
    assert "result" not in summary


def test_subagents_on_stdout_are_told_apart_by_their_call() -> None:
    parsed = sorted_out(HARNESS.stdout_source(RECORDINGS / "qwen-0.15.10/subagent/stdout.jsonl"))
    assert len(parsed.sub) == 3
    assert all(agent == call for agent, call in parsed.parents.items())
    failed = [r for r in parsed.results.values() if r["status"] == "failed"]
    assert [r["exitCode"] for r in failed] == [1]


def test_a_failing_command_is_failed_and_has_its_exit_code() -> None:
    results = sorted_out(session(RECORDINGS / "qwen-0.15.10/basic")).results.values()
    assert [(r["status"], r["exitCode"]) for r in results if "exitCode" in r] == [
        ("completed", 0),
        ("failed", 1),
        ("completed", 0),
        ("failed", 3),
    ]
    assert [r["durationMs"] for r in results][:2] == [22548, 138]


def test_the_todo_tool_gives_its_call_and_a_plan() -> None:
    for source in (
        session(RECORDINGS / "qwen-0.15.10/basic"),
        HARNESS.stdout_source(RECORDINGS / "qwen-0.15.10/basic/stdout.jsonl"),
    ):
        assert [e["status"] for e in sorted_out(source).plans[0]] == ["completed", "in_progress", "pending"]


def test_a_failed_request_is_an_error_and_no_answer() -> None:
    folder = RECORDINGS / "qwen-0.15.10/errors"
    on_stdout = sorted_out(HARNESS.stdout_source(folder / "stdout.jsonl"))
    assert [(e["message"], e["fatal"]) for e in on_stdout.errors] == [
        ("[API Error: 400 messages.3: scripted bad request]", True)
    ]
    assert not any("API Error" in c.text for c in on_stdout.main)
    in_session = sorted_out(session(folder))
    assert [(e["message"], e["fatal"], e["statusCode"]) for e in in_session.errors] == [
        ("400 messages.3: scripted bad request", True, 400)
    ]


def test_the_version_stands_in_the_report_and_the_first_event() -> None:
    for source in (
        session(RECORDINGS / "qwen-0.5.0/basic"),
        HARNESS.stdout_source(RECORDINGS / "qwen-0.5.0/basic/stdout.jsonl"),
    ):
        parsed = sorted_out(source)
        assert parsed.report.version == "0.5.0"
        extra = parsed.events[0].data["extra"]
        assert (extra["harness"], extra["harnessVersion"]) == ("qwen-code", "0.5.0")


def test_a_killed_run_is_incomplete() -> None:
    lines = (RECORDINGS / "qwen-0.15.10/basic/stdout.jsonl").read_bytes().split(b"\n")
    parser = QwenStdout()
    run(parser, b"\n".join(lines[:4]))
    assert parser.report.incomplete
    assert parser.report.warnings["missing_result"].count == 1


# -- cases -----------------------------------------------------------------------------------------------------------


def test_case_49_the_total_decides_what_the_counts_hold() -> None:
    parsed = sorted_out(HARNESS.session_at(CASES / "49-gemini-token-semantics/qwen.jsonl"))
    assert parsed.main[0].tokens == (1000, 320)
    usage = parsed.events[-1].data["update"]["usage"]
    assert usage["cachedTokens"] == 600
    assert usage["extra"] == {"thoughtsTokenCount": 300, "totalTokenCount": 1320}


# -- sessions ----------------------------------------------------------------------------------------------------------


class Log:
    """A session file, record by record; each goes on from the one before unless it says otherwise."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def add(self, kind: str, parent: str | None = "", **more: Any) -> str:
        uuid = f"r{len(self.records) + 1}"
        before = self.records[-1]["uuid"] if self.records else None
        record = {
            "uuid": uuid,
            "parentUuid": before if parent == "" else parent,
            "sessionId": "s",
            "timestamp": f"2026-01-01T00:00:{len(self.records):02}.000Z",
            "type": kind,
            "version": "9",
        }
        self.records.append({**record, **more})
        return uuid

    def user(self, text: str, **more: Any) -> str:
        return self.add("user", message={"role": "user", "parts": [{"text": text}]}, **more)

    def model(self, *parts: Any, prompt: int = 10, **more: Any) -> str:
        usage = {"promptTokenCount": prompt, "candidatesTokenCount": 1, "totalTokenCount": prompt + 1}
        content = [{"text": p} if isinstance(p, str) else p for p in parts]
        fields = {"model": "q", "message": {"role": "model", "parts": content}, "usageMetadata": usage, **more}
        return self.add("assistant", **fields)

    def result(self, call: str, output: str, **more: Any) -> str:
        response = {"functionResponse": {"id": call, "name": "glob", "response": {"output": output}}}
        said = {"callId": call, "status": "success", **more}
        return self.add("tool_result", message={"role": "user", "parts": [response]}, toolCallResult=said)

    def telemetry(self, name: str, prompt: str = "turn", **event: Any) -> str:
        payload = {"uiEvent": {"event.name": f"qwen-code.{name}", "prompt_id": prompt, **event}}
        return self.add("system", subtype="ui_telemetry", systemPayload=payload)

    def answered(self, name: str, prompt: str = "turn", tokens: int = 10, **event: Any) -> str:
        counts = {"input_token_count": tokens, "output_token_count": 1, "total_token_count": tokens + 1}
        return self.telemetry("api_response", prompt, response_id=name, model="q", **counts, **event)

    def parsed(self, tmp_path: Path) -> Any:
        path = tmp_path / "chats" / "s.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(lines_of(*self.records))
        [source] = HARNESS.sessions_in(tmp_path)
        return sorted_out(source)


def glob_call(name: str | None) -> dict[str, Any]:
    made = {"name": "glob", "args": {"pattern": "*"}}
    return {"functionCall": {"id": name, **made} if name else made}


def test_a_rewound_branch_is_abandoned(tmp_path: Path) -> None:
    log = Log()
    log.user("first")
    back = log.model("one")
    log.user("wrong")
    log.model("no")
    log.add("system", parent=back, subtype="rewind", systemPayload={"truncatedCount": 2})
    log.user("right")
    log.model("yes")
    parsed = log.parsed(tmp_path)
    gone = [e.data.get("extra", {}).get("abandoned", False) for e in parsed.events if e.type == "agent_message_chunk"]
    assert gone == [False, True, False]
    assert parsed.prompts == ["first", "wrong", "right"]


def test_the_lines_off_the_last_branch(tmp_path: Path) -> None:
    log = Log()
    for _ in range(4):
        log.user("x")
    log.add("user", parent="r2")  # line 5 leaves 3 and 4
    log.user("x")
    log.add("user", parent="r1")  # line 7 leaves 2 to 6
    log.add("user", parent="nowhere")  # a lost parent is no rewind
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines_of(*log.records))
    assert withdrawn_lines(path) == {2, 3, 4, 5, 6}


def test_a_row_written_twice_counts_once(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.model("one")
    log.records.append(log.records[-1])
    parsed = log.parsed(tmp_path)
    assert [c.text for c in parsed.main] == ["one"]
    assert parsed.report.lines.duplicate == 1


def test_a_copied_history_is_marked(tmp_path: Path) -> None:
    log = Log()
    log.user("go", forkedFrom={"sessionId": "old", "messageUuid": "r1"})
    log.model("one", forkedFrom={"sessionId": "old", "messageUuid": "r2"})
    log.user("on")
    log.model("two")
    copied = [e.data.get("extra", {}).get("copied", False) for e in log.parsed(tmp_path).events if e.type != "usage"]
    assert copied == [True, True, False, False]


def test_a_compaction_has_its_summary_its_tokens_and_the_request_that_wrote_it(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.answered("a1")
    log.model("one")
    log.answered("sum", tokens=500)
    history = [{"role": "user", "parts": [{"text": "all so far"}]}, {"role": "model", "parts": [{"text": "ok"}]}]
    info = {"originalTokenCount": 900, "newTokenCount": 90, "compressionStatus": 1}
    log.add("system", subtype="chat_compression", systemPayload={"info": info, "compressedHistory": history})
    log.answered("a2", tokens=20)
    log.model("two", prompt=20)
    parsed = log.parsed(tmp_path)
    [summary] = [e.data for e in parsed.events if e.type == "user_message_chunk"]
    assert summary["update"]["content"]["text"] == "all so far"
    assert summary["extra"] == {"compaction": {"preTokens": 900, "postTokens": 90}}
    assert [u["promptTokens"] for u in parsed.compaction] == [500]
    assert [c.tokens for c in parsed.main] == [(10, 1), (20, 1)]


def test_an_answer_that_was_dropped_and_asked_for_again_is_a_model_call(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.answered("a1", response_text="I cannot.", duration_ms=7)
    log.answered("a2", response_text="I cannot at all.", duration_ms=8)
    log.model("I cannot at all.")
    log.answered("title", prompt="title-request", response_text="A title")
    log.user("on")
    log.answered("a3", response_text="killed before its record", tokens=30)
    parsed = log.parsed(tmp_path)
    assert [c.text for c in parsed.main] == ["I cannot.", "I cannot at all.", "killed before its record"]
    assert [c.tokens for c in parsed.main] == [(10, 1), (10, 1), (30, 1)]
    durations = [e.data["extra"]["durationMs"] for e in parsed.events if "durationMs" in e.data.get("extra", {})]
    assert durations == [7, 8]
    assert parsed.report.warnings["side_request"].count == 1


def test_telemetry_that_follows_its_record_adds_no_call(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    for number, text in enumerate(("one", "two"), 1):
        log.model(text, prompt=number)
        log.answered(f"a{number}", tokens=number, response_text=text)
    assert [c.text for c in log.parsed(tmp_path).main] == ["one", "two"]


def test_a_failed_request_is_fatal_unless_it_is_tried_again(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.telemetry("api_error", error_message="busy", status_code=529)
    log.telemetry("api_error", error_message="still busy", status_code=529)
    log.answered("a1")
    log.model("one")
    log.telemetry("api_error", error_message="bad", error_type="BadRequestError", status_code=400)
    errors = log.parsed(tmp_path).errors
    assert [(e["message"], e["fatal"], e.get("retried")) for e in errors] == [
        ("busy", False, True),
        ("still busy", False, True),
        ("bad", True, None),
    ]


def test_what_the_harness_says_is_no_prompt(tmp_path: Path) -> None:
    log = Log()
    log.add(
        "user", message={"role": "user", "parts": [{"text": "<system-reminder>x</system-reminder>"}, {"text": "go"}]}
    )
    log.user("a task ended", subtype="notification")
    log.user("go on", provenance="goal_control")
    log.user("meanwhile", subtype="mid_turn_user_message")
    log.add("system", subtype="slash_command", systemPayload={"phase": "invocation", "rawCommand": "/compress"})
    log.add("system", subtype="slash_command", systemPayload={"phase": "result", "rawCommand": "/compress"})
    log.add("system", subtype="attribution_snapshot", systemPayload={})
    log.add("system", subtype="never_seen", systemPayload={})
    parsed = log.parsed(tmp_path)
    assert parsed.prompts == ["go", "meanwhile"]
    assert parsed.injected == ["system_reminder", "notification", "goal_control", "command"]
    assert parsed.report.unknown_types == {"system": 1}


def test_results_of_calls_without_an_id_follow_the_order_of_the_calls(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.model(glob_call(None), glob_call(None))
    log.result("made-up-1", "first")
    log.result("made-up-2", "second", status="error")
    parsed = log.parsed(tmp_path)
    assert [(i, r["status"]) for i, r in parsed.results.items()] == [("r2#1", "completed"), ("r2#2", "failed")]
    assert not parsed.report.warnings


def test_large_integers_of_arguments_keep_their_digits(tmp_path: Path) -> None:
    made = {"name": "glob", "args": {"pattern": 123456789012345678901234567890}}
    log = Log()
    log.user("go")
    log.model({"functionCall": {"id": "c1", **made}})
    log.answered("k1", prompt="s#Explore-x1#0")
    log.telemetry("tool_call", prompt="s#Explore-x1#0", function_name="glob", function_args=made["args"], success=True)
    parsed = log.parsed(tmp_path)
    assert [c.tools for c in (*parsed.main, *parsed.sub)] == [[("glob", made["args"])]] * 2


def test_ids_of_calls_may_repeat_from_turn_to_turn(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    for text in ("here", "there"):
        log.model(glob_call("call_1"))
        log.result("call_1", text)
    parsed = log.parsed(tmp_path)
    texts = [e.data["update"]["content"][0]["content"]["text"] for e in parsed.events if e.type == "tool_call_update"]
    assert texts == ["here", "there"]
    assert set(parsed.report.warnings) == {"duplicate_call_id"}
    assert not parsed.report.incomplete


def test_a_subagent_with_a_file_is_read_from_it(tmp_path: Path) -> None:
    """Releases after 0.15: calls stand apart from the words of their round, and a fork begins with a copy."""
    log = Log()
    log.user("go")
    log.model({"functionCall": {"id": "call_9", "name": "agent", "args": {"description": "look"}}})
    log.answered("k1", prompt="s#Explore-call_9#0", tokens=77)
    display = {
        "type": "task_execution",
        "subagentName": "Explore",
        "executionSummary": {"rounds": 1, "inputTokens": 77},
    }
    log.result("call_9", "found", resultDisplay=display)
    child = Log()
    history = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"text": "ok"}, glob_call("c0")]},
    ]
    child.add("system", subtype="agent_bootstrap", systemPayload={"kind": "fork", "history": history}, isSidechain=True)
    child.user("look", isSidechain=True)
    child.model("searching", prompt=77, isSidechain=True)
    child.model(glob_call("c1"), isSidechain=True, usageMetadata=None)
    child.model(glob_call("c2"), isSidechain=True, usageMetadata=None)
    child.add("tool_result", isSidechain=True, toolCallResult={"callId": "c1", "durationMs": 5})
    folder = tmp_path / "subagents" / "s"
    folder.mkdir(parents=True)
    (folder / "agent-Explore-call_9.jsonl").write_bytes(lines_of(*child.records))
    meta = {"agentId": "Explore-call_9", "toolUseId": "call_9"}
    (folder / "agent-Explore-call_9.meta.json").write_text(json.dumps(meta))
    parsed = log.parsed(tmp_path)
    assert parsed.parents == {None: None, "Explore-call_9": "call_9"}
    own = [c for c in parsed.sub if c.text == "searching"]
    assert own[0].tools == [("glob", {"pattern": "*"})] * 2
    assert own[0].tokens == (77, 1)
    copied = [e.type for e in parsed.events if e.data.get("extra", {}).get("copied")]
    assert copied == ["user_message_chunk", "agent_message_chunk", "tool_call"]
    assert len([c for c in parsed.sub if c.tokens]) == 1  # telemetry has the same call


def test_a_run_of_a_subagent_that_never_returned_is_kept(tmp_path: Path) -> None:
    log = Log()
    log.user("go")
    log.model({"functionCall": {"id": "call_9", "name": "agent", "args": {}}})
    log.answered("k1", prompt="s#Explore-x1#0", tokens=77, response_text="looking")
    log.telemetry("api_error", prompt="s#Explore-x1#1", error_message="gone")
    parsed = log.parsed(tmp_path)
    assert parsed.parents == {None: None, "Explore-x1": "call_9"}
    assert [c.text for c in parsed.sub] == ["looking"]
    assert [(e["message"], e["fatal"]) for e in parsed.errors] == [("gone", False)]


def test_a_session_at_two_places_counts_once(tmp_path: Path) -> None:
    source = next((RECORDINGS / "qwen-0.15.10/basic/home/.qwen/projects").glob("*/chats/*.jsonl"))
    for place in ("agent/.qwen/projects/-srv-app/chats", "agent/qwen-sessions/-srv-app/chats"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / source.name).write_bytes(source.read_bytes())
    [found] = HARNESS.sessions_in(tmp_path)
    assert ".qwen" in found.path.parts
    assert HARNESS.sessions_in(tmp_path / "agent/qwen-sessions/-srv-app/chats")[0].session_id == found.session_id


# -- stdout ------------------------------------------------------------------------------------------------------------


def said(name: str, block: dict[str, Any], usage: tuple[int, int] = (0, 0), **more: Any) -> dict[str, Any]:
    counts = {"input_tokens": usage[0], "output_tokens": usage[1]}
    message = {"id": name, "role": "assistant", "model": "q", "content": [block], "stop_reason": None, "usage": counts}
    return {"type": "assistant", "uuid": name, "parent_tool_use_id": None, "message": message, **more}


INIT = {"type": "system", "subtype": "init", "session_id": "s", "qwen_code_version": "9"}


def test_the_blocks_up_to_the_tokens_are_one_model_call() -> None:
    data = lines_of(
        INIT,
        said("b1", {"type": "thinking", "thinking": "hm"}),
        said("b2", {"type": "text", "text": "one"}, (10, 1)),
        said("b3", {"type": "text", "text": "two"}),
        said("b4", {"type": "text", "text": "three"}, (20, 1)),
    )
    events = run(QwenStdout(), data)
    assert [e.data["messageId"] for e in events] == ["b1", "b1", "b1", "b3", "b3", "b3"]


@pytest.mark.parametrize(
    ("result", "messages"),
    [
        ({"is_error": True, "error": {"message": "too many turns"}}, ["too many turns"]),
        ({"is_error": True, "subtype": "error_max_turns"}, ["error_max_turns"]),
        ({"is_error": False, "result": "[API Error: 401 no]"}, ["[API Error: 401 no]"]),
        ({"is_error": False, "result": "All about [API Error: 401]"}, []),
    ],
)
def test_how_a_run_ends(result: dict[str, Any], messages: list[str]) -> None:
    events = run(QwenStdout(), lines_of(INIT, {"type": "result", **result}))
    assert [e.data["update"]["message"] for e in events if e.type == "error"] == messages
    assert all(e.data["update"]["fatal"] for e in events if e.type == "error")


def test_partial_messages_are_not_said_twice() -> None:
    parser = QwenStdout()
    delta = {"type": "stream_event", "event": {"type": "content_block_delta", "delta": {"text": "on"}}}
    events = run(parser, lines_of(INIT, delta, said("b1", {"type": "text", "text": "one"}, (10, 1))))
    assert [e.data["update"]["content"]["text"] for e in events if e.type == "agent_message_chunk"] == ["one"]
    assert parser.report.lines.duplicate == 1


def test_thoughts_that_the_output_leaves_out_are_in_the_total() -> None:
    line = said("b1", {"type": "text", "text": "one"})
    line["message"]["usage"] = {"input_tokens": 120, "output_tokens": 20, "total_tokens": 145}
    [_, usage] = run(QwenStdout(), lines_of(INIT, line))
    assert usage.data["update"]["usage"]["completionTokens"] == 25


# -- detection ---------------------------------------------------------------------------------------------------------


def test_its_own_files_are_recognised_and_no_others() -> None:
    for path in sorted(RECORDINGS.glob("*/*/stdout*.jsonl")):
        assert is_stdout(head_records(path)) == path.parts[-3].startswith("qwen-"), path
    for path in sorted(RECORDINGS.glob("*/*/home/**/*.json*")):
        if path.is_file():
            assert is_session(head_records(path)) == (".qwen" in path.parts and "chats" in path.parts), path


def test_lines_of_claude_and_droid_are_not_taken() -> None:
    claude = [
        {"type": "system", "subtype": "init", "session_id": "s", "claude_code_version": "2.1.197"},
        {"type": "assistant", "message": {"id": "msg_1", "content": []}, "parent_tool_use_id": None, "uuid": "u"},
    ]
    assert not is_stdout(claude)
    assert not is_stdout([{"type": "system", "subtype": "init", "session_id": "s", "reasoning_effort": "high"}])
    assert not is_session([{"uuid": "u", "parentUuid": None, "sessionId": "s", "message": {"content": "hi"}}])


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "kind", "title"),
    [
        ("Read", {"file_path": "/a"}, "read", "Read /a"),
        ("read_file", {"absolute_path": "/a"}, "read", "Read /a"),
        ("Write", {"file_path": "/a"}, "edit", "Write /a"),
        ("write_file", {"file_path": "/a"}, "edit", "Write /a"),
        ("edit", {"file_path": "/a"}, "edit", "Edit /a"),
        ("Bash", {"command": "ls"}, "execute", "`ls`"),
        ("run_shell_command", {"command": "ls"}, "execute", "`ls`"),
        ("BashOutput", {}, "execute", "BashOutput"),
        ("KillShell", {}, "execute", "KillShell"),
        ("WebFetch", {"url": "u"}, "fetch", "Fetch u"),
        ("web_fetch", {"url": "u", "prompt": "p"}, "fetch", "Fetch u"),
        ("WebSearch", {"query": "q"}, "fetch", '"q"'),
        ("web_search", {"query": "q"}, "fetch", '"q"'),
        ("Glob", {"pattern": "*"}, "search", "Find *"),
        ("glob", {"pattern": "*"}, "search", "Find *"),
        ("grep_search", {"pattern": "x"}, "search", 'grep "x"'),
        ("LS", {"path": "/a"}, "search", "List /a"),
        ("list_directory", {"path": "/a"}, "search", "List /a"),
        ("Task", {"description": "look"}, "think", "look"),
        ("task", {}, "think", "Subagent task"),
        ("agent", {"description": "look", "prompt": "p"}, "think", "look"),
        ("todo_write", {"todos": []}, "other", "Update todos"),
        ("exit_plan_mode", {}, "switch_mode", "Exit plan mode"),
        ("mcp__server__a__b", {}, "other", "server: a__b"),
        ("skill", {}, "other", "skill"),
        ("edit", {"file_path": ["/a"]}, "edit", "Edit file"),
        ("agent", None, "think", "Subagent task"),
    ],
)
def test_kinds_and_titles(name: str, args: Any, kind: str, title: str) -> None:
    shown = qwen.show(name, args)
    assert (shown.kind, shown.title) == (kind, title)


def test_what_an_edit_shows() -> None:
    shown = qwen.show("edit", {"file_path": "/a", "old_string": "x", "new_string": "y"})
    assert shown.content == [{"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}]
    assert shown.locations == [{"path": "/a"}]
