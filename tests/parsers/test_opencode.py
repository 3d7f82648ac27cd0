"""OpenCode: stdout, the SQLite database and its log, the older JSON files, export documents.

The databases among the recordings are recorded ones of which only the tables session, message and part are kept.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_parsers.contract import Parser
from traceflow_parsers.detect import open_path
from traceflow_parsers.opencode import HARNESS, OpencodeSession, OpencodeStdout
from traceflow_parsers.source import head_records
from traceflow_parsers.testing import ParserContract, run
from traceflow_parsers.tools.opencode import show
from truth_check import CASES, RECORDINGS, assert_said, read, sent, sent_tokens, sent_tools, told

STDOUTS = sorted(RECORDINGS.glob("opencode-*/*/stdout*.jsonl"))
HOMES = sorted(RECORDINGS.glob("opencode-*/*/home"))


def rows_of(home: Path) -> bytes:
    """The rows of a home's root session, as the parser reads them."""
    (source,) = HARNESS.sessions_in(home)
    return b"\n".join(line for item in source.inputs for line in item.lines())


class TestStdoutContract(ParserContract):
    make = OpencodeStdout
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [path.read_bytes() for path in STDOUTS])


class TestSessionContract(ParserContract):
    make = OpencodeSession
    inputs: Callable[[], list[bytes]] = staticmethod(lambda: [rows_of(home) for home in HOMES])


# -- recordings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", HOMES, ids=lambda p: f"{p.parents[1].name}/{p.parent.name}")
def test_a_session_tells_what_the_model_server_sent(home: Path) -> None:
    main, sub = sent(home.parent)
    (source,) = HARNESS.sessions_in(home)
    agents, report = read(source)
    if home.parent.name == "badtool":  # OpenCode's name for a tool that does not exist
        main[0]["calls"] = [["invalid", agents[None].tools[0][2]]]
    assert_said(agents[None], main)
    assert report["version"] == home.parents[1].name.rsplit("-", 1)[1]
    assert all("[[scn:" in prompt for prompt in agents[None].prompts)
    children = {name: agent for name, agent in agents.items() if name is not None}
    assert len(children) == sum(row["turn"] == 0 for row in sub)
    assert {child.parent for child in children.values()} <= {call for call, _, _ in agents[None].tools}
    tools = [tool for child in children.values() for tool in child.tools]
    assert sorted(tools, key=str) == sorted(sent_tools(sub), key=str)
    totals = [child.tokens for child in children.values()]
    assert (sum(p for p, _ in totals), sum(c for _, c in totals)) == sent_tokens(sub)


@pytest.mark.parametrize("path", STDOUTS, ids=lambda p: f"{p.parents[1].name}/{p.parent.name}/{p.name}")
def test_stdout_tells_the_calls_as_they_end(path: Path) -> None:
    agents, report = read(HARNESS.stdout_source(path))
    main, _ = sent(path.parent)
    number = int(path.name.split(".")[1]) - 1 if path.name.count(".") == 2 else 0
    if path.parent.name == "resume":
        main = main[2 * number : 2 * number + 2]
    if path.parent.name == "badtool":
        main[0]["calls"] = [["invalid", agents[None].tools[0][2]]]
    assert len(agents[None].calls) == len(main)
    assert sorted(agents[None].tools, key=str) == sorted(sent_tools(main), key=str)
    assert agents[None].tokens == sent_tokens(main)
    assert not report["incomplete"]


def test_a_failing_command_and_an_unknown_tool_have_failed() -> None:
    agents, _ = read(HARNESS.stdout_source(RECORDINGS / "opencode-1.18.33/basic/stdout.jsonl"))
    failed = [text for status, text in agents[None].results.values() if status == "failed"]
    assert failed == ["cat: missing.txt: No such file or directory\n", "two\n"]
    agents, _ = read(HARNESS.stdout_source(RECORDINGS / "opencode-1.18.33/badtool/stdout.jsonl"))
    assert [status for status, _ in agents[None].results.values()] == ["failed", "failed"]


def test_a_todo_tool_is_a_call_and_a_plan() -> None:
    (source,) = HARNESS.sessions_in(RECORDINGS / "opencode-1.18.33/basic/home")
    agents, _ = read(source)
    assert [name for _, name, _ in agents[None].tools].count("todowrite") == 2
    assert [[e["status"] for e in plan] for plan in agents[None].plans] == [
        ["completed", "in_progress", "pending"],
        ["completed", "completed", "in_progress"],
    ]


def test_a_compaction_is_a_summary_and_its_model_call_is_no_message() -> None:
    folder = RECORDINGS / "opencode-compat-1.18.33/compact"
    (source,) = HARNESS.sessions_in(folder / "home")
    for agents in (read(source)[0], read(HARNESS.stdout_source(folder / "stdout.jsonl"))[0]):
        (summary,) = agents[None].summaries
        assert summary.startswith("<analysis>The user ran a scripted scenario.")
        assert [kind for kind, _ in agents[None].injected] == ["compaction_continue"]
        assert [(u["promptTokens"], u["completionTokens"]) for u in agents[None].summary_usage] == [(100, 20)]
        assert [call.message for call in agents[None].calls.values()][-1] == "Nothing scripted for this request."


def test_a_provider_error_is_an_error_and_no_words() -> None:
    folder = RECORDINGS / "opencode-1.18.33/errors"
    (source,) = HARNESS.sessions_in(folder / "home")
    for agents in (read(source)[0], read(HARNESS.stdout_source(folder / "stdout.jsonl"))[0]):
        (error,) = agents[None].errors
        assert (error["message"], error["fatal"], error["statusCode"]) == (
            "messages.3: scripted bad request",
            True,
            400,
        )
        assert [call.message for call in agents[None].calls.values()] == ["Listing first."]


def test_the_session_row_states_the_totals_of_the_main_agent() -> None:
    (source,) = HARNESS.sessions_in(RECORDINGS / "opencode-1.18.33/subagent/home")
    run_usage = read(source)[0][None].run
    assert run_usage is not None
    assert (run_usage["promptTokens"], run_usage["completionTokens"], run_usage["costUsd"]) == (6552, 66, 0.004563)


def test_an_exported_session_reads_like_the_stored_one() -> None:
    folder = RECORDINGS / "opencode-1.18.33/subagent"
    (stored,) = HARNESS.sessions_in(folder / "home")
    for path in sorted(folder.glob("export-*.json")):
        assert HARNESS.is_session(head_records(path))
        agents, report = read(HARNESS.session_at(path))
        wanted = read(stored)[0].get(None if report["session_id"] == stored.session_id else report["session_id"])
        assert wanted is not None
        assert list(agents) == [None]
        assert agents[None].calls == wanted.calls
        assert agents[None].results == wanted.results


@pytest.mark.parametrize("indent", [None, 2])
def test_an_export_of_many_megabytes_is_read_whole(tmp_path: Path, indent: int | None) -> None:
    def message(number: int) -> dict[str, Any]:
        info = {"id": f"msg_{number:04}", "sessionID": "ses_1", "role": "user", "time": {"created": number}}
        text = {"id": f"prt_{number:04}", "messageID": info["id"], "type": "text", "text": f"{number} " + "x" * 2000}
        return {"info": info, "parts": [text | {"sessionID": "ses_1"}]}

    document = {
        "info": {"id": "ses_1", "version": "1.18.33", "directory": "/w", "time": {"created": 1, "updated": 2}},
        "messages": [message(number) for number in range(2500)],
    }
    path = tmp_path / "export.json"
    path.write_text(json.dumps(document, indent=indent))
    (source,) = open_path(path)
    prompts = read(source)[0][None].prompts
    assert [prompt.split()[0] for prompt in prompts] == [str(number) for number in range(2500)]


# -- cases -------------------------------------------------------------------------------------------------


def test_case_37_an_unknown_cost_is_absent_and_a_free_call_costs_nothing() -> None:
    path = CASES / "37-cost-null-versus-zero/opencode-messages.jsonl"
    assert HARNESS.is_session(head_records(path))
    agents, _ = read(HARNESS.session_at(path))
    usages = [call.usage or {} for call in agents[None].calls.values()]
    assert [usage.get("costUsd") for usage in usages] == [0.25, 0, None, None]
    assert agents[None].tokens == (40, 4)


def test_case_54_a_session_that_is_only_in_the_log_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(CASES / "54-opencode-sqlite-wal", folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for path in folder.iterdir():
        path.chmod(0o444)
    folder.chmod(0o555)
    try:
        sources = HARNESS.sessions_in(folder)
        assert [(s.session_id, read(s)[0][None].prompts) for s in sources] == [
            ("ses_A", ["old"]),
            ("ses_NEW", ["only in wal"]),
        ]
        assert [s.session_id for s in HARNESS.sessions_in(folder / "opencode.db")] == ["ses_A", "ses_NEW"]
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize(
    ("name", "prompt", "cached", "completion", "warned"),
    [("message.json", 66231, 65856, 192, 0), ("inclusive-fork.json", 69000, 60000, 1000, 1)],
)
def test_case_55_token_buckets(name: str, prompt: int, cached: int, completion: int, warned: int) -> None:
    path = CASES / "55-opencode-token-buckets" / name
    assert HARNESS.is_session(head_records(path))
    agents, report = read(HARNESS.session_at(path))
    (call,) = agents[None].calls.values()
    assert call.usage is not None
    numbers = call.usage["promptTokens"], call.usage["cachedTokens"], call.usage["completionTokens"]
    assert numbers == (prompt, cached, completion)
    assert sum(w["count"] for w in report["warnings"] if w["code"] == "inclusive_tokens") == warned


def test_case_57_a_step_that_never_finished() -> None:
    folder = CASES / "57-opencode-stdout-without-finish"
    agents, report = read(HARNESS.stdout_source(folder / "only-start.jsonl"))
    assert (agents, report["incomplete"]) == ({}, True)
    agents, report = read(HARNESS.stdout_source(folder / "no-finish.jsonl"))
    (call,) = agents[None].calls.values()
    assert (call.message, call.usage, report["incomplete"]) == ("hello", None, True)
    agents, report = read(HARNESS.stdout_source(folder / "good.jsonl"))
    assert (agents[None].tokens, report["incomplete"]) == ((2080, 50), False)
    costs = [call.usage["costUsd"] for call in agents[None].calls.values() if call.usage]
    assert sum(costs) == 0.5
    assert agents[None].results == {"c1": ("completed", "a.txt")}


# -- what recordings do not show ---------------------------------------------------------------------------


def message(number: int, role: str = "assistant", **info: Any) -> dict[str, Any]:
    base = {"id": f"msg_{number}", "sessionID": "ses_1", "role": role, "time": {"created": 1772600767000 + number}}
    return {"row": "message", "data": {**base, **({"modelID": "m"} if role == "assistant" else {}), **info}}


def part(number: int, of: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"row": "part", "data": {"id": f"prt_{number}", "messageID": f"msg_{of}", "type": kind, **data}}


def parsed(*rows: dict[str, Any]) -> tuple[Any, Parser, list[Any]]:
    parser = OpencodeSession()
    events = run(parser, b"\n".join(json.dumps(row).encode() for row in rows))
    return told(events), parser, events


def test_a_killed_run_has_a_call_without_a_result() -> None:
    state = {"status": "running", "input": {"command": "sleep 300"}, "metadata": {"output": "started"}}
    agents, parser, events = parsed(
        message(1, "user"),
        part(1, 1, "text", text="go"),
        message(2, tokens={"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, cost=0),
        part(2, 2, "step-start"),
        part(3, 2, "tool", tool="bash", callID="c1", state=state),
    )
    assert agents[None].tools == [("c1", "bash", {"command": "sleep 300"})]
    assert agents[None].results == {}
    assert not any(event.type == "usage" for event in events), "zeros are what stands there before the end"
    assert parser.report.incomplete


def test_an_attempt_that_broke_is_a_call_of_its_own() -> None:
    error = {"name": "APIError", "data": {"message": "Overloaded", "statusCode": 529}}
    agents, _, _ = parsed(
        message(1, "user"),
        part(1, 1, "text", text="go"),
        message(2, error=error),
        part(2, 2, "step-start"),
        part(3, 2, "step-start"),
        part(4, 2, "text", text="cut"),
        part(5, 2, "retry", attempt=1, error=error, time={"created": 1772600767005}),
        part(6, 2, "step-start"),
        part(7, 2, "text", text="cut again"),
    )
    assert {name: call.message for name, call in agents[None].calls.items()} == {
        "msg_2": "cut",
        "msg_2#2": "cut again",
    }
    assert [(e["fatal"], e.get("retried")) for e in agents[None].errors] == [(False, True), (True, None)]


def test_a_refused_answer_has_tokens_and_an_error() -> None:
    tokens = {"input": 100, "output": 20, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    agents, _, _ = parsed(
        message(2, error={"name": "ContentFilterError", "data": {}}),
        part(2, 2, "step-start"),
        part(3, 2, "step-finish", reason="content-filter", tokens=tokens, cost=0.1),
    )
    assert agents[None].tokens == (100, 20)
    assert [error["message"] for error in agents[None].errors] == ["ContentFilterError"]


def test_what_was_reverted_is_abandoned_and_what_a_fork_copied_is_marked() -> None:
    born = 1772600767000 + 3
    session = {"row": "session", "data": {"id": "ses_1", "version": "1.2.3", "time_created": born}}
    revert = {"row": "session", "data": {**session["data"], "revert": {"messageID": "msg_5"}}}
    rows = [
        row
        for n in (1, 3, 5)
        for row in (
            message(n, "user"),
            part(n, n, "text", text=f"prompt {n}"),
            message(n + 1),
            part(n + 1, n + 1, "text", text="answer"),
        )
    ]
    _, _, events = parsed(revert, *rows)
    marks = [(e.data.get("extra", {}).get("copied"), e.data.get("extra", {}).get("abandoned")) for e in events]
    assert marks == [(True, None), (True, None), (None, None), (None, None), (None, True), (None, True)]


def test_images_of_users_and_tools_are_blocks() -> None:
    picture = {"mime": "image/png", "url": "data:image/png;base64,QUJD", "filename": "a.png"}
    state = {"status": "completed", "input": {}, "output": "", "attachments": [picture], "metadata": {}}
    _, _, events = parsed(
        message(1, "user"),
        part(1, 1, "text", text="look"),
        part(2, 1, "file", **picture),
        message(2),
        part(3, 2, "tool", tool="read", callID="c1", state=state),
    )
    block = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    assert events[1].data["update"]["content"] == block
    assert events[3].data["update"]["content"] == [{"type": "content", "content": block}]


def test_a_file_that_is_no_opencode_database_is_refused_by_name(tmp_path: Path) -> None:
    other = tmp_path / "opencode.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE session (id text, parent_id text)")
        connection.execute(
            "CREATE VIEW message AS SELECT id, id AS session_id, 1 AS time_created, id AS data FROM session"
        )
    connection.close()
    with pytest.raises(TraceflowError, match="none of OpenCode") as refused:
        HARNESS.sessions_in(tmp_path)
    assert refused.value.code == "unrecognized_trace"
    broken = bytearray((RECORDINGS / "opencode-1.18.33/errors/home/.local/share/opencode/opencode.db").read_bytes())
    broken[100:8192] = b"\xff" * 8092
    other.write_bytes(broken)
    with pytest.raises(TraceflowError, match="cannot be read as a SQLite database") as refused:
        HARNESS.sessions_in(tmp_path)
    assert refused.value.code == "invalid_input"


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_a_database_that_a_writer_has_locked_is_read_as_it_was_committed(journal: str, tmp_path: Path) -> None:
    recorded = RECORDINGS / "opencode-1.18.33/basic/home/.local/share/opencode/opencode.db"
    path = tmp_path / "opencode.db"
    shutil.copy(recorded, path)
    (source,) = open_path(path)
    committed = list(source.parse())
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute(f"PRAGMA journal_mode = {journal}")
        writer.execute("PRAGMA cache_size = 1")  # what is not committed goes to the files at once
        writer.execute("BEGIN EXCLUSIVE")
        writer.execute("DELETE FROM part")
        writer.execute("CREATE TABLE filler AS SELECT randomblob(100000) AS data")
        with closing(sqlite3.connect(path, timeout=0)) as other, pytest.raises(sqlite3.OperationalError, match="lock"):
            other.execute("DELETE FROM message")
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        (source,) = open_path(path)
        assert list(source.parse()) == committed
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_session_in_two_places_is_read_once_from_the_fuller_one(tmp_path: Path) -> None:
    full = RECORDINGS / "opencode-1.18.33/errors/home/.local/share/opencode/opencode.db"
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    shutil.copy(full, tmp_path / "a/opencode.db")
    shutil.copy(full, tmp_path / "b/opencode.db")
    with sqlite3.connect(tmp_path / "a/opencode.db") as connection:
        connection.execute("DELETE FROM part")
    connection.close()
    (source,) = HARNESS.sessions_in(tmp_path)
    assert source.path == tmp_path / "b/opencode.db"


def test_a_database_gives_all_its_sessions_and_an_empty_one_is_refused(tmp_path: Path) -> None:
    found = open_path(CASES / "54-opencode-sqlite-wal/opencode.db")
    assert [source.session_id for source in found] == ["ses_A", "ses_NEW"]
    empty = tmp_path / "opencode.db"
    shutil.copy(RECORDINGS / "opencode-1.18.33/errors/home/.local/share/opencode/opencode.db", empty)
    with sqlite3.connect(empty) as connection:
        connection.execute("DELETE FROM session")
    connection.close()
    with pytest.raises(TraceflowError, match="no session of opencode in it") as refused:
        open_path(empty)
    assert refused.value.code == "empty_trace"
    with pytest.raises(TraceflowError, match="not what droid writes"):
        open_path(empty, "droid")


def test_a_database_of_several_sessions_is_no_single_session() -> None:
    with pytest.raises(TraceflowError, match="holds 2 sessions, not one: ses_A, ses_NEW"):
        HARNESS.session_at(CASES / "54-opencode-sqlite-wal/opencode.db")


def test_nothing_of_other_harnesses_is_claimed() -> None:
    strangers: list[dict[str, Any]] = [
        {"type": "system", "subtype": "init", "session_id": "x", "cwd": "/", "tools": []},
        {"type": "error", "timestamp": "2026-01-01T00:00:00Z", "severity": "error", "message": "no"},
        {"sessionId": "x", "messages": [{"id": "1", "type": "user", "content": "hi"}], "projectHash": "p"},
        {"role": "assistant", "content": "hi"},
        {"type": "text", "text": "hi"},
    ]
    assert not HARNESS.is_stdout(strangers)
    assert not HARNESS.is_session(strangers)
    assert not any(HARNESS.is_stdout(head_records(path)) for path in RECORDINGS.glob("opencode-*/*/export-*.json"))
    assert all(HARNESS.is_stdout(head_records(path)) for path in STDOUTS)


@pytest.mark.parametrize(
    ("name", "given", "kind", "locations", "content"),
    [
        ("read", {"filePath": "/a", "offset": 5}, "read", [{"path": "/a", "line": 4}], None),
        ("read", {"filePath": "/a"}, "read", [{"path": "/a"}], None),
        ("write", {"filePath": "/a", "content": "x"}, "edit", [{"path": "/a"}], ("/a", None, "x")),
        ("edit", {"filePath": "/a", "oldString": "x"}, "edit", [{"path": "/a"}], ("/a", "x", "")),
        ("multiedit", {"filePath": "/a", "edits": []}, "edit", [{"path": "/a"}], None),
        ("apply_patch", {"patchText": "*** Begin"}, "edit", None, None),
        ("bash", {"command": "ls", "description": "list"}, "execute", None, "list"),
        ("Bash", {"command": "ls"}, "execute", None, "ls"),
        ("glob", {"pattern": "*", "path": "/a"}, "search", [{"path": "/a"}], None),
        ("grep", {"pattern": "x"}, "search", None, None),
        ("list", {"path": "/a"}, "search", [{"path": "/a"}], None),
        ("lsp", {}, "search", None, None),
        ("webfetch", {"url": "http://x"}, "fetch", None, "http://x"),
        ("websearch", {"query": "q"}, "fetch", None, "q"),
        ("codesearch", {"query": "q"}, "search", None, "q"),
        ("task", {"description": "d", "prompt": "p"}, "think", None, "d"),
        ("plan_exit", {}, "switch_mode", None, None),
        ("todoread", {}, "other", None, None),
        ("skill", {"name": "x"}, "other", None, None),
        ("invalid", {"tool": "x", "error": "e"}, "other", None, None),
        ("mcp_thing", None, "other", None, None),
    ],
)
def test_kinds_places_and_contents(name: str, given: Any, kind: str, locations: Any, content: Any) -> None:
    shown = show(name, {"input": given, "title": "T"})
    assert (shown.kind, shown.title, shown.locations) == (kind, "T", locations)
    if isinstance(content, tuple):
        assert shown.content == [{"type": "diff", "path": content[0], "oldText": content[1], "newText": content[2]}]
    elif content is None:
        assert shown.content is None
    else:
        assert shown.content == [{"type": "content", "content": {"type": "text", "text": content}}]


def test_titles_are_opencodes_own() -> None:
    assert show("bash", {"title": "ls"}).title == "ls"
    assert show("bash", {"metadata": {"description": "list"}}).title == "list"
    assert show("bash", {"input": {"command": "ls"}}).title == "bash"
