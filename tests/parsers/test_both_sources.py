"""The session and the stdout of one run tell the same tool calls in the same order, wherever both hold them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from traceflow_parsers.detect import open_file, open_path
from traceflow_parsers.source import Source

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
# Codex prints other names and ids on stdout than its rollout has, and not every call: compared by command below.
# `basic+json` of droid is one result object without calls.
FOLDERS = sorted(
    folder
    for folder in RECORDINGS.glob("*/*")
    if not folder.parent.name.startswith("codex") and folder.name != "basic+json"
)
CODEX = [RECORDINGS / "codex-0.80.0" / name for name in ("basic", "subagent")] + [
    RECORDINGS / "codex-0.171.0" / name
    for name in ("basic", "subagent", "subagent+fallback", "compact", "errors", "resume")
]
TORN = {  # kimi-cli 1.40 itself prints the arguments of parallel calls cut off in the middle
    "kimi-cli-1.40.0/basic": {"call_ly8C3BRiDdBZWWFbVVQLE82v", "call_fAmLKNoYhZ7LoCf8mra0DdQx"},
}


def name_of(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


def calls_of(sources: list[Source]) -> list[tuple[str, str, Any]]:
    """Id, tool and arguments of the calls of the main agent, the session that began first before the others."""
    runs = sorted((list(source.parse()) for source in sources), key=lambda run: str(run[0].data.get("timestamp")))
    calls = [e for run in runs for e in run if e.type == "tool_call" and "parentToolCallId" not in e.data]
    return [(u["toolCallId"], u["toolName"], u.get("rawInput")) for u in (call.data["update"] for call in calls)]


def stdout_of(folder: Path) -> list[Source]:
    return [open_file(path) for path in sorted(folder.glob("stdout*.jsonl")) if path.stat().st_size]


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_the_calls_of_both_are_the_same(folder: Path) -> None:
    session, stdout = calls_of(open_path(folder / "home")), calls_of(stdout_of(folder))
    torn = TORN.get(name_of(folder), set())
    assert [(i, n, None if i in torn else a) for i, n, a in session] == [
        (i, n, None if i in torn else a) for i, n, a in stdout
    ]
    assert session, "a recording without a call proves nothing"


@pytest.mark.parametrize("folder", CODEX, ids=name_of)
def test_the_commands_of_codex_are_the_same(folder: Path) -> None:
    asked = [command_of(arguments) for _, _, arguments in calls_of(open_path(folder / "home"))]
    printed = [command_of(arguments) for _, _, arguments in calls_of(stdout_of(folder))]
    # Commands of one model call run side by side: stdout has them as they began.
    assert sorted(c for c in printed if c) == sorted(c for c in asked if c)
    assert any(printed)


def command_of(arguments: Any) -> str | None:
    """The shell's words of a call: stdout wraps them in `/bin/bash -lc`, quoted once more."""
    command = (arguments.get("cmd") or arguments.get("command")) if isinstance(arguments, dict) else None
    if isinstance(command, str) and command.startswith("/bin/bash -lc "):
        return shlex.split(command)[2]
    return command if isinstance(command, str) else None
