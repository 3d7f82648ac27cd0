"""A query reads the views of the store, says what is wrong in words, and can do nothing else."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import duckdb
import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.query import VIEWS, connect, explain_error, sql
from traceflow.store import Store
from traceflow.store.testing import chunk, write_job


@pytest.fixture
def store(tmp_path: Path) -> Store:
    found = Store.open(str(tmp_path / "store"), create=True)
    write_job(found, "one", [({"trial_id": "t1", "status": "SCORED", "reward": 1.0}, [chunk("agent", "hello")])])
    return found


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in root.rglob("*") if p.is_file()}


# -- what is allowed -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT trial_id FROM trials", [("t1",)]),
        ("FROM trials SELECT reward", [(1.0,)]),
        ("WITH a AS (SELECT count(*) AS n FROM events) SELECT n FROM a;", [(1,)]),
        ("VALUES (1), (2)", [(1,), (2,)]),
        ("-- a remark\nSELECT 1 /* ; COPY */", [(1,)]),
        ("PIVOT trials ON status IN ('SCORED') USING count(*) GROUP BY job_id", [("one", 1)]),
    ],
)
def test_questions_are_answered(store: Store, query: str, expected: list[object]) -> None:
    assert sql(store, query).fetchall() == expected


@pytest.mark.parametrize(
    "query",
    [
        "DESCRIBE trials",
        "SHOW TABLES",
        "SUMMARIZE trials",
        "EXPLAIN SELECT * FROM trials",
        "EXPLAIN ANALYZE SELECT * FROM trials",
        "explain /* why */ (FORMAT json) SELECT 1",
        "EXPLAIN (SELECT 1)",
    ],
)
def test_so_are_questions_about_the_views(store: Store, query: str) -> None:
    assert sql(store, query).fetchall()


def test_an_answer_can_be_had_as_arrow(store: Store) -> None:
    assert sql(store, "SELECT trial_id FROM trials").to_arrow_table().to_pydict() == {"trial_id": ["t1"]}


def test_show_tables_lists_the_views(store: Store) -> None:
    assert sql(store, "SHOW TABLES").fetchall() == [(name,) for name in sorted(VIEWS)]


# -- what is not ---------------------------------------------------------------------------------------------

WAYS_ROUND = [
    "COPY (SELECT 1) TO '{inside}/x.csv'",
    "COPY (SELECT 1) TO '{outside}/x.csv'",
    "COPY trials TO '{manifest}'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{inside}/x.csv'",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{inside}/x.csv'",
    "/* a */ explain -- b\n analyze /* c */ copy (select 1) to '{inside}/x.csv'",
    "EXPLAIN ANALYZE (ANALYZE) COPY (SELECT 1) TO '{inside}/x.csv'",
    "EXPLAIN EXPLAIN ANALYZE COPY (SELECT 1) TO '{inside}/x.csv'",
    "SELECT 1; COPY (SELECT 1) TO '{inside}/x.csv'",
    "COPY (PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b)) TO '{inside}/x.csv'",
    "EXPORT DATABASE '{inside}'",
    "IMPORT DATABASE '{inside}'",
    "ATTACH '{inside}/x.db' AS x",
    "ATTACH '{outside}/x.db' AS x",
    "CREATE TABLE x AS SELECT 1",
    "CREATE OR REPLACE VIEW trials AS SELECT 1",
    "CREATE SECRET (TYPE s3)",
    "INSERT INTO raw.jobs SELECT * FROM raw.jobs",
    "WITH a AS (SELECT 1) INSERT INTO raw.jobs SELECT * FROM raw.jobs",
    "DELETE FROM raw.jobs",
    "UPDATE raw.jobs SET name = 'x'",
    "DROP VIEW trials",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{outside}/x.duckdb_extension'",
    "SET memory_limit = '1TB'",
    "RESET enable_external_access",
    "PRAGMA enable_profiling",
    "CALL enable_logging()",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "BEGIN",
    "CHECKPOINT",
    "VACUUM",
    "USE raw",
    "COMMENT ON VIEW trials IS 'x'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('{secret}')",
    "SELECT * FROM read_text('{inside}/../../../secret.txt')",
    "SELECT * FROM '{secret}'",
    "SELECT * FROM glob('{outside}/*')",
    "SELECT * FROM read_parquet('https://example.com/x.parquet')",
    "SELECT * FROM read_parquet('s3://bucket/x.parquet')",
    "SELECT * FROM query('COPY (SELECT 1) TO ''{inside}/x.csv''')",
    "SELECT * FROM enable_logging(storage = 'file', storage_config = {{'path': '{inside}'}})",
    "SELECT * FROM sniff_csv('{secret}')",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM some_variable",
    "SELECT getenv('HOME')",
]


@pytest.mark.parametrize("query", WAYS_ROUND)
def test_no_way_leads_round_the_lock(store: Store, tmp_path: Path, query: str) -> None:
    some_variable = [1]  # DuckDB would find it by its name
    assert some_variable
    (tmp_path / "secret.txt").write_text("secret")
    inside = tmp_path / "store" / "jobs" / "one"
    places = {
        "inside": inside,
        "outside": tmp_path,
        "secret": tmp_path / "secret.txt",
        "manifest": inside / "manifest.json",
    }
    before = snapshot(tmp_path)
    with pytest.raises((TraceflowError, duckdb.Error)) as caught:
        sql(store, query.format(**places)).fetchall()
    told = explain_error(caught.value) if isinstance(caught.value, duckdb.Error) else caught.value
    assert told.code == "invalid_input"
    assert "\n" not in told.message
    assert snapshot(tmp_path) == before


def test_spilling_and_settings_do_not_touch_the_working_folder(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    connection = connect(store)
    settings = dict(
        connection.execute(
            "SELECT name, value FROM duckdb_settings() WHERE name IN ('temp_directory', 'threads', 'TimeZone')"
        ).fetchall()
    )
    connection.close()
    assert not settings["temp_directory"].startswith(".")
    assert int(settings["threads"]) == len(os.sched_getaffinity(0))
    assert settings["TimeZone"] == "UTC"
    assert list(working.iterdir()) == []


# -- what is said --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", ["the query is empty"]),
        ("-- nothing", ["the query is empty"]),
        ("SELECT 1; SELECT 2", ["one statement at a time"]),
        ("SELEC 1", ["syntax error", 'near "SELEC"']),
        ("SELECT * FROM trails", ["no view trails", "did you mean trials?", "tool_calls"]),
        ("SELECT trail_id FROM trials", ["trail_id", "did you mean trial_id"]),
        ("SELECT t.rewrad FROM trials t", ["did you mean", "reward"]),
        ("SELECT verifier_sec FROM trials", ["did you mean trials.verifier_s?"]),
        ("SELECT nosuchfunction(1)", ["nosuchfunction"]),
        ("PIVOT trials ON status USING count(*)", ["PIVOT", "IN (value"]),
        ("DROP VIEW trials", ["DROP is refused", "only reads"]),
    ],
)
def test_a_query_that_is_wrong_is_answered_in_words(store: Store, query: str, words: list[str]) -> None:
    with pytest.raises(TraceflowError) as caught:
        sql(store, query)
    assert caught.value.code == "invalid_input"
    for word in words:
        assert word in caught.value.message


def test_a_failure_while_rows_are_fetched_can_be_put_into_words(store: Store) -> None:
    relation = sql(store, "SELECT CAST(trial_id AS INTEGER) FROM trials")
    with pytest.raises(duckdb.Error) as caught:
        relation.fetchall()
    failure = explain_error(caught.value)
    assert failure.code == "invalid_input"
    assert "'t1'" in failure.message


# -- where stores lie ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["it's", "a b", "a[1]*?", "ä"])
def test_a_store_may_lie_in_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    store = Store.open(str(tmp_path / name / "store"), create=True)
    write_job(store, "one", [({"trial_id": "t1"}, [chunk("agent", "hello")])])
    assert sql(store, "SELECT text FROM events").fetchall() == [("hello",)]


def test_a_store_at_a_url_is_asked_in_the_same_way_and_locked_as_well() -> None:
    name = uuid.uuid4().hex
    store = Store.open(f"memory://{name}/store", create=True)
    other = Store.open(f"memory://{name}/other", create=True)
    for found in (store, other):
        write_job(found, "one", [({"trial_id": "t1"}, [chunk("agent", "hello")])])
    assert sql(store, "SELECT text FROM events").fetchall() == [("hello",)]
    path = "memory:///" + name + "/other/" + other.job("one").path("events.parquet")
    with pytest.raises(TraceflowError, match="nothing else"):
        sql(store, f"SELECT * FROM read_parquet('{path}')")
