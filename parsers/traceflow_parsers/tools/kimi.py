"""The tools of Kimi Code and kimi-cli: kinds, titles, places, diffs, plans. Both families of names are here."""

from __future__ import annotations

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
_SWITCHES = {"EnterPlanMode": "Enter plan mode", "ExitPlanMode": "Ready to code?"}


def show(name: str, arguments: object) -> Shown:
    """The view of a call, from its name and arguments."""
    given = arguments if isinstance(arguments, dict) else {}
    tool = _SAME.get(name, name)
    path = _text(given, "path") or _text(given, "file_path")
    places = [{"path": path}] if path else None
    if tool == "Read":
        return Shown("read", f"Read {path or 'file'}", None, places)
    if tool == "ReadMediaFile":
        return Shown("read", f"Read media {path or 'file'}", None, places)
    if tool == "Write":
        new = given.get("content")
        content = [diff(path, None, new)] if path and isinstance(new, str) else None
        return Shown("edit", f"Write {path or 'file'}", content, places)
    if tool == "Edit":
        return Shown("edit", f"Edit {path or 'file'}", _edits(path, given), places)
    if tool == "Bash":
        command = _text(given, "command")
        described = _text(given, "description")
        title = f"`{command}`" if command else "Run command"
        return Shown("execute", title, [shown_text(described)] if described else None)
    if tool == "Glob":
        return Shown("search", f"Find {_text(given, 'pattern') or path or 'files'}", None, places)
    if tool == "Grep":
        pattern = _text(given, "pattern")
        return Shown("search", f'grep "{pattern}"' if pattern else "grep", None, places)
    if tool == "WebSearch":
        query = _text(given, "query")
        return Shown("fetch", f'"{query}"' if query else "Web search")
    if tool == "FetchURL":
        url = _text(given, "url")
        return Shown("fetch", f"Fetch {url}" if url else "Fetch")
    if tool == "Agent":
        prompt = _text(given, "prompt")
        title = _text(given, "description") or "Subagent task"
        return Shown("think", title, [shown_text(prompt)] if prompt else None)
    if tool == "CreateSubagent":
        subagent = _text(given, "name")
        return Shown("think", f"Subagent: {subagent}" if subagent else "Subagent")
    if tool == "Think":
        return Shown("think", _text(given, "thought") or "Think")
    if tool == "TodoList":
        return Shown("other", "Update todos", plan=plan_entries(given.get("todos"), ("title", "content")))
    if tool in _SWITCHES:
        return Shown("switch_mode", _SWITCHES[tool])
    return Shown("other", name)


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
