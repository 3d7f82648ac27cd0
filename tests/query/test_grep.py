"""Grep finds what matches, in order, exactly counted, and refuses patterns that it cannot take."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event

from traceflow.query import grep, grep_counts, job_grep, sql, trace_matcher
from traceflow.store import Store
from traceflow.store.testing import call, chunk, error, prompt, result, usage, write_job

CASES = Path(__file__).parents[2] / "fixtures" / "cases"


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    url = str(tmp_path / "store") if request.param == "local" else f"memory://{uuid.uuid4().hex}/store"
    return Store.open(url, create=True)


def places(hits: Any) -> list[tuple[str, str, int]]:
    return [(hit.job_id, hit.trial_id, hit.seq) for hit in hits]


def two_jobs(store: Store) -> None:
    needle = [prompt("Find it"), chunk("agent", "a Needle here"), call("c", "Bash", {"command": 'grep -r "needle" .'})]
    more = [result("c", "x\nneedle one\ny needle\n"), error("no needles left", True), usage(1, 1)]
    write_job(
        store,
        "b-job",
        [
            ({"trial_id": "t2", "trial_name": "two", "agent": "claude-code", "model": "m1"}, needle),
            ({"trial_id": "t1", "trial_name": "one", "agent": "codex", "model": "m2"}, more),
        ],
    )
    many = [chunk("agent", f"line {n}" + (" NEEDLE" if n % 1000 == 7 else "")) for n in range(3500)]
    write_job(store, "a-job", [({"trial_id": "t1", "agent": "codex", "model": "m1"}, many)])


# -- hits ----------------------------------------------------------------------------------------------------


def test_hits_come_in_the_order_of_jobs_trials_and_events(store: Store) -> None:
    two_jobs(store)
    expected = [("a-job", "t1", seq) for seq in (7, 1007, 2007, 3007)]
    expected += [("b-job", "t2", 1), ("b-job", "t2", 2), ("b-job", "t1", 0), ("b-job", "t1", 1)]
    assert places(grep(store, "needle")) == expected
    assert places(grep(store, "needle", limit=3)) == expected[:3]
    assert places(grep(store, "needle", limit=6)) == expected[:6]
    assert places(grep(store, "needle", tail=3)) == expected[-3:]
    assert places(grep(store, "needle", limit=0)) == places(grep(store, "needle", tail=0)) == []
    assert places(grep(store, "absent")) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"jobs": ["b-job"]}, ["t2:1", "t2:2", "t1:0", "t1:1"]),
        ({"jobs": ["b-job"], "trials": ["one"]}, ["t1:0", "t1:1"]),
        ({"trials": ["t2"]}, ["t2:1", "t2:2"]),
        ({"jobs": ["b-job"], "types": ["error", "tool_call"]}, ["t2:2", "t1:1"]),
        ({"jobs": ["b-job"], "types": []}, []),
        ({"agents": ["claude-code"]}, ["t2:1", "t2:2"]),
        ({"models": ["m2"]}, ["t1:0", "t1:1"]),
        ({"models": ["m2"], "agents": ["claude-code"]}, []),
        ({"jobs": ["b-job"], "case_sensitive": True}, ["t2:2", "t1:0", "t1:1"]),
        ({"jobs": []}, []),
    ],
)
def test_hits_can_be_narrowed_down(store: Store, arguments: dict[str, Any], expected: list[str]) -> None:
    two_jobs(store)
    assert [f"{hit.trial_id}:{hit.seq}" for hit in grep(store, "needle", **arguments)] == expected


def test_a_hit_tells_where_it_is(store: Store) -> None:
    two_jobs(store)
    found = {hit.type: hit for hit in grep(store, "needle", jobs=["b-job"])}
    hit = found["tool_call_update"]
    assert (hit.trial_name, hit.tool_name, hit.text) == ("one", None, "x\nneedle one\ny needle\n")
    assert hit.spans == ((2, 8), (15, 21))
    assert (hit.line_number, hit.line) == (2, "needle one")
    hit = found["tool_call"]
    assert (hit.tool_name, hit.line) == ("Bash", 'grep -r "needle" .')


def test_spans_are_in_characters_and_bounded(store: Store) -> None:
    write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", "é😀x" * 1000, timestamp="2026-03-04T05:06:07Z")])])
    (hit,) = grep(store, "x")
    assert len(hit.spans) == 100
    assert hit.spans[:2] == ((2, 3), (5, 6))
    assert hit.timestamp == 1_772_600_767_000_000


def test_counts_are_exact_and_name_the_trials_that_match(store: Store) -> None:
    two_jobs(store)
    assert [tuple(row) for row in grep_counts(store, "needle")] == [
        ("a-job", "t1", "t1", 4),
        ("b-job", "t2", "two", 2),
        ("b-job", "t1", "one", 2),
    ]
    assert grep_counts(store, "absent") == []
    assert [row.matches for row in grep_counts(store, "needle", jobs=["a-job"], types=["error"])] == []


def test_a_trial_or_job_that_is_not_there_is_an_error(store: Store) -> None:
    two_jobs(store)
    for arguments, code in (({"trials": ["t9"]}, "trial_not_found"), ({"jobs": ["c-job"]}, "job_not_found")):
        with pytest.raises(TraceflowError) as caught:
            grep(store, "needle", **arguments)
        assert caught.value.code == code


def test_nul_and_other_odd_characters_are_found(store: Store) -> None:
    texts = ["a\x00b", "tab\there", "snow ☃ man", "'quote' -- ; %", "back\\slash", "\u2028", "a\u0000\u0000b"]
    write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", text) for text in texts])])
    for position, text in enumerate(texts):
        assert position in [hit.seq for hit in grep(store, text, fixed=True)]
    assert [hit.seq for hit in grep(store, r"a\x00b")] == [0]


# -- patterns ------------------------------------------------------------------------------------------------


def test_case_81_patterns_are_linear_literal_where_asked_and_refused_by_name(store: Store) -> None:
    lines = (CASES / "81-regex-invalid-and-catastrophic" / "session.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    events = [chunk("user", record["message"]["content"]) for record in records]
    write_job(store, "j", [({"trial_id": "t"}, events)])

    def found(pattern: str, **how: Any) -> list[str]:
        return [records[hit.seq]["uuid"] for hit in grep(store, pattern, **how)]

    for pattern in ("(a+)+$", "(a|a)+$"):
        began = time.monotonic()
        assert found(pattern) == []
        assert time.monotonic() - began < 1
    for pattern, at in (("(", 0), ("[", 0), ("(?=a)a", 0), ("ab(?<!c)", 2), ("x{2000}", 1), ("a\\", 1)):
        with pytest.raises(TraceflowError, match=re.escape(repr(pattern))) as caught:
            grep(store, pattern)
        assert (caught.value.code, caught.value.details["position"]) == ("invalid_input", at)
    # SQL has the same syntax; some versions of DuckDB say so before they are asked for rows
    with pytest.raises((duckdb.Error, TraceflowError), match="invalid perl operator"):
        sql(store, "SELECT text FROM events WHERE regexp_matches(text, '(?=a)a')").fetchall()
    for text in ("error-401", "status:500", '"quoted"', "100%_done"):
        assert found(text, fixed=True) == found(text) == ["u2"]
    assert found("100._done") == ["u2"]
    assert found("100.done", fixed=True) == []
    assert found("STRASSE") == found("strasse") == ["u3"]
    with pytest.raises(TraceflowError, match="empty"):
        grep(store, "")


@pytest.mark.parametrize("pattern", ["a" * 513, "a)(b", "\ud800", "\\1", "a**"])
def test_other_patterns_that_are_refused(store: Store, pattern: str) -> None:
    for ask in (grep, grep_counts):
        with pytest.raises(TraceflowError) as caught:
            ask(store, pattern)
        assert caught.value.code == "invalid_input"
    with pytest.raises(TraceflowError):
        trace_matcher(pattern)


def test_a_bad_pattern_writes_nothing_to_stderr(capfd: pytest.CaptureFixture[str], store: Store) -> None:
    with pytest.raises(TraceflowError):
        grep(store, "(")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("^b", [0]),
        ("a$", [0]),
        ("a.b", []),
        ("(?s)a.b", [0]),
        ("^a$", [0]),
        (r"\bc\b", [1]),
        ("K", [2]),  # RE2 folds the Kelvin sign
        ("S", [2]),  # and the long s
        ("x*", [0, 1, 2]),
    ],
)
def test_anchors_are_of_lines_and_letters_fold_as_re2_folds(store: Store, pattern: str, expected: list[int]) -> None:
    events = [chunk("agent", text) for text in ("a\nb", "-c-", "\u212a \u017f")]
    write_job(store, "j", [({"trial_id": "t"}, events)])
    assert [hit.seq for hit in grep(store, pattern)] == expected


PIECES = st.sampled_from(["a", "b", "A", "ab", " ", "\n", ".", "é", "K", "\u212a", "0", "-", "$", "error"])
TEXTS = st.lists(st.lists(PIECES, max_size=8).map("".join), min_size=1, max_size=40)
PATTERNS = st.lists(
    st.sampled_from(["a", "b", "A+", ".", "^", "$", "[ab]", "(ab|é)", "k", r"\d", r"\s", "-", "b?", "error"]),
    min_size=1,
    max_size=4,
).map("".join)


@settings(max_examples=15, deadline=None)
@given(TEXTS, PATTERNS, st.booleans(), st.booleans())
def test_the_engine_and_re2_agree_on_what_matches(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], pattern: str, fixed: bool, case_sensitive: bool
) -> None:
    """DuckDB finds the rows and google-re2 the places in them: a hit without a place would be a disagreement."""
    store = Store.open(str(tmp_path_factory.mktemp("agree") / "s"), create=True)
    job = write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", text) for text in texts])])
    how: dict[str, Any] = {"fixed": fixed, "case_sensitive": case_sensitive}
    hits = list(grep(store, pattern, **how))
    assert all(hit.spans for hit in hits)
    matches = trace_matcher(pattern, **how)
    seqs = [seq for seq, text in enumerate(texts) if matches(text, text, None)]  # an empty type would match `^$`
    assert [hit.seq for hit in hits] == seqs
    assert sum(row.matches for row in grep_counts(store, pattern, **how)) == len(seqs)
    groups = job_grep(store, job, pattern, **how)
    wide = [seq for seq, text in enumerate(texts) if matches("agent_message_chunk", text, None)]
    assert [group.match_count for group in groups] == ([len(wide)] if wide else [])


# -- a job by trials -----------------------------------------------------------------------------------------


def test_a_job_is_grouped_by_trial_in_the_order_of_ids_with_exact_counts(store: Store) -> None:
    trials: list[tuple[dict[str, Any], list[Event]]] = [
        ({"trial_id": f"t{n:02d}", "trial_name": f"name-{n}", "task_name": "task"}, [chunk("agent", "hit")] * (n * 3))
        for n in (7, 3, 5, 0, 1)
    ]
    job = write_job(store, "j", trials)
    groups = job_grep(store, job, "hit")
    assert [(g.trial_id, g.match_count) for g in groups] == [("t01", 3), ("t03", 9), ("t05", 15), ("t07", 21)]
    assert [[line.seq for line in g.events] for g in groups] == [[0, 1, 2], *[[0, 1, 2, 3, 4]] * 3]
    assert (groups[0].trial_name, groups[0].task_name) == ("name-1", "task")
    first = job_grep(store, job, "hit", limit=2)
    assert [g.trial_id for g in first] == ["t01", "t03"]
    assert [g.trial_id for g in job_grep(store, job, "hit", limit=2, cursor="t03")] == ["t05", "t07"]
    assert job_grep(store, job, "hit", cursor="t07") == job_grep(store, job, "hit", limit=0) == []


def test_a_trace_pattern_matches_type_tool_and_text(store: Store) -> None:
    events = [
        prompt("plan a trip"),
        Event("plan", {"update": {"sessionUpdate": "plan", "entries": [{"content": "one", "status": "pending"}]}}),
        call("c", "Planner", {"x": "y"}),
        result("c", "done"),
        usage(1, 1),
    ]
    job = write_job(store, "j", [({"trial_id": "t"}, events)])
    (group,) = job_grep(store, job, "^plan")
    assert [line.seq for line in group.events] == [0, 1, 2]
    found = store.trace(store.trial("t"), matches=trace_matcher("^plan"))
    assert [line.data for line in found] == [event.data for event in events[:3]]
    assert [line.seq for line in store.trace(store.trial("t"), matches=trace_matcher("usage"))] == [4]
    assert job_grep(store, job, "plan", types=["prompt"])[0].match_count == 1


# -- while a job comes in ------------------------------------------------------------------------------------


def test_case_80_a_search_during_an_import_answers_from_what_was_committed(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    write_job(store, "first", [({"trial_id": "t"}, [chunk("agent", "needle")])])
    with store.writer("second") as writer:
        writer.add_events("t", [chunk("agent", "needle")] * 3000)
        program = "import sys; from traceflow.store import Store; from traceflow.query import grep, sql;"
        program += "s = Store.open(sys.argv[1]); print(len(list(grep(s, 'needle'))),"
        program += "sql(s, 'SELECT count(*) FROM events').fetchall())"
        done = subprocess.run([sys.executable, "-c", program, store.url], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("1 [(1,)]\n", "")
        again = store.writer("second")  # both may write; the first to commit wins
        again.commit()
        with pytest.raises(TraceflowError) as caught:
            writer.commit()
    assert caught.value.code == "job_already_uploaded"
    assert len(list(grep(store, "needle"))) == 1
