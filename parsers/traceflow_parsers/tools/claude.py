"""Claude Code's tools: kind, title, places and content of a call.

`TABLE` maps the harness's own name to the view of a call's input, so that a family with mostly the same tools
(Qwen Code) takes the entries it shares: `{"read_file": TABLE["Read"], ...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import Shown, diff, plan_entries, shown_text

__all__ = ["TABLE", "View", "agent_tool", "shown"]

View = Callable[[Mapping[str, Any]], Shown]

_EMPTY: Mapping[str, Any] = {}


def shown(name: str, arguments: object, table: Mapping[str, View] | None = None) -> Shown:
    """The view of a call; a tool that is not in the table is `other` under its own name."""
    view = (table or TABLE).get(name)
    if view is not None:
        return view(arguments if type(arguments) is dict else _EMPTY)
    if name.startswith("mcp__"):
        server, _, tool = name[5:].partition("__")
        return Shown("other", f"{server}: {tool}" if server and tool else name)
    return Shown("other", name)


def _text(arguments: Mapping[str, Any], *keys: str) -> str:
    """The first of the keys that holds text; arguments come from a model and may hold anything."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _number(arguments: Mapping[str, Any], key: str) -> int | None:
    value = arguments.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _said(text: str) -> list[dict[str, Any]] | None:
    return [shown_text(text)] if text else None


def _at(path: str, line: int | None = None) -> list[dict[str, Any]] | None:
    if not path:
        return None
    return [{"path": path} if line is None else {"path": path, "line": line}]


def _plain(kind: str, title: str) -> View:
    view = Shown(kind, title)
    return lambda arguments: view


def agent_tool(default: str) -> View:
    """A tool that hands work to a subagent: its description is the title, its prompt the content."""

    def view(arguments: Mapping[str, Any]) -> Shown:
        return Shown("think", _text(arguments, "description") or default, _said(_text(arguments, "prompt")))

    return view


def _shell(arguments: Mapping[str, Any]) -> Shown:
    command, description = arguments.get("command"), arguments.get("description")
    if type(command) is not str or not command:
        title = "Terminal"
    elif "`" in command:
        title = "`" + command.replace("`", "\\`") + "`"
    else:
        title = f"`{command}`"
    return Shown("execute", title, _said(description) if type(description) is str else None)


def _read(arguments: Mapping[str, Any]) -> Shown:
    path, offset, limit = arguments.get("file_path"), arguments.get("offset"), arguments.get("limit")
    if type(path) is not str or not path:
        path = _text(arguments, "absolute_path", "path")
    first = offset if type(offset) is int else 0
    title = f"Read {path or 'File'}"
    if limit and type(limit) is int:
        title += f" ({first + 1} - {first + limit})"
    elif first:
        title += f" (from line {first + 1})"
    return Shown("read", title, None, [{"path": path, "line": first}] if path else None)


def _write(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "file_path", "absolute_path", "path")
    content = [diff(path, None, _text(arguments, "content"))] if path else None
    return Shown("edit", f"Write {path}" if path else "Write", content, _at(path))


def _edit(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "file_path", "absolute_path", "path")
    old = arguments.get("old_string")
    content = [diff(path, old if isinstance(old, str) else None, _text(arguments, "new_string"))] if path else None
    return Shown("edit", f"Edit `{path}`" if path else "Edit", content, _at(path))


def _multi_edit(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "file_path")
    edits = arguments.get("edits")
    content = []
    for edit in edits if path and isinstance(edits, list) else ():
        if isinstance(edit, dict):
            old = edit.get("old_string")
            content.append(diff(path, old if isinstance(old, str) else None, _text(edit, "new_string")))
    return Shown("edit", f"Edit `{path}`" if path else "Edit", content or None, _at(path))


def _notebook_read(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "notebook_path")
    return Shown("read", f"Read Notebook {path}" if path else "Read Notebook", locations=_at(path))


def _notebook_edit(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "notebook_path")
    title = f"Edit Notebook {path}" if path else "Edit Notebook"
    return Shown("edit", title, _said(_text(arguments, "new_source")), _at(path))


def _list(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "path")
    return Shown("search", f"List `{path}` directory" if path else "List current directory")


def _glob(arguments: Mapping[str, Any]) -> Shown:
    path = _text(arguments, "path")
    parts = [f"`{part}`" for part in (path, _text(arguments, "pattern")) if part]
    return Shown("search", " ".join(["Find", *parts]), locations=_at(path))


def _grep(arguments: Mapping[str, Any]) -> Shown:
    """The search as the command line that it stands for."""
    words = ["grep"]
    words += [flag for flag in ("-i", "-n") if arguments.get(flag) is True]
    words += [f"{flag} {arguments[flag]}" for flag in ("-A", "-B", "-C") if _number(arguments, flag) is not None]
    mode = arguments.get("output_mode")
    if mode in ("files_with_matches", "count"):
        words.append("-l" if mode == "files_with_matches" else "-c")
    if (limit := _number(arguments, "head_limit")) is not None:
        words.append(f"| head -{limit}")
    if include := _text(arguments, "glob"):
        words.append(f'--include="{include}"')
    if kind := _text(arguments, "type"):
        words.append(f"--type={kind}")
    if arguments.get("multiline") is True:
        words.append("-P")
    if pattern := _text(arguments, "pattern"):
        words.append(f'"{pattern}"')
    path = _text(arguments, "path")
    return Shown("search", " ".join([*words, path] if path else words))


def _fetch(arguments: Mapping[str, Any]) -> Shown:
    url = _text(arguments, "url")
    return Shown("fetch", f"Fetch {url}" if url else "Fetch", _said(_text(arguments, "prompt")))


def _web_search(arguments: Mapping[str, Any]) -> Shown:
    query = _text(arguments, "query")
    title = f'"{query}"' if query else "Web search"
    for word, key in (("allowed", "allowed_domains"), ("blocked", "blocked_domains")):
        domains = arguments.get(key)
        names = [d for d in domains if isinstance(d, str)] if isinstance(domains, list) else []
        if names:
            title += f" ({word}: {', '.join(names)})"
    return Shown("fetch", title)


def _exit_plan(arguments: Mapping[str, Any]) -> Shown:
    return Shown("switch_mode", "Ready to code?", _said(_text(arguments, "plan")))


def _todos(arguments: Mapping[str, Any]) -> Shown:
    return Shown("other", "Update todos", plan=plan_entries(arguments.get("todos")))


TABLE: Mapping[str, View] = {
    "Agent": agent_tool("Agent"),  # what 2.1 calls Task
    "Task": agent_tool("Task"),
    "Bash": _shell,
    "BashOutput": _plain("execute", "Tail Logs"),
    "KillShell": _plain("execute", "Kill Process"),
    "Read": _read,
    "Write": _write,
    "Edit": _edit,
    "MultiEdit": _multi_edit,
    "NotebookRead": _notebook_read,
    "NotebookEdit": _notebook_edit,
    "LS": _list,
    "Glob": _glob,
    "Grep": _grep,
    "WebFetch": _fetch,
    "WebSearch": _web_search,
    "EnterPlanMode": _plain("switch_mode", "EnterPlanMode"),
    "ExitPlanMode": _exit_plan,
    "TodoWrite": _todos,
}
