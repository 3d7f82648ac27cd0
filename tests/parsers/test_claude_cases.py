"""Faults of Claude Code files that broke other tools: each case with its right values (see its expected.md)."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.claude_code.files import HARNESS, is_session, is_stdout
from traceflow_parsers.claude_code.session import ClaudeSession
from traceflow_parsers.contract import Part
from traceflow_parsers.lines import iter_lines
from traceflow_parsers.report import Report
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import check_events

CASES = Path(__file__).parents[2] / "fixtures" / "cases"


def case(path: str) -> tuple[list[Event], Report]:
    file = CASES / path
    records = head_records(file)
    source = HARNESS.stdout_source(file) if is_stdout(records) else HARNESS.session_at(file)
    parse = source.parse()
    events = list(parse)
    check_events(events)
    return events, parse.report


def extra(event: Event) -> dict[str, Any]:
    return event.data.get("extra", {})


def counted(events: list[Event]) -> list[tuple[int | None, int | None]]:
    """Prompt and completion tokens of the model calls that count: copies do not."""
    updates = [e.data["update"] for e in events if e.type == "usage" and not extra(e).get("copied")]
    return [
        (u["usage"].get("promptTokens"), u["usage"].get("completionTokens")) for u in updates if u["scope"] == "call"
    ]


def total(events: list[Event]) -> tuple[int, int]:
    return sum(p or 0 for p, _ in counted(events)), sum(c or 0 for _, c in counted(events))


def words(events: list[Event]) -> list[tuple[str, str]]:
    kinds = {"prompt": "user", "user_message_chunk": "user", "agent_message_chunk": "agent"}
    return [(kinds[e.type], text_of(e)) for e in events if e.type in kinds]


def codes(report: Report) -> dict[str, int]:
    return {w["code"]: w["count"] for w in report.warning_list()}


def test_01_usage_on_every_block_counts_once() -> None:
    events, _ = case("01-claude-usage-per-content-block/session.jsonl")
    assert counted(events) == [(1110, 40), (1105, 7)]
    first = next(e for e in events if e.type == "usage")
    assert first.data["update"]["usage"]["cachedTokens"] == 1000
    assert first.data["update"]["usage"]["extra"]["cache_creation_input_tokens"] == 100
    assert {e.data["messageId"] for e in events if "messageId" in e.data} == {"msg_A", "msg_B"}


def test_02_the_last_snapshot_of_a_streamed_usage_counts() -> None:
    events, report = case("02-claude-streaming-usage-snapshots/session.jsonl")
    assert counted(events) == [(24425, 418)]
    assert codes(report) == {"missing_result": 2}


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("a-no-request-id", [(100, 9)]),
        ("b1-constant-id", [(100, 10), (200, 20)]),
        ("b2-constant-id", [(300, 30)]),
    ],
)
def test_03_calls_without_request_ids_or_with_one_id_for_all(name: str, want: list[tuple[int, int]]) -> None:
    events, _ = case(f"03-claude-missing-or-constant-ids/{name}.jsonl")
    assert counted(events) == want
    assert len({e.data["messageId"] for e in events if e.type == "usage"}) == len(want)
    assert not any(extra(e).get("copied") for e in events)


def test_04_a_sidechain_inline_and_in_its_file_counts_once() -> None:
    events, report = case("04-claude-sidechains-inline-and-files/11111111-1111-4111-8111-111111111111.jsonl")
    mine = [e for e in events if "agentId" not in extra(e)]
    theirs = [e for e in events if extra(e).get("agentId") == "abc1234"]
    assert total(mine) == (110, 11)
    assert total(theirs) == (20, 2)
    assert words(theirs) == [("user", "find it"), ("agent", "found")]
    assert {e.data["parentToolCallId"] for e in theirs} == {"toolu_T"}
    assert (report.lines.read, report.lines.parsed, report.lines.duplicate) == (8, 6, 2)
    assert codes(report) == {}


def test_06_a_missing_parent_is_a_warning_and_no_break() -> None:
    events, report = case("06-claude-parent-uuid-missing/session.jsonl")
    said = [(who, text) for who, text in words(events) if text != "ok"]
    assert [text for _, text in said] == ["one", "r1", "two", "r2", "three", "r3"]
    assert total(events) == (6, 6)
    assert codes(report) == {"broken_parent": 1}
    assert report.warnings["broken_parent"].line == 3
    assert not any(extra(e).get("abandoned") for e in events)
    assert [extra(e)["injected"] for e in events if text_of(e) == "ok"] == ["hook_success"]


def test_07_a_rewound_branch_is_kept_and_marked() -> None:
    events, _ = case("07-claude-forked-branches-rewind/session.jsonl")
    gone = [e for e in events if extra(e).get("abandoned")]
    kept = [e for e in events if not extra(e).get("abandoned")]
    assert words(kept) == [
        ("user", "make it red"), ("agent", "red done"), ("user", "and bigger"), ("agent", "bigger done"),
    ]  # fmt: skip
    assert words(gone) == [("user", "make it blue"), ("agent", "blue done")]
    assert total(kept) == (30, 3)
    assert total(events) == (42, 4)


def test_09_a_compaction_summary_is_no_prompt() -> None:
    events, _ = case("09-claude-compaction-summary-as-user/session.jsonl")
    people = [text_of(e) for e in events if e.type in ("prompt", "user_message_chunk") and "compaction" not in extra(e)]
    assert people == ["first task", "second task"]
    (summary,) = [e for e in events if "compaction" in extra(e)]
    assert extra(summary)["compaction"] == {"trigger": "auto", "preTokens": 110, "postTokens": 15}
    assert text_of(summary) == "Summary: the first task was done."
    assert total(events) == (130, 13)


def test_09_a_boundary_alone_on_stdout_is_a_compaction() -> None:
    events, _ = case("09-claude-compaction-summary-as-user/live-stream.jsonl")
    (event,) = events
    assert extra(event)["compaction"] == {"trigger": "manual", "preTokens": 335000, "postTokens": 10000}


def test_10_rows_that_are_appended_again_are_dropped() -> None:
    events, report = case("10-claude-compact-reappends-history/session.jsonl")
    assert [text for _, text in words(events)] == ["hi", "r1", "again", "r2"]
    assert total(events) == (30, 3)
    assert codes(report) == {"replayed_row": 2}
    assert report.lines.duplicate == 2


def test_11_a_resumed_copy_marks_what_it_copied() -> None:
    sources = HARNESS.sessions_in(CASES / "11-claude-resumed-session-copies-prefix")
    first, second = (list(source.parse()) for source in sources)
    assert not any(extra(e).get("copied") for e in first)
    assert words([e for e in second if extra(e).get("copied")]) == [("user", "hi"), ("agent", "r1")]
    assert words([e for e in second if not extra(e).get("copied")]) == [("user", "more"), ("agent", "r2")]
    assert counted(first) + counted(second) == [(10, 1), (25, 2)]
    assert [source.session_id for source in sources] == [source.path.stem for source in sources]


def test_13_a_synthetic_api_error_is_an_error() -> None:
    events, _ = case("13-claude-synthetic-api-error/session.jsonl")
    (error,) = [e for e in events if e.type == "error"]
    assert error.data["update"]["message"] == "API Error: 429 rate limit reached"
    assert error.data["update"]["fatal"] is True
    assert extra(error) == {"isApiErrorMessage": True, "error": "rate_limit"}
    assert counted(events) == [(10, 1)]
    assert {e.data["model"] for e in events if "model" in e.data} == {"claude-sonnet-4-5"}
    assert [text for who, text in words(events) if who == "agent"] == ["r1"]


def test_14_the_last_result_of_a_run_counts_everything() -> None:
    events, report = case("14-claude-stream-json-cumulative-result/stdout.jsonl")
    (run,) = [e.data["update"]["usage"] for e in events if e.data.get("update", {}).get("scope") == "run"]
    assert (run["promptTokens"], run["completionTokens"], run["costUsd"]) == (300, 30, 0.03)
    assert counted(events) == [(100, None), (200, None)]
    assert not report.incomplete


def test_14_a_killed_run_has_no_cost_and_is_incomplete() -> None:
    events, report = case("14-claude-stream-json-cumulative-result/killed-no-result.jsonl")
    assert counted(events) == [(50, None)]
    assert not any(e.data["update"].get("scope") == "run" for e in events)
    assert report.incomplete
    assert codes(report) == {"no_result": 1}


def test_15_noise_on_stdout_is_counted_and_passed_over() -> None:
    events, report = case("15-stdout-noise-lines/stdout.txt")
    assert words(events) == [("agent", "hi")]
    (run,) = [e.data["update"]["usage"] for e in events if e.data.get("update", {}).get("scope") == "run"]
    assert (run["promptTokens"], run["completionTokens"], run["costUsd"]) == (7, 2, 0.5)
    assert codes(report) == {"non_event_line": 6}
    assert not report.incomplete


@pytest.mark.parametrize(
    ("name", "texts", "warned", "incomplete"),
    [
        ("torn-tail", ["line 1", "line 2"], {"truncated_tail": 1}, True),
        ("torn-tail-blank", ["line 1", "line 2"], {"truncated_tail": 1}, True),
        ("torn-middle", ["line 1", "line 3", "line 4"], {"malformed_line": 1, "broken_parent": 1}, False),
        ("no-final-newline", ["line 1", "line 2"], {}, False),
    ],
)
def test_16_torn_lines(name: str, texts: list[str], warned: dict[str, int], incomplete: bool) -> None:
    events, report = case(f"16-truncated-tail-and-middle/{name}.jsonl")
    assert [text for _, text in words(events)] == texts
    assert codes(report) == warned
    assert report.incomplete is incomplete


def test_19_nul_stays_in_the_text() -> None:
    events, _ = case("19-escaped-nul-in-text/session.jsonl")
    (result,) = [text_of(e) for e in events if e.type == "tool_call_update"]
    assert result == "W\0s\0l\0 ok"


def test_20_lone_surrogates_become_replacement_characters() -> None:
    events, report = case("20-lone-surrogate/session.jsonl")
    assert words(events)[0] == ("user", "cut \ufffd end, ok \U0001f600")
    (call,) = [e.data["update"]["rawInput"] for e in events if e.type == "tool_call"]
    assert call == {"k\ufffd": "\ufffd"}
    assert codes(report)["lone_surrogate"] == 3


def test_21_bytes_that_are_no_utf8() -> None:
    events, report = case("21-invalid-utf8/session.jsonl")
    assert [text for _, text in words(events)] == ["line 1", "caf\ufffd \ufffd end", "box ─ “q” 日本"]
    assert codes(report) == {"invalid_utf8": 2}


@pytest.mark.parametrize("name", ["bom", "bom-inside", "crlf", "utf16le"])
def test_22_byte_order_marks_and_line_ends(name: str) -> None:
    events, report = case(f"22-bom-crlf-utf16/{name}.jsonl")
    assert words(events) == [("user", "line 1"), ("user", "line 2")]
    assert codes(report) == ({"bom_mid_file": 1} if name == "bom-inside" else {})
    assert not any(extra(e).get("copied") for e in events)


def huge_session(megabytes: int) -> tuple[bytes, str]:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(megabytes << 19)).decode()
    image = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]
    rows = [
        {"type": "user", "uuid": f"u{n}", "parentUuid": None if n == 1 else f"u{n - 1}", "sessionId": "s",
         "message": {"role": "user", "content": content}}
        for n, content in enumerate(["before", image, "after"], 1)
    ]  # fmt: skip
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows), data


@pytest.mark.parametrize(("bound", "images"), [(1 << 30, 1), (4 << 20, 0)])
def test_24_a_huge_line_is_read_or_skipped_and_its_neighbours_stay(bound: int, images: int) -> None:
    data, image = huge_session(20)
    parser = ClaudeSession()
    parser.begin(Part("session.jsonl"))
    events = [e for line in iter_lines(io.BytesIO(data), bound) for e in parser.feed(line)] + parser.finish()
    blocks = [e.data["update"]["content"] for e in events if e.type == "user_message_chunk"]
    assert [b["data"] == image for b in blocks if b["type"] == "image"] == [True] * images
    assert [text_of(e) for e in events if text_of(e)] == ["before", "after"]
    assert ("line_too_long" in codes(parser.report)) is (images == 0)
    assert parser.report.lines.read == 3


def test_26_images_in_results_and_what_the_model_cannot_see() -> None:
    events, _ = case("26-tool-result-list-with-image/session.jsonl")
    first, second, third = (
        [item["content"] for item in e.data["update"]["content"]] for e in events if e.type == "tool_call_update"
    )
    assert first[0] == {"type": "text", "text": "a picture"}
    assert first[1]["mimeType"] == "image/png"
    assert len(base64.b64decode(first[1]["data"])) == 70
    assert second == [{"type": "text", "text": "[application/pdf]"}, {"type": "text", "text": "[image/svg+xml]"}]
    assert third == []


def test_27_content_as_text_list_null_or_object() -> None:
    events, report = case("27-content-string-versus-list/session.jsonl")
    assert words(events) == [
        ("user", "plain"), ("user", "listed"), ("user", "bare string in list"), ("user", ""), ("user", "dict"),
        ("agent", "assistant as string"),
    ]  # fmt: skip
    assert codes(report) == {"empty_message": 1}


def test_29_a_call_without_a_result() -> None:
    events, report = case("29-call-without-result/session.jsonl")
    assert [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call"] == ["toolu_1", "toolu_2"]
    assert [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call_update"] == ["toolu_1"]
    assert codes(report) == {"missing_result": 1}
    assert report.incomplete


def test_31_call_ids_that_come_again() -> None:
    events, report = case("31-tool-ids-repeat-across-turns/session.jsonl")
    order = [
        e.data["update"]["rawInput"]["path"] if e.type == "tool_call" else text_of(e)
        for e in events
        if e.type in ("tool_call", "tool_call_update")
    ]
    assert order == [".", "here", "/", "root"]
    assert codes(report) == {"duplicate_call_id": 1}


@pytest.mark.parametrize("name", ["zero", "blank", "claude-only-summary"])
def test_33_sessions_without_a_word_give_no_event(name: str) -> None:
    events, report = case(f"33-empty-and-header-only-sessions/{name}.jsonl")
    assert events == []
    assert report.lines.unknown == 0


def test_33_which_of_them_are_claimed() -> None:
    folder = CASES / "33-empty-and-header-only-sessions"
    claimed = [path.stem for path in sorted(folder.glob("*.json*")) if is_session(head_records(path))]
    assert claimed == ["claude-only-summary", "user-only"]


def test_33_a_prompt_alone_is_a_session() -> None:
    events, _ = case("33-empty-and-header-only-sessions/user-only.jsonl")
    assert words(events) == [("user", "hello")]


def test_34_times_in_every_unit() -> None:
    events, report = case("34-timestamps-missing-units-garbage/session.jsonl")
    day = "2026-03-04T05:06:07"
    assert [e.data.get("timestamp") for e in events] == [
        f"{day}.891Z", None, None, None, f"{day}Z", f"{day}.891Z", f"{day}.500Z", f"{day}Z", f"{day}Z", f"{day}Z",
        None, None,
    ]  # fmt: skip
    assert [text for _, text in words(events)] == [f"m{n}" for n in range(1, 13)]
    assert codes(report) == {"bad_time": 3, "naive_time": 2}


def test_36_a_model_switch() -> None:
    events, _ = case("36-model-switch-mid-session/claude.jsonl")
    by_model = {e.data["model"]: e.data["update"]["usage"] for e in events if e.type == "usage"}
    assert {model: (u["promptTokens"], u["completionTokens"]) for model, u in by_model.items()} == {
        "claude-sonnet-4-5": (10, 1),
        "claude-opus-4-5": (20, 2),
    }
