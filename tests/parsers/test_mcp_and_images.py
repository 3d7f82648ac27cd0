"""MCP servers and pictures, in recordings: calls, ids, arguments, tokens, and the very bytes of the pictures.

The server is fixtures/record/mcp_server.py; the picture is the one that its `picture` tool and the work directory hold.
"""

from __future__ import annotations

import base64
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from recording_truth import RECORDINGS
from traceflow_formats.atif import trajectory
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.detect import open_path
from traceflow_parsers.testing import check_events

RECORD = RECORDINGS.parent / "record"
PNG = base64.b64encode(runpy.run_path(str(RECORD / "picture.py"))["png"](16, (220, 30, 30))).decode()
PROMPT = "Please run the scripted tour of this directory. [[scn:{}]]"
TOOLS = ("lookup", "picture", "fail")

MCP = ("claude-2.1.197", "codex-0.171.0", "gemini-0.61.0", "qwen-0.15.10", "opencode-1.18.33")
OWN_IDS = ("gemini-0.61.0",)  # the harness makes its own call ids
NO_PICTURE_ON_STDOUT = ("gemini-0.61.0", "qwen-0.15.10")  # a line of text stands for it
NO_COMPLETION_ON_STDOUT = ("claude-2.1.197",)  # only what the message began with, and the run's total


def events_of(path: Path) -> list[Event]:
    (source,) = open_path(path)
    parse = source.parse()
    events = list(parse)
    check_events(events)
    assert parse.report.lines.malformed == parse.report.lines.unknown == 0
    assert parse.report.warning_list() == []
    return events


def truth(folder: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    return [row for row in rows if row.get("usage") and not row["scn"].startswith("_")]


def calls_of(events: list[Event]) -> dict[str, dict[str, Any]]:
    return {e.data["update"]["toolCallId"]: e.data["update"] for e in events if e.type == "tool_call"}


def results_of(events: list[Event]) -> dict[str, dict[str, Any]]:
    return {e.data["update"]["toolCallId"]: e.data["update"] for e in events if e.type == "tool_call_update"}


def pictures_in(update: dict[str, Any]) -> list[tuple[str, str]]:
    """Kind and data of the pictures in a tool's result."""
    blocks = [item["content"] for item in update.get("content", ()) if item["type"] == "content"]
    return [(block["mimeType"], block["data"]) for block in blocks if block["type"] == "image"]


def words_of(update: dict[str, Any]) -> str:
    return text_of(Event("tool_call_update", {"update": update}))


def counts_of(events: list[Event]) -> list[tuple[Any, ...]]:
    """Prompt, cached and completion tokens of each model call."""
    usages = [e.data["update"] for e in events if e.type == "usage"]
    keys = ("promptTokens", "cachedTokens", "completionTokens")
    return [tuple(u["usage"].get(key) for key in keys) for u in usages if u["scope"] == "call"]


def sent_counts(folder: Path, *, cache_writes: bool, reasoning: bool) -> list[tuple[int, int, int]]:
    return [
        (
            u["fresh"] + u["cread"] + (u["cwrite"] if cache_writes else 0),
            u["cread"],
            u["out"] + (u["reason"] if reasoning else 0),
        )
        for u in (row["usage"] for row in truth(folder))
    ]


@pytest.mark.parametrize("name", MCP)
def test_sessions_hold_the_calls_that_the_model_made(name: str) -> None:
    folder = RECORDINGS / name / "mcp"
    calls = calls_of(events_of(folder / "home"))
    sent = [(ident, *call) for row in truth(folder) for ident, call in zip(row["ids"], row["calls"], strict=True)]
    assert [(call["toolName"], call["rawInput"]) for call in calls.values()] == [call[1:] for call in map(tuple, sent)]
    if name not in OWN_IDS:
        assert list(calls) == [ident for ident, *_ in sent]


RESULTS = [(name, source) for name in MCP for source in ("home", "stdout.jsonl")]


@pytest.mark.parametrize(("name", "source"), [*RESULTS, ("codex-gpt6-0.171.0", "stdout.jsonl")])
def test_results_are_texts_pictures_and_failures(name: str, source: str) -> None:
    events = events_of(RECORDINGS / name / "mcp" / source)
    calls, results = calls_of(events), results_of(events)
    found = {tool: results[i] for i, call in calls.items() for tool in TOOLS if call["toolName"].endswith(tool)}
    assert set(found) == set(TOOLS)
    assert {tool: found[tool]["status"] for tool in TOOLS} == {
        "lookup": "completed",
        "picture": "completed",
        "fail": "failed",
    }
    assert "naïve \U0001f600" in words_of(found["lookup"])
    assert "One square:" in words_of(found["picture"])
    pictures = [] if source != "home" and name in NO_PICTURE_ON_STDOUT else [("image/png", PNG)]
    assert pictures_in(found["picture"]) == pictures
    assert pictures_in(found["lookup"]) == pictures_in(found["fail"]) == []


@pytest.mark.parametrize("name", MCP)
@pytest.mark.parametrize("scenario", ["mcp", "image*"])
def test_tokens_are_those_of_each_model_call(name: str, scenario: str) -> None:
    (folder,) = (RECORDINGS / name).glob(scenario)
    anthropic = name in ("claude-2.1.197", "opencode-1.18.33")
    sent = sent_counts(folder, cache_writes=anthropic, reasoning=not anthropic)
    assert counts_of(events_of(folder / "home")) == sent
    printed = counts_of(events_of(folder / "stdout.jsonl"))
    if name in NO_COMPLETION_ON_STDOUT:
        assert printed == [(*counts[:2], None) for counts in sent]
    elif printed:
        assert printed == sent


def test_in_code_mode_the_script_and_its_output_are_verbatim() -> None:
    folder = RECORDINGS / "codex-gpt6-0.171.0/mcp"
    events = events_of(folder / "home")
    sent = [(ident, *call) for row in truth(folder) for ident, call in zip(row["ids"], row["calls"], strict=True)]
    calls, results = calls_of(events), results_of(events)
    assert [(ident, call["toolName"], call["rawInput"]) for ident, call in calls.items()] == sent
    first, second = (words_of(results[ident]) for ident, *_ in sent)
    assert "alpha = naïve \U0001f600" in first
    assert '{"content":[{"type":"text","text":"failed: scripted"}],"isError":true}' in second


# -- pictures that a tool read -------------------------------------------------------------------------------------

SEEN = {  # the tool that looks at a picture
    "claude-2.1.197/image+attached": "Read",
    "codex-0.171.0/image+attached": "view_image",
    "gemini-0.61.0/image+attached": "read_file",
    "opencode-1.18.33/image": "read",
}


@pytest.mark.parametrize("name", SEEN)
def test_a_picture_that_a_tool_read_is_in_its_result(name: str) -> None:
    events = events_of(RECORDINGS / name / "home")
    ((ident, call),) = calls_of(events).items()
    assert (call["toolName"], call["kind"]) == (SEEN[name], "read")
    assert "/srv/app/dot.png" in call["rawInput"].values()
    result = results_of(events)[ident]
    assert result["status"] == "completed"
    assert pictures_in(result) == [("image/png", PNG)]


def test_a_picture_that_a_model_cannot_see_is_a_text() -> None:
    events = events_of(RECORDINGS / "qwen-0.15.10/image+attached/home")
    (result,) = results_of(events).values()
    assert pictures_in(result) == []
    assert words_of(result).startswith('[Unsupported image file: "dot.png"')


# -- pictures that a person attached -------------------------------------------------------------------------------

ATTACHED = ("claude-2.1.197", "codex-0.171.0", "gemini-0.61.0")
TYPED = {name: PROMPT.format("image") + ("" if name.startswith("codex") else " @dot.png") for name in ATTACHED}


@pytest.mark.parametrize("name", ATTACHED)
def test_an_attached_picture_is_the_persons_and_stands_once(name: str) -> None:
    events = events_of(RECORDINGS / name / "image+attached/home")
    people = [
        e.data["_prompt"]["text"] if e.type == "prompt" else e.data["update"]["content"].get("data")
        for e in events
        if e.type in ("prompt", "user_message_chunk")
        and "injected" not in e.data.get("extra", {})
        and e.data.get("_prompt", {}).get("role") is None
    ]
    assert people == [TYPED[name], PNG]


@pytest.mark.parametrize("name", ["codex-0.171.0", "gemini-0.61.0"])
def test_words_and_picture_of_one_message_are_one_step(name: str, tmp_path: Path) -> None:
    document = trajectory(events_of(RECORDINGS / name / "image+attached/home"), images=tmp_path)
    (step,) = (step for step in document["steps"] if step["source"] == "user")
    words, picture = step["message"]
    assert words == {"type": "text", "text": TYPED[name]}
    assert (tmp_path / picture["source"]["path"]).read_bytes() == base64.b64decode(PNG)


@pytest.mark.parametrize("name", ["gemini-0.61.0", "qwen-0.15.10"])
def test_files_that_a_prompt_names_are_no_words_of_the_prompt(name: str) -> None:
    events = events_of(RECORDINGS / name / "image+attached/home")
    assert [e.data["_prompt"]["text"] for e in events if e.type == "prompt"] == [PROMPT.format("image") + " @dot.png"]
    (named,) = (e for e in events if e.data.get("extra", {}).get("injected") == "referenced_files")
    assert text_of(named).strip().startswith("--- Content from referenced files ---")
