"""The views show what the traces say, with the same columns whatever the jobs hold."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.trace import Event

from traceflow.query import VIEWS, connect, sql
from traceflow.query.views import table_source
from traceflow.store import Store, schema
from traceflow.store.encode import encode
from traceflow.store.rows import to_batch
from traceflow.store.testing import call, chunk, error, prompt, result, usage, write_job

CASES = Path(__file__).parents[2] / "fixtures" / "cases"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(str(tmp_path / "store"), create=True)


def rows(store: Store, query: str) -> list[tuple[Any, ...]]:
    return sql(store, query).fetchall()


def trial(store: Store, events: list[Event], **row: Any) -> None:
    write_job(store, f"job-{len(store.job_ids())}", [({"trial_id": "t", **row}, events)])


# -- columns -------------------------------------------------------------------------------------------------


def test_an_empty_store_has_every_view_with_the_types_of_a_full_one(store: Store) -> None:
    def described() -> dict[str, list[tuple[Any, ...]]]:
        return {view: rows(store, f"SELECT column_name, column_type FROM (DESCRIBE {view})") for view in VIEWS}

    empty = described()
    assert all(rows(store, f"SELECT count(*) FROM {view}") == [(0,)] for view in VIEWS)
    trial(store, [prompt("hi"), call("c", "Bash", {"command": "ls"}), result("c", "x"), usage(1, 1), error("e")])
    assert described() == empty
    assert all(columns for columns in empty.values())


def test_a_job_of_an_older_version_has_null_in_columns_that_came_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = write_job(store, "old", [({"trial_id": "t"}, [])])
    later = (*schema.TRIALS, schema.Column("mood", pa.string(), "how it felt", since=2))
    monkeypatch.setitem(schema.TABLES, "trials", later)
    new = write_job(store, "new", [({"trial_id": "t", "mood": "fine"}, [])]).changed(schema_version=2)
    connection = connect(store)
    for jobs in ((old, new), (new, old)):
        query = table_source("trials", jobs, store.url + "/")
        found = connection.execute(f"SELECT job_id, mood FROM ({query}) ORDER BY job_id").fetchall()
        assert found == [("new", "fine"), ("old", None)]
    connection.close()
    assert [row["mood"] for row in store.trials(old)] == [None]


# -- inputs and rest -----------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3),
    max_leaves=8,
)


@settings(max_examples=8, deadline=None)
@given(st.lists(VALUE, min_size=1, max_size=60))
def test_the_input_of_any_call_is_its_json(tmp_path_factory: pytest.TempPathFactory, inputs: list[Any]) -> None:
    store = Store.open(str(tmp_path_factory.mktemp("inputs") / "s"), create=True)
    trial(store, [call(f"c{n}", "Tool", value) for n, value in enumerate(inputs)])
    found = [value and json.loads(value) for (value,) in rows(store, "SELECT input FROM tool_calls ORDER BY seq")]
    assert found == inputs


def test_what_has_no_column_can_be_asked_for_in_rest(store: Store) -> None:
    odd = Event("usage", {"update": {"sessionUpdate": "usage", "scope": "run", "usage": {"extra": {"turns": 3}}}})
    trial(store, [odd, Event("harness_event", {"update": {"payload": {"deep": [1, "words"]}}})])
    assert rows(store, "SELECT rest ->> '$.update.usage.extra.turns' FROM events WHERE scope = 'run'") == [("3",)]
    assert rows(store, "SELECT text, rest ->> '$.update.payload.deep[0]' FROM events WHERE type = 'harness_event'") == [
        ("words", "1")
    ]


def test_case_76_a_key_that_comes_late_is_not_lost(store: Store) -> None:
    lines = [{"a": 1, "usage": {"x": 1}}] * 20_480 + [{"a": 1.5, "b": "late", "usage": {"x": 1, "y": 7}}]
    trial(store, [call(f"c{n}", "Tool", line) for n, line in enumerate(lines)])
    query = (
        "SELECT count(*), sum((input ->> 'a')::DOUBLE), max(input ->> 'b'), max(input ->> '$.usage.y') FROM tool_calls"
    )
    assert rows(store, query) == [(20_481, 20_481.5, "late", "7")]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_case_78_jobs_of_different_shapes_are_read_together(store: Store, order: tuple[int, int]) -> None:
    folder = CASES / "78-parquet-schema-drift-and-empty-types"
    for position, number in enumerate(order):
        line = json.loads((folder / f"job{number}-args.jsonl").read_text())
        events = [
            call(line["call"], "Tool", line["arguments"]),
            result(line["call"], "", extra={"exitCode": line["exit"], "meta": line["meta"]}),
        ]
        row = {"trial_id": f"t{number}", "rewards": dict(enumerate_rewards(line["rewards"]))}
        write_job(store, f"{position}-job{number}", [(row, events)])
    assert rows(store, "SELECT tool_call_id, input FROM tool_calls ORDER BY tool_call_id") == [
        ("c1", "{}"),
        ("c2", '{"path":"/w","n":1}'),
    ]
    query = """SELECT trial_id, exit_code, rest ->> '$.extra.exitCode', rest ->> '$.extra.meta.c' FROM events
        WHERE type = 'tool_call_update' ORDER BY trial_id"""
    assert rows(store, query) == [("t1", 0, None, None), ("t2", None, "killed", "2")]
    assert rows(store, "SELECT trial_id, value FROM rewards") == [("t2", 0.5)]


def enumerate_rewards(values: list[float]) -> list[tuple[str, float]]:
    return [(f"r{n}", value) for n, value in enumerate(values)]


def test_rewards_keep_their_exact_names_and_no_number_is_made_up(store: Store) -> None:
    rewards = {"reward": 7, "Reward": 0.1, "a.b": -0.5, "bad": "x", "": True}
    trial(store, [], rewards=rewards, reward=7, reward_valid=True)
    assert rows(store, "SELECT name, value, text, valid FROM rewards ORDER BY name") == [
        ("", 1.0, None, True),
        ("Reward", 0.1, None, True),
        ("a.b", -0.5, None, True),
        ("bad", None, "x", True),
        ("reward", 7.0, None, True),
    ]


# -- steps and calls -----------------------------------------------------------------------------------------

SESSION = [
    prompt("You are an agent.", timestamp="2026-03-04T05:06:00Z"),
    prompt("Fix it", timestamp="2026-03-04T05:06:01Z"),
    chunk("user", "cwd=/w", extra={"injected": "environment_context"}),
    chunk("thought", "Hmm. ", messageId="m1", model="big"),
    chunk("agent", "I will ", messageId="m1", model="big", timestamp="2026-03-04T05:06:02Z"),
    chunk("agent", "look.", messageId="m1", model="big", extra={"delta": True}),
    chunk("agent", "Now.", messageId="m1", model="big"),
    call("c1", "Bash", {"command": "ls"}, messageId="m1"),
    call("c2", "Read", {"path": "/w/a"}, "read", messageId="m1"),
    usage(100, 10, 50, messageId="m1", model="big"),
    result("c2", "a file", extra={"durationMs": 5}),
    result("c1", "boom", "failed", timestamp="2026-03-04T05:06:03Z", extra={"exitCode": 2}),
    chunk("agent", "Sub speaks.", messageId="s1", model="small", parentToolCallId="c1", extra={"agentId": "sub"}),
    usage(7, 3, 0, messageId="s1", model="small", parentToolCallId="c1", extra={"agentId": "sub"}),
    error("provider is down", extra={"retried": True}),
    chunk("agent", "Done.", messageId="m2", model="big"),
    usage(120, 20, 100, messageId="m2", model="big"),
    error("gone", True),
]
SESSION[0].data["_prompt"]["role"] = "system"


def test_steps_are_those_of_the_trajectory(store: Store) -> None:
    trial(store, SESSION)
    query = """SELECT agent_id, step_id, source, message, reasoning, error, model, n_tool_calls, n_failed,
        prompt_tokens, completion_tokens, cached_tokens FROM steps ORDER BY agent_id NULLS FIRST, step_id"""
    assert rows(store, query) == [
        (None, 1, "system", "You are an agent.", None, None, None, 0, 0, None, None, None),
        (None, 2, "user", "Fix it", None, None, None, 0, 0, None, None, None),
        (None, 3, "system", "cwd=/w", None, None, None, 0, 0, None, None, None),
        (None, 4, "agent", "I will look.\n\nNow.", "Hmm. ", None, "big", 2, 1, 100, 10, 50),
        (None, 5, "agent", "Done.", None, None, "big", 0, 0, 120, 20, 100),
        (None, 6, "agent", "", None, "gone", None, 0, 0, None, None, None),
        ("sub", 1, "agent", "Sub speaks.", None, None, "small", 0, 0, 7, 3, 0),
    ]
    query = "SELECT started_at::VARCHAR, ended_at::VARCHAR, first_seq, last_seq FROM steps WHERE step_id = 4"
    assert rows(store, query) == [("2026-03-04 05:06:02", "2026-03-04 05:06:03", 3, 11)]


def test_a_call_stands_beside_its_result(store: Store) -> None:
    trial(store, SESSION)
    query = """SELECT name, kind, input ->> 'command', output, status, exit_code, duration_ms, step_id, model
        FROM tool_calls ORDER BY seq"""
    assert rows(store, query) == [
        ("Bash", "execute", "ls", "boom", "failed", 2, None, 4, None),
        ("Read", "read", None, "a file", "completed", None, 5.0, 4, None),
    ]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        # an id that comes again in a later step
        ("c1 r1:a | c1 r1:b", ["a", "b"]),
        # the first call was never answered
        ("c1 | c1 r1:b", [None, "b"]),
        # twice in one step, answered in order
        ("c1 c1 r1:a r1:b", ["a", "b"]),
        # news of a call that runs is not its result
        ("c1 p1:half r1:whole", ["whole"]),
        # a call without a result, and a result without a call
        ("c1 r2:x", [None]),
        # the same id in another agent
        ("c1 C1 R1:sub r1:main", ["main", "sub"]),
        # a result that comes before its call
        ("r1:a c1 | c1 r1:b", ["a", "b"]),
        # a second result for a call that is over
        ("c1 r1:a r1:b", ["b"]),
    ],
)
def test_results_find_their_calls(store: Store, events: str, expected: list[str | None]) -> None:
    found: list[Event] = []
    step = 0
    for word in events.split():
        if word == "|":
            step += 1
            continue
        kind, number, text = word[0], word[1], word[3:]
        beside: dict[str, Any] = {"messageId": f"m{step}"} if kind in "cC" else {}
        if kind.isupper():
            beside["extra"] = {"agentId": "sub"}
        if kind in "cC":
            found.append(call(f"c{number}", "Tool", {}, **beside))
        else:
            found.append(result(f"c{number}", text, "in_progress" if kind == "p" else "completed", **beside))
    trial(store, found)
    query = "SELECT output FROM tool_calls ORDER BY agent_id NULLS FIRST, seq"
    assert [output for (output,) in rows(store, query)] == expected


# -- usage ---------------------------------------------------------------------------------------------------


def test_usage_is_one_row_per_model_call_and_the_last_word_counts(store: Store) -> None:
    events = [
        usage(10, 1, messageId="m1", model="big"),
        usage(10, 5, messageId="m1", model="big"),
        usage(20, 5, messageId="m2"),
        usage(1, 1),
        usage(2, 2),
        usage(9, 9, messageId="old", extra={"copied": True}),
        usage(8, 8, messageId="gone", extra={"abandoned": True}),
        usage(7, 7, messageId="sum", extra={"compaction": True}),
        usage(7, 3, messageId="m1", extra={"agentId": "sub"}),
        usage(99, 99, scope="run"),
    ]
    trial(store, events, model="big")
    query = """SELECT agent_id, message_id, model, prompt_tokens, completion_tokens, source, copied, abandoned,
        compaction FROM usage ORDER BY seq"""
    assert rows(store, query) == [
        (None, "m1", "big", 10, 5, "harness", False, False, False),
        (None, "m2", "big", 20, 5, "harness", False, False, False),
        (None, None, "big", 1, 1, "harness", False, False, False),
        (None, None, "big", 2, 2, "harness", False, False, False),
        (None, "old", "big", 9, 9, "harness", True, False, False),
        (None, "gone", "big", 8, 8, "harness", False, True, False),
        (None, "sum", "big", 7, 7, "harness", False, False, True),
        ("sub", "m1", "big", 7, 3, "harness", False, False, False),
    ]


def test_gateway_lines_are_the_usage_of_their_trial_and_of_no_other(store: Store) -> None:
    gateway = [
        usage(11, 2, source="gateway", cost=0.5, model="g"),
        usage(12, 3, source="gateway", cost=0.25, model="g"),
    ]
    write_job(
        store,
        "job",
        [({"trial_id": "t1"}, [usage(10, 1, messageId="m1"), *gateway]), ({"trial_id": "t2"}, [usage(5, 1)])],
    )
    query = "SELECT trial_id, prompt_tokens, cost_usd, source FROM usage ORDER BY trial_id, seq"
    assert rows(store, query) == [("t1", 11, 0.5, "gateway"), ("t1", 12, 0.25, "gateway"), ("t2", 5, None, "harness")]
    query = "SELECT prompt_tokens, completion_tokens, cost_usd FROM trials ORDER BY trial_id"
    assert rows(store, query) == [(23, 5, 0.75), (5, 1, None)]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([usage(10, 5, 2, messageId="m1"), usage(20, 5, 3, messageId="m2")], (30, 10, 5, None)),
        ([usage(10, 5, messageId="m1"), usage(10, 5, messageId="m1", extra={"agentId": "s"})], (20, 10, 0, None)),
        ([usage(10, 5, messageId="m1"), usage(99, 99, 9, scope="run", cost=1.5)], (10, 5, 0, 1.5)),
        ([usage(99, 98, 97, scope="run")], (99, 98, 97, None)),
        ([usage(10, 5, messageId="m1", cost=0.5), usage(10, 5, messageId="m2")], (20, 10, 0, None)),
        ([usage(10, 5, messageId="m1", cost=0.5), usage(10, 5, messageId="m2", cost=0.25)], (20, 10, 0, 0.75)),
        ([usage(10, 5, messageId="m1", extra={"copied": True})], (None, None, None, None)),
        ([chunk("agent", "x")], (None, None, None, None)),
    ],
)
def test_totals_of_a_trial_are_right_or_absent(store: Store, events: list[Event], expected: tuple[Any, ...]) -> None:
    trial(store, events)
    assert rows(store, "SELECT prompt_tokens, completion_tokens, cached_tokens, cost_usd FROM trials") == [expected]


def test_a_count_that_calls_lack_comes_from_the_run_that_states_it(store: Store) -> None:
    placeholder = usage(10, 0, messageId="m1")
    del placeholder.data["update"]["usage"]["completionTokens"]
    run = usage(10, 40, scope="run")
    trial(store, [placeholder, run])
    whole = usage(10, 40, scope="run")
    whole.data["update"]["usage"]["extra"] = {"includingSubagents": {"promptTokens": 25, "completionTokens": 60}}
    trial(store, [placeholder, whole])
    assert rows(store, "SELECT prompt_tokens, completion_tokens FROM trials ORDER BY job_id") == [(10, 40), (25, 60)]


# -- errors and times ----------------------------------------------------------------------------------------


def test_errors_are_those_of_the_trace_and_of_the_record(store: Store) -> None:
    trial(store, SESSION, exception_type="AgentTimeoutError", exception_message="after 600 s", model="big")
    assert rows(store, "SELECT source, seq, name, message, fatal, retried FROM errors ORDER BY seq NULLS LAST") == [
        ("trace", 14, None, "provider is down", False, True),
        ("trace", 17, None, "gone", True, False),
        ("trial", None, "AgentTimeoutError", "after 600 s", True, False),
    ]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_times_are_utc_on_every_machine(store: Store, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    monkeypatch.setenv("TZ", zone)
    trial(store, SESSION, started_at="2026-03-04T05:06:07.5Z", finished_at="2026-03-04T05:16:07.5Z")
    assert rows(store, "SELECT min(timestamp)::VARCHAR FROM events") == [("2026-03-04 05:06:00",)]
    assert rows(store, "SELECT started_at::VARCHAR, duration_s FROM trials") == [("2026-03-04 05:06:07.5", 600.0)]


def test_jobs_are_told_by_their_manifests(store: Store) -> None:
    record = {
        "original_job_id": "o",
        "original_job_name": "nightly",
        "imported_at": "2026-03-04T05:06:07Z",
        "reported_totals": {"cost_usd": 1.5, "n_input_tokens": 10, "n_trials_reporting": 2},
        "anything": {"else": [1]},
    }
    trials = [({"trial_id": f"t{n}", "status": status}, []) for n, status in enumerate(("SCORED", "BUDGET", "SCORED"))]
    trials.append(({"trial_id": "t9", "skipped_code": "trial_incomplete", "skipped_message": "no result"}, []))
    write_job(store, "job", trials, {"a": b"x"}, record)
    query = """SELECT name, original_job_id, imported_at::VARCHAR, n_trials, n_scored, n_skipped, n_files,
        reported_cost_usd, reported_prompt_tokens, reported_cached_tokens, record ->> '$.anything.else[0]' FROM jobs"""
    assert rows(store, query) == [("nightly", "o", "2026-03-04 05:06:07", 4, 2, 1, 1, 1.5, 10, None, "1")]
    assert rows(store, "SELECT status, skipped_code FROM trials WHERE trial_id = 't9'") == [
        ("SKIPPED", "trial_incomplete")
    ]


def test_a_table_written_by_the_store_is_read_by_any_parquet_engine(store: Store, tmp_path: Path) -> None:
    trial(store, SESSION)
    (path,) = (tmp_path / "store").rglob("events.parquet")
    table = pq.read_table(path)
    assert table.num_rows == len(SESSION)
    assert table.column("text").to_pylist()[1] == "Fix it"
    assert to_batch([encode(SESSION[0], 0)]).schema.equals(table.schema)


# -- pass@k --------------------------------------------------------------------------------------------------


def chance(n: int, c: int, k: int) -> float:
    """That k of n attempts, c of which pass, hold one that passes: by counting."""
    picks = list(itertools.combinations([True] * c + [False] * (n - c), k))
    return sum(any(pick) for pick in picks) / len(picks)


def pass_at_k_query() -> str:
    text = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
    return text.split("## pass@k")[1].split("```sql\n")[1].split("```")[0]


def scored(task: str, model: str, number: int, rewards: dict[str, float]) -> dict[str, Any]:
    return {
        "trial_id": f"{model}-{task}-{number}",
        "agent": "scripted",
        "model": model,
        "task_name": task,
        "status": "SCORED",
        "reward": rewards["reward"],
        "rewards": rewards,
        "reward_valid": True,
    }


@pytest.mark.parametrize("passed", [(0, 0), (1, 3), (2, 4), (5, 5), (0, 6)])
def test_pass_at_k_of_the_docs_is_the_chance_that_one_of_k_passes(store: Store, passed: tuple[int, int]) -> None:
    trials = [scored(f"task{t}", "m", n, {"reward": float(n < c)}) for t, c in enumerate(passed) for n in range(6)]
    write_job(store, "job", [(row, []) for row in trials])
    found = {row[-2]: row[-1] for row in rows(store, pass_at_k_query())}
    expected = {k: sum(chance(6, c, k) for c in passed) / len(passed) for k in (2, 4, 5)}
    assert found.keys() == expected.keys()
    assert all(math.isclose(found[k], expected[k], abs_tol=1e-4) for k in expected)


def test_pass_at_k_of_the_docs_is_what_harbor_writes(store: Store) -> None:
    """Rewards of the job `traj` that Harbor 0.26 wrote; its result.json says {"2": 0.5} for both models."""
    trials = [
        scored(task, model, n, {"reward": reward})
        for model in ("demo-model", "demo-image-model")
        for task, reward in (("hello", 1.0), ("multi", 0.0))
        for n in range(2)
    ]
    write_job(store, "job", [(row, []) for row in trials])
    assert [row[-2:] for row in rows(store, pass_at_k_query())] == [(2, 0.5), (2, 0.5)]


@pytest.mark.parametrize("rewards", [{"reward": 0.5}, {"reward": 1.0, "style": 0.0}])
def test_pass_at_k_is_not_answered_for_several_rewards_or_others_than_0_and_1(
    store: Store, rewards: dict[str, float]
) -> None:
    write_job(store, "job", [(scored("task", "m", n, rewards), []) for n in range(4)])
    assert rows(store, pass_at_k_query()) == []
