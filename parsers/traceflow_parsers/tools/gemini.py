"""The tools of gemini-cli: kinds and titles as on the platform, and what it leaves out.

Filled gaps: `invoke_agent` and the agents that are tools of their own are `think`, `grep_search` is `search`,
the plan-mode tools are `switch_mode`, and `write_todos` gives a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Shown, diff, plan_entries, shown_text

__all__ = ["AGENT_TOOLS", "first_text", "place", "show"]

AGENT_TOOLS = frozenset(
    {
        "invoke_agent",
        "delegate_to_agent",
        "codebase_investigator",
        "cli_help",
        "generalist",
        "generalist_agent",
        "browser_agent",
    }
)


def first_text(args: dict[str, Any], *keys: str) -> str:
    """The first of these arguments that is a text and not empty, else ""."""
    for key in keys:
        value = args.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def place(path: str, line: object = None) -> list[dict[str, Any]] | None:
    """Where a call acts; `line` counts from 0. None where the path is unknown."""
    if not path:
        return None
    where: dict[str, Any] = {"path": path}
    if type(line) is int and line >= 0:
        where["line"] = line
    return [where]


def _read(args: dict[str, Any]) -> Shown:
    path = first_text(args, "absolute_path", "file_path", "path")
    line = args.get("offset")
    if type(start := args.get("start_line")) is int:  # 0.30 and later count from 1
        line = start - 1
    return Shown("read", f"Read {path}" if path else "Read file", None, place(path, line))


def _read_many(args: dict[str, Any]) -> Shown:
    globs = args.get("include", args.get("paths"))
    names = [g for g in globs if isinstance(g, str)] if isinstance(globs, list) else []
    return Shown("read", f"Read {len(names)} files", None, [{"path": n} for n in names] or None)


def _write(args: dict[str, Any]) -> Shown:
    path = first_text(args, "file_path", "path")
    content = args.get("content")
    shown = [diff(path, None, content)] if path and isinstance(content, str) else None
    return Shown("edit", f"Write {path}" if path else "Write file", shown, place(path))


def _replace(args: dict[str, Any]) -> Shown:
    path = first_text(args, "file_path", "path")
    old, new = args.get("old_string"), args.get("new_string")
    shown = None
    if path and (isinstance(old, str) or isinstance(new, str)):
        shown = [diff(path, old if isinstance(old, str) else "", new if isinstance(new, str) else "")]
    return Shown("edit", f"Edit {path}" if path else "Edit file", shown, place(path))


def _edit_file(args: dict[str, Any]) -> Shown:
    path = first_text(args, "file_path", "path")
    return Shown("edit", f"Edit {path}" if path else "Edit file", None, place(path))


def _shell(args: dict[str, Any]) -> Shown:
    command, description = first_text(args, "command"), first_text(args, "description")
    title = f"`{command}`" if command else "Run command"
    return Shown("execute", title, [shown_text(description)] if description else None)


def _glob(args: dict[str, Any]) -> Shown:
    pattern = first_text(args, "pattern")
    return Shown("search", f"Find {pattern or 'files'}", None, place(first_text(args, "dir_path", "path")))


def _grep(args: dict[str, Any]) -> Shown:
    return Shown("search", f'grep "{first_text(args, "pattern", "query")}"')


def _list(args: dict[str, Any]) -> Shown:
    path = first_text(args, "dir_path", "path")
    return Shown("search", f"List {path or 'directory'}", None, place(path))


def _web_search(args: dict[str, Any]) -> Shown:
    query = first_text(args, "query")
    return Shown("fetch", f'"{query}"' if query else "Web search")


def _web_fetch(args: dict[str, Any]) -> Shown:
    prompt, url = first_text(args, "prompt"), first_text(args, "url")
    if prompt:
        return Shown("fetch", f"Fetch: {prompt[:50]}...")
    return Shown("fetch", f"Fetch {url}" if url else "Web fetch")


def _memory(args: dict[str, Any]) -> Shown:
    fact = first_text(args, "fact")
    return Shown("other", f'Remember: "{fact[:40]}..."' if fact else "Save memory")


def _todos(args: dict[str, Any]) -> Shown:
    plan = plan_entries(args.get("todos"), ("description", "content"))
    return Shown("other", "Update todos", None, None, plan)


def _skill(args: dict[str, Any]) -> Shown:
    name = first_text(args, "name", "skill")
    return Shown("other", f"Activate skill: {name}" if name else "Activate skill")


_TABLE: dict[str, Callable[[dict[str, Any]], Shown]] = {
    "read_file": _read,
    "read_many_files": _read_many,
    "write_file": _write,
    "replace": _replace,
    "edit_file": _edit_file,
    "run_shell_command": _shell,
    "shell": _shell,
    "glob": _glob,
    "grep": _grep,
    "grep_search": _grep,
    "search_file_content": _grep,
    "list_directory": _list,
    "google_web_search": _web_search,
    "web_search": _web_search,
    "brave_web_search": _web_search,
    "web_fetch": _web_fetch,
    "save_memory": _memory,
    "write_todos": _todos,
    "activate_skill": _skill,
    "enter_plan_mode": lambda _: Shown("switch_mode", "Enter plan mode"),
    "exit_plan_mode": lambda _: Shown("switch_mode", "Exit plan mode"),
}


def show(name: str, args: object) -> Shown:
    """The view of one call of a gemini-cli tool."""
    given = args if isinstance(args, dict) else {}
    view = _TABLE.get(name)
    if view is not None:
        return view(given)
    if name in AGENT_TOOLS:
        return Shown("think", f"Agent: {first_text(given, 'agent_name', 'agentName') or name}")
    return Shown("other", name)
