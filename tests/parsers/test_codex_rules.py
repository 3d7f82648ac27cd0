"""Rules of codex files that the recordings do not show: hand-made records, a fact each."""

from __future__ import annotations

import json
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.codex import CodexSession, CodexStdout
from traceflow_parsers.contract import Parser, Part
from traceflow_parsers.testing import check_events, run

META = {"type": "session_meta", "payload": {"id": "t", "cli_version": "0.100.0"}}
CONTEXT = {"type": "turn_context", "payload": {"model": "m"}}


def item(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-04T05:06:07.000Z", "type": "response_item", "payload": {"type": kind, **fields}}


def event(kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"timestamp": "2026-03-04T05:06:07.000Z", "type": "event_msg", "payload": {"type": kind, **fields}}


def said(text: str, role: str = "assistant", **fields: Any) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item("message", role=role, content=[{"type": kind, "text": text}], **fields)


def call(ident: str, name: str = "exec_command", arguments: str = '{"cmd":"ls"}') -> dict[str, Any]:
    return item("function_call", name=name, arguments=arguments, call_id=ident)


def output(ident: str, value: Any = "ok") -> dict[str, Any]:
    return item("function_call_output", call_id=ident, output=value)


def count(total: int, last: int | None) -> dict[str, Any]:
    info: dict[str, Any] = {"total_token_usage": {"input_tokens": total, "output_tokens": 1}}
    if last is not None:
        info["last_token_usage"] = {"input_tokens": last, "output_tokens": 1}
    return event("token_count", info=info)


def used(amount: int, response: str) -> dict[str, Any]:
    usage = {"input_tokens": amount, "cached_input_tokens": 0, "output_tokens": 1}
    return {"type": "token_usage_record", "payload": {"response_id": response, "usage": usage}}


def parse(parser: Parser, *records: Any) -> list[Event]:
    data = b"\n".join(json.dumps(record).encode() for record in records)
    events = run(parser, data)
    check_events(events)
    return events


def session(*records: Any) -> list[Event]:
    return parse(CodexSession(), META, *records)


def extra(found: Event, name: str) -> Any:
    return (found.data.get("extra") or {}).get(name)


def calls_of(events: list[Event]) -> dict[str, list[str]]:
    """Message id -> what that model call said and which tools it called."""
    calls: dict[str, list[str]] = {}
    for found in events:
        if found.type in ("agent_message_chunk", "agent_thought_chunk"):
            calls.setdefault(found.data["messageId"], []).append(text_of(found))
        elif found.type == "tool_call":
            calls.setdefault(found.data["messageId"], []).append(found.data["update"]["toolCallId"])
    return calls


def usage_of(events: list[Event]) -> dict[str, int]:
    updates = [(found.data.get("messageId"), found.data["update"]) for found in events if found.type == "usage"]
    return {ident: update["usage"]["promptTokens"] for ident, update in updates if update["scope"] == "call"}


# -- where a model call ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "records"),
    [
        ("0.80: the count before the results", [
            said("one"), call("a"), call("b"), count(10, 10), output("a"), output("b"), CONTEXT, count(10, 10),
            said("two"), count(30, 20),
        ]),
        ("0.1xx: the count after the results", [
            said("one"), call("a"), call("b"), output("a"), output("b"), count(10, 10), count(10, 10),
            said("two"), count(30, 20),
        ]),
        ("0.46: the count before the items, each call with its result", [
            event("agent_message", message="one"), count(10, 10), said("one"), call("a"), output("a"), call("b"),
            output("b"), CONTEXT, event("agent_message", message="two"), count(30, 20), said("two"),
        ]),
        ("0.171: a record before the results, a count that repeats it after them", [
            said("one"), call("a"), call("b"), used(10, "r1"), output("a"), output("b"), count(10, 10),
            said("two"), used(20, "r2"), count(30, 20),
        ]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_call_and_its_usage_belong_together_in_every_order_of_writing(order: str, records: list[Any]) -> None:
    events = session(said("hi", "user"), event("user_message", message="hi"), CONTEXT, *records)
    assert list(calls_of(events).values()) == [["one", "a", "b"], ["two"]]
    assert list(usage_of(events).items()) == list(zip(calls_of(events), [10, 20], strict=True))


def test_without_counts_a_word_after_a_result_is_a_new_call() -> None:
    events = session(said("hi", "user"), said("one"), call("a"), output("a"), call("b"), output("b"), said("two"))
    assert list(calls_of(events).values()) == [["one", "a"], ["b"], ["two"]]
    assert not usage_of(events)


def test_a_count_without_the_last_call_is_the_difference_of_the_totals() -> None:
    events = session(said("hi", "user"), said("one"), count(10, None), said("two"), count(25, None))
    assert list(usage_of(events).values()) == [10, 15]


def test_a_count_that_only_an_estimate_changed_is_no_call() -> None:
    estimate = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 999}
    again = event("token_count", info={"total_token_usage": estimate, "last_token_usage": {"total_tokens": 988}})
    events = session(said("hi", "user"), said("one"), count(10, 10), again, said("two"), count(30, 20))
    assert list(usage_of(events).values()) == [10, 20]


def test_a_call_that_said_nothing_is_counted() -> None:
    events = session(said("hi", "user"), said("one"), used(10, "r1"), used(20, "r2"), said("three"), used(30, "r3"))
    assert list(usage_of(events).values()) == [10, 20, 30]
    assert len(calls_of(events)) == 2


def test_a_record_that_is_written_twice_counts_once() -> None:
    parser = CodexSession()
    events = parse(parser, META, said("one"), used(10, "r1"), used(10, "r1"))
    assert list(usage_of(events).values()) == [10]
    assert parser.report.lines.duplicate == 1


def test_a_call_without_its_record_is_counted_by_the_event() -> None:
    events = session(said("hi", "user"), said("one"), used(10, "r1"), count(10, 10), said("two"), count(30, 20))
    assert list(usage_of(events).values()) == [10, 20]


def test_compaction_without_the_tokens_of_its_call_is_said() -> None:
    parser = CodexSession()
    compacted = {"type": "compacted", "payload": {"message": "sum"}}
    parse(parser, META, said("hi", "user"), said("one"), count(10, 10), compacted, said("two"), count(30, 20))
    assert parser.report.warnings["compaction_usage_missing"].count == 1


def test_compaction_before_records_is_the_count_that_no_item_belongs_to() -> None:
    parser = CodexSession()
    compacted = {"type": "compacted", "payload": {"message": "sum"}}
    events = parse(parser, META, said("one"), count(10, 10), count(15, 5), compacted, said("two"), count(35, 20))
    assert list(usage_of(events).values()) == [10, 5, 20]
    assert [extra(found, "compaction") for found in events if found.type == "usage"][:3] == [None, True, None]
    assert not parser.report.warnings


def test_a_killed_run_keeps_its_call_and_is_incomplete() -> None:
    parser = CodexSession()
    events = parse(parser, META, event("task_started"), said("hi", "user"), call("a"), used(10, "r1"))
    assert [found.data["update"]["toolCallId"] for found in events if found.type == "tool_call"] == ["a"]
    assert not [found for found in events if found.type == "tool_call_update"]
    assert parser.report.incomplete
    assert parser.report.warnings["missing_result"].count == 1


# -- who said it ---------------------------------------------------------------------------------------------


def words(*records: Any) -> list[tuple[str | None, str]]:
    return [
        (extra(found, "injected"), text_of(found))
        for found in session(*records)
        if found.type in ("prompt", "user_message_chunk")
    ]


def test_a_prompt_that_mentions_a_tag_is_a_prompt() -> None:
    texts = [
        "what is <environment_context> for?",
        "<environment_context> is odd",
        "<environment_context>a</environment_context> is what I see",
    ]
    for text in texts:
        assert words(said(text, "user"), said("ok")) == [(None, text)]


def test_the_event_of_a_person_decides_what_the_form_of_a_text_does_not() -> None:
    assert words(
        said("house rules", "user"),
        said("<environment_context>x</environment_context>", "user"),
        said("fix it", "user"),
        event("user_message", message="fix it", images=[]),
        said("ok"),
    ) == [
        ("context", "house rules"),
        ("environment_context", "<environment_context>x</environment_context>"),
        (None, "fix it"),
    ]


def test_a_prompt_may_look_like_context_when_its_event_says_so() -> None:
    text = "<environment_context>x</environment_context>"
    assert words(said(text, "user"), event("user_message", message=text), said("ok")) == [(None, text)]


def test_the_event_may_come_before_its_message() -> None:
    assert words(event("user_message", message="fix it"), said("fix it", "user"), said("ok")) == [(None, "fix it")]


def test_an_event_of_another_kind_is_no_prompt() -> None:
    text = "<user_instructions>x</user_instructions>"
    records = (said(text, "user"), event("user_message", message=text, kind="user_instructions"))
    assert words(*records, said("go", "user"), event("user_message", message="go", kind="plain"), said("ok")) == [
        ("agents_md", text),
        (None, "go"),
    ]


def test_one_message_may_hold_context_and_prompt() -> None:
    parts = [
        {"type": "input_text", "text": "<environment_context>x</environment_context>"},
        {"type": "input_text", "text": "go"},
    ]
    message = item("message", role="user", content=parts)
    assert words(message, event("user_message", message="go"), said("ok")) == [
        ("environment_context", "<environment_context>x</environment_context>"),
        (None, "go"),
    ]


def test_a_picture_goes_with_the_words_it_was_sent_with() -> None:
    parts = [
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "what is this"},
    ]
    events = session(
        item("message", role="user", content=parts), event("user_message", message="what is this"), said("ok")
    )
    assert [text_of(found) for found in events if found.type == "prompt"] == ["what is this"]
    (picture,) = [found for found in events if found.type == "user_message_chunk"]
    assert picture.data["update"]["content"] == {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    assert extra(picture, "injected") is None


def test_the_second_prompt_of_a_thread_is_a_user_chunk() -> None:
    events = session(said("a", "user"), said("1"), said("b", "user"), said("2"))
    assert [(found.type, text_of(found)) for found in events if "user" in found.type or found.type == "prompt"] == [
        ("prompt", "a"),
        ("user_message_chunk", "b"),
    ]


def test_the_system_prompt_is_said_once_and_never_for_a_header_alone() -> None:
    meta = {"type": "session_meta", "payload": {"id": "t", "base_instructions": {"text": "You are"}}}
    assert parse(CodexSession(), meta) == []
    kinds = {"content_item_kinds": ["model.base_instructions"]}
    again = said("You are", "developer", internal_chat_message_metadata_passthrough=kinds)
    events = parse(CodexSession(), meta, again, said("hi", "user"), said("ok"))
    prompts = [found.data["_prompt"] for found in events if found.type == "prompt"]
    assert prompts == [{"text": "You are", "role": "system"}, {"text": "hi"}]
    assert not [found for found in events if found.type == "user_message_chunk"]


# -- tools ---------------------------------------------------------------------------------------------------


def result_of(value: Any, *facts: Any) -> Event:
    (found,) = [f for f in session(call("a"), *facts, output("a", value)) if f.type == "tool_call_update"]
    return found


@pytest.mark.parametrize(
    ("value", "text", "status", "code", "milliseconds"),
    [
        ("Exit code: 1\nWall time: 0.5 seconds\nOutput:\nno", None, "failed", 1, 500),
        ("Chunk ID: a\nWall time: 1.2 seconds\nProcess exited with code 0\nOutput:\nyes", None, "completed", 0, 1200),
        ('{"output":"no\\n","metadata":{"exit_code":2,"duration_seconds":0.25}}', "no\n", "failed", 2, 250),
        ('{"output":"plain json of a tool"}', None, "completed", None, None),
        ("Process exited with code 1 is what it printed", None, "completed", None, None),
        ("unsupported call: nope", None, "failed", None, None),
        ({"content": "no", "success": False}, "no", "failed", None, None),
        (
            [{"type": "input_text", "text": "Script failed\nWall time 0.1 seconds\nOutput:\n"}],
            None,
            "failed",
            None,
            100,
        ),
        (None, "", "completed", None, None),
        ("", "", "completed", None, None),
    ],
)
def test_the_forms_of_an_output(
    value: Any, text: str | None, status: str, code: int | None, milliseconds: int | None
) -> None:
    found = result_of(value)
    whole = value if isinstance(value, str) else value[0]["text"] if isinstance(value, list) else ""
    assert text_of(found) == (whole if text is None else text)
    assert found.data["update"]["status"] == status
    assert (extra(found, "exitCode"), extra(found, "durationMs")) == (code, milliseconds)


def test_an_output_may_hold_pictures() -> None:
    found = result_of(
        [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]
    )
    blocks = [part["content"] for part in found.data["update"]["content"]]
    assert blocks == [{"type": "text", "text": "see"}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    mcp = json.dumps({"content": [{"type": "image", "data": "BBBB", "mimeType": "image/jpeg"}], "isError": True})
    found = result_of(mcp)
    assert found.data["update"]["content"][0]["content"] == {"type": "image", "data": "BBBB", "mimeType": "image/jpeg"}
    assert found.data["update"]["status"] == "failed"


@pytest.mark.parametrize(
    "fact",
    [
        event("item_completed", item={"type": "CommandExecution", "id": "a", "exit_code": 7, "status": "failed",
                                      "duration": {"secs": 1, "nanos": 500_000_000}}),
        event("exec_command_end", call_id="a", exit_code=7, duration={"secs": 1, "nanos": 500_000_000}),
    ],
    ids=["item", "event"],
)  # fmt: skip
def test_exit_code_and_duration_come_from_the_item(fact: dict[str, Any]) -> None:
    found = result_of("nothing said", fact)
    assert found.data["update"]["status"] == "failed"
    assert (extra(found, "exitCode"), extra(found, "durationMs")) == (7, 1500)


@pytest.mark.parametrize(
    ("arguments", "raw"),
    [
        ('{"cmd":"ls"}', {"cmd": "ls"}),
        ('{"n":123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ("[1]", "[1]"),
        ('{"cmd": "l', '{"cmd": "l'),
        ("", ""),
        ('{"k":"\\ud83d"}', {"k": "\ufffd"}),
    ],
)
def test_arguments_are_the_object_that_was_sent_or_the_text(arguments: str, raw: Any) -> None:
    (found,) = [f for f in session(call("a", arguments=arguments)) if f.type == "tool_call"]
    assert found.data["update"]["rawInput"] == raw


def test_what_is_nested_too_deeply_to_be_written_again_is_kept_as_text_or_left_out_and_said() -> None:
    deep = '{"a":' * 600 + "1" + "}" * 600
    (found,) = [f for f in session(call("a", arguments=deep)) if f.type == "tool_call"]
    assert found.data["update"]["rawInput"] == deep
    parser = CodexSession()
    line = (
        b'{"type":"response_item","payload":{"type":"tool_search_call","call_id":"a","arguments":'
        + deep.encode()
        + b"}}"
    )
    events = run(parser, line)
    assert [f.type for f in events] == ["tool_call", "trace_loss"]
    assert events[0].data["update"]["rawInput"] == {}
    assert parser.report.warnings["nested_too_deeply"].count == 1


def test_calls_that_the_provider_runs_end_with_themselves() -> None:
    parser = CodexSession()
    search = item("web_search_call", status="completed", action={"type": "search", "query": "duck"})
    events = parse(parser, META, said("hi", "user"), search, search, said("ok"))
    calls = [found.data["update"] for found in events if found.type == "tool_call"]
    assert [update["title"] for update in calls] == ["Search: duck", "Search: duck"]
    assert len({update["toolCallId"] for update in calls}) == 2
    assert [found.data["update"]["status"] for found in events if found.type == "tool_call_update"] == ["completed"] * 2
    assert not parser.report.warnings


def test_a_plan_is_a_call_and_a_plan() -> None:
    arguments = json.dumps(
        {"plan": [{"step": "look", "status": "completed"}, {"step": "act", "status": "in_progress"}]}
    )
    events = session(call("a", "update_plan", arguments), output("a", "Plan updated"))
    assert [found.type for found in events] == ["tool_call", "plan", "tool_call_update"]
    assert events[1].data["update"]["entries"] == [
        {"content": "look", "status": "completed", "priority": "medium"},
        {"content": "act", "status": "in_progress", "priority": "medium"},
    ]


def test_early_rollouts_have_bare_items() -> None:
    head = {"id": "t", "timestamp": "2025-06-01T10:00:00.000Z", "instructions": None}
    bare = [record["payload"] for record in (said("hi", "user"), said("ok"), call("a", "shell"), output("a"))]
    parser = CodexSession()
    events = parse(parser, head, {"record_type": "state"}, *bare)
    assert [found.type for found in events] == ["prompt", "agent_message_chunk", "tool_call", "tool_call_update"]
    assert parser.report.session_id == "t"
    assert parser.report.lines.unknown == 0


# -- errors --------------------------------------------------------------------------------------------------


def test_errors_of_a_session() -> None:
    events = session(
        event("task_started"),
        said("hi", "user"),
        event("stream_error", message="Reconnecting... 1/5"),
        event("error", message="boom"),
        event("task_complete", error={"message": "boom"}),
        event("task_started"),
        event("turn_aborted", reason="interrupted"),
        event("error", message=""),
    )
    errors = [
        (found.data["update"]["message"], found.data["update"]["fatal"], extra(found, "retried"))
        for found in events
        if found.type == "error"
    ]
    assert errors[:3] == [
        ("Reconnecting... 1/5", False, True),
        ("boom", True, None),
        ("turn aborted: interrupted", False, None),
    ]
    assert json.loads(errors[3][0]) == {"type": "error", "message": ""}  # never without words


def test_what_is_not_known_is_counted() -> None:
    parser = CodexSession()
    parse(parser, META, item("new_item"), event("new_event"), {"type": "new_record", "payload": {}}, {"payload": {}})
    assert parser.report.lines.unknown == 4


def test_parts_have_their_own_calls_and_the_session_one_total() -> None:
    parser = CodexSession()
    lines = [said("hi", "user"), said("ok"), count(10, 10)]
    events: list[Event] = []
    for part in (Part("root.jsonl"), Part("child.jsonl", agent_id="kid", parent_call="a")):
        parser.begin(part)
        for record in [META, *lines]:
            events.extend(parser.feed(json.dumps(record).encode()))
    events.extend(parser.finish())
    check_events(events)
    totals = [found for found in events if found.type == "usage" and found.data["update"]["scope"] == "run"]
    assert [extra(found, "agentId") for found in totals] == [None]
    assert [extra(found, "agentId") for found in events if found.type == "agent_message_chunk"] == [None, "kid"]


# -- stdout --------------------------------------------------------------------------------------------------

THREAD = {"type": "thread.started", "thread_id": "t"}
TURN = {"type": "turn.started"}


def printed(*records: Any) -> list[Event]:
    return parse(CodexStdout(), THREAD, TURN, *records)


def printed_item(step: str, **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{step}", "item": {"id": "item_0", **fields}}


def errors_of(events: list[Event]) -> list[tuple[str, bool, Any]]:
    found = [(e.data["update"], extra(e, "retried")) for e in events if e.type == "error"]
    return [(update["message"], update["fatal"], retried) for update, retried in found]


def test_a_failure_is_told_twice_and_counts_once() -> None:
    failed = {"type": "turn.failed", "error": {"message": "boom"}}
    assert errors_of(printed({"type": "error", "message": "boom"}, failed)) == [("boom", True, None)]
    assert errors_of(printed({"type": "error", "message": "other"}, failed)) == [
        ("other", False, None),
        ("boom", True, None),
    ]
    assert errors_of(printed({"type": "error", "message": "boom"})) == [("boom", True, None)]
    again = {"type": "error", "message": "Reconnecting... 1/2 (stream closed)"}
    assert errors_of(printed(again, failed)) == [
        ("Reconnecting... 1/2 (stream closed)", False, True),
        ("boom", True, None),
    ]


def test_an_error_item_is_a_warning_of_the_harness() -> None:
    events = printed(printed_item("completed", type="error", message="Model metadata not found."))
    assert [(found.type, extra(found, "injected")) for found in events] == [("user_message_chunk", "warning")]


def test_a_tool_that_is_only_printed_when_it_ended_is_call_and_result() -> None:
    changes = [{"path": "/a.txt", "kind": "add"}, {"path": "/b.txt", "kind": "delete"}]
    events = printed(printed_item("completed", type="file_change", changes=changes, status="failed"))
    assert [found.type for found in events] == ["tool_call", "tool_call_update"]
    update = events[0].data["update"]
    assert (update["kind"], update["title"], update["toolName"]) == ("edit", "Edit 2 files", "file_change")
    assert update["locations"] == [{"path": "/a.txt"}, {"path": "/b.txt"}]
    assert "content" not in update  # what the files hold is not printed
    assert events[1].data["update"]["status"] == "failed"


def test_a_web_search_is_one_call() -> None:
    events = printed(
        printed_item("started", type="web_search", query=""),
        printed_item("completed", type="web_search", query="duck", action={"type": "search", "query": "duck"}),
    )
    assert [found.type for found in events] == ["tool_call", "tool_call_update"]


def test_a_todo_list_is_a_plan_and_a_call_each_time_it_changes() -> None:
    open_, done = [{"text": "look", "completed": False}], [{"text": "look", "completed": True}]
    events = printed(
        printed_item("started", type="todo_list", items=open_),
        printed_item("updated", type="todo_list", items=done),
        printed_item("completed", type="todo_list", items=done),
    )
    assert [found.data["update"]["toolCallId"] for found in events if found.type == "tool_call"] == [
        "item_0",
        "item_0.2",
    ]
    entries = [found.data["update"]["entries"][0]["status"] for found in events if found.type == "plan"]
    assert entries == ["in_progress", "completed"]


def test_an_mcp_call_shows_its_server_and_its_result() -> None:
    result = {"content": [{"type": "text", "text": "found"}], "structured_content": None}
    events = printed(
        printed_item("started", type="mcp_tool_call", server="s", tool="t", arguments={"q": 1}, status="in_progress"),
        printed_item(
            "completed",
            type="mcp_tool_call",
            server="s",
            tool="t",
            arguments={"q": 1},
            result=result,
            status="completed",
        ),
    )
    update = events[0].data["update"]
    assert (update["toolName"], update["title"], update["rawInput"]) == ("mcp__s__t", "s: t", {"q": 1})
    assert text_of(events[1]) == "found"
    error = {"message": "no such tool"}
    broken = printed(
        printed_item("completed", type="mcp_tool_call", server="s", tool="t", error=error, status="failed")
    )
    assert (text_of(broken[1]), broken[1].data["update"]["status"]) == ("no such tool", "failed")


def test_a_command_that_was_killed_has_no_result() -> None:
    parser = CodexStdout()
    command = printed_item(
        "started", type="command_execution", command="sleep 99", status="in_progress", exit_code=None
    )
    events = parse(parser, THREAD, TURN, command)
    assert [found.type for found in events] == ["tool_call"]
    assert parser.report.incomplete


def test_totals_of_different_threads_in_one_log_are_added() -> None:
    def done(n: int) -> dict[str, Any]:
        return {"type": "turn.completed", "usage": {"input_tokens": n, "cached_input_tokens": 1, "output_tokens": 2}}

    other = {"type": "thread.started", "thread_id": "u"}
    events = parse(CodexStdout(), THREAD, TURN, done(10), THREAD, TURN, done(15), other, TURN, done(100))
    (usage,) = [found.data["update"]["usage"] for found in events if found.type == "usage"]
    assert usage == {"promptTokens": 115, "cachedTokens": 2, "completionTokens": 4}


def test_the_order_of_items_tells_the_model_calls_apart() -> None:
    command: dict[str, Any] = {"type": "command_execution", "command": "ls", "aggregated_output": "", "exit_code": 0}
    events = printed(
        printed_item("completed", type="reasoning", text="think"),
        printed_item("completed", type="agent_message", text="one"),
        {"type": "item.completed", "item": {"id": "item_1", **command}},
        {"type": "item.completed", "item": {"id": "item_2", **command}},
        printed_item("completed", type="agent_message", text="two"),
        printed_item("completed", type="reasoning", text="think more"),
        {"type": "item.completed", "item": {"id": "item_3", **command}},
    )
    assert list(calls_of(events).values()) == [["think", "one", "item_1", "item_2"], ["two"], ["think more", "item_3"]]
