"""The tools of qwen-code: mostly Claude's names and gemini-cli's, and a few of its own.

Filled gaps against the platform's table: `edit` has its place and its diff, `agent` and `task` are `think`,
`todo_write` gives a plan beside its call, `glob`, `grep_search` and `web_fetch` have their kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Shown, diff, gemini, plan_entries, shown_text
from .gemini import first_text, place

__all__ = ["AGENT_TOOLS", "show"]

AGENT_TOOLS = frozenset({"agent", "task", "Task", "Agent"})


def _read(args: dict[str, Any]) -> Shown:
    path = first_text(args, "file_path", "absolute_path", "path")
    return Shown("read", f"Read {path}" if path else "Read file", None, place(path, args.get("offset")))


def _edit(args: dict[str, Any]) -> Shown:
    path = first_text(args, "file_path", "path")
    old, new = args.get("old_string"), args.get("new_string")
    shown = None
    if path and (isinstance(old, str) or isinstance(new, str)):
        shown = [diff(path, old if isinstance(old, str) else None, new if isinstance(new, str) else "")]
    return Shown("edit", f"Edit {path}" if path else "Edit file", shown, place(path))


def _agent(args: dict[str, Any]) -> Shown:
    prompt = first_text(args, "prompt")
    title = first_text(args, "description") or "Subagent task"
    return Shown("think", title, [shown_text(prompt)] if prompt else None)


def _fetch(args: dict[str, Any]) -> Shown:
    url = first_text(args, "url")
    return Shown("fetch", f"Fetch {url}" if url else "Web fetch")


def _find(args: dict[str, Any]) -> Shown:
    pattern = first_text(args, "pattern")
    return Shown("search", f"Find {pattern or 'files'}", None, place(first_text(args, "path", "dir_path")))


def _todos(args: dict[str, Any]) -> Shown:
    return Shown("other", "Update todos", None, None, plan_entries(args.get("todos")))


def _named(kind: str, title: str) -> Callable[[dict[str, Any]], Shown]:
    return lambda _: Shown(kind, title)


def _gemini(name: str) -> Callable[[dict[str, Any]], Shown]:
    return lambda args: gemini.show(name, args)


_TABLE: dict[str, Callable[[dict[str, Any]], Shown]] = {
    "Read": _read,
    "read_file": _read,
    "Write": _gemini("write_file"),
    "Edit": _edit,
    "edit": _edit,
    "edit_file": _edit,
    "replace": _edit,  # the name of `edit` before 0.0.14
    "Bash": _gemini("run_shell_command"),
    "BashOutput": _named("execute", "BashOutput"),
    "KillShell": _named("execute", "KillShell"),
    "monitor": _gemini("run_shell_command"),
    "WebFetch": _fetch,
    "web_fetch": _fetch,
    "WebSearch": _gemini("web_search"),
    "Glob": _find,
    "glob": _find,
    "Grep": _gemini("grep_search"),
    "LS": _gemini("list_directory"),
    "Task": _agent,
    "Agent": _agent,
    "task": _agent,
    "agent": _agent,
    "TodoWrite": _todos,
    "todo_write": _todos,
    "ExitPlanMode": _named("switch_mode", "Exit plan mode"),
    "exit_plan_mode": _named("switch_mode", "Exit plan mode"),
    "enter_plan_mode": _named("switch_mode", "Enter plan mode"),
    "lsp": _named("search", "lsp"),
}
_SHARED = frozenset(
    {
        "write_file",
        "read_many_files",
        "run_shell_command",
        "shell",
        "grep_search",
        "search_file_content",
        "list_directory",
        "web_search",
        "google_web_search",
        "brave_web_search",
        "save_memory",
    }
)


def show(name: str, args: object) -> Shown:
    """The view of one call of a qwen-code tool."""
    given = args if isinstance(args, dict) else {}
    view = _TABLE.get(name)
    if view is not None:
        return view(given)
    if name in _SHARED:
        return gemini.show(name, given)
    if name.startswith("mcp__") and name.count("__") >= 2:
        _, server, tool = name.split("__", 2)
        return Shown("other", f"{server}: {tool}")
    return Shown("other", name)
