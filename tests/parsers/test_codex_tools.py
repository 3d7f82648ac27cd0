"""What codex tools look like: kinds, titles, places, diffs and plans."""

from __future__ import annotations

from typing import Any

import pytest
from traceflow_formats.trace import KINDS
from traceflow_parsers.tools.codex import shown_call, shown_item

ADD = "*** Begin Patch\n*** Add File: a.txt\n+one\n+two\n*** End Patch\n"
UPDATE = "*** Begin Patch\n*** Update File: a.txt\n@@ def f():\n x\n-one\n+two\n@@\n-three\n*** End Patch\n"
SEVERAL = (
    "*** Begin Patch\n*** Add File: a.txt\n+one\n*** Update File: b.txt\n*** Move to: c.txt\n@@\n-x\n+y\n"
    "*** Delete File: d.txt\n*** End Patch"
)


@pytest.mark.parametrize(
    ("name", "raw", "kind", "title"),
    [
        ("exec_command", {"cmd": "ls -la"}, "execute", "`ls -la`"),
        ("exec_command", {"wrong": 1}, "execute", "exec_command"),
        ("shell_command", {"command": "echo 'a b'"}, "execute", "`echo 'a b'`"),
        ("shell", {"command": ["bash", "-lc", "cat x"]}, "execute", "`bash -lc 'cat x'`"),
        ("local_shell", {"type": "exec", "command": ["ls"]}, "execute", "`ls`"),
        ("write_stdin", {"session_id": 1, "chars": "y"}, "execute", "write_stdin"),
        ("exec", "// @exec: x\nconst r = 1;\ntext(r);", "execute", "`const r = 1;`"),
        ("exec", "", "execute", "exec"),
        ("wait", {"cell_id": "1"}, "execute", "wait"),
        ("wait", {"ids": ["a"]}, "think", "wait"),
        ("wait_agent", {"targets": []}, "think", "wait_agent"),
        ("spawn_agent", {"message": "do it"}, "think", "spawn_agent"),
        ("spawn_agent", {"message": "do it", "task_name": "list_files"}, "think", "list_files"),
        ("apply_patch", ADD, "edit", "Create a.txt"),
        ("apply_patch", {"input": UPDATE}, "edit", "Edit a.txt"),
        ("apply_patch", SEVERAL, "edit", "Edit 3 files"),
        ("apply_patch", "nonsense", "edit", "apply_patch"),
        ("shell", {"command": ["apply_patch", ADD]}, "edit", "Create a.txt"),
        ("update_plan", {"plan": []}, "other", "Update plan"),
        ("view_image", {"path": "/a.png"}, "read", "Read /a.png"),
        ("read_file", {"file_path": "/a"}, "read", "Read /a"),
        ("list_dir", {"dir_path": "/"}, "search", "List /"),
        ("grep_files", {"pattern": "x+"}, "search", 'grep "x+"'),
        ("tool_search", {"query": "plan", "limit": 5}, "search", "Search tools: plan"),
        ("web_search", {"type": "search", "query": "duck"}, "fetch", "Search: duck"),
        ("web_search", {"type": "open_page", "url": "http://a"}, "fetch", "Fetch http://a"),
        ("mcp__git__log__all", {}, "other", "git: log__all"),
        ("no_such_tool", {"x": 1}, "other", "no_such_tool"),
    ],
)
def test_kinds_and_titles_of_calls(name: str, raw: Any, kind: str, title: str) -> None:
    shown = shown_call(name, raw)
    assert (shown.kind, shown.title) == (kind, title)


def test_the_namespace_of_an_mcp_tool_is_its_server() -> None:
    assert shown_call("log", {}, "mcp__git__").title == "git: log"
    assert shown_call("log", {}, "collaboration").title == "log"


@pytest.mark.parametrize(
    ("item", "name", "kind", "title"),
    [
        ({"type": "command_execution", "command": "sh -c 'cat x'"}, "command_execution", "execute", "`sh -c 'cat x'`"),
        ({"type": "CommandExecution", "command": ["ls", "a b"]}, "command_execution", "execute", "`ls 'a b'`"),
        ({"type": "file_change", "changes": [{"path": "/a", "kind": "add"}]}, "file_change", "edit", "Create /a"),
        ({"type": "file_change", "changes": [{"path": "/a", "kind": "update"}]}, "file_change", "edit", "Edit /a"),
        ({"type": "file_change", "changes": [{"path": "/a", "kind": "delete"}]}, "file_change", "edit", "Edit /a"),
        ({"type": "FileChange", "changes": {"/a": {"type": "add"}}}, "file_change", "edit", "Create /a"),
        ({"type": "mcp_tool_call", "server": "s", "tool": "t"}, "mcp__s__t", "other", "s: t"),
        ({"type": "web_search", "query": "duck"}, "web_search", "fetch", "Search: duck"),
        ({"type": "collab_tool_call", "tool": "spawn_agent", "prompt": "x"}, "spawn_agent", "think", "spawn_agent"),
        ({"type": "collab_tool_call", "tool": "wait"}, "wait", "think", "wait"),
        ({"type": "todo_list", "items": []}, "todo_list", "other", "Update plan"),
    ],
)  # fmt: skip
def test_kinds_and_titles_of_items(item: dict[str, Any], name: str, kind: str, title: str) -> None:
    found = shown_item(item)
    assert found is not None
    assert (found[0], found[1].kind, found[1].title) == (name, kind, title)


def test_items_that_are_no_tools() -> None:
    assert shown_item({"type": "agent_message", "text": "x"}) is None
    assert shown_item({"type": None}) is None


def test_a_patch_shows_each_hunk_and_each_place() -> None:
    assert shown_call("apply_patch", ADD).content == [
        {"type": "diff", "path": "a.txt", "oldText": None, "newText": "one\ntwo\n"}
    ]
    assert shown_call("apply_patch", UPDATE).content == [
        {"type": "diff", "path": "a.txt", "oldText": "x\none\n", "newText": "x\ntwo\n"},
        {"type": "diff", "path": "a.txt", "oldText": "three\n", "newText": ""},
    ]
    shown = shown_call("apply_patch", SEVERAL)
    assert shown.content is not None
    assert [part["path"] for part in shown.content] == ["a.txt", "c.txt", "d.txt"]
    assert shown.locations == [{"path": "a.txt"}, {"path": "b.txt"}, {"path": "c.txt"}, {"path": "d.txt"}]


@pytest.mark.parametrize(
    "raw", [None, 7, "x", [], {}, {"command": 7}, {"plan": 7}, {"command": ["apply_patch", 7]}, {"items": [7, None]}]
)
def test_any_input_has_a_view(raw: Any) -> None:
    names = (
        "exec_command",
        "shell",
        "exec",
        "apply_patch",
        "update_plan",
        "wait",
        "spawn_agent",
        "view_image",
        "web_search",
    )
    for name in (*names, "list_dir", "grep_files", "tool_search", "mcp__", "x"):
        assert shown_call(name, raw).kind in KINDS
    for kind in ("command_execution", "file_change", "mcp_tool_call", "web_search", "collab_tool_call", "todo_list"):
        item = {"command": raw, "changes": raw, "items": raw, "query": raw, "action": raw, "tool": raw, "server": raw}
        found = shown_item({"type": kind, **item})
        assert found is not None
        assert found[1].kind in KINDS
