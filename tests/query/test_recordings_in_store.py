"""Real traces of every harness: their events come back exactly, and their steps are those of their trajectory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats import jsontext
from traceflow_formats.atif import trajectory
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event
from traceflow_parsers.detect import open_path

from traceflow.query import sql
from traceflow.store import Store
from traceflow.store.testing import write_job

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"


def traces(folder: Path) -> Iterator[tuple[str, list[Event]]]:
    """Every trace in the files of a recording."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        try:
            sources = open_path(path)
        except TraceflowError:  # settings, truth, a subagent's file
            continue
        for number, source in enumerate(sources):
            yield f"{path.relative_to(RECORDINGS)}#{number}", list(source.parse())


def steps_of(document: dict[str, Any], agent: str | None = None) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = []
    for step in document.get("steps", []):
        metrics, message = step.get("metrics", {}), step["message"]
        out.append(
            (
                agent or "",
                step["step_id"],
                step["source"],
                message if isinstance(message, str) else None,
                step.get("reasoning_content"),
                len(step.get("tool_calls", [])),
                metrics.get("prompt_tokens"),
                metrics.get("completion_tokens"),
                metrics.get("cached_tokens"),
            )
        )
    for child in document.get("subagent_trajectories", []):
        out += steps_of(child, child["trajectory_id"])
    return sorted(out, key=lambda step: step[:2])


STEPS = """SELECT trial_id, coalesce(agent_id, ''), step_id, source, message, reasoning, n_tool_calls, prompt_tokens,
    completion_tokens, cached_tokens FROM steps ORDER BY 1, 2, 3"""


@pytest.mark.parametrize("harness", sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir()))
def test_recordings_come_back_and_have_the_steps_of_their_trajectories(tmp_path: Path, harness: str) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    found = dict(traces(RECORDINGS / harness))
    assert found, "no trace in the recordings"
    names = {f"t{number}": name for number, name in enumerate(found)}
    write_job(store, "job", [({"trial_id": trial, "trial_name": name}, found[name]) for trial, name in names.items()])
    steps: dict[str, list[tuple[Any, ...]]] = {trial: [] for trial in names}
    for trial_id, *step in sql(store, STEPS).fetchall():
        steps[trial_id].append(tuple(step))
    for trial in store.trials(store.job("job")):
        events = found[trial["trial_name"]]
        stored = [jsontext.dumps(line.data) for line in store.trace(trial)]
        assert stored == [jsontext.dumps(event.data) for event in events], trial["trial_name"]
        expected = steps_of(trajectory(events, images=lambda name, data: None))
        with_words = [  # of a message with pictures the view has the words alone
            step if want[3] is not None else (*step[:3], None, *step[4:])
            for step, want in zip(steps[trial["trial_id"]], expected, strict=True)
        ]
        assert with_words == expected, trial["trial_name"]
