"""What the model server of a recording sent, and what a parse made of it, in the same shape."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceflow_formats.trace import Event, agent_of
from traceflow_parsers.testing import check_events

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = FIXTURES / "recordings"
CASES = FIXTURES / "cases"


@dataclass
class Call:
    """One model call: its words, thoughts, tool calls, and its prompt and completion tokens."""

    text: str = ""
    thought: str = ""
    tools: list[tuple[str, Any]] = field(default_factory=list)
    tokens: tuple[int | None, int | None] | None = None


def sent(folder: Path) -> dict[str, list[Call]]:
    """The answered requests of a recording, by who asked: main, sub, summary."""
    out: dict[str, list[Call]] = {"main": [], "sub": [], "summary": []}
    for line in (folder / "truth.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not row["usage"] or row["status"] != 200:
            continue
        usage = row["usage"]
        call = Call(
            row.get("text", "?"),
            row.get("think", ""),
            [(name, args) for name, args in row["calls"]],
            (usage["fresh"] + usage["cread"], usage["out"] + usage["reason"]),
        )
        who = "sub" if row["scn"] in ("sub", "sub2", "sub3") else "summary" if row["scn"] == "_summary" else "main"
        out[who].append(call)
    return out


def tokens(calls: Iterable[Call]) -> tuple[int, int]:
    pairs = [call.tokens for call in calls if call.tokens]
    return sum(p or 0 for p, _ in pairs), sum(c or 0 for _, c in pairs)


@dataclass
class Parsed:
    """The events of a parse, sorted out."""

    events: list[Event]
    report: Any
    prompts: list[str] = field(default_factory=list)
    agents: dict[str | None, dict[str, Call]] = field(default_factory=dict)
    parents: dict[str | None, str | None] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    compaction: list[dict[str, Any]] = field(default_factory=list)  # usage of the calls that wrote a summary
    errors: list[dict[str, Any]] = field(default_factory=list)
    injected: list[str] = field(default_factory=list)
    plans: list[Any] = field(default_factory=list)
    total: dict[str, Any] | None = None

    @property
    def main(self) -> list[Call]:
        return list(self.agents.get(None, {}).values())

    @property
    def sub(self) -> list[Call]:
        return [call for agent, calls in self.agents.items() if agent is not None for call in calls.values()]


def sorted_out(source: Any) -> Parsed:
    """Parse a source and sort its events; the laws of all traces and the sum of the lines are checked on the way."""
    parse = source.parse()
    out = Parsed(list(parse), parse.report)
    check_events(out.events)
    lines = parse.report.lines
    assert lines.read == lines.parsed + lines.unknown + lines.malformed + lines.duplicate
    for event in out.events:
        _take(out, event)
    return out


def _take(out: Parsed, event: Event) -> None:
    data, agent = event.data, agent_of(event.data)
    extra = data.get("extra", {})
    out.parents[agent] = data.get("parentToolCallId")
    if event.type == "prompt":
        out.prompts.append(data["_prompt"]["text"])
        return
    update = data["update"]
    if event.type == "user_message_chunk":
        if "injected" in extra:
            out.injected.append(extra["injected"])
        elif agent is None and "compaction" not in extra and "text" in update["content"]:  # no picture
            out.prompts.append(update["content"]["text"])
        return
    if event.type == "error":
        out.errors.append({**update, **extra})
    elif event.type == "plan":
        out.plans.append(update["entries"])
    elif event.type == "tool_call_update":
        out.results[update["toolCallId"]] = {**update, **extra}
    elif event.type == "usage" and update["scope"] == "run":
        out.total = {**update["usage"], "facts": extra}
    elif extra.get("compaction"):
        out.compaction.append(update["usage"])
    elif "messageId" in data:
        call = out.agents.setdefault(agent, {}).setdefault(data["messageId"], Call())
        if event.type == "agent_message_chunk":
            call.text += update["content"]["text"]
        elif event.type == "agent_thought_chunk":
            call.thought += update["content"]["text"]
        elif event.type == "tool_call":
            call.tools.append((update["toolName"], update["rawInput"]))
        elif event.type == "usage":
            assert call.tokens is None, "two usages of one model call"
            call.tokens = update["usage"].get("promptTokens"), update["usage"].get("completionTokens")


def lines_of(*records: Any) -> bytes:
    """Records as the lines of a file."""
    return b"".join(json.dumps(record, ensure_ascii=False).encode() + b"\n" for record in records)
