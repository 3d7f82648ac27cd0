"""A row of events.parquet gives back its event, whatever the event is, and holds no text twice."""

from __future__ import annotations

import io
from itertools import chain
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import TYPES, Event

from traceflow.store import columns
from traceflow.store.decode import decode, decode_batch, input_of
from traceflow.store.encode import encode
from traceflow.store.encoder import EventEncoder
from traceflow.store.grep_index import COLUMNS
from traceflow.store.rows import EventRow, to_batch
from traceflow.store.schema import EVENTS, TABLES, arrow_schema

# -- any event ---------------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
ODD_TEXT = st.sampled_from(
    ["", "\x01", "\x1d0\x1d", "\x12", "`\x1e0\x1e`", "a\nb", "\u2028", "\x00", "ls -la", "😀", "null"]
)
STRING = TEXT | ODD_TEXT
NUMBER = st.integers() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
SCALAR = st.none() | st.booleans() | NUMBER | STRING
VALUE = st.recursive(SCALAR, lambda v: st.lists(v, max_size=4) | st.dictionaries(STRING, v, max_size=4), max_leaves=8)
TIME = st.sampled_from(
    [
        "2026-03-04T05:06:07Z",
        "2026-03-04T05:06:07.000Z",
        "2026-03-04T05:06:07.120Z",
        "2026-03-04T05:06:07.123456Z",
        "2026-03-04T05:06:07.120000Z",
        "2026-03-04T05:06:07.123456789Z",
        "2026-03-04T05:06:07+02:00",
        "2026-02-30T05:06:07Z",
        "2026-03-04T24:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999Z",
        "٢٠٢٦-03-04T05:06:07Z",
        "2026-03-04",
        "yesterday",
    ]
)
BLOCK = st.fixed_dictionaries({"type": st.just("text"), "text": STRING}) | VALUE
TOOL_CONTENT = (
    st.fixed_dictionaries({"type": st.just("content"), "content": BLOCK})
    | st.fixed_dictionaries({"type": st.just("diff"), "path": STRING, "oldText": STRING | st.none(), "newText": STRING})
    | BLOCK
)
UPDATE_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "content": BLOCK | st.lists(TOOL_CONTENT, max_size=3),
    "toolCallId": STRING | SCALAR,
    "toolName": STRING | SCALAR,
    "title": STRING | SCALAR | st.text("ab`", min_size=250, max_size=600),
    "kind": STRING | SCALAR,
    "status": STRING | SCALAR,
    "rawInput": VALUE,
    "rawOutput": VALUE,
    "locations": st.lists(st.fixed_dictionaries({"path": STRING}), max_size=2) | VALUE,
    "entries": st.lists(st.fixed_dictionaries({"content": STRING, "status": STRING}), max_size=2) | VALUE,
    "scope": st.sampled_from(["call", "run"]) | SCALAR,
    "source": st.just("gateway") | VALUE,
    "usage": st.dictionaries(
        st.sampled_from(["promptTokens", "completionTokens", "cachedTokens", "costUsd", "extra"]), SCALAR | VALUE
    )
    | VALUE,
    "message": STRING | VALUE,
    "fatal": st.booleans() | VALUE,
}
DATA_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "_prompt": st.fixed_dictionaries({"text": STRING}, optional={"role": STRING}) | VALUE,
    "sessionId": STRING | SCALAR,
    "timestamp": TIME | VALUE,
    "model": STRING | VALUE,
    "messageId": STRING | SCALAR,
    "parentToolCallId": STRING | SCALAR,
    "extra": st.dictionaries(
        st.sampled_from(["agentId", "exitCode", "durationMs", "injected", "compaction", "abandoned", "stepName", "x"]),
        SCALAR | VALUE,
    )
    | VALUE,
}


@st.composite
def events(draw: st.DrawFn) -> Event:
    kind = draw(st.sampled_from(TYPES) | st.just("harness_event") | TEXT)
    update = draw(st.fixed_dictionaries({"sessionUpdate": st.just(kind) | SCALAR}, optional=UPDATE_FIELDS))
    data = draw(st.fixed_dictionaries({}, optional=DATA_FIELDS))
    data["update"] = draw(st.just(update) | VALUE)
    names = draw(st.permutations(list(data)))
    return Event(kind, {name: data[name] for name in names})


def same(first: Any, second: Any) -> bool:
    """Equal as JSON: values, types and the order of keys."""
    return jsontext.dumps(first) == jsontext.dumps(second)


def row_of(event: Event, seq: int = 0) -> EventRow:
    return EventRow(*encode(event, seq))


def through_parquet(rows: list[list[Any]]) -> list[Any]:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_batches([to_batch(rows)]), out)
    return list(decode_batch(pq.read_table(io.BytesIO(out.getvalue()))))


@settings(max_examples=80, deadline=None)
@example([Event("prompt", {"_prompt": {"text": "0"}, "update": {"sessionUpdate": "prompt", "rawInput": "00"}})])
@given(st.lists(events(), min_size=1, max_size=4))
def test_any_event_comes_back_from_parquet_as_it_was(found: list[Event]) -> None:
    rows = [encode(event, seq) for seq, event in enumerate(found)]
    back = through_parquet(rows)
    assert [(line.seq, line.type) for line in back] == [(seq, event.type) for seq, event in enumerate(found)]
    for event, line in zip(found, back, strict=True):
        assert same(event.data, line.data)


@settings(max_examples=80, deadline=None)
@given(st.lists(events(), max_size=12))
def test_any_trace_is_encoded_with_its_steps_pairs_and_totals(found: list[Event]) -> None:
    encoder = EventEncoder("job", "trial")
    rows = to_batch(list(chain.from_iterable(encoder.rows(found)))).to_pylist()
    assert [row["seq"] for row in rows] == list(range(len(found)))
    assert {row["trial_id"] for row in rows} <= {"trial"}
    assert all(row["call_seq"] is None or row["call_seq"] <= row["seq"] for row in rows)
    assert encoder.totals().n_events == len(found)


@settings(max_examples=100, deadline=None)
@given(VALUE)
def test_the_input_of_a_call_comes_back_from_its_columns(value: Any) -> None:
    row = row_of(Event("tool_call", {"update": {"sessionUpdate": "tool_call", "rawInput": value}}))
    assert same(input_of(row.raw_input, row.text, row.text_parts), value)


# -- what a row looks like -----------------------------------------------------------------------------------


def chunk(kind: str, text: str, **beside: Any) -> Event:
    return Event(kind, {"update": {"sessionUpdate": kind, "content": {"type": "text", "text": text}}, **beside})


def test_words_and_facts_are_in_columns_and_rest_is_the_same_for_all_chunks() -> None:
    rows = [
        row_of(
            chunk(
                "agent_message_chunk",
                f"word {n}",
                sessionId="s",
                timestamp=f"2026-03-04T05:06:07.00{n + 1}Z",
                model="m",
                messageId=f"call-{n}",
                extra={"agentId": f"a{n}"},
            ),
            n,
        )
        for n in range(3)
    ]
    assert len({row.rest for row in rows}) == 1
    assert "word" not in rows[0].rest
    row = rows[1]
    assert (row.text, row.model, row.message_id, row.agent_id, row.session_id) == ("word 1", "m", "call-1", "a1", "s")
    assert row.timestamp == 1_772_600_767_002_000


def test_the_strings_of_a_calls_input_are_its_text_as_a_person_would_search_them() -> None:
    command = "echo \"hi\"\nls | grep 'x'"
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "toolName": "Bash",
        "title": f"`{command}`",
        "kind": "execute",
        "status": "pending",
        "rawInput": {"command": command, "timeout": 120, "description": "List"},
    }
    row = row_of(Event("tool_call", {"update": update}))
    assert row.text == command + "\nList"
    assert row.raw_input == '{"command":\x01,"timeout":120,"description":\x01}'
    assert (row.tool_call_id, row.tool_name, row.kind, row.status) == ("c1", "Bash", "execute", "pending")


def test_a_text_that_stands_twice_in_an_event_is_stored_once() -> None:
    body = "unique needle " * 50
    heredoc = f"cat > f <<'E'\n{body}\nE"
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c1",
        "toolName": "Write",
        "title": f"`{heredoc}`",
        "kind": "edit",
        "status": "pending",
        "rawInput": {"command": heredoc, "file_path": "/w/f.txt", "content": body},
        "content": [{"type": "diff", "path": "/w/f.txt", "oldText": None, "newText": body}],
        "locations": [{"path": "/w/f.txt"}],
    }
    row = row_of(Event("tool_call", {"update": update}))
    stored = orjson.dumps([row.text, row.raw_input, row.rest])
    assert stored.count(b"/w/f.txt") == 1
    assert stored.count(b"unique needle") == 100  # once in the command, once as the content
    assert row.title == f"`{heredoc}`"[:256]
    assert same(decode(row).data, {"update": update})


def test_a_result_is_its_text_and_its_facts() -> None:
    event = Event(
        "tool_call_update",
        {
            "update": {
                "sessionUpdate": "tool_call_update",
                "toolCallId": "c1",
                "status": "failed",
                "content": [
                    {"type": "content", "content": {"type": "text", "text": "out"}},
                    {"type": "content", "content": {"type": "text", "text": "err"}},
                    {"type": "content", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}},
                ],
            },
            "extra": {"exitCode": 3, "durationMs": 1500},
        },
    )
    row = row_of(event, 7)
    assert (row.text, row.text_parts, row.exit_code, row.duration_ms) == ("out\nerr", [4], 3, 1500.0)
    assert same(decode(row).data, event.data)


def test_usage_is_numbers() -> None:
    usage = {"promptTokens": 10, "completionTokens": 5, "cachedTokens": 3, "costUsd": 0.25, "extra": {"x": 1}}
    update = {"sessionUpdate": "usage", "scope": "call", "usage": usage, "source": "gateway"}
    row = row_of(Event("usage", {"update": update}))
    assert (row.prompt_tokens, row.completion_tokens, row.cached_tokens, row.cost_usd) == (10, 5, 3, 0.25)
    assert (row.scope, row.usage_source, row.text) == ("call", "gateway", "")


def test_the_strings_of_an_unknown_type_can_be_searched() -> None:
    event = Event("harness_event", {"update": {"sessionUpdate": "harness_event", "payload": {"a": ["deep words"]}}})
    row = row_of(event)
    assert row.text == "deep words"
    assert same(decode(row).data, event.data)


@settings(max_examples=80, deadline=None)
@given(events())
def test_the_second_event_of_a_kind_is_read_as_the_first(event: Event) -> None:
    row = row_of(event)  # the first is written out as JSON, later ones are filled into a shape
    first, second, third = decode(row), decode(row), decode(row)
    assert same(first.data, second.data)
    assert same(first.data, third.data)


def test_events_of_one_kind_share_nothing() -> None:
    row = row_of(chunk("agent_message_chunk", "hello", extra={"delta": True}))
    for _ in range(3):
        data = decode(row).data
        assert same(data, chunk("agent_message_chunk", "hello", extra={"delta": True}).data)
        data["extra"]["mine"] = data["update"]["content"]["mine"] = True


# -- what is no proper event ---------------------------------------------------------------------------------


def test_integers_keep_their_digits_and_surrogates_and_nan_are_mended() -> None:
    big = 2**70 + 1
    event = Event("tool_call", {"update": {"rawInput": {"n": big, "text": "a\ud800b"}, "x": [float("nan"), -big]}})
    back = through_parquet([encode(event, 0)])[0]
    assert back.data == {"update": {"rawInput": {"n": big, "text": "a\ufffdb"}, "x": [None, -big]}}
    ids = chunk("agent_message_chunk", "x", messageId="\udfff")
    assert through_parquet([encode(ids, 0)])[0].data["messageId"] == "\ufffd"


def test_surrogates_are_mended_in_one_text_as_in_several() -> None:
    one = chunk("agent_message_chunk", "a\ud800b \ud83d\ude00")
    blocks = [{"type": "text", "text": text} for text in ("\ud83d\ude00\udfff", "c\ud83d", "d")]
    several = Event("tool_call_update", {"update": {"sessionUpdate": "tool_call_update", "content": blocks}})
    first, second = through_parquet([encode(one, 0), encode(several, 1)])
    assert first.data == chunk("agent_message_chunk", "a\ufffdb \ufffd\ufffd").data
    assert [block["text"] for block in second.data["update"]["content"]] == ["\ufffd\ufffd\ufffd", "c\ufffd", "d"]


def nested(levels: int, place: str = "rawInput", kind: str = "tool_call") -> Event:
    """An event with lists in lists in one member of its update."""
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return Event(kind, {"update": {place: value}})


PLACES = [("rawInput", "tool_call"), ("content", "tool_call"), ("locations", "tool_call"), ("any", "any")]


@pytest.mark.parametrize(("place", "kind"), PLACES)
def test_deep_data_is_kept_and_bottomless_data_refused_by_name(place: str, kind: str) -> None:
    deep = nested(390, place, kind)
    assert decode(row_of(deep)).data == deep.data
    for levels in (420, 50_000):
        with pytest.raises(TraceflowError, match=rf"event 5 .{kind}. is nested too deeply") as caught:
            encode(nested(levels, place, kind), 5)
        assert caught.value.code == "invalid_input"


def test_a_row_that_encode_did_not_make_is_reported_as_corrupt() -> None:
    for row in (
        EventRow(type="prompt", rest="\x1d4\x1d", text="x"),
        EventRow(type="prompt", rest="{"),
        EventRow(type="prompt", rest='{"timestamp":\x02}'),
    ):
        with pytest.raises(TraceflowError) as caught:
            decode(row)
        assert caught.value.code == "store_corrupt"


def test_rows_have_the_columns_of_the_schema_and_every_column_says_what_it_is() -> None:
    names = [column.name for column in EVENTS]
    assert names == list(EventRow._fields)
    assert {name.lower(): at for name, at in vars(columns).items() if name.isupper()} == {
        n: i for i, n in enumerate(names)
    }
    assert to_batch([]).schema == arrow_schema("events")
    assert all(column.doc for columns in TABLES.values() for column in columns)
    assert {column.name for column in EVENTS if column.packed} >= set(COLUMNS)  # `pages` reads those, and only zstd
