"""Traces and trajectories that others wrote, with one wrong value each, at every place: read, or refused by a code."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats import jsontext
from traceflow_formats.atif import strict_problems, trajectory
from traceflow_formats.errors import TraceflowError
from traceflow_parsers.detect import open_file

from traceflow.store.encoder import EventEncoder

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
_DEPTH = 7


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


WRONG: list[Any] = [None, True, 7, 1e300, "x\ud83d", [], [["a"]], {}, {"type": "text"}, 2**70, deep(300), deep(700)]


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a value lies in a document; the first three items stand for a list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        if len(at) < _DEPTH:
            yield from places(item, (*at, key))


def with_value(document: Any, at: tuple[str | int, ...], value: Any) -> Any:
    document = copy.deepcopy(document)
    here = document
    for key in at[:-1]:
        here = here[key]
    here[at[-1]] = value
    return document


def recorded(name: str) -> list[dict[str, Any]]:
    """The lines of a trace that the stdout of a harness gives."""
    events = open_file(RECORDINGS / name / "subagent" / "stdout.jsonl").parse()
    return [{"seq": n, "type": event.type, "data": event.data} for n, event in enumerate(events)]


def check(path: Path) -> None:
    try:
        events = list(open_file(path).parse())
    except TraceflowError:
        return
    document = trajectory(events)
    assert document == {} or not list(strict_problems(document))
    for event in events:
        jsontext.dumps(event.data)
    encoder = EventEncoder("j", "t")
    refused: list[TraceflowError] = []
    rows = [row for some in encoder.rows(events, refused.append) for row in some]
    assert len(rows) + len(refused) == len(events)
    encoder.totals()


@pytest.mark.parametrize("name", ["claude-2.1.197", "codex-0.171.0", "opencode-1.18.33"])
def test_a_trace_with_a_wrong_value_is_read_or_refused(name: str, tmp_path: Path) -> None:
    lines, seen, path = recorded(name), set(), tmp_path / "trace-parsed.jsonl"
    for number, line in enumerate(lines):
        for at in places(line):
            kind = (line["type"], *("#" if isinstance(key, int) else key for key in at))
            if kind in seen:
                continue
            seen.add(kind)
            for value in WRONG:
                wrong = [*lines[:number], with_value(line, at, value), *lines[number + 1 :]]
                path.write_text("\n".join(map(json.dumps, wrong)))
                try:
                    check(path)
                except Exception as error:
                    raise AssertionError(f"{value!r} at {at} of line {number}: {error!r}") from error
    assert len(seen) > 30


def test_a_trajectory_with_a_wrong_value_is_read_or_refused(tmp_path: Path) -> None:
    lines = recorded("claude-2.1.197")
    path = tmp_path / "trace-parsed.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    document, seen = trajectory(open_file(path).parse()), set()
    path = tmp_path / "trajectory.json"
    for at in list(places(document)):
        kind = tuple("#" if isinstance(key, int) else key for key in at)
        if kind in seen:
            continue
        seen.add(kind)
        for value in WRONG:
            path.write_text(json.dumps(with_value(document, at, value)))
            try:
                check(path)
            except Exception as error:
                raise AssertionError(f"{value!r} at {at}: {error!r}") from error
    assert len(seen) > 30
