"""The Python interface does what the command line does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from running import DEMO, FIXTURES

import traceflow


def test_a_store_is_made_filled_asked_and_exported(tmp_path: Path) -> None:
    store = traceflow.open(tmp_path / "store", create=True)
    report = store.import_job(DEMO)
    assert (report.trials, report.scored) == (7, 4)
    assert store.sql("SELECT count(*) FROM trials WHERE reward = 0.5").fetchall() == [(2,)]
    assert {hit.trial_name for hit in store.grep("no such file")} >= {"tour__rS2tU4v"}
    assert store.search("missing file", limit=1)[0].hit.trial_name in {"delegate__aB3dE5f", "tour__rS2tU4v"}
    assert sum(found.match_count for found in store.job_grep("demo", "missing.txt")) > 3
    first = store.export("demo", tmp_path / "one.tar.gz")
    second = store.export(store.job("demo"), tmp_path / "two.tar.gz")
    assert first.written.archive_sha256 == second.written.archive_sha256
    with pytest.raises(traceflow.TraceflowError) as caught:
        store.import_job(DEMO)
    assert caught.value.code == "job_already_uploaded"


def test_a_session_is_parsed_and_converted() -> None:
    path = FIXTURES / "recordings" / "codex-0.171.0" / "basic" / "home"
    parse = traceflow.parse(path)
    events = list(parse)
    assert parse.report.lines.read == 80
    assert traceflow.convert(path)["agent"]["name"] == "codex"
    assert [event["type"] for event in traceflow.convert(path, to="trace")] == [event.type for event in events]
    with pytest.raises(traceflow.TraceflowError, match="job only with out=FOLDER"):
        traceflow.convert(path, to="job")
    with pytest.raises(traceflow.TraceflowError, match="not 'csv'"):
        traceflow.convert(path, to="csv")


def test_sessions_become_records_traces_and_jobs(tmp_path: Path) -> None:
    path = FIXTURES / "recordings" / "codex-0.171.0" / "basic" / "home"
    (record,) = traceflow.convert(path, to="chat")
    assert record["messages"][-1]["role"] == "assistant"
    document = traceflow.convert(path, to="otlp-json")
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert spans[-1]["name"] == "invoke_agent codex"
    report = traceflow.convert(path, to="chat", out=tmp_path / "set.jsonl")
    assert report["outputs"] == [str(tmp_path / "set.jsonl")]
    assert json.loads((tmp_path / "set.jsonl").read_text()) == record
    report = traceflow.convert(path, to="job", out=tmp_path / "job", task="hello")
    assert (report["sessions"], (tmp_path / "job" / "result.json").is_file()) == (1, True)
