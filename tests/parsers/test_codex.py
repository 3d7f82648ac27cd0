"""Codex recordings against what the model server really sent, the parser contract, and which files belong together."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.trace import Event, text_of
from traceflow_parsers.codex import HARNESS, CodexSession, CodexStdout
from traceflow_parsers.registry import harness_named
from traceflow_parsers.report import Report
from traceflow_parsers.source import Source, head_records
from traceflow_parsers.testing import ParserContract, check_events

FIXTURES = Path(__file__).parents[2] / "fixtures"
RECORDINGS = FIXTURES / "recordings"
CASES = FIXTURES / "cases"
FOLDERS = sorted(path.parent for path in RECORDINGS.glob("codex*/*/truth.jsonl"))
SUBAGENTS = ("sub", "sub2", "sub3")
PRINTED = ("exec_command", "shell_command", "apply_patch", "spawn_agent", "wait_agent")


def parsed(source: Source) -> tuple[list[Event], Report]:
    parse = source.parse()
    events = list(parse)
    check_events(events)
    return events, parse.report


def session(folder: Path) -> tuple[list[Event], Report]:
    (source,) = HARNESS.sessions_in(folder / "home")
    return parsed(source)


def agent(event: Event) -> str | None:
    return (event.data.get("extra") or {}).get("agentId")


def extra(event: Event, name: str) -> Any:
    return (event.data.get("extra") or {}).get(name)


def own(events: list[Event]) -> list[Event]:
    return [event for event in events if not extra(event, "copied")]


def root(events: list[Event]) -> list[Event]:
    return [event for event in own(events) if agent(event) is None]


def children(events: list[Event]) -> list[Event]:
    return [event for event in own(events) if agent(event) is not None]


def updates(events: list[Event], *types: str) -> list[dict[str, Any]]:
    return [event.data["update"] for event in events if event.type in types]


def tokens(events: list[Event], scope: str = "call") -> tuple[int, int]:
    counts = [update["usage"] for update in updates(events, "usage") if update["scope"] == scope]
    return sum(c["promptTokens"] for c in counts), sum(c["completionTokens"] for c in counts)


class Truth:
    """What the model server sent: the calls of the main agent, of its subagents, and for summaries."""

    def __init__(self, folder: Path) -> None:
        rows = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
        rows = [row for row in rows if row.get("usage") and row["status"] == 200]
        self.sub = [row for row in rows if row["scn"] in SUBAGENTS]
        self.summary = [row for row in rows if row["scn"] == "_summary"]
        self.main = [row for row in rows if row not in self.sub and row not in self.summary]

    def calls(self) -> list[tuple[str, str, Any]]:
        rows = [(row.get("ids") or [], row["calls"]) for row in self.main]
        return [(i, name, raw) for ids, calls in rows for i, (name, raw) in zip(ids, calls, strict=True)]

    @staticmethod
    def tokens(rows: list[dict[str, Any]]) -> tuple[int, int]:
        used = [row["usage"] for row in rows]
        return sum(u["fresh"] + u["cread"] for u in used), sum(u["out"] + u["reason"] for u in used)


def named(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"


class TestSessionContract(ParserContract):
    make = CodexSession
    inputs = staticmethod(
        lambda: (
            [
                path.read_bytes()
                for folder in FOLDERS
                if folder.name in ("basic", "compact", "errors")
                for path in sorted(folder.glob("home/.codex/sessions/**/*.jsonl"))
            ]
            + [path.read_bytes() for path in sorted(CASES.glob("4[0346]-codex*/*.jsonl"))]
        )
    )
    prefixes = 12


class TestStdoutContract(ParserContract):
    make = CodexStdout
    inputs = staticmethod(lambda: [p.read_bytes() for f in FOLDERS for p in sorted(f.glob("stdout*.jsonl"))][:8])
    prefixes = 12


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_session_holds_the_calls_texts_and_tokens_that_the_server_sent(folder: Path) -> None:
    truth = Truth(folder)
    events, report = session(folder)
    mine = root(events)
    calls = [(u["toolCallId"], u["toolName"], u["rawInput"]) for u in updates(mine, "tool_call")]
    assert calls == truth.calls()
    answered = {update["toolCallId"] for update in updates(mine, "tool_call_update")}
    assert answered == {call_id for call_id, _, _ in calls}
    assert tokens(mine) == Truth.tokens(truth.main + truth.summary)
    assert tokens(mine, "run") == Truth.tokens(truth.main + truth.summary)
    assert tokens(children(events)) == Truth.tokens(truth.sub)
    assert len(updates(children(events), "tool_call")) == sum(len(row["calls"]) for row in truth.sub)
    assert not report.warnings
    assert report.lines.unknown == 0
    assert report.incomplete is False
    assert bool(updates(events, "error")) == (folder.name == "errors")


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_message_id_is_one_model_call(folder: Path) -> None:
    truth = Truth(folder)
    steps: dict[str, list[Event]] = {}
    usages: dict[str, list[Event]] = {}
    for event in root(session(folder)[0]):
        message_id = event.data.get("messageId")
        if event.type in ("agent_message_chunk", "agent_thought_chunk", "tool_call"):
            steps.setdefault(message_id, []).append(event)
        elif event.type == "usage" and event.data["update"]["scope"] == "call":
            usages.setdefault(message_id, []).append(event)
    assert len(steps) == len(truth.main)
    assert len(usages) == len(truth.main) + len(truth.summary)
    for (message_id, events), row in zip(steps.items(), truth.main, strict=True):
        said = "".join(text_of(event) for event in events if event.type == "agent_message_chunk")
        thought = "".join(text_of(event) for event in events if event.type == "agent_thought_chunk")
        assert said.strip() == row.get("text", said).strip()
        assert row.get("think", "") in thought
        (usage,) = usages[message_id]
        counts = usage.data["update"]["usage"]
        assert counts["promptTokens"] == row["usage"]["fresh"] + row["usage"]["cread"]
        assert counts["cachedTokens"] == row["usage"]["cread"]
        assert counts["extra"]["reasoning_output_tokens"] == row["usage"]["reason"]
        assert {event.data["model"] for event in [*events, usage]} == {row["model"]}


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_a_prompt_is_what_was_typed_and_nothing_else(folder: Path) -> None:
    events = root(session(folder)[0])
    typed = [
        text_of(event)
        for event in events
        if event.type in ("prompt", "user_message_chunk")
        and event.data.get("_prompt", {}).get("role") is None
        and extra(event, "injected") is None
        and extra(event, "compaction") is None
        and event.data.get("update", {}).get("content", {}).get("type") != "image"
    ]
    assert len(typed) == len(list(folder.glob("stdout*.jsonl")))
    assert all("[[scn:" in text for text in typed)
    assert sum(event.type == "prompt" and "role" not in event.data["_prompt"] for event in events) == 1


@pytest.mark.parametrize("folder", FOLDERS, ids=named)
def test_stdout_has_the_printed_calls_and_the_total_of_the_thread(folder: Path) -> None:
    truth = Truth(folder)
    printed = sum(name in PRINTED for _, name, _ in truth.calls())
    shown, errors, total = 0, 0, (0, 0)
    for path in sorted(folder.glob("stdout*.jsonl")):
        events, report = parsed(HARNESS.stdout_source(path))
        assert not report.warnings
        assert report.lines.unknown == 0
        shown += len(updates(events, "tool_call"))
        errors += len(updates(events, "error"))
        total = tokens(events, "run")
    if "gpt6" not in folder.parent.name and folder.name != "badtool":  # code mode prints commands, not calls
        assert printed <= shown <= len(truth.calls())
    assert errors == (folder.name == "errors")
    if folder.name != "errors":  # a failed turn states no usage
        assert total == Truth.tokens(truth.main + truth.summary)


def test_a_subagent_is_linked_to_the_call_that_spawned_it() -> None:
    for name in ("codex-0.171.0/subagent", "codex-0.171.0/subagent+fallback", "codex-gpt6-0.171.0/subagent"):
        events, _ = session(RECORDINGS / name)
        spawned = {
            update["toolCallId"]: update["rawInput"]["message"]
            for update in updates(root(events), "tool_call")
            if update["toolName"] == "spawn_agent"
        }
        links = {agent(event): event.data["parentToolCallId"] for event in children(events)}
        assert sorted(links.values()) == sorted(spawned), name
        if "gpt6" not in name:  # v2 encrypts the task
            for child, call_id in links.items():
                first = next(
                    e
                    for e in events
                    if agent(e) == child and e.type == "user_message_chunk" and not extra(e, "injected")
                )
                assert text_of(first) == spawned[call_id]


def test_a_forked_subagent_begins_with_a_copy_that_is_marked_and_not_counted() -> None:
    events, report = session(RECORDINGS / "codex-gpt6-0.171.0/subagent")
    copied = [event for event in events if extra(event, "copied")]
    assert {agent(event) for event in copied} == {agent(event) for event in children(events)}
    assert "I'll delegate the listing." in map(text_of, copied)
    assert not updates(copied, "usage", "error")
    assert "missing_result" not in report.warnings  # the copy ends before the results of its calls


def test_compaction_is_a_summary_and_the_usage_of_the_call_that_wrote_it() -> None:
    events, _ = session(RECORDINGS / "codex-0.171.0/compact")
    (summary,) = [event for event in events if extra(event, "compaction") not in (None, True)]
    assert summary.type == "user_message_chunk"
    assert "<summary>" in text_of(summary)
    (usage,) = [event for event in events if extra(event, "compaction") is True]
    assert usage.data["update"]["usage"]["promptTokens"] == 100
    assert not [e for e in events if e.type == "agent_message_chunk" and "<summary>" in text_of(e)]


def test_a_failing_command_is_failed_and_has_its_exit_code() -> None:
    for name in ("codex-0.171.0/basic", "codex-gpt6-0.171.0/basic", "codex-0.80.0/basic"):
        events = session(RECORDINGS / name)[0]
        codes = {
            text_of(event).rsplit("Output:", 1)[-1].strip(): (event.data["update"]["status"], extra(event, "exitCode"))
            for event in events
            if event.type == "tool_call_update"
        }
        assert codes["cat: missing.txt: No such file or directory"] == ("failed", 1), name
        assert codes["README.md"] == ("completed", 0), name
        if "gpt6" not in name:
            assert codes["two"] == ("failed", 3), name


def test_a_script_of_code_mode_lists_the_commands_it_ran() -> None:
    events = session(RECORDINGS / "codex-gpt6-0.171.0/basic")[0]
    facts = [event for event in events if event.type == "tool_call_update" and "rawOutput" in event.data["update"]]
    (parallel,) = [e for e in facts if len(e.data["update"]["rawOutput"]["commands"]) == 3]
    assert [c["exit_code"] for c in parallel.data["update"]["rawOutput"]["commands"]] == [0, 3, 0]
    assert extra(parallel, "exitCode") is None  # no one code is that of the script
    assert parallel.data["update"]["status"] == "completed"


def test_calls_that_the_harness_refused_are_failed() -> None:
    for name in ("codex-0.171.0/badtool", "codex-gpt6-0.171.0/badtool"):
        events = session(RECORDINGS / name)[0]
        assert [update["status"] for update in updates(events, "tool_call_update")] == ["failed", "failed"], name


def test_an_error_is_told_once_and_is_fatal() -> None:
    folder = RECORDINGS / "codex-0.171.0/errors"
    for events in (session(folder)[0], parsed(HARNESS.stdout_source(folder / "stdout.jsonl"))[0]):
        (error,) = updates(events, "error")
        assert "scripted bad request" in error["message"]
        assert error["fatal"] is True


def test_a_resumed_thread_counts_its_earlier_runs_on_stdout() -> None:
    totals = []
    for number in (1, 2, 3):
        path = RECORDINGS / f"codex-0.171.0/resume/stdout.{number}.jsonl"
        events = parsed(HARNESS.stdout_source(path))[0]
        (usage,) = [event for event in events if event.type == "usage"]
        assert extra(usage, "cumulative") is True
        totals.append(usage.data["update"]["usage"]["promptTokens"])
    assert totals == [1261, 2482, 3703]


def test_item_ids_that_restart_in_each_run_stay_apart(tmp_path: Path) -> None:
    whole = tmp_path / "codex.txt"
    runs = [RECORDINGS / f"codex-0.171.0/resume/stdout.{number}.jsonl" for number in (1, 2, 3)]
    whole.write_bytes(b"".join(run.read_bytes() for run in runs))
    events, report = parsed(HARNESS.stdout_source(whole))
    assert [update["toolCallId"] for update in updates(events, "tool_call")] == ["item_2", "run2:item_2", "run3:item_2"]
    assert tokens(events, "run") == (3703, 138)  # the last word of the thread, not the sum of three
    assert not report.warnings


def test_the_version_and_the_thread_are_known_from_the_first_event() -> None:
    events, report = session(RECORDINGS / "codex-0.80.0/basic")
    assert report.version == "0.80.0"
    assert extra(events[0], "harnessVersion") == "0.80.0"
    assert extra(events[0], "harness") == "codex"
    assert {event.data["sessionId"] for event in events} == {report.session_id}


def test_detection_knows_rollouts_and_stdout_apart() -> None:
    assert harness_named("codex") is HARNESS
    for folder in FOLDERS:
        for path in folder.glob("home/.codex/sessions/**/*.jsonl"):
            assert HARNESS.is_session(head_records(path))
            assert not HARNESS.is_stdout(head_records(path))
        for path in folder.glob("stdout*.jsonl"):
            assert HARNESS.is_stdout(head_records(path))
            assert not HARNESS.is_session(head_records(path))
    for case in CASES.glob("*codex*/*.jsonl"):
        assert HARNESS.is_session(head_records(case)), case
    others = CASES / "33-empty-and-header-only-sessions"
    for name in ("claude-only-summary.jsonl", "user-only.jsonl", "blank.jsonl", "zero.jsonl"):
        records = head_records(others / name)
        assert not HARNESS.is_session(records)
        assert not HARNESS.is_stdout(records)


def test_a_log_of_an_sdk_that_holds_stdout_lines_is_not_stdout() -> None:
    records = head_records(RECORDINGS / "codex-0.171.0/basic/stdout.jsonl")
    assert not HARNESS.is_stdout([{"_meta": {"agent": "codex"}}, *records])
    assert not HARNESS.is_stdout([{"type": "turn.started"}])


@pytest.mark.parametrize("place", [".codex/sessions/2026/11/30", "agent/sessions/2026/11/30", "sessions"])
def test_sessions_are_found_at_any_depth_with_their_children(tmp_path: Path, place: str) -> None:
    rollouts = sorted((RECORDINGS / "codex-0.171.0/subagent/home").rglob("rollout-*.jsonl"))
    target = tmp_path / place
    target.mkdir(parents=True)
    for path in rollouts:
        shutil.copy(path, target)
    for folder in (tmp_path, target):
        (source,) = HARNESS.sessions_in(folder)
        assert [path.name for path in source.files] == [path.name for path in rollouts]
        assert source.session_id in source.path.name
    at = HARNESS.session_at(target / rollouts[0].name)
    assert [item.part for item in at.inputs] == [item.part for item in source.inputs]


def test_the_same_rollout_at_two_places_is_one_session(tmp_path: Path) -> None:
    for place in ("agent/.codex/sessions/2026/11/30", "agent/sessions/2026/11/30"):
        shutil.copytree(RECORDINGS / "codex-0.171.0/subagent/home/.codex/sessions/2026/11/30", tmp_path / place)
    assert len(HARNESS.sessions_in(tmp_path)) == 1


def test_a_child_whose_parent_is_gone_is_a_root(tmp_path: Path) -> None:
    rollouts = sorted((RECORDINGS / "codex-0.171.0/subagent/home").rglob("rollout-*.jsonl"))
    for path in rollouts[1:]:
        shutil.copy(path, tmp_path)
    sources = HARNESS.sessions_in(tmp_path)
    assert len(sources) == 3
    events, _ = parsed(sources[0])
    assert events[1].type == "user_message_chunk"
    assert {agent(event) for event in events} == {None}


def test_threads_that_name_each_other_as_parent_are_not_lost(tmp_path: Path) -> None:
    for ident, parent in (("a", "b"), ("b", "a")):
        meta = {"type": "session_meta", "payload": {"id": ident, "parent_thread_id": parent}}
        (tmp_path / f"{ident}.jsonl").write_text(json.dumps(meta) + "\n")
    (source,) = HARNESS.sessions_in(tmp_path)
    assert len(source.files) == 2
