"""The synthetic runs that the parsers are measured with: each is read as what it is, with nothing left out."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest
from traceflow_parsers.detect import open_path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from synthetic.files import SHAPES, write_run
from synthetic.run import Run

INPUTS = [(harness, kind) for harness, kinds in SHAPES.items() for kind in kinds]
TURNS = 20


@pytest.mark.parametrize("short", [False, True], ids=["real", "short"])
@pytest.mark.parametrize(("harness", "kind"), INPUTS, ids=[" ".join(names) for names in INPUTS])
def test_every_call_of_the_run_is_read_with_what_it_returned(
    harness: str, kind: str, short: bool, tmp_path: Path
) -> None:
    path = write_run(harness, kind, tmp_path, 120_000 if short else 400_000, short)
    (source,) = open_path(path)
    assert (source.harness, source.kind) == (harness, kind)
    parse = source.parse()
    events = list(parse)
    lines = parse.report.lines
    assert (lines.read, lines.unknown, lines.malformed) == (lines.parsed + lines.duplicate, 0, 0)
    assert parse.report.warnings == {}
    made = [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call"]
    ended = [e.data["update"]["toolCallId"] for e in events if e.type == "tool_call_update"]
    said = [e.data["update"]["content"]["text"] for e in events if e.type == "agent_message_chunk"]
    assert made == ended
    assert len(set(made)) == len(made)

    run = Run(1, short)
    list(SHAPES[harness][kind].head(run))
    turns = []
    for turn in islice(run.turns(), TURNS):
        turns.append(turn)
        list(SHAPES[harness][kind].turn(run, turn))
    assert len(made) >= sum(len(turn.calls) for turn in turns)
    wanted = "".join(turn.text for turn in turns)
    assert "".join(said).startswith(wanted)
