"""Rows of a Claude Code session file: words and what is no words, subagents, copies, records of other kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.claude_code.files import HARNESS
from traceflow_parsers.claude_code.session import ClaudeSession
from traceflow_parsers.contract import Part
from traceflow_parsers.testing import check_events, run

SESSION = "11111111-1111-4111-8111-111111111111"
USAGE = {"input_tokens": 1, "output_tokens": 2}


def user(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "user", "sessionId": SESSION, "message": {"role": "user", "content": content}, **more}


def assistant(*blocks: Any, **more: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "role": "assistant", "model": "m", "content": list(blocks), "usage": USAGE}
    message |= more.pop("message", {})
    return {"type": "assistant", "sessionId": SESSION, "message": message, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def tool(call: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


def result(call: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": content, **more}


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parse(*rows: Any) -> tuple[list[Event], ClaudeSession]:
    parser = ClaudeSession()
    events = run(parser, lines(*rows))
    check_events(events)
    return events, parser


def extra(event: Event) -> dict[str, Any]:
    known = event.data.get("extra", {})
    return {key: value for key, value in known.items() if key not in ("harness", "harnessVersion")}


# -- words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "more", "kind"),
    [
        ("<system-reminder>\nx</system-reminder>", {}, "system_reminder"),
        ("<command-message>init</command-message>\n<command-name>/init</command-name>", {}, "command"),
        ("<command-name>/clear</command-name>", {}, "command"),
        ("<bash-input>ls</bash-input>", {}, "command"),
        ("<bash-stdout>a</bash-stdout><bash-stderr></bash-stderr>", {}, "command_output"),
        ("<local-command-stdout>Compacted</local-command-stdout>", {}, "command_output"),
        ("<local-command-caveat>Caveat: x</local-command-caveat>", {"isMeta": True}, "caveat"),
        ("<task-notification>x</task-notification>", {}, "task_notification"),
        ("[Request interrupted by user for tool use]", {}, "interruption"),
        ("Continue from where you left off.", {"isMeta": True}, "meta"),
        ("seen only", {"isVisibleInTranscriptOnly": True}, "transcript_only"),
        ("What does <system-reminder> mean?", {}, None),
        ("Caveat emptor", {}, None),
        ("[draft] please look", {}, None),
    ],
)
def test_injected_text_is_told_by_how_it_begins(content: str, more: dict[str, Any], kind: str | None) -> None:
    events, _ = parse(user(content, **more))
    assert text_of(events[0]) == content
    assert extra(events[0]).get("injected") == kind
    assert events[0].type == ("user_message_chunk" if kind else "prompt")


def test_injected_text_before_the_first_prompt_is_not_the_prompt() -> None:
    events, _ = parse(user("<command-name>/init</command-name>"), user("do it"), user("more"))
    assert [e.type for e in events] == ["user_message_chunk", "prompt", "user_message_chunk"]


def test_words_and_images_of_one_message_share_its_id() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    events, _ = parse(user([text("look"), image, text("well?")], uuid="u1"))
    assert [e.data["messageId"] for e in events] == ["u1", "u1", "u1"]
    assert [e.type for e in events] == ["prompt", "user_message_chunk", "user_message_chunk"]
    assert events[1].data["update"]["content"] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "image", "source": {"type": "url", "url": "https://x/a.png"}},
         {"type": "image", "data": "", "mimeType": "", "uri": "https://x/a.png"}),
        ({"type": "image", "data": "AAAA", "mimeType": "image/gif"},
         {"type": "image", "data": "AAAA", "mimeType": "image/gif"}),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}, text("words")),
        ({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}},
         text("[application/pdf]")),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, text("[image]")),
        ({"type": "tool_reference", "tool_name": "Grep"}, text("[tool_reference Grep]")),
        ({"type": "novelty"}, text("[novelty]")),
        ({}, text("[unknown block]")),
    ],
)  # fmt: skip
def test_blocks_of_a_result(block: dict[str, Any], shown: dict[str, Any]) -> None:
    events, _ = parse(assistant(tool("A")), user([result("A", [block])]))
    (update,) = [e.data["update"] for e in events if e.type == "tool_call_update"]
    assert update["content"] == [{"type": "content", "content": shown}]


def test_a_prompt_that_was_typed_while_the_model_worked_is_a_persons() -> None:
    queued = {
        "type": "attachment",
        "attachment": {"type": "queued_command", "prompt": "and tests", "commandMode": "prompt"},
    }
    note = {
        "type": "attachment",
        "attachment": {"type": "queued_command", "prompt": "x", "commandMode": "task-notification"},
    }
    events, _ = parse(user("go"), queued, note)
    assert [(text_of(e), extra(e)) for e in events] == [
        ("go", {}), ("and tests", {}), ("x", {"injected": "task_notification"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("attachment", "shown"),
    [
        ({"type": "skill_listing", "content": "- a"}, ("- a", "skills")),
        ({"type": "agent_listing_delta", "addedLines": ["- a", "- b"]}, ("- a\n- b", "agents")),
        ({"type": "nested_memory", "content": {"path": "/CLAUDE.md", "content": "rules"}}, ("rules", "agents_md")),
        (
            {"type": "file", "filename": "/a", "content": {"type": "text", "file": {"content": "body"}}},
            ("body", "file"),
        ),
        ({"type": "edited_text_file", "filename": "/a", "snippet": "1 x"}, ("1 x", "edited_text_file")),
        ({"type": "hook_additional_context", "content": ["a", "b"]}, ("a\nb", "hook_additional_context")),
        ({"type": "task_reminder", "content": [], "itemCount": 0}, None),
        ({"type": "todo_reminder", "content": [{"content": "x", "status": "pending"}]}, None),
    ],
)
def test_attachments_speak_where_they_hold_words(attachment: dict[str, Any], shown: tuple[str, str] | None) -> None:
    events, parser = parse({"type": "attachment", "sessionId": SESSION, "attachment": attachment})
    assert [(text_of(e), extra(e)["injected"]) for e in events] == ([shown] if shown else [])
    assert parser.report.lines.parsed == 1


# -- the model -----------------------------------------------------------------------------------------------


def test_blocks_of_the_model() -> None:
    events, parser = parse(
        assistant({"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"},
                  text("hi"), text(""), {"type": "thinking", "thinking": "", "signature": "s"}, {"type": "riddle"}),
    )  # fmt: skip
    assert [(e.type, text_of(e)) for e in events[:2]] == [("agent_thought_chunk", "hm"), ("agent_message_chunk", "hi")]
    assert [e.type for e in events] == ["agent_thought_chunk", "agent_message_chunk", "usage"]
    assert parser.report.warnings["unknown_block"].count == 1


def test_tools_that_run_at_the_provider() -> None:
    found = {"type": "web_search_result", "title": "T", "url": "https://x", "encrypted_content": "zz"}
    events, _ = parse(
        assistant({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
                  {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [found]}, text("so")),
    )  # fmt: skip
    assert [e.type for e in events] == ["tool_call", "tool_call_update", "agent_message_chunk", "usage"]
    assert text_of(events[1]) == "T\nhttps://x"


def test_integers_of_any_size_keep_their_digits() -> None:
    line = lines(assistant(tool("A", n=0))).replace(b'"n": 0', b'"n": 123456789012345678901234567890')
    events = run(ClaudeSession(), line)
    assert events[0].data["update"]["rawInput"] == {"n": 123456789012345678901234567890}


def test_a_late_block_of_a_call_is_not_counted_again() -> None:
    first = assistant(text("a"), requestId="r1")
    other = assistant(text("b"), requestId="r2", message={"id": "msg_2"})
    late = assistant(text("c"), requestId="r1")
    events, _ = parse(first, other, late, other)
    assert [e.data["messageId"] for e in events if e.type == "usage"] == ["msg_1", "msg_2"]
    assert [(e.data["messageId"], text_of(e)) for e in events if e.type == "agent_message_chunk"] == [
        ("msg_1", "a"), ("msg_2", "b"), ("msg_1", "c"), ("msg_2", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "calls"),
    [
        ({"requestId": "r1"}, {"requestId": "r2"}, 2),
        ({"requestId": "r1"}, {"requestId": "r1"}, 1),
        ({}, {"requestId": "r1"}, 1),
        ({"message": {"usage": {"input_tokens": 1}}}, {"message": {"usage": {"input_tokens": 5}}}, 2),
        ({"message": {"id": None}}, {"message": {"id": None}}, 1),
        ({"message": {"id": ""}, "requestId": "r1"}, {"message": {"id": ""}, "requestId": "r2"}, 2),
    ],
)
def test_where_one_model_call_ends(first: dict[str, Any], second: dict[str, Any], calls: int) -> None:
    events, _ = parse(assistant(text("a"), **first), assistant(text("b"), **second))
    ids = [e.data["messageId"] for e in events if e.type == "usage"]
    assert len(ids) == len(set(ids)) == calls


def test_a_message_without_an_id_ends_with_its_results() -> None:
    nameless = {"message": {"id": None}}
    events, _ = parse(assistant(tool("A"), **nameless), user([result("A")]), assistant(text("b"), **nameless))
    assert [e.data["messageId"] for e in events if e.type == "usage"] == ["call-1", "call-2"]


@pytest.mark.parametrize(
    ("usage", "want"),
    [
        ({"input_tokens": 5}, {"promptTokens": 5}),
        ({"input_tokens": 5, "cache_read_input_tokens": None},
         {"promptTokens": 5, "extra": {"cache_read_input_tokens": None}}),
        ({"input_tokens": 0, "output_tokens": 0}, {"promptTokens": 0, "completionTokens": 0}),
        ({"output_tokens": 3}, {"completionTokens": 3}),
        ({"input_tokens": "5", "output_tokens": -1}, {}),
        ({"input_tokens": True, "output_tokens": 1.5}, {}),
        ({"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3, "speed": "fast"},
         {"promptTokens": 6, "cachedTokens": 2,
          "extra": {"cache_read_input_tokens": 2, "cache_creation_input_tokens": 3, "speed": "fast"}}),
    ],
)  # fmt: skip
def test_counts_are_right_or_absent(usage: dict[str, Any], want: dict[str, Any]) -> None:
    events, _ = parse(assistant(text("a"), message={"usage": usage}))
    assert [e.data["update"]["usage"] for e in events if e.type == "usage"] == [want]


def test_output_tokens_never_count_back() -> None:
    rows = [assistant(text(str(n)), message={"usage": {"output_tokens": n}}) for n in (1, 40, 7)]
    events, _ = parse(*rows)
    assert [e.data["update"]["usage"]["completionTokens"] for e in events if e.type == "usage"] == [40]


# -- results -------------------------------------------------------------------------------------------------


def test_facts_of_a_result_never_repeat_its_text() -> None:
    said = {
        "stdout": "ok", "stderr": "", "interrupted": False, "durationMs": 12, "note": "n" * 257, "kind": "short",
        "file": {"filePath": "/a", "content": "zz", "numLines": 2}, "list": [1, 2], "deep": {"inner": {"x": 1}},
    }  # fmt: skip
    events, _ = parse(assistant(tool("A")), user([result("A")], toolUseResult=said))
    (update,) = [e for e in events if e.type == "tool_call_update"]
    assert update.data["update"]["rawOutput"] == {
        "interrupted": False, "durationMs": 12, "kind": "short", "file": {"filePath": "/a", "numLines": 2},
    }  # fmt: skip
    assert extra(update) == {"durationMs": 12}


@pytest.mark.parametrize(
    ("block", "said", "status", "code"),
    [
        (result("A", "Exit code 3\nno", is_error=True), "Error: Exit code 3\nno", "failed", 3),
        (result("A", [text("Exit code 2")], is_error=True), None, "failed", 2),
        (result("A", "Exit code 3 was printed"), None, "completed", None),
        (result("A", "no such tool", is_error=True), None, "failed", None),
        (result("A", "x"), {"exitCode": 4}, "failed", 4),
        (result("A", "x"), {"exitCode": 0}, "completed", 0),
    ],
)
def test_exit_codes(block: dict[str, Any], said: Any, status: str, code: int | None) -> None:
    events, _ = parse(assistant(tool("A")), user([block], toolUseResult=said))
    (update,) = [e for e in events if e.type == "tool_call_update"]
    assert update.data["update"]["status"] == status
    assert extra(update).get("exitCode") == code


# -- failures and compaction ---------------------------------------------------------------------------------


def test_no_response_requested_is_no_error_and_no_message() -> None:
    events, _ = parse(assistant(text("No response requested."), message={"model": "<synthetic>"}))
    assert events == []


def test_other_synthetic_words_are_the_harnesss() -> None:
    events, _ = parse(assistant(text("Login expired"), message={"model": "<synthetic>"}))
    assert [(e.type, extra(e)) for e in events] == [("user_message_chunk", {"injected": "synthetic"})]


def test_a_retried_failure_is_not_fatal() -> None:
    error = {"status": 529, "error": {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}}
    row = {
        "type": "system",
        "subtype": "api_error",
        "level": "error",
        "error": error,
        "retryAttempt": 2,
        "maxRetries": 10,
    }
    events, _ = parse(row)
    assert events[0].data["update"] == {"sessionUpdate": "error", "message": "Overloaded", "fatal": False}
    assert extra(events[0]) == {"retried": True, "attempt": 2, "maxRetries": 10, "errorStatus": 529}


def test_a_summary_without_a_boundary_and_a_boundary_without_a_summary() -> None:
    boundary = {
        "type": "system",
        "subtype": "compact_boundary",
        "compactMetadata": {"trigger": "manual", "preTokens": 9},
    }
    events, _ = parse(user("go"), user("Summary", isCompactSummary=True), boundary, user("on"))
    assert [(text_of(e), extra(e).get("compaction")) for e in events] == [
        ("go", None),
        ("Summary", {"isCompactSummary": True}),
        ("", {"trigger": "manual", "preTokens": 9}),
        ("on", None),
    ]  # fmt: skip


# -- subagents -----------------------------------------------------------------------------------------------


def test_sidechains_without_an_agent_id_are_told_by_their_chain_and_prompt() -> None:
    """Claude Code 1.0 wrote the rows of its subagents into the main file, two of them mixed."""
    side = {"isSidechain": True}
    events, _ = parse(
        user("go", uuid="u1", parentUuid=None),
        assistant(tool("T1", "Task", prompt="find a"), tool("T2", "Task", prompt="find b"), uuid="a1", parentUuid="u1"),
        user("find b", uuid="s1", parentUuid=None, **side),
        user("find a", uuid="s2", parentUuid=None, **side),
        assistant(text("b!"), uuid="s3", parentUuid="s1", message={"id": "msg_b"}, **side),
        assistant(text("a!"), uuid="s4", parentUuid="s2", message={"id": "msg_a"}, **side),
        user([result("T1", "a!")], uuid="u2", parentUuid="a1"),
        user([result("T2", "b!")], uuid="u3", parentUuid="u2"),
    )
    told = [(e.data["parentToolCallId"], text_of(e)) for e in events if "agentId" in extra(e) and e.type != "usage"]
    assert told == [("T2", "find b"), ("T1", "find a"), ("T2", "b!"), ("T1", "a!")]
    assert len({extra(e)["agentId"] for e in events if "agentId" in extra(e)}) == 2


def parts(*files: tuple[Part, bytes]) -> tuple[list[Event], ClaudeSession]:
    parser, events = ClaudeSession(), []
    for part, data in files:
        parser.begin(part)
        for line in data.splitlines(keepends=True):
            events += parser.feed(line)
    events += parser.finish()
    check_events(events)
    return events, parser


def test_a_subagents_file_without_a_link_is_found_by_its_prompt() -> None:
    """The run was killed before the result that names the agent."""
    main = lines(user("go"), assistant(tool("T1", "Task", prompt="find a")))
    side = lines(user("find a", isSidechain=True), assistant(text("a!"), isSidechain=True, message={"id": "msg_a"}))
    events, _ = parts((Part("s.jsonl"), main), (Part("agent-x.jsonl", "x"), side))
    assert {e.data["parentToolCallId"] for e in events if extra(e).get("agentId") == "x"} == {"T1"}


def test_a_subagent_that_begins_with_its_parents_history_marks_it_as_copied() -> None:
    shared = [user("go", uuid="u1"), assistant(text("a"), uuid="a1", requestId="r1")]
    again = assistant(text("a"), uuid="new", requestId="r1")  # the same response under a new uuid
    own = assistant(text("own"), uuid="b1", requestId="r2", message={"id": "msg_2"})
    events, parser = parts((Part("s.jsonl"), lines(*shared)), (Part("agent-x.jsonl", "x"), lines(*shared, again, own)))
    theirs = [
        (text_of(e), extra(e).get("copied", False)) for e in events if extra(e).get("agentId") and e.type != "usage"
    ]
    assert theirs == [("go", True), ("a", True), ("a", True), ("own", False)]
    counted = [e.data["messageId"] for e in events if e.type == "usage" and not extra(e).get("copied")]
    assert sorted(counted) == ["msg_1", "msg_2"]
    assert parser.report.lines.duplicate == 0


def test_a_row_twice_in_a_subagents_file_is_a_replay() -> None:
    side = lines(user("x", uuid="s1"), user("x", uuid="s1"))
    _, parser = parts((Part("s.jsonl"), lines(user("go"))), (Part("agent-x.jsonl", "x"), side))
    assert parser.report.warnings["replayed_row"].count == 1
    assert parser.report.lines.duplicate == 1


# -- copies of other sessions --------------------------------------------------------------------------------


def test_rows_that_name_their_origin_are_copied() -> None:
    """`/branch` writes where each row came from (2.1)."""
    origin = {"forkedFrom": {"sessionId": "s0", "messageUuid": "u1"}}
    events, _ = parse(user("go", uuid="u1", **origin), user("mine", uuid="u2"))
    assert [extra(e).get("copied", False) for e in events] == [True, False]


def write(folder: Path, name: str, *rows: Any) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_bytes(lines(*rows))
    return path


def test_of_sessions_that_begin_alike_the_one_that_ended_first_is_the_original(tmp_path: Path) -> None:
    ids = [f"{n}1111111-1111-4111-8111-111111111111" for n in (3, 2, 1)]
    rows = [
        user(f"m{n}", uuid=f"u{n}", parentUuid=f"u{n - 1}" if n else None, timestamp=f"2026-03-04T05:06:0{n}.000Z")
        for n in range(4)
    ]
    for session, count in zip(ids, (2, 3, 4), strict=True):
        write(tmp_path, session, *({**row, "sessionId": session} for row in rows[:count]))
    own = {}
    for source in HARNESS.sessions_in(tmp_path):
        own[source.session_id] = [text_of(e) for e in source.parse() if not extra(e).get("copied")]
    assert own == {ids[0]: ["m0", "m1"], ids[1]: ["m2"], ids[2]: ["m3"]}


@pytest.mark.parametrize("change", ["time", "session"])
def test_rows_that_only_share_a_uuid_are_no_copy(tmp_path: Path, change: str) -> None:
    row = user("m", uuid="u1", timestamp="2026-03-04T05:06:00.000Z")
    other = {**row, "timestamp": "2026-03-04T05:06:01.000Z", "sessionId": "s2"} if change == "time" else row
    write(tmp_path, "a", row)
    write(tmp_path, "b", other)
    assert not any(extra(e).get("copied") for source in HARNESS.sessions_in(tmp_path) for e in source.parse())


# -- records of other kinds ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        {"type": "queue-operation", "operation": "enqueue", "content": "x", "sessionId": "s"},
        {"type": "progress", "data": {"type": "hook_progress", "message": {"type": "user"}}, "uuid": "p"},
        {"type": "summary", "summary": "x", "leafUuid": "y"},
        {"type": "last-prompt", "lastPrompt": "x", "leafUuid": "y", "sessionId": "s"},
        {"type": "system", "subtype": "turn_duration", "durationMs": 5},
        {"type": "system", "content": "Running hook", "level": "info"},
    ],
)
def test_bookkeeping_is_parsed_and_says_nothing(row: dict[str, Any]) -> None:
    events, parser = parse(row)
    assert events == []
    assert parser.report.lines.parsed == 1


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"type": "telepathy"}, "telepathy"),
        ({"type": "system", "subtype": "telepathy"}, "system"),
        ({"type": "user", "message": None}, "user"),
        ({"type": "attachment"}, "attachment"),
        ({"no": "type"}, "(no type)"),
    ],
)
def test_what_is_not_known_is_counted_by_name(row: dict[str, Any], name: str) -> None:
    _, parser = parse(row)
    assert parser.report.unknown_types == {name: 1}


def test_the_place_of_a_session_names_it(tmp_path: Path) -> None:
    write(tmp_path, SESSION, user("x", sessionId="another"))
    write(tmp_path, "session", user("x", sessionId="another"))
    named, nameless = HARNESS.sessions_in(tmp_path)
    assert (named.session_id, nameless.session_id) == (SESSION, None)
    assert [e.data["sessionId"] for source in (named, nameless) for e in source.parse()] == [SESSION, "another"]
