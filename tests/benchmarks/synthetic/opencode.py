"""OpenCode's rows (1.18): a message and its parts; in its database as `session`, and on stdout."""

from __future__ import annotations

from collections.abc import Iterator

from .run import START, Call, Run, Turn
from .shape import Record, Shape

__all__ = ["SCHEMA", "SHAPES"]

SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text NOT NULL, parent_id text, slug text NOT NULL,
    directory text NOT NULL, title text NOT NULL, version text NOT NULL, cost real DEFAULT 0 NOT NULL,
    tokens_input integer DEFAULT 0 NOT NULL, tokens_output integer DEFAULT 0 NOT NULL,
    tokens_reasoning integer DEFAULT 0 NOT NULL, tokens_cache_read integer DEFAULT 0 NOT NULL,
    tokens_cache_write integer DEFAULT 0 NOT NULL, revert text, agent text, time_created integer NOT NULL,
    time_updated integer NOT NULL);
CREATE TABLE message (id text PRIMARY KEY, session_id text NOT NULL, time_created integer NOT NULL,
    time_updated integer NOT NULL, data text NOT NULL);
CREATE TABLE part (id text PRIMARY KEY, message_id text NOT NULL, session_id text NOT NULL,
    time_created integer NOT NULL, time_updated integer NOT NULL, data text NOT NULL);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
"""

_TOOLS = {"shell": "bash", "read": "read", "edit": "edit"}


def _id(kind: str, run: Run) -> str:
    """Ids rise with time, as OpenCode's do."""
    number = run.kept["number"] = run.kept.get("number", 0) + 1
    return f"{kind}_{number:014x}{run.hexes(12)}"


def _tool(call: Call, time: int) -> Record:
    given: Record = {"filePath": call.path}
    known: Record = {"preview": call.output[:200], "truncated": False}
    if call.tool == "shell":
        given = {"command": call.command, "description": call.described}
        known = {"output": call.output, "exit": int(call.failed), "truncated": False}
    elif call.tool == "edit":
        given |= {"oldString": call.old, "newString": call.new}
    state = {"status": "completed", "input": given, "output": call.output, "metadata": known, "title": call.path}
    moments = {"time": {"start": time, "end": time + 2000}}
    return {"type": "tool", "tool": _TOOLS[call.tool], "callID": "toolu_" + call.id, "state": state | moments}


def _finish(turn: Turn) -> Record:
    tokens = {
        "total": turn.fresh + turn.cached + turn.written,
        "input": 12,
        "output": turn.written,
        "reasoning": 0,
        "cache": {"write": turn.fresh - 12, "read": turn.cached},
    }
    reason = "tool-calls" if turn.calls else "stop"
    return {"reason": reason, "type": "step-finish", "tokens": tokens, "cost": 0.00084}


def _parts(turn: Turn) -> Iterator[Record]:
    moments = {"time": {"start": turn.time, "end": turn.time}}
    yield {"type": "step-start"}
    if turn.thought:
        yield {"type": "reasoning", "text": turn.thought, **moments}
    if turn.text:
        yield {"type": "text", "text": turn.text, **moments}
    for call in turn.calls:
        yield _tool(call, turn.time)
    yield _finish(turn)


def _session_head(run: Run) -> Iterator[Record]:
    message = run.kept["asked"] = _id("msg", run)
    model = {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
    asked = {"role": "user", "time": {"created": START}, "agent": "build", "model": model}
    yield {"id": message, "time": START, "data": asked}
    yield {"id": _id("prt", run), "message": message, "time": START, "data": {"type": "text", "text": run.prompt}}


def _session_turn(run: Run, turn: Turn) -> Iterator[Record]:
    message, finish = _id("msg", run), _finish(turn)
    moments = {"time": {"created": turn.time, "completed": turn.time + 2000}}
    said = {
        "parentID": run.kept["asked"], "role": "assistant", "mode": "build", "agent": "build",
        "path": {"cwd": "/srv/app", "root": "/"}, "cost": finish["cost"], "tokens": finish["tokens"],
        "modelID": "claude-sonnet-4-5", "providerID": "anthropic", **moments, "finish": finish["reason"],
    }  # fmt: skip
    yield {"id": message, "time": turn.time, "data": said}
    for part in _parts(turn):
        yield {"id": _id("prt", run), "message": message, "time": turn.time, "data": part}


def _stdout_turn(run: Run, turn: Turn) -> Iterator[Record]:
    message = _id("msg", run)
    for part in _parts(turn):
        kind = part["type"]
        if kind == "reasoning":  # printed with --thinking only
            continue
        frame = {"type": "tool_use" if kind == "tool" else kind.replace("-", "_"), "timestamp": turn.time}
        place = {"id": _id("prt", run), "messageID": message, "sessionID": "ses_" + run.session}
        yield {**frame, "sessionID": "ses_" + run.session, "part": {**part, **place}}


SHAPES = {
    "session": Shape("opencode.db", _session_head, _session_turn),
    "stdout": Shape("stdout.jsonl", lambda run: (), _stdout_turn),
}
