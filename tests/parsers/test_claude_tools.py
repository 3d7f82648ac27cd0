"""How Claude Code's tool calls look: kinds and titles as the platform has them, its gaps filled."""

from __future__ import annotations

from typing import Any

import pytest
from traceflow_formats.trace import KINDS
from traceflow_parsers.tools import Shown, diff, shown_text
from traceflow_parsers.tools.claude import TABLE, shown

GREP = {
    "pattern": "x y", "path": "src", "-i": True, "-n": True, "-A": 2, "output_mode": "count", "head_limit": 5,
    "glob": "*.py", "type": "py", "multiline": True,
}  # fmt: skip

CALLS: list[tuple[str, Any, str, str]] = [
    ("Task", {"description": "Look", "prompt": "p"}, "think", "Look"),
    ("Agent", {"prompt": "p"}, "think", "Agent"),
    ("Bash", {"command": "ls -l"}, "execute", "`ls -l`"),
    ("Bash", {"command": "echo `id`"}, "execute", "`echo \\`id\\``"),
    ("Bash", {}, "execute", "Terminal"),
    ("Bash", {"command": 7}, "execute", "Terminal"),
    ("BashOutput", {"bash_id": "1"}, "execute", "Tail Logs"),
    ("KillShell", {}, "execute", "Kill Process"),
    ("Read", {"file_path": "/a"}, "read", "Read /a"),
    ("Read", {"file_path": "/a", "offset": 9, "limit": 20}, "read", "Read /a (10 - 29)"),
    ("Read", {"file_path": "/a", "limit": 20}, "read", "Read /a (1 - 20)"),
    ("Read", {"file_path": "/a", "offset": 9}, "read", "Read /a (from line 10)"),
    ("Read", {}, "read", "Read File"),
    ("NotebookRead", {"notebook_path": "/n"}, "read", "Read Notebook /n"),
    ("NotebookEdit", {"notebook_path": "/n", "new_source": "1"}, "edit", "Edit Notebook /n"),
    ("Edit", {"file_path": "/a", "old_string": "x", "new_string": "y"}, "edit", "Edit `/a`"),
    ("MultiEdit", {"file_path": "/a", "edits": []}, "edit", "Edit `/a`"),
    ("Write", {"file_path": "/a", "content": "x"}, "edit", "Write /a"),
    ("LS", {"path": "/d"}, "search", "List `/d` directory"),
    ("LS", {}, "search", "List current directory"),
    ("Glob", {"pattern": "*.py", "path": "/d"}, "search", "Find `/d` `*.py`"),
    ("Glob", {"pattern": "*.py"}, "search", "Find `*.py`"),
    ("Grep", {"pattern": "x"}, "search", 'grep "x"'),
    ("Grep", GREP, "search", 'grep -i -n -A 2 -c | head -5 --include="*.py" --type=py -P "x y" src'),
    ("Grep", {"pattern": "x", "output_mode": "files_with_matches"}, "search", 'grep -l "x"'),
    ("WebFetch", {"url": "https://x", "prompt": "p"}, "fetch", "Fetch https://x"),
    ("WebSearch", {"query": "q"}, "fetch", '"q"'),
    ("WebSearch", {"query": "q", "allowed_domains": ["a", "b"], "blocked_domains": ["c"]}, "fetch",
     '"q" (allowed: a, b) (blocked: c)'),
    ("ExitPlanMode", {"plan": "do it"}, "switch_mode", "Ready to code?"),
    ("EnterPlanMode", {}, "switch_mode", "EnterPlanMode"),
    ("TodoWrite", {"todos": []}, "other", "Update todos"),
    ("TaskCreate", {"subject": "x"}, "other", "TaskCreate"),
    ("TaskUpdate", {"taskId": "1"}, "other", "TaskUpdate"),
    ("Skill", {"skill": "x"}, "other", "Skill"),
    ("mcp__files__read__all", {}, "other", "files: read__all"),
    ("mcp__", {}, "other", "mcp__"),
    ("", {}, "other", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "kind", "title"), CALLS)
def test_kind_and_title(name: str, arguments: Any, kind: str, title: str) -> None:
    assert shown(name, arguments)[:2] == (kind, title)


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("Task", {"prompt": "p"}, [shown_text("p")]),
        ("Bash", {"command": "ls", "description": "d"}, [shown_text("d")]),
        ("Edit", {"file_path": "/a", "old_string": "x", "new_string": "y"}, [diff("/a", "x", "y")]),
        ("Edit", {"file_path": "/a"}, [diff("/a", None, "")]),
        (
            "MultiEdit",
            {"file_path": "/a", "edits": [{"old_string": "x", "new_string": "y"}, 7]},
            [diff("/a", "x", "y")],
        ),
        ("Write", {"file_path": "/a", "content": "c"}, [diff("/a", None, "c")]),
        ("NotebookEdit", {"notebook_path": "/n", "new_source": "1"}, [shown_text("1")]),
        ("WebFetch", {"url": "u", "prompt": "p"}, [shown_text("p")]),
        ("ExitPlanMode", {"plan": "p"}, [shown_text("p")]),
        ("Read", {"file_path": "/a"}, None),
        ("Grep", {"pattern": "x"}, None),
    ],
)
def test_content(name: str, arguments: Any, content: Any) -> None:
    assert shown(name, arguments).content == content


@pytest.mark.parametrize(
    ("name", "arguments", "locations"),
    [
        ("Read", {"file_path": "/a", "offset": 9}, [{"path": "/a", "line": 9}]),
        ("Read", {"file_path": "/a"}, [{"path": "/a", "line": 0}]),
        ("Edit", {"file_path": "/a"}, [{"path": "/a"}]),
        ("Write", {"file_path": "/a"}, [{"path": "/a"}]),
        ("Glob", {"pattern": "*", "path": "/d"}, [{"path": "/d"}]),
        ("Glob", {"pattern": "*"}, None),
        ("Bash", {"command": "ls"}, None),
    ],
)
def test_locations(name: str, arguments: Any, locations: Any) -> None:
    assert shown(name, arguments).locations == locations


def test_todos_are_a_plan() -> None:
    todos = [{"content": "a", "status": "in_progress", "activeForm": "x"}, {"content": "b", "status": "?"}, 7]
    assert shown("TodoWrite", {"todos": todos}).plan == [
        {"content": "a", "status": "in_progress", "priority": "medium"},
        {"content": "b", "status": "pending", "priority": "medium"},
    ]
    assert shown("TodoWrite", {"todos": "none"}).plan is None


@pytest.mark.parametrize("arguments", [None, 7, "x", [], {}, {"file_path": []}, {"command": None, "path": {}}])
def test_any_arguments_have_a_view(arguments: Any) -> None:
    for name in TABLE:
        view = shown(name, arguments)
        assert isinstance(view, Shown)
        assert view.kind in KINDS
        assert view.title


def test_another_family_may_bring_its_own_names() -> None:
    table = {"read_file": TABLE["Read"]}
    assert shown("read_file", {"absolute_path": "/a"}, table).title == "Read /a"
    assert shown("Read", {"file_path": "/a"}, table).kind == "other"
