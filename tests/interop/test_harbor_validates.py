"""Harbor's own validator accepts what we build and decides each rule as we do.

Runs where TRACEFLOW_HARBOR_PYTHON names a Python that has Harbor 0.26 (it needs Python 3.12 or newer, so it is
not among our own dependencies).
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from traceflow_formats.atif import events_of, read_trajectory, trajectory

FIXTURES = Path(__file__).parents[2] / "fixtures"
PYTHON = os.environ.get("TRACEFLOW_HARBOR_PYTHON")
pytestmark = pytest.mark.skipif(not PYTHON, reason="TRACEFLOW_HARBOR_PYTHON names no Python with Harbor 0.26")

VALIDATE = """
import json, sys
from harbor.utils.trajectory_validator import TrajectoryValidator
out = []
for document in json.load(sys.stdin):
    validator = TrajectoryValidator()
    out.append([bool(validator.validate(document, validate_images=False)), list(map(str, validator.get_errors()))])
json.dump(out, sys.stdout)
"""


def harbor_says(documents: list[Any]) -> list[tuple[bool, list[str]]]:
    """Whether Harbor accepts each document, and what it finds wrong."""
    assert PYTHON is not None
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "0"}
    done = subprocess.run(
        [PYTHON, "-c", VALIDATE],
        input=json.dumps(documents),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [(accepted, errors) for accepted, errors in json.loads(done.stdout)]


def test_harbor_decides_each_rule_as_we_do() -> None:
    rows = orjson.loads((FIXTURES / "atif" / "rules.json").read_bytes())
    told = harbor_says([row["document"] for row in rows])
    differing = [
        (row["name"], errors) for row, (accepted, errors) in zip(rows, told, strict=True) if accepted != row["accepted"]
    ]
    assert differing == []


def test_harbor_accepts_what_we_build() -> None:
    files = sorted((FIXTURES / "atif").glob("harbor-*.json"))
    documents = [trajectory(events_of(read_trajectory(path.read_bytes()))) for path in files]
    traces = runpy.run_path(str(Path(__file__).parents[1] / "formats" / "any_trace.py"))["TRACES"]

    @settings(max_examples=200, deadline=None, database=None)
    @given(traces)
    def gather(trace: list[Any]) -> None:
        if document := trajectory(trace):
            documents.append(document)

    gather()
    assert len(documents) > 100
    assert [errors for accepted, errors in harbor_says(documents) if not accepted] == []
