"""`trial convert`: a training set of the trials that one wants."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from running import DEMO, traceflow

import traceflow as library

sys.path.append(str(Path(__file__).parents[1] / "formats"))
from chat_api import check_record
from otlp_proto import checked_spans


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trials") / "store"
    assert traceflow("import", DEMO, store=folder).code == 0
    return folder


def records(file: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in file.read_text().splitlines()]
    for record in found:
        check_record(record)
    return found


def test_the_trials_that_a_condition_is_true_for(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    ran = traceflow("trial", "convert", "--where", "reward = 0.5 OR status = 'none'", "-o", file, "--json", store=store)
    assert ran.code == 0, ran.err
    assert (ran.json()["sessions"], ran.json()["outputs"]) == (2, [str(file)])
    assert {record["metadata"]["trial"]["reward"] for record in records(file)} == {0.5}
    assert [path.name for path in tmp_path.iterdir() if path.name != "images"] == ["set.jsonl"]


def test_a_record_says_which_trial_it_is_of_and_is_what_its_session_gives(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    assert traceflow("trial", "convert", "tour__rS2tU4v", "-o", file, store=store).code == 0
    (record,) = records(file)
    trial = record["metadata"]["trial"]
    assert (trial["name"], trial["task"], trial["status"], trial["reward"]) == (
        "tour__rS2tU4v",
        "demo/tour",
        "SCORED",
        0.5,
    )
    (session,) = library.convert(DEMO / "tour__rS2tU4v", to="chat")
    assert record["messages"] == session["messages"]


def test_all_trials_as_one_trace_document_and_in_python(store: Path, tmp_path: Path) -> None:
    ran = traceflow("trial", "convert", "--to", "otlp-json", "-o", tmp_path / "t.json", "--json", store=store)
    assert ran.code == 0, ran.err
    document = json.loads((tmp_path / "t.json").read_text())
    assert len(document["resourceSpans"]) == ran.json()["sessions"] > 2
    assert checked_spans(document)
    report = library.open(store).convert_trials(tmp_path / "p.json", to="otlp-json")
    assert (tmp_path / "p.json").read_bytes() == (tmp_path / "t.json").read_bytes()
    assert report["losses"] == ran.json()["losses"]


def test_what_fits_nothing_is_said(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.jsonl"
    assert traceflow("trial", "convert", "--where", "reward > 9", "-o", out, store=store).code == 1
    ran = traceflow("trial", "convert", "--where", "reward >", "-o", out, "--json", store=store)
    assert (ran.code, ran.json()["error"]["code"]) == (1, "invalid_input")
    ran = traceflow("trial", "convert", "nobody", "-o", out, "--json", store=store)
    assert (ran.code, ran.json()["error"]["code"]) == (1, "trial_not_found")
    assert traceflow("trial", "convert", "--at", "2026-01-01T00:00:00Z", "-o", out, store=store).code == 2
    assert not out.exists()
