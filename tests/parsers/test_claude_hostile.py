"""Claude Code's records with values of the wrong sort anywhere in them: events or nothing, never a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats import jsontext
from traceflow_parsers.claude_code.files import HARNESS, is_session, is_stdout
from traceflow_parsers.claude_code.history import first_pass
from traceflow_parsers.claude_code.session import ClaudeSession
from traceflow_parsers.claude_code.stdout import ClaudeStdout
from traceflow_parsers.testing import check_events, run

FIXTURES = Path(__file__).parents[2] / "fixtures"
FILES = sorted((FIXTURES / "recordings").glob("claude-2*/*/stdout*.jsonl")) + sorted(
    p for p in (FIXTURES / "recordings").glob("claude-2*/**/*.jsonl") if "projects" in p.parts
)
DEEP: Any = []
for _ in range(400):
    DEEP = [DEEP]
JUNK: list[Any] = [None, True, 0, -1, 1e300, "", "x", "\ud800", [], [None], {}, {"": {}}, {"text": {}}, 10**30, DEEP]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += places(item, (*path, key))
    return found


def spoiled(line: str, chance: random.Random) -> str:
    record = json.loads(line)
    *above, last = chance.choice(places(record))
    holder = record
    for key in above:
        holder = holder[key]
    if chance.random() < 0.2 and isinstance(holder, dict):
        del holder[last]
    else:
        holder[last] = chance.choice(JUNK)
    return json.dumps(record)


@pytest.mark.parametrize("seed", range(4))
def test_a_value_of_the_wrong_sort_is_survived(seed: int) -> None:
    chance = random.Random(seed)
    for path in FILES:
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        for _ in range(max(2, len(lines) // 4)):
            at = chance.randrange(len(lines))
            lines[at] = spoiled(lines[at], chance)
        data = "\n".join(lines).encode()
        parser = (
            ClaudeStdout()
            if path.name.startswith("stdout")
            else ClaudeSession(
                first_pass(lambda data=data: data.splitlines(keepends=True))  # type: ignore[misc]
            )
        )
        events = run(parser, data)
        check_events(events)
        for event in events:
            jsontext.dumps(event.data).decode()
        counts = parser.report.lines
        assert counts.read == counts.parsed + counts.unknown + counts.malformed + counts.duplicate
        records = [r for r in (json.loads(line) for line in lines) if isinstance(r, dict)]
        assert isinstance(is_session(records), bool)
        assert isinstance(is_stdout(records), bool)


@pytest.mark.parametrize("meta", [b"", b"null", b"[]", b'{"toolUseId": 7}', b'{"toolUseId": "\\ud800"}', b"\xff" * 9])
def test_sidecars_of_any_content_are_survived(tmp_path: Path, meta: bytes) -> None:
    row = {
        "type": "user",
        "uuid": "u",
        "parentUuid": None,
        "sessionId": "s",
        "message": {"role": "user", "content": "x"},
    }
    (tmp_path / "s/subagents").mkdir(parents=True)
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "s/subagents/agent-a.jsonl").write_text(json.dumps({**row, "agentId": "\ud83d", "uuid": "v"}) + "\n")
    (tmp_path / "s/subagents/agent-a.meta.json").write_bytes(meta)
    (source,) = HARNESS.sessions_in(tmp_path)
    events = list(source.parse())
    check_events(events)
    assert len(events) == 2
