"""Which rows of a session file are off the active branch, and which of those were withdrawn."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.claude_code import files
from traceflow_parsers.claude_code.files import HARNESS
from traceflow_parsers.claude_code.history import History, first_pass
from traceflow_parsers.claude_code.session import ClaudeSession
from traceflow_parsers.lines import file_lines
from traceflow_parsers.testing import check_events, run

FIXTURES = Path(__file__).parents[2] / "fixtures"
SESSION = "11111111-1111-4111-8111-111111111111"


def row(uuid: str, parent: str | None, content: Any, role: str = "user", **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": more.pop("id", f"msg_{uuid}"), "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
    return {
        "parentUuid": parent, "isSidechain": False, "type": role, "message": message, "uuid": uuid,
        "timestamp": "2026-03-04T05:06:07.000Z", "sessionId": SESSION, **more,
    }  # fmt: skip


def said(uuid: str, parent: str | None, text: str, **more: Any) -> dict[str, Any]:
    return row(uuid, parent, [{"type": "text", "text": text}], "assistant", **more)


def called(uuid: str, parent: str | None, call: str, **more: Any) -> dict[str, Any]:
    return row(uuid, parent, [{"type": "tool_use", "id": call, "name": "Bash", "input": {}}], "assistant", **more)


def returned(uuid: str, parent: str | None, call: str) -> dict[str, Any]:
    return row(uuid, parent, [{"type": "tool_result", "tool_use_id": call, "content": call}])


def system(uuid: str, parent: str | None, subtype: str = "stop_hook_summary", **more: Any) -> dict[str, Any]:
    return {"parentUuid": parent, "isSidechain": False, "type": "system", "subtype": subtype, "uuid": uuid, **more}


def encode(rows: list[dict[str, Any]], spaced: bool = False) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return b"".join(json.dumps(r, separators=separators).encode() + b"\n" for r in rows)


def history(rows: list[dict[str, Any]], spaced: bool = False) -> History:
    return first_pass(lambda: encode(rows, spaced).splitlines(keepends=True))


def parse(rows: list[dict[str, Any]]) -> tuple[list[Event], ClaudeSession]:
    parser = ClaudeSession(history(rows))
    events = run(parser, encode(rows))
    check_events(events)
    return events, parser


def abandoned(rows: list[dict[str, Any]]) -> list[str]:
    """Texts and calls of the events that are marked as withdrawn, usage left out."""
    events, _ = parse(rows)
    return [
        text_of(e) or e.data["update"].get("toolCallId", "")
        for e in events
        if e.type != "usage" and e.data.get("extra", {}).get("abandoned")
    ]


PARALLEL = [
    row("u1", None, "go"),
    called("a1", "u1", "A", id="m"),
    called("a2", "a1", "B", id="m"),
    called("a3", "a2", "C", id="m"),
    returned("r1", "a1", "A"),
    returned("r2", "a2", "B"),
    returned("r3", "a3", "C"),
    said("a4", "r1", "done"),
]


def test_a_rewind_withdraws_the_prompt_and_what_followed_it() -> None:
    rows = [
        row("u1", None, "one"), said("a1", "u1", "first"),
        row("u2", "a1", "two"), called("a2", "u2", "A"), returned("r2", "a2", "A"), said("a3", "r2", "second"),
        row("u2b", "a1", "other"), said("a4", "u2b", "third"),
    ]  # fmt: skip
    assert abandoned(rows) == ["two", "A", "A", "second"]


def test_a_rewind_to_the_first_prompt_begins_a_new_root() -> None:
    rows = [
        row("u1", None, "one"), said("a1", "u1", "first"),
        row("u1b", None, "one again"), said("a1b", "u1b", "second"),
    ]  # fmt: skip
    assert abandoned(rows) == ["one", "first"]
    events, _ = parse(rows)
    assert [text_of(e) for e in events if e.type == "prompt"] == ["one", "one again"]


def test_the_branch_of_a_withdrawn_branch_is_withdrawn() -> None:
    rows = [
        row("u1", None, "one"), said("a1", "u1", "first"),
        row("u2", "a1", "two"), said("a2", "u2", "second"),
        row("u3", "a2", "three"), said("a3", "u3", "third"),
        row("u3b", "a2", "three b"), said("a3b", "u3b", "third b"),
        row("u2b", "a1", "two b"), said("a2b", "u2b", "last"),
    ]  # fmt: skip
    assert abandoned(rows) == ["two", "second", "three", "third", "three b", "third b"]


def test_parallel_calls_branch_and_nothing_is_withdrawn() -> None:
    assert len(history(PARALLEL).branches) > 0
    assert abandoned(PARALLEL) == []


@pytest.mark.parametrize(
    "rows",
    [
        # A hook's row takes the place of the answer in the chain (2.1).
        [row("u1", None, "one"), said("a1", "u1", "answer"), system("s1", "u1"), row("u2", "s1", "two")],
        # The parent was never written.
        [row("u1", None, "one"), said("a1", "u1", "answer"), row("u2", "gone", "two"), said("a2", "u2", "b")],
        # A hook's row without a parent.
        [row("u1", None, "one"), said("a1", "u1", "x"), system("s", None), row("u2", "s", "two")],
        # Another program's file: no row has a parent.
        [row("u1", None, "one"), said("a1", None, "x"), row("u2", None, "two"), said("a2", None, "y")],
        # A child that was written before its parent.
        [row("u1", None, "one"), said("a2", "a1", "b"), said("a1", "u1", "a"), row("u2", "a2", "two")],
        # Two rows that are each other's parents.
        [row("u1", "u2", "one"), said("a1", "u1", "x"), row("u2", "a1", "two")],
        # A compaction, its boundary without a parent.
        [row("u1", None, "one"), said("a1", "u1", "x"), system("c", None, "compact_boundary", logicalParentUuid="a1"),
         row("s", "c", "summary", isCompactSummary=True), row("u2", "s", "two")],
        # A compaction whose logical parent is not in the file.
        [row("u1", None, "one"), said("a1", "u1", "x"), system("c", None, "compact_boundary", logicalParentUuid="?"),
         row("s", "c", "summary", isCompactSummary=True), row("u2", "s", "two")],
    ],
)  # fmt: skip
def test_what_looks_like_a_break_withdraws_nothing(rows: list[dict[str, Any]]) -> None:
    assert abandoned(rows) == []


def test_rows_appended_again_at_the_end_are_no_new_leaf() -> None:
    first = [row("u1", None, "one"), said("a1", "u1", "x"), row("u2", "a1", "two"), said("a2", "u2", "y")]
    rows = [*first, *first[:2]]
    assert abandoned(rows) == []
    _, parser = parse(rows)
    assert parser.report.lines.duplicate == 2


def test_a_uuid_inside_a_message_is_not_the_rows() -> None:
    tool = [{"type": "tool_use", "id": "A", "name": "X", "input": {"uuid": "u1", "parentUuid": "zz"}}]
    rows = [
        row("u1", None, "one"), row("a1", "u1", tool, "assistant"), returned("r1", "a1", "A"), said("a2", "r1", "x"),
    ]  # fmt: skip
    inside = {key: rows[1][key] for key in ("parentUuid", "isSidechain", "message", "type", "uuid", "sessionId")}
    rows[1] = inside
    for spaced in (False, True):
        assert history(rows, spaced) == History()
    _, parser = parse(rows)
    assert parser.report.warning_list() == []


def test_a_lost_parent_is_told_with_its_line() -> None:
    rows = [row("u1", None, "one"), said("a1", "u1", "x"), row("u2", "gone", "two"), said("a2", "u2", "y")]
    assert history(rows).broken == frozenset({3})
    events, parser = parse(rows)
    assert parser.report.warnings["broken_parent"].line == 3
    alone = ClaudeSession()  # a live tail has no first pass
    assert run(alone, encode(rows)) == events
    assert alone.report.warnings["broken_parent"].count == 1


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=150, deadline=None)
def test_rows_beside_the_active_branch_are_those_that_no_walk_from_the_last_message_meets(
    seed: int, spaced: bool
) -> None:
    chance = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for n in range(chance.randrange(1, 30)):
        parent = None if not rows else rows[-1] if chance.random() < 0.7 else chance.choice(rows)
        name = parent["uuid"] if parent else None
        make = chance.choice([lambda u, p: row(u, p, "words"), lambda u, p: said(u, p, "words"), system])
        rows.append(make(f"row-{n}", name))
    parents = {r["uuid"]: r["parentUuid"] for r in rows}
    messages = [r["uuid"] for r in rows if r["type"] != "system"]
    if not messages:
        return
    active = set()
    at = messages[-1]
    for follower in rows[[r["uuid"] for r in rows].index(at) + 1 :]:
        if follower["parentUuid"] != at:
            break
        at = follower["uuid"]  # a hook's rows behind the last message
    while at is not None:
        active.add(at)
        at = parents[at]
    beside = {n for n, r in enumerate(rows, 1) if r["uuid"] not in active}
    found = history(rows, spaced)
    assert {n for b in found.branches for n in range(b.first, b.last + 1)} == beside
    lines = {r["uuid"]: n for n, r in enumerate(rows, 1)}
    for branch in found.branches:
        assert branch.parent == lines.get(rows[branch.first - 1]["parentUuid"], 0)


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(max_examples=100, deadline=None)
def test_any_bytes_have_a_history(noise: bytes, cut: int) -> None:
    data = encode(PARALLEL)
    torn = data[:cut] + noise + data[cut:]
    first_pass(lambda: torn.splitlines(keepends=True))


def test_the_first_pass_changes_nothing_in_a_recording() -> None:
    for home in sorted((FIXTURES / "recordings").glob("claude-*/*/home")):
        (source,) = HARNESS.sessions_in(home)
        with_pass, without = source.parse(), ClaudeSession()
        events: list[Event] = []
        for item in source.inputs:
            without.begin(item.part)
            for line in item.lines():
                events += without.feed(line)
        events += without.finish()
        assert list(with_pass) == events
        assert with_pass.report.as_dict() == without.report.as_dict()


def test_a_small_session_is_read_once_and_any_session_as_often_as_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "projects" / "-work"
    place.mkdir(parents=True)
    path = place / f"{SESSION}.jsonl"
    path.write_bytes(encode(PARALLEL))
    read: list[Path] = []

    def counted(file: Path) -> Iterator[bytes]:
        read.append(file)
        return file_lines(file)

    monkeypatch.setattr(files, "file_lines", counted)
    source = HARNESS.session_at(path)
    first = list(source.parse())
    assert first
    assert read == [path]
    before, after = source.parse(), source.parse()  # both passes are done before either is read
    assert list(before) == list(after) == first
    monkeypatch.setattr(files, "_KEPT_BYTES", 0)
    read.clear()
    assert list(HARNESS.session_at(path).parse()) == first
    assert len(read) > 1
    path.with_name(f"{SESSION[:-1]}2.jsonl").write_bytes(encode(PARALLEL).replace(b"111111111111", b"111111111112"))
    monkeypatch.undo()
    assert len(HARNESS.sessions_in(tmp_path)) == 2
    for other in HARNESS.sessions_in(tmp_path):
        assert len(list(other.parse())) == len(first)
