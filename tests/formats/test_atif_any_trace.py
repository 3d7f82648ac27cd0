"""Laws of the builder: any events give a valid document or none, however little of it is held in memory."""

from __future__ import annotations

import io
import json
from typing import Any

from any_trace import TRACES
from hypothesis import example, given, settings
from traceflow_formats.atif import AtifBuilder, events_of, read_trajectory, strict_problems, trajectory
from traceflow_formats.steps import Steps
from traceflow_formats.trace import Event, TraceLine, agent_of


def written(trace: list[Event | TraceLine], **options: Any) -> tuple[bytes, dict[str, bytes]]:
    images: dict[str, bytes] = {}
    builder = AtifBuilder(images=images.__setitem__, **options)
    for event in trace:
        builder.add(event)
    with builder.finish() as built:
        out = io.BytesIO()
        assert built.write(out) == len(out.getvalue())
        assert built.is_empty == (not out.getvalue())
        return out.getvalue(), images


LARGE = Event("usage", {"update": {"usage": {"promptTokens": 1, "extra": {"x": 2**64 + 1}}, "scope": "call"}})


@settings(max_examples=120, deadline=None)
@given(TRACES)
@example([LARGE])
def test_any_trace_builds_a_valid_document_or_none(trace: list[Event | TraceLine]) -> None:
    data, _ = written(trace)
    steps = Steps()
    count = sum(1 for place in map(steps.place, trace) if place is not None and place.opens)
    if not data:
        assert count == 0
        return
    document = json.loads(data)
    assert strict_problems(document) == []
    assert read_trajectory(data).trajectory == document
    assert count == sum(len(d["steps"]) for d in _all(document)), "the steps are those that Steps counts"


def _all(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [document, *(d for child in document.get("subagent_trajectories") or () for d in _all(child))]


@settings(max_examples=80, deadline=None)
@given(TRACES)
def test_what_is_held_in_memory_changes_nothing(trace: list[Event | TraceLine]) -> None:
    assert (
        written(trace) == written(trace, spool_limit=1, live_steps=1) == written(trace, spool_limit=100, live_steps=3)
    )


@settings(max_examples=80, deadline=None)
@given(TRACES)
def test_a_document_made_a_trace_and_built_again_is_the_same(trace: list[Event | TraceLine]) -> None:
    """Once through the trace the document does not change any more."""
    data, _ = written(trace)
    if not data:
        return
    first = trajectory(events_of(read_trajectory(data)))
    assert strict_problems(first) == []
    again = trajectory(events_of(first))
    assert again == first
    before = json.loads(data)
    assert len(first["steps"]) == len(before["steps"])
    assert len(_all(first)) == len(_all(before))


@settings(max_examples=60, deadline=None)
@given(TRACES)
def test_events_of_a_document_agree_with_its_steps(trace: list[Event | TraceLine]) -> None:
    """`Steps` finds in the events the very steps that the document has."""
    data, _ = written(trace)
    if not data:
        return
    document = json.loads(data)
    steps = Steps()
    opened: dict[str | None, int] = {}
    for event in events_of(document):
        place = steps.place(event)
        assert place is None or place.agent == agent_of(event.data)
        if place is not None and place.opens:
            opened[place.agent] = place.step
    assert opened[None] == len(document["steps"])
    assert sum(opened.values()) == sum(len(d["steps"]) for d in _all(document))
