"""Droid's tools: kinds, titles, diffs, and the plan of its todo tool."""

from __future__ import annotations

import re
from typing import Any

from . import Shown, diff, plan_entries, shown_text

__all__ = ["show", "todo_plan"]

_KINDS = {
    "applypatch": "edit",
    "create": "edit",
    "edit": "edit",
    "multiedit": "edit",
    "write": "edit",
    "read": "read",
    "grep": "search",
    "glob": "search",
    "ls": "search",
    "execute": "execute",
    "executecli": "execute",
    "skill": "execute",
    "fetchurl": "fetch",
    "webfetch": "fetch",
    "websearch": "fetch",
    "task": "think",
    "exitspecmode": "switch_mode",
}
_PATHS = ("path", "filePath", "file_path", "absolute_path")
_DETAILS = ("command", "url")
_SHOWN = {"execute": "summary", "task": "description", "websearch": "query"}
_TODO = re.compile(r"\s*(?:\d+[.)]\s*|[-*]\s*)?\[([a-z_ -]*)\]\s*(\S.*?)\s*")


def show(name: str, arguments: object) -> Shown:
    """The view of a call, from the name and the parameters that Droid writes. Names are compared without `-`, `_`."""
    tool = name.replace("-", "").replace("_", "").replace(" ", "").lower()
    given = arguments if isinstance(arguments, dict) else {}
    path = _first(given, _PATHS)
    detail = path or _first(given, _DETAILS)
    return Shown(
        _KINDS.get(tool, "other"),
        f"{name} {detail}" if detail else name,
        _content(tool, path, given),
        [{"path": path}] if path else None,
        todo_plan(given.get("todos")) if tool == "todowrite" else None,
    )


def _first(given: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The first of these arguments that is a text and not empty."""
    for key in keys:
        value = given.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _text(given: dict[str, Any], *keys: str) -> str | None:
    """The first of these arguments that is a text."""
    for key in keys:
        value = given.get(key)
        if isinstance(value, str):
            return value
    return None


def _content(tool: str, path: str | None, given: dict[str, Any]) -> list[dict[str, Any]] | None:
    if path is not None:
        if tool in ("create", "write") and (new := _text(given, "content")) is not None:
            return [diff(path, None, new)]
        if tool == "edit":
            old, new = _text(given, "old_str", "old_string"), _text(given, "new_str", "new_string")
            return [diff(path, old or "", new or "")]
    shown = _text(given, _SHOWN[tool]) if tool in _SHOWN else None
    return [shown_text(shown)] if shown else None


def todo_plan(todos: object) -> list[dict[str, Any]] | None:
    """The plan of a list of todos, or of a text with one todo a line: `1. [in_progress] Write hello.txt`."""
    if isinstance(todos, dict):
        todos = todos.get("todos")
    if isinstance(todos, str):
        lines = [found for line in todos.split("\n")[:1000] if (found := _TODO.fullmatch(line[:2000]))]
        todos = [{"status": found[1].strip(), "content": found[2]} for found in lines]
    return plan_entries(todos)
