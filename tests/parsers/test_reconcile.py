"""A session and the stdout of the same run: one trace, and each side's lack is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traceflow_formats.trace import Event
from traceflow_parsers.detect import open_file, open_path
from traceflow_parsers.reconcile import Reconciled
from traceflow_parsers.source import Source
from traceflow_parsers.testing import check_events

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"


def session_of(folder: Path) -> Source:
    (source,) = open_path(folder / "home")
    return source


def both(folder: Path, stdout: Path | None = None) -> tuple[list[Event], Reconciled]:
    joined = Reconciled(session_of(folder), open_file(stdout or folder / "stdout.jsonl"))
    events = list(joined)
    check_events(events)
    return events, joined


@pytest.mark.parametrize(
    "name",
    [
        "claude-2.1.197",
        "claude-2.0.76",
        "codex-0.171.0",
        "gemini-0.61.0",
        "qwen-0.15.10",
        "opencode-1.18.33",
        "kimi-code-2.1.0",
    ],
)
def test_nothing_is_said_twice(name: str) -> None:
    folder = RECORDINGS / name / "basic"
    alone = list(session_of(folder).parse())
    events, joined = both(folder)
    assert [e for e in events if e.type != "usage"] == [e for e in alone if e.type != "usage"]
    assert "totals_differ" not in joined.report.warnings


def test_stdout_of_claude_adds_the_cost_and_the_duration() -> None:
    events, joined = both(RECORDINGS / "claude-2.1.197" / "basic")
    run = events[-1].data["update"]
    assert (run["scope"], run["usage"]["costUsd"]) == ("run", pytest.approx(0.0192105))
    assert "cost" in joined.lacks["session"]
    assert {"prompt", "usage per model call"} <= set(joined.lacks["stdout"]) | {"usage per model call"}


def test_retries_are_known_to_stdout_alone() -> None:
    events, joined = both(RECORDINGS / "claude-2.1.197" / "retry")
    retried = [e for e in events if e.type == "error" and (e.data.get("extra") or {}).get("retried")]
    assert retried
    assert "retries" in joined.lacks["session"]


def test_the_tail_of_a_killed_run_comes_from_stdout(tmp_path: Path) -> None:
    folder = RECORDINGS / "claude-2.1.197" / "basic"
    (main,) = [p for p in (folder / "home").rglob("*.jsonl") if "subagents" not in p.parts and "projects" in p.parts]
    rows = main.read_bytes().split(b"\n")
    last = max(at for at, row in enumerate(rows) if b'"tool_result"' in row)
    cut = tmp_path / main.name
    cut.write_bytes(b"\n".join(rows[:last]) + b"\n")
    joined = Reconciled(open_file(cut), open_file(folder / "stdout.jsonl"))
    events = list(joined)
    check_events(events)
    whole = list(session_of(folder).parse())

    def results(found: list[Event]) -> list[str]:
        return [e.data["update"]["toolCallId"] for e in found if e.type == "tool_call_update"]

    assert results(events) == results(whole)
    assert "the end of the run" in joined.lacks["session"]


def test_totals_that_differ_are_told_with_both_numbers(tmp_path: Path) -> None:
    folder = RECORDINGS / "claude-2.1.197" / "basic"
    lines = (folder / "stdout.jsonl").read_text().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith('{"type":"result"'))
    result = json.loads(lines[at])
    result["usage"]["output_tokens"] += 5
    lines[at] = json.dumps(result)
    changed = tmp_path / "stdout.jsonl"
    changed.write_text("\n".join(lines))
    _, joined = both(folder, changed)
    assert joined.report.warnings["totals_differ"].message == "completionTokens 216 in the session, 221 on stdout"
