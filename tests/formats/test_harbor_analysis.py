"""Analyses, task checks and artifact manifests, as `harbor analyze`, `harbor check` and the collector wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import read_analysis, read_check_report, read_check_result, read_manifest

REVIEWS = Path(__file__).parents[2] / "fixtures" / "harbor" / "reviews"


def test_the_analyses_of_a_job() -> None:
    reading = read_analysis((REVIEWS / "job-analysis.json").read_bytes())
    assert reading.warnings == ()
    assert [a.trial_name for a in reading.items] == ["hello__BLa5Boi", "hello__KAE5ErG"]
    first = reading.items[0]
    assert (first.summary, first.cost_usd, first.error) == ("The agent wrote the file.", 0.01, None)
    assert {name: check.outcome for name, check in first.checks.items()} == {
        "reward_hacking": "pass",
        "task_specification": "not_applicable",
    }
    assert first.checks["reward_hacking"].explanation == "because"


def test_the_analysis_of_a_trial_names_its_cost_otherwise() -> None:
    (found,) = read_analysis((REVIEWS / "trial-analysis.json").read_bytes()).items
    assert (found.trial_name, found.cost_usd) == ("hello__BLa5Boi", 0.01)


def test_task_checks() -> None:
    reading = read_check_report((REVIEWS / "check_report.json").read_bytes())
    assert [(item.task_name, len(item.checks)) for item in reading.items] == [("fails", 11), ("gated", 11)]
    flat = read_check_result((REVIEWS / "check-result.json").read_bytes())
    assert list(flat) == list(reading.items[0].checks)
    assert {check.outcome for check in flat.values()} == {"pass"}


def test_the_manifest_of_artifacts() -> None:
    reading = read_manifest((REVIEWS / "manifest.json").read_bytes())
    assert reading.warnings == ()
    assert [(a.destination, a.type, a.status, a.service) for a in reading.items] == [
        ("artifacts/logs/artifacts", "directory", "ok", None),
        ("artifacts/check-result.json", "file", "ok", None),
    ]
    assert read_manifest(b"[]").items == ()


@pytest.mark.parametrize("destination", ["/etc/passwd", "artifacts/../../x", "x", "artifacts\\..\\x"])
def test_a_destination_outside_is_said(destination: str) -> None:
    reading = read_manifest(json.dumps([{"source": "/x", "destination": destination}]).encode())
    assert reading.items[0].destination == destination
    assert [warning.code for warning in reading.warnings] == ["unsafe_path"]


@pytest.mark.parametrize(
    ("value", "count", "warned"),
    [
        ({"results": None}, 0, []),
        ({"results": {}}, 0, ["wrong_type"]),
        ({"results": [1, {"trial_name": 2, "checks": [], "cost_usd": "x"}]}, 1, ["wrong_type"] * 4),
        ({}, 1, []),
        ({"checks": {"a": "pass"}}, 1, ["wrong_type"]),
    ],
)
def test_odd_shapes_are_read_with_warnings(value: dict[str, Any], count: int, warned: list[str]) -> None:
    reading = read_analysis(json.dumps(value).encode())
    assert len(reading.items) == count
    assert [warning.code for warning in reading.warnings] == warned


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b"3"])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    for read in (read_analysis, read_check_report, read_check_result):
        with pytest.raises(TraceflowError) as caught:
            read(data)
        assert caught.value.code == "invalid_input"


def test_a_manifest_is_a_list() -> None:
    with pytest.raises(TraceflowError, match="is no list of artifacts"):
        read_manifest(b"{}")
