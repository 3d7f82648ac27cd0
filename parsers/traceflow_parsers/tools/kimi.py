"""The tools of Kimi Code and kimi-cli: kinds, titles, places, diffs, plans. Both families of names are here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import Shown, diff, plan_entries, shown_text

__all__ = ["show"]

_SAME = {  # kimi-cli's name -> Kimi Code's
    "ReadFile": "Read",
    "WriteFile": "Write",
    "StrReplaceFile": "Edit",
    "Shell": "Bash",
    "SearchWeb": "WebSearch",
    "SetTodoList": "TodoList",
    "Task": "Agent",
    "AgentSwarm": "Agent",
}


def show(name: str, arguments: object) -> Shown:
    """The view of a call, from its name and arguments."""
    given = arguments if isinstance(arguments, dict) else {}
    view = _VIEWS.get(_SAME.get(name, name))
    if view is None:
        return Shown("other", name)
    path = given.get("path")
    if not isinstance(path, str) or not path:
        path = _text(given, "file_path")
    return view(given, path, [{"path": path}] if path else None)


_Places = list[dict[str, Any]] | None


def _read(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    return Shown("read", f"Read {path or 'file'}", None, places)


def _read_media(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    return Shown("read", f"Read media {path or 'file'}", None, places)


def _write(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    new = given.get("content")
    content = [diff(path, None, new)] if path and isinstance(new, str) else None
    return Shown("edit", f"Write {path or 'file'}", content, places)


def _edit(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    return Shown("edit", f"Edit {path or 'file'}", _edits(path, given), places)


def _shell(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    command, described = _text(given, "command"), _text(given, "description")
    title = f"`{command}`" if command else "Run command"
    return Shown("execute", title, [shown_text(described)] if described else None)


def _glob(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    return Shown("search", f"Find {_text(given, 'pattern') or path or 'files'}", None, places)


def _grep(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    pattern = _text(given, "pattern")
    return Shown("search", f'grep "{pattern}"' if pattern else "grep", None, places)


def _web_search(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    query = _text(given, "query")
    return Shown("fetch", f'"{query}"' if query else "Web search")


def _fetch(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    url = _text(given, "url")
    return Shown("fetch", f"Fetch {url}" if url else "Fetch")


def _agent(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    prompt = _text(given, "prompt")
    title = _text(given, "description") or "Subagent task"
    return Shown("think", title, [shown_text(prompt)] if prompt else None)


def _new_agent(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    subagent = _text(given, "name")
    return Shown("think", f"Subagent: {subagent}" if subagent else "Subagent")


def _think(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    return Shown("think", _text(given, "thought") or "Think")


def _todos(given: dict[str, Any], path: str | None, places: _Places) -> Shown:
    return Shown("other", "Update todos", plan=plan_entries(given.get("todos"), ("title", "content")))


def _text(given: dict[str, Any], key: str) -> str | None:
    value = given.get(key)
    return value if isinstance(value, str) and value else None


def _edits(path: str | None, given: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The diffs of an edit: `old_string`/`new_string`, or kimi-cli's `edit`, one or a list of {old, new}."""
    if path is None:
        return None
    edits = given.get("edit")
    if edits is None:
        edits = {"old": given.get("old_string"), "new": given.get("new_string")}
    diffs = []
    for edit in (edits if isinstance(edits, list) else [edits])[:200]:
        old, new = (edit.get("old"), edit.get("new")) if isinstance(edit, dict) else (None, None)
        if isinstance(old, str) or isinstance(new, str):
            diffs.append(diff(path, old if isinstance(old, str) else "", new if isinstance(new, str) else ""))
    return diffs or None


_VIEWS: dict[str, Callable[[dict[str, Any], str | None, _Places], Shown]] = {
    "Read": _read,
    "ReadMediaFile": _read_media,
    "Write": _write,
    "Edit": _edit,
    "Bash": _shell,
    "Glob": _glob,
    "Grep": _grep,
    "WebSearch": _web_search,
    "FetchURL": _fetch,
    "Agent": _agent,
    "CreateSubagent": _new_agent,
    "Think": _think,
    "TodoList": _todos,
    "EnterPlanMode": lambda given, path, places: Shown("switch_mode", "Enter plan mode"),
    "ExitPlanMode": lambda given, path, places: Shown("switch_mode", "Ready to code?"),
}
