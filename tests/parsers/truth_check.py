"""What the events of a parse tell, model call by model call, and what the model server really sent (truth.jsonl)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from traceflow_formats.trace import Event
from traceflow_parsers.source import Source
from traceflow_parsers.testing import check_events

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = FIXTURES / "recordings"
CASES = FIXTURES / "cases"
SUBAGENTS = ("sub", "sub2", "sub3")  # the scripted conversations of the subagents


@dataclass
class Call:
    """One model call as it was told."""

    message: str = ""
    thought: str = ""
    model: str | None = None
    tools: list[tuple[str, str, Any]] = field(default_factory=list)  # id, name, arguments
    usage: dict[str, Any] | None = None


@dataclass
class Told:
    """What the events tell of one agent."""

    parent: str | None = None
    prompts: list[str] = field(default_factory=list)
    injected: list[tuple[str, str]] = field(default_factory=list)
    summaries: list[str] = field(default_factory=list)
    calls: dict[str, Call] = field(default_factory=dict)
    results: dict[str, tuple[str, str]] = field(default_factory=dict)  # call id -> status, text
    errors: list[dict[str, Any]] = field(default_factory=list)
    plans: list[list[dict[str, Any]]] = field(default_factory=list)
    summary_usage: list[dict[str, Any]] = field(default_factory=list)
    run: dict[str, Any] | None = None

    @property
    def tools(self) -> list[tuple[str, str, Any]]:
        return [tool for call in self.calls.values() for tool in call.tools]

    @property
    def tokens(self) -> tuple[int, int]:
        used = [call.usage for call in self.calls.values() if call.usage]
        return sum(u["promptTokens"] for u in used), sum(u["completionTokens"] for u in used)


def told(events: Iterable[Event]) -> dict[str | None, Told]:
    """The events, sorted by agent (None: the main one) and model call. They obey the laws of every trace."""
    events = list(events)
    check_events(events)
    agents: dict[str | None, Told] = {}
    for event in events:
        data = event.data
        extra = data.get("extra") or {}
        agent = agents.setdefault(extra.get("agentId"), Told(data.get("parentToolCallId")))
        if event.type == "prompt":
            if "role" not in data["_prompt"]:
                agent.prompts.append(data["_prompt"]["text"])
            continue
        update = data["update"]
        if event.type == "user_message_chunk":
            text = update["content"].get("text", "")
            if "compaction" in extra:
                agent.summaries.append(text)
            elif "injected" in extra:
                agent.injected.append((extra["injected"], text))
            else:
                agent.prompts.append(text)
        elif event.type == "tool_call_update":
            blocks = [b["content"].get("text", "") for b in update.get("content") or () if b["type"] == "content"]
            agent.results[update["toolCallId"]] = (update["status"], "".join(blocks))
        elif event.type == "error":
            agent.errors.append({**update, **extra})
        elif event.type == "plan":
            agent.plans.append(update["entries"])
        elif event.type == "usage" and update["scope"] == "run":
            agent.run = update["usage"]
        elif event.type == "usage" and extra.get("compaction"):
            agent.summary_usage.append(update["usage"])
        elif event.type != "trace_loss":
            call = agent.calls.setdefault(data["messageId"], Call())
            call.model = data.get("model", call.model)
            if event.type == "agent_message_chunk":
                call.message += update["content"]["text"]
            elif event.type == "agent_thought_chunk":
                call.thought += update["content"]["text"]
            elif event.type == "tool_call":
                call.tools.append((update["toolCallId"], update["toolName"], update.get("rawInput")))
            elif event.type == "usage":
                assert call.usage is None, "one usage per model call"
                call.usage = update["usage"]
    return agents


def read(source: Source) -> tuple[dict[str | None, Told], dict[str, Any]]:
    """What a source tells, and its report; the lines add up."""
    parse = source.parse()
    agents = told(parse)
    report = parse.report.as_dict()
    lines = report["lines"]
    assert lines["read"] == lines["parsed"] + lines["unknown"] + lines["malformed"] + lines["duplicate"]
    return agents, report


def sent(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The answers that the model server sent: those to the main agent, those to its subagents."""
    rows = [json.loads(line) for line in (folder / "truth.jsonl").read_text("utf-8").splitlines()]
    rows = [r for r in rows if r.get("usage") and r["status"] == 200 and r["scn"] not in ("_side", "_summary")]
    return [r for r in rows if r["scn"] not in SUBAGENTS], [r for r in rows if r["scn"] in SUBAGENTS]


def sent_tools(rows: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    """The tool calls of the answers: id, name, arguments."""
    return [(i, name, given) for r in rows for i, (name, given) in zip(r["ids"] or [], r["calls"], strict=True)]


def sent_tokens(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """Prompt and completion tokens: Anthropic counts cache writes apart, and thinking inside the output."""
    prompt = completion = 0
    for row in rows:
        usage, anthropic = row["usage"], row["api"] == "anthropic"
        prompt += usage["fresh"] + usage["cread"] + (usage["cwrite"] if anthropic else 0)
        completion += usage["out"] + (0 if anthropic else usage["reason"])
    return prompt, completion


def assert_said(agent: Told, rows: list[dict[str, Any]]) -> None:
    """The agent's model calls are these answers: as many, with their words, tool calls and tokens."""
    assert len(agent.calls) == len(rows)
    for call, row in zip(agent.calls.values(), rows, strict=True):
        if "text" in row:
            assert call.message.strip() == row["text"].strip()
            assert row["think"] in call.thought
    assert agent.tools == sent_tools(rows)
    assert agent.tokens == sent_tokens(rows)
