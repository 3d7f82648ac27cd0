"""gemini-cli: stdout and sessions against what the model server sent, and the ways in which a log rewrites itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recording_truth import CASES, RECORDINGS, lines_of, sent, sorted_out, tokens
from traceflow_parsers.contract import Part
from traceflow_parsers.gemini_cli.files import document_lines, is_session
from traceflow_parsers.gemini_cli.stdout import HARNESS, GeminiSession, GeminiStdout, is_stdout
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import ParserContract, run
from traceflow_parsers.tools import gemini

FOLDERS = sorted(p.parent for p in RECORDINGS.glob("gemini-*/*/truth.jsonl"))
NAMES = [f"{p.parent.name}/{p.name}" for p in FOLDERS]
JOINED = "gemini-0.22.4/basic"  # 0.22 joins a call without words to the message before it and drops its usage


def session(folder: Path) -> Any:
    [source] = HARNESS.sessions_in(folder / "home")
    return source


class TestStdoutContract(ParserContract):
    make = staticmethod(GeminiStdout)
    inputs = staticmethod(lambda: [p.read_bytes() for p in sorted(RECORDINGS.glob("gemini-*/*/stdout*.jsonl"))])
    prefixes = 15


class TestSessionContract(ParserContract):
    make = staticmethod(GeminiSession)
    inputs = staticmethod(
        lambda: [
            *(p.read_bytes() for p in sorted(RECORDINGS.glob("gemini-*/*/home/.gemini/tmp/*/chats/**/*.jsonl"))),
            *(
                b"".join(document_lines(p))
                for p in sorted(RECORDINGS.glob("gemini-*/*/home/.gemini/tmp/*/chats/*.json"))
            ),
        ]
    )
    prefixes = 15


# -- recordings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_session_holds_what_the_server_sent(folder: Path) -> None:
    truth, parsed = sent(folder), sorted_out(session(folder))
    assert [t for c in parsed.main for t in c.tools] == [t for c in truth["main"] for t in c.tools]
    assert len(parsed.prompts) == len(list(folder.glob("stdout*.jsonl")))
    assert all("[[scn:" in prompt for prompt in parsed.prompts)
    if f"{folder.parent.name}/{folder.name}" == JOINED:
        assert len(parsed.main) == len(truth["main"]) - 1
        return
    assert [c.tokens for c in parsed.main] == [c.tokens for c in truth["main"]]
    for call, want in zip(parsed.main, truth["main"], strict=True):
        assert want.text in ("?", call.text) or call.text.strip() == want.text.strip()
        assert want.thought in call.thought
    assert not parsed.errors


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_stdout_holds_what_the_server_sent(folder: Path) -> None:
    truth = sent(folder)
    runs = [sorted_out(HARNESS.stdout_source(path)) for path in sorted(folder.glob("stdout*.jsonl"))]
    assert [t for r in runs for c in r.main for t in c.tools] == [t for c in truth["main"] for t in c.tools]
    assert [r.prompts for r in runs] == [[r.prompts[0]] for r in runs]
    for call, want in zip([c for r in runs for c in r.main], truth["main"], strict=True):
        assert want.text in ("?", call.text)
    totals = [r.total or {} for r in runs]
    if truth["sub"]:
        assert "promptTokens" not in totals[0]
        stated = totals[0]["extra"]["includingSubagents"]
        assert (stated["promptTokens"], stated["completionTokens"]) == tokens(truth["main"] + truth["sub"])
        return
    have = sum(t["promptTokens"] for t in totals), sum(t["completionTokens"] for t in totals)
    assert have == tokens(truth["main"])


def test_subagents_are_read_from_their_files_and_linked_to_their_calls() -> None:
    folder = RECORDINGS / "gemini-0.61.0/subagent"
    truth, source = sent(folder), session(folder)
    parsed = sorted_out(source)
    children = {agent: call for agent, call in parsed.parents.items() if agent is not None}
    assert len(children) == 4
    assert len(set(children.values())) == 4
    assert all(str(call).startswith("invoke_agent__") for call in children.values())
    assert {parsed.results[str(call)]["rawOutput"]["agentId"] for call in children.values()} == set(children)
    assert tokens(parsed.sub) == tokens(truth["sub"])
    assert sum(len(c.tools) for c in parsed.sub) == sum(len(c.tools) for c in truth["sub"])
    assert len(source.files) == 5


def test_a_failing_command_is_failed_and_has_its_exit_code() -> None:
    results = sorted_out(session(RECORDINGS / "gemini-0.61.0/basic")).results
    codes = [(r["status"], r.get("exitCode")) for i, r in results.items() if i.startswith("run_shell")]
    assert codes == [("completed", None), ("failed", 1), ("completed", None), ("failed", 3)]
    text = next(r for r in results.values() if r.get("exitCode") == 1)["content"][0]["content"]["text"]
    assert text == (
        "<untrusted_context>\nOutput: cat: missing.txt: No such file or directory\nExit Code: 1\n"
        "Process Group PGID: 41\n</untrusted_context>"
    )


def test_the_todo_tool_gives_its_call_and_a_plan() -> None:
    for source in (
        session(RECORDINGS / "gemini-0.61.0/basic"),
        HARNESS.stdout_source(RECORDINGS / "gemini-0.61.0/basic/stdout.jsonl"),
    ):
        plans = sorted_out(source).plans
        assert [e["status"] for e in plans[0]] == ["completed", "in_progress", "pending"]
        assert plans[1][2] == {"content": "Report", "status": "in_progress", "priority": "medium"}


def test_a_resumed_session_repeats_its_history_once_and_its_stub_is_no_second_root() -> None:
    source = session(RECORDINGS / "gemini-0.61.0/resume")
    parsed = sorted_out(source)
    assert [i.part.name[-31:] for i in source.inputs] == [
        "2026-11-30T12-04-806b05a4.jsonl",
        "2026-11-30T12-05-806b05a4.jsonl",
    ]
    assert source.path.name.endswith("12-04-806b05a4.jsonl")
    assert parsed.injected == ["session_context"]
    assert len(parsed.main) == 6
    assert parsed.report.lines.duplicate == 7  # 3 results told twice, 3 histories, the stub's context


def test_a_failed_run_ends_with_a_fatal_error() -> None:
    parsed = sorted_out(HARNESS.stdout_source(RECORDINGS / "gemini-0.61.0/errors/stdout.jsonl"))
    assert [(e["fatal"], e["errorType"]) for e in parsed.errors] == [(True, "unknown")]
    assert parsed.errors[0]["message"].startswith('[API Error: {"error":{"code":400,')
    assert parsed.total is not None
    assert parsed.total["facts"] == {"durationMs": 0, "status": "error"}


def test_words_of_stdout_are_marked_as_deltas() -> None:
    events = run(GeminiStdout(), (RECORDINGS / "gemini-0.61.0/badtool/stdout.jsonl").read_bytes())
    said = [e.data for e in events if e.type == "agent_message_chunk"]
    assert [(d["messageId"], d["extra"]["delta"]) for d in said[:3]] == [
        ("call-1", True),
        ("call-1", True),
        ("call-2", True),
    ]
    failed = [e.data["update"] for e in events if e.type == "tool_call_update"]
    assert [(u["status"], u["rawOutput"]) for u in failed] == [
        ("failed", {"errorType": "tool_not_registered"}),
        ("failed", {"errorType": "invalid_tool_params"}),
    ]


def test_stdout_of_several_runs_sums_their_totals() -> None:
    folder = RECORDINGS / "gemini-0.61.0/resume"
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("stdout*.jsonl")))
    total = run(GeminiStdout(), data)[-1].data["update"]["usage"]
    assert (total["promptTokens"], total["completionTokens"]) == tokens(sent(folder)["main"])


def test_a_killed_run_is_incomplete() -> None:
    lines = (RECORDINGS / "gemini-0.61.0/basic/stdout.jsonl").read_bytes().split(b"\n")
    parser = GeminiStdout()
    run(parser, b"\n".join(lines[:5]))
    assert parser.report.incomplete
    assert parser.report.warnings["missing_result"].count == 1


# -- cases -----------------------------------------------------------------------------------------------------------


def test_case_49_the_total_decides_what_the_counts_hold() -> None:
    parsed = sorted_out(HARNESS.session_at(CASES / "49-gemini-token-semantics/session.json"))
    assert parsed.main[0].tokens == (1050, 320)
    usage = parsed.events[-1].data["update"]["usage"]
    assert usage["cachedTokens"] == 600
    assert usage["extra"] == {"thoughts": 300, "tool": 50, "total": 1370}


def test_case_33_a_document_without_messages_has_no_events() -> None:
    path = CASES / "33-empty-and-header-only-sessions/gemini-empty.json"
    assert is_session(head_records(path))
    parse = HARNESS.session_at(path).parse()
    assert list(parse) == []
    assert parse.report.lines.as_dict() == {"read": 1, "parsed": 1, "unknown": 0, "malformed": 0, "duplicate": 0}
    assert parse.report.session_id == "g"


# -- logs that change their mind ---------------------------------------------------------------------------------------

HEADER = {"sessionId": "s", "projectHash": "p", "startTime": "2026-01-01T00:00:00.000Z", "kind": "main"}


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}.000Z"


def user(name: str, text: str, second: int = 0) -> dict[str, Any]:
    return {"id": name, "timestamp": at(second), "type": "user", "content": [{"text": text}]}


def model(name: str, text: str, second: int = 0, **more: Any) -> dict[str, Any]:
    counts = {"input": 10, "output": 1, "cached": 0, "thoughts": 0, "tool": 0, "total": 11}
    return {
        "id": name,
        "timestamp": at(second),
        "type": "gemini",
        "content": text,
        "tokens": counts,
        "model": "g",
        **more,
    }


def call(name: str, output: str | None = "done", status: str = "success") -> dict[str, Any]:
    made: dict[str, Any] = {"id": name, "name": "glob", "args": {"pattern": "*"}, "status": status, "timestamp": at(9)}
    if output is not None:
        made["result"] = [{"functionResponse": {"id": name, "name": "glob", "response": {"output": output}}}]
    return made


def parsed_log(tmp_path: Path, *records: Any) -> Any:
    path = tmp_path / "chats" / "session-2026-01-01T00-00-s.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(lines_of(HEADER, *records))
    [source] = HARNESS.sessions_in(tmp_path)
    return sorted_out(source)


def shape(parsed: Any) -> list[tuple[str, str, bool]]:
    out = []
    for event in parsed.events:
        update = event.data.get("update", {})
        content = update.get("content")
        text = event.data["_prompt"]["text"] if event.type == "prompt" else update.get("toolCallId", "")
        if isinstance(content, dict):
            text = content["text"]
        if event.type != "usage":
            out.append((event.type, text, bool(event.data.get("extra", {}).get("abandoned"))))
    return out


def test_a_rewound_branch_is_abandoned_and_the_next_prompt_is_the_prompt(tmp_path: Path) -> None:
    parsed = parsed_log(
        tmp_path,
        user("u1", "wrong"),
        model("m1", "no", toolCalls=[call("c1")]),
        {"$rewindTo": "u1"},
        user("u2", "right"),
        model("m2", "yes"),
    )
    assert shape(parsed) == [
        ("prompt", "wrong", True),
        ("agent_message_chunk", "no", True),
        ("tool_call", "c1", True),
        ("tool_call_update", "c1", True),
        ("prompt", "right", False),
        ("agent_message_chunk", "yes", False),
    ]
    assert not parsed.report.warnings


@pytest.mark.parametrize(("target", "kept"), [("u2", ["u1", "m1"]), ("m1", ["u1"]), ("unknown", [])])
def test_a_rewind_takes_back_its_message_and_all_after_it(tmp_path: Path, target: str, kept: list[str]) -> None:
    parsed = parsed_log(
        tmp_path, user("u1", "u1"), model("m1", "m1"), user("u2", "u2"), model("m2", "m2"), {"$rewindTo": target}
    )
    assert [text for _, text, gone in shape(parsed) if not gone] == kept


def test_a_failed_prompt_that_is_taken_out_of_the_history_is_abandoned(tmp_path: Path) -> None:
    context = user("ctx", "<session_context>\nhere</session_context>")
    parsed = parsed_log(
        tmp_path,
        {"$set": {"messages": [context]}},
        user("u1", "fails"),
        {"$set": {"messages": [context]}},
        user("u2", "works"),
        model("m2", "yes"),
    )
    assert shape(parsed) == [
        ("user_message_chunk", context["content"][0]["text"], False),
        ("prompt", "fails", True),
        ("prompt", "works", False),
        ("agent_message_chunk", "yes", False),
    ]


def test_a_live_reader_keeps_what_was_withdrawn_later_and_says_so() -> None:
    parser = GeminiSession()
    data = lines_of(HEADER, user("u1", "wrong"), model("m1", "no"), {"$rewindTo": "u1"}, user("u2", "right"))
    run(parser, data, Part("live.jsonl"))
    assert parser.report.warnings["late_withdrawal"].count == 1


def test_a_history_with_a_summary_is_a_compaction(tmp_path: Path) -> None:
    summary = user("s1", "<state_snapshot>all so far</state_snapshot>", 5)
    reply = model("s2", "Got it. Thanks for the additional context!", 5, tokens=None, model=None)
    parsed = parsed_log(
        tmp_path,
        user("u1", "first"),
        model("m1", "one"),
        model("m2", "two"),
        {"$set": {"messages": [summary, reply, model("m2", "two")]}},
        user("u2", "second"),
        model("m3", "three"),
    )
    assert [(k, t) for k, t, _ in shape(parsed)] == [
        ("prompt", "first"),
        ("agent_message_chunk", "one"),
        ("agent_message_chunk", "two"),
        ("user_message_chunk", "<state_snapshot>all so far</state_snapshot>"),
        ("user_message_chunk", "Got it. Thanks for the additional context!"),
        ("user_message_chunk", "second"),
        ("agent_message_chunk", "three"),
    ]
    assert not any(gone for _, _, gone in shape(parsed))
    marks = [e.data.get("extra") for e in parsed.events if e.type == "user_message_chunk"]
    assert marks == [{"compaction": {}}, {"injected": "compaction"}, None]
    assert len(parsed.main) == 3


def test_masking_a_result_later_does_not_change_it(tmp_path: Path) -> None:
    masked = model("m1", "look", toolCalls=[call("c1", "<masked>")])
    parsed = parsed_log(
        tmp_path,
        user("u1", "go"),
        model("m1", "look", toolCalls=[call("c1", "whole")]),
        {"$set": {"messages": [user("u1", "go"), masked]}},
        model("m2", "done"),
    )
    assert parsed.results["c1"]["content"][0]["content"]["text"] == "whole"
    assert len(parsed.main) == 2


def test_the_last_version_of_a_message_counts(tmp_path: Path) -> None:
    parsed = parsed_log(
        tmp_path,
        user("u1", "go"),
        model("m1", "look", tokens=None),
        {"$set": {"lastUpdated": at(1)}},
        model("m1", "look"),
        model("m1", "look", toolCalls=[call("c1", None, "executing")]),
        model("m1", "look", toolCalls=[call("c1"), call("c2", "no", "error")]),
        {"id": "f1", "timestamp": at(2), "type": "user", "content": call("c1")["result"]},
    )
    assert [c.tools for c in parsed.main] == [[("glob", {"pattern": "*"})] * 2]
    assert parsed.main[0].tokens == (10, 1)
    assert [(i, r["status"]) for i, r in parsed.results.items()] == [("c1", "completed"), ("c2", "failed")]
    assert parsed.report.lines.duplicate == 1


def test_a_message_written_again_after_others_adds_what_it_lacked(tmp_path: Path) -> None:
    parsed = parsed_log(
        tmp_path,
        user("u1", "go"),
        model("m1", "look"),
        model("m2", "next"),
        model("m1", "look", toolCalls=[call("c1")]),
        model("m1", "look", toolCalls=[call("c1")]),
    )
    assert parsed.agents[None]["m1"].tools == [("glob", {"pattern": "*"})]
    assert parsed.results["c1"]["status"] == "completed"
    assert parsed.report.lines.duplicate == 1


def test_a_patch_of_a_message_is_merged_before_and_after_it(tmp_path: Path) -> None:
    counts = {"input": 7, "output": 2, "cached": 0, "thoughts": 0, "tool": 0, "total": 9}
    parsed = parsed_log(
        tmp_path,
        {"type": "message_update", "id": "m1", "tokens": counts},
        user("u1", "go"),
        model("m1", "one", tokens=None),
        model("m2", "two", tokens=None),
        {"type": "message_update", "id": "m2", "tokens": counts},
    )
    assert [c.tokens for c in parsed.main] == [(7, 2), (7, 2)]


def test_a_result_lost_with_its_call_is_taken_from_the_response(tmp_path: Path) -> None:
    parsed = parsed_log(
        tmp_path,
        user("u1", "go"),
        model("m1", "look", toolCalls=[call("c1", None, "executing")]),
        {"id": "f1", "timestamp": at(2), "type": "user", "content": call("c1", "late")["result"]},
    )
    assert parsed.results["c1"]["content"][0]["content"]["text"] == "late"


def test_a_history_in_a_new_file_is_read_from_its_parts(tmp_path: Path) -> None:
    made = {"functionCall": {"id": "c1", "name": "glob", "args": {"pattern": "*"}}}
    history = [
        user("u1", "go"),
        {
            "id": "m1",
            "timestamp": at(1),
            "type": "gemini",
            "content": [{"text": "hm", "thought": True}, {"text": "look"}, made],
        },
        {"id": "m1_response", "timestamp": at(1), "type": "user", "content": call("c1", "all")["result"]},
        {"id": "m1", "timestamp": at(1), "type": "user", "content": [{"text": "and then"}]},  # ids may be shared
    ]
    parsed = parsed_log(tmp_path, {"$set": {"sessionId": "s"}}, {"$set": {"messages": history}})
    assert parsed.prompts == ["go", "and then"]
    assert (parsed.main[0].thought, parsed.main[0].text) == ("hm", "look")
    assert parsed.results["c1"]["content"][0]["content"]["text"] == "all"


def test_errors_and_notices_of_the_harness(tmp_path: Path) -> None:
    def notice(name: str, kind: str, text: str) -> dict[str, Any]:
        return {"id": name, "timestamp": at(3), "type": kind, "content": text}

    parsed = parsed_log(
        tmp_path,
        user("u1", "go"),
        notice("e1", "error", "[API Error: busy]"),
        model("m1", "there"),
        notice("i1", "info", "Request cancelled."),
        notice("e2", "error", "[API Error: gone]"),
        user("u2", "System: Please continue."),
        {"id": "x", "type": "banner", "content": "?"},
    )
    assert [(e["message"], e["fatal"]) for e in parsed.errors] == [
        ("[API Error: busy]", False),
        ("[API Error: gone]", True),
    ]
    assert parsed.injected == ["info", "continue"]
    assert parsed.prompts == ["go"]
    assert parsed.report.unknown_types == {"banner": 1}


def test_images_and_attachments(tmp_path: Path) -> None:
    answer = call("c1", "seen")
    answer["result"].append({"inlineData": {"mimeType": "image/png", "data": "QUJD"}})
    answer["result"].append({"inlineData": {"mimeType": "application/pdf", "data": "QUJD"}})
    parsed = parsed_log(tmp_path, user("u1", "go"), model("m1", "", toolCalls=[answer]))
    blocks = [item["content"] for item in parsed.results["c1"]["content"]]
    assert blocks == [
        {"type": "text", "text": "seen"},
        {"type": "image", "data": "QUJD", "mimeType": "image/png"},
        {"type": "text", "text": "[attachment] (application/pdf)"},
    ]


def test_large_integers_of_arguments_keep_their_digits(tmp_path: Path) -> None:
    made = call("c1")
    made["args"] = {"pattern": 123456789012345678901234567890}
    parsed = parsed_log(tmp_path, user("u1", "go"), model("m1", "", toolCalls=[made]))
    assert parsed.main[0].tools == [("glob", {"pattern": 123456789012345678901234567890})]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", [None, 2])
def test_a_torn_document_gives_what_is_whole(tmp_path: Path, indent: int | None) -> None:
    document = {**HEADER, "messages": [user("u1", "go"), model("m1", "one"), model("m2", "two")]}
    text = json.dumps(document, indent=indent)
    path = tmp_path / "session-2026-01-01T00-00-s.json"
    path.write_text(text[: text.index('"two"') + 3])
    parsed = sorted_out(HARNESS.session_at(path))
    assert parsed.prompts == ["go"]
    assert [c.text for c in parsed.main] == ["one"]
    assert parsed.report.lines.as_dict() == {"read": 4, "parsed": 3, "unknown": 0, "malformed": 1, "duplicate": 0}
    assert parsed.report.warnings["truncated_tail"].count == 1


def test_a_document_with_a_lone_surrogate_is_read_to_its_end(tmp_path: Path) -> None:
    text = json.dumps({**HEADER, "messages": [user("u1", "go"), model("m1", "\ud83d"), model("m2", "two")]}, indent=1)
    path = tmp_path / "session-x.json"
    path.write_text(text)
    parsed = sorted_out(HARNESS.session_at(path))
    assert [c.text for c in parsed.main] == ["\ufffd", "two"]
    assert parsed.report.warnings["lone_surrogate"].count == 1


def test_a_document_that_went_on_as_lines_is_one_session(tmp_path: Path) -> None:
    chats = tmp_path / ".gemini/tmp/app/chats"
    chats.mkdir(parents=True)
    old = [user("u1", "go"), model("m1", "one")]
    (chats / "session-2026-01-01T00-00-s.json").write_text(json.dumps({**HEADER, "messages": old}))
    (chats / "session-2026-01-01T00-00-s.jsonl").write_bytes(
        lines_of(HEADER, *old, {"$set": {"sessionId": "s"}}, user("u2", "more"), model("m2", "two"))
    )
    [source] = HARNESS.sessions_in(tmp_path)
    parsed = sorted_out(source)
    assert parsed.prompts == ["go", "more"]
    assert [c.text for c in parsed.main] == ["one", "two"]
    assert source.path.suffix == ".jsonl"


def test_a_copy_in_the_slot_of_a_runner_counts_once(tmp_path: Path) -> None:
    chats = tmp_path / "agent/.gemini/tmp/app/chats"
    chats.mkdir(parents=True)
    data = lines_of(HEADER, user("u1", "go"), model("m1", "one"))
    (chats / "session-2026-01-01T00-00-s.jsonl").write_bytes(data)
    (tmp_path / "agent/gemini-cli.trajectory.jsonl").write_bytes(data)
    assert len(HARNESS.sessions_in(tmp_path)) == 1
    (chats / "session-2026-01-01T00-00-s.jsonl").unlink()
    [source] = HARNESS.sessions_in(tmp_path)
    assert source.path.name == "gemini-cli.trajectory.jsonl"


def test_a_subagent_of_a_subagent_and_one_without_a_parent(tmp_path: Path) -> None:
    chats = tmp_path / "chats"

    def write(path: Path, header: dict[str, Any], *records: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(lines_of({**HEADER, **header}, *records))

    spawn = {**call("c1"), "name": "invoke_agent", "agentId": "kid"}
    deeper = {**call("kid#0"), "name": "invoke_agent", "agentId": "grandkid"}
    write(chats / "session-1-s.jsonl", {}, user("u", "go"), model("m", "", toolCalls=[spawn]))
    write(chats / "s/kid.jsonl", {"sessionId": "kid", "kind": "subagent"}, model("k", "", toolCalls=[deeper]))
    write(chats / "kid/grandkid.jsonl", {"sessionId": "grandkid", "kind": "subagent"}, model("g", "deep"))
    write(chats / "session-2-lonely.jsonl", {"sessionId": "lonely", "kind": "subagent"}, model("l", "alone"))
    root, lonely = HARNESS.sessions_in(tmp_path)
    parsed = sorted_out(root)
    assert parsed.parents == {None: None, "kid": "c1", "grandkid": "kid#0"}
    assert [c.text for c in sorted_out(lonely).main] == ["alone"]


@pytest.mark.parametrize("name", ["..", "a/b", "x" * 5000, "a\0b", "."])
def test_a_hostile_session_id_reaches_no_other_folder(tmp_path: Path, name: str) -> None:
    path = tmp_path / "chats/session-1.jsonl"
    path.parent.mkdir()
    (tmp_path / "secret.jsonl").write_bytes(lines_of({**HEADER, "kind": "subagent"}, model("x", "secret")))
    path.write_bytes(lines_of({**HEADER, "sessionId": name}, user("u", "go")))
    source = HARNESS.session_at(path)
    assert source.files == (path,)
    assert sorted_out(source).prompts == ["go"]


# -- detection ---------------------------------------------------------------------------------------------------------


def test_its_own_files_are_recognised_and_no_others() -> None:
    for path in sorted(RECORDINGS.glob("*/*/stdout*.jsonl")):
        assert is_stdout(head_records(path)) == path.parts[-3].startswith("gemini-"), path
    for pattern in ("*/*/home/.gemini/**/*.json*", "*/*/home/.qwen/**/*.jsonl"):
        for path in sorted(RECORDINGS.glob(pattern)):
            assert is_session(head_records(path)) == ("chats" in path.parts and ".gemini" in path.parts), path


def test_stdout_without_its_first_lines_is_recognised() -> None:
    records = head_records(RECORDINGS / "gemini-0.61.0/basic/stdout.jsonl")
    assert is_stdout(records[2:3])
    assert is_stdout(records[8:9])
    assert not is_stdout(records[-1:])


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "kind", "title"),
    [
        ("read_file", {"absolute_path": "/a"}, "read", "Read /a"),
        ("read_file", {"file_path": "/a"}, "read", "Read /a"),
        ("read_file", {}, "read", "Read file"),
        ("read_many_files", {"include": ["a", "b"]}, "read", "Read 2 files"),
        ("write_file", {"file_path": "/a", "content": "x"}, "edit", "Write /a"),
        ("replace", {"file_path": "/a", "old_string": "x"}, "edit", "Edit /a"),
        ("edit_file", {"file_path": "/a"}, "edit", "Edit /a"),
        ("run_shell_command", {"command": "ls `x`"}, "execute", "`ls `x``"),
        ("shell", {}, "execute", "Run command"),
        ("glob", {"pattern": "*.py"}, "search", "Find *.py"),
        ("grep", {"pattern": "x"}, "search", 'grep "x"'),
        ("grep_search", {"pattern": "x"}, "search", 'grep "x"'),
        ("search_file_content", {"pattern": "x"}, "search", 'grep "x"'),
        ("list_directory", {"dir_path": "/a"}, "search", "List /a"),
        ("google_web_search", {"query": "q"}, "fetch", '"q"'),
        ("web_search", {}, "fetch", "Web search"),
        ("web_fetch", {"prompt": "y" * 60}, "fetch", "Fetch: " + "y" * 50 + "..."),
        ("delegate_to_agent", {"agent_name": "n"}, "think", "Agent: n"),
        ("invoke_agent", {"agent_name": "n", "prompt": "p"}, "think", "Agent: n"),
        ("codebase_investigator", {}, "think", "Agent: codebase_investigator"),
        ("write_todos", {"todos": []}, "other", "Update todos"),
        ("save_memory", {"fact": "f" * 50}, "other", 'Remember: "' + "f" * 40 + '..."'),
        ("activate_skill", {"name": "n"}, "other", "Activate skill: n"),
        ("exit_plan_mode", {}, "switch_mode", "Exit plan mode"),
        ("complete_task", {}, "other", "complete_task"),
        ("read_file", {"file_path": 7}, "read", "Read file"),
        ("web_fetch", {"prompt": 7}, "fetch", "Web fetch"),
        ("run_shell_command", "ls", "execute", "Run command"),
    ],
)
def test_kinds_and_titles(name: str, args: Any, kind: str, title: str) -> None:
    shown = gemini.show(name, args)
    assert (shown.kind, shown.title) == (kind, title)


def test_what_edits_and_reads_show() -> None:
    write = gemini.show("write_file", {"file_path": "/a", "content": "x"})
    assert write.content == [{"type": "diff", "path": "/a", "oldText": None, "newText": "x"}]
    replace = gemini.show("replace", {"file_path": "/a", "old_string": "x"})
    assert replace.content == [{"type": "diff", "path": "/a", "oldText": "x", "newText": ""}]
    assert gemini.show("read_file", {"file_path": "/a", "offset": 4}).locations == [{"path": "/a", "line": 4}]
    assert gemini.show("read_file", {"file_path": "/a", "start_line": 4}).locations == [{"path": "/a", "line": 3}]
