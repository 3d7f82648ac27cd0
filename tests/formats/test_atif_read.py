"""Reading documents: lenient where Harbor is, exact about what is wrong, and counted anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from traceflow_formats.atif import Totals, read_trajectory
from traceflow_formats.errors import TraceflowError

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = FIXTURES / "cases"


def read(path: Path) -> Any:
    return read_trajectory(path.read_bytes(), path.name)


def codes(reading: Any) -> dict[str, int]:
    return {warned.code: warned.count for warned in reading.warnings}


@pytest.mark.parametrize("path", sorted((FIXTURES / "atif").glob("harbor-*.json")), ids=lambda p: p.stem)
def test_what_harbor_wrote_is_read_as_it_is(path: Path) -> None:
    reading = read(path)
    assert reading.trajectory == orjson.loads(path.read_bytes())
    assert reading.warnings == [], "its totals count the subagent in, which is one way to count"
    assert reading.totals == Totals(280, 25, 160, 0.0015)


def test_call_ids_twice_in_a_step() -> None:
    """Case 32: accepted, and said."""
    reading = read(CASES / "32-duplicate-ids-in-one-step" / "trajectory.json")
    assert codes(reading) == {"duplicate_call_id": 1}
    assert reading.warnings[0].where == "trajectory.steps.1"


def test_two_subagents_of_one_id_are_refused() -> None:
    """Case 65."""
    with pytest.raises(TraceflowError) as caught:
        read(CASES / "65-atif-session-id-not-unique" / "bad-subagents.json")
    assert caught.value.code == "invalid_trajectory"
    assert caught.value.details["problems"] == [
        {
            "where": "trajectory.subagent_trajectories.1.trajectory_id",
            "message": "'k' is that of subagent 0 as well",
        }
    ]
    for name in ("a", "b", "copy-of-a"):
        assert read(CASES / "65-atif-session-id-not-unique" / name / "trajectory.json").warnings == []


def test_copied_context_counts_nothing() -> None:
    """Case 66: the continuation's totals are those of the whole run; its own steps are what is counted."""
    folder = CASES / "66-atif-copied-context-totals"
    first, second = read(folder / "trajectory.json"), read(folder / "trajectory.cont-1.json")
    assert (first.totals, second.totals) == (Totals(100, 10, 40, None), Totals(150, 12, 100, None))
    assert codes(first) == {}
    assert codes(second) == {"totals_differ": 1}
    assert "250 and 150" in second.warnings[0].message


MINIMAL = {"agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": "x"}]}


@pytest.mark.parametrize(
    ("text", "line", "byte"),
    [
        (b'{"agent": [REDACTED]}', 1, 11),
        (b'{\n"agent": {"name": "\xc3\xa9"},\n"steps": [REDACTED]}', 3, 37),
        (b'{"name": "\xff", "steps": [REDACTED]}', 1, 24),
        (b'\xef\xbb\xbf{"a": }', 1, 9),
        (b"", 1, 0),
        (b'{"agent": {"name": "cut', 1, 19),
    ],
)
def test_text_that_is_no_json(text: bytes, line: int, byte: int) -> None:
    with pytest.raises(TraceflowError) as caught:
        read_trajectory(text, "trajectory.json")
    assert caught.value.code == "invalid_trajectory"
    assert caught.value.details == {"path": "trajectory.json", "line": line, "byte": byte}
    assert f"line {line}, byte {byte}" in caught.value.message


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"steps":' * 5000, b"null", b"7", b"\xff\xfe", b'"\\ud800"'])
def test_hostile_bytes_are_refused(text: bytes) -> None:
    with pytest.raises(TraceflowError) as caught:
        read_trajectory(text)
    assert caught.value.code == "invalid_trajectory"


def test_deep_values_in_open_places_are_read() -> None:
    deep = (
        b'{"agent":{"name":"a","version":"1"},"steps":[{"step_id":1,"source":"user","message":"x","extra":{"x":%s}}]}'
    )
    reading = read_trajectory(deep % (b"[" * 900 + b"]" * 900))
    assert reading.trajectory["steps"][0]["message"] == "x"


def test_text_that_is_no_unicode_is_mended_and_said() -> None:
    text = orjson.dumps(MINIMAL).replace(b'"x"', b'"\\ud83d cut \xff"')
    reading = read_trajectory(text)
    assert reading.trajectory["steps"][0]["message"] == "\ufffd cut \ufffd"
    assert codes(reading) == {"lone_surrogate": 1, "invalid_utf8": 1}


def test_lax_numbers_come_out_as_what_they_mean() -> None:
    given = {
        "agent": {"name": "a", "version": "1"},
        "steps": [
            {
                "step_id": "1",
                "source": "agent",
                "message": "m",
                "is_copied_context": "yes",
                "llm_call_count": 1.0,
                "metrics": {"prompt_tokens": "12", "completion_tokens": True, "cost_usd": "0.5"},
            }
        ],
        "final_metrics": {"total_steps": "1", "total_cost_usd": "0.5"},
    }
    before = orjson.dumps(given)
    step = read_trajectory(given).trajectory["steps"][0]
    assert step == {
        "step_id": 1,
        "source": "agent",
        "message": "m",
        "is_copied_context": True,
        "llm_call_count": 1,
        "metrics": {"prompt_tokens": 12, "completion_tokens": 1, "cost_usd": 0.5},
    }
    assert [type(step[k]) for k in ("step_id", "is_copied_context", "llm_call_count")] == [int, bool, int]
    assert read_trajectory(given).trajectory["final_metrics"] == {"total_steps": 1, "total_cost_usd": 0.5}
    assert orjson.dumps(given) == before, "the value given stays as it is"


def old(version: str, ref: Any) -> dict[str, Any]:
    step = {
        "step_id": 1,
        "source": "agent",
        "message": "",
        "observation": {"results": [{"subagent_trajectory_ref": ref}]},
    }
    return {"schema_version": version, "agent": {"name": "a", "version": "1"}, "steps": [step]}


@pytest.mark.parametrize("ref", [{"session_id": "s"}, [{"session_id": "s"}]])
def test_old_references_name_a_session(ref: Any) -> None:
    """Before v1.7 the session was what a reference named; Harbor itself no longer reads those."""
    reading = read_trajectory(old("ATIF-v1.5", ref))
    result = reading.trajectory["steps"][0]["observation"]["results"][0]
    assert result["subagent_trajectory_ref"] == [{"trajectory_id": "s", "session_id": "s"}]
    assert codes(reading) == {"old_subagent_ref": 1}
    with pytest.raises(TraceflowError):
        read_trajectory(old("ATIF-v1.7", ref))


def test_total_steps_may_differ_if_notes_say_why() -> None:
    stated = {**MINIMAL, "final_metrics": {"total_steps": 9}}
    assert codes(read_trajectory(stated)) == {"totals_differ": 1}
    assert codes(read_trajectory({**stated, "notes": "continued elsewhere"})) == {}
