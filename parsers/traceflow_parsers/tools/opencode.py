"""OpenCode's tools: kinds, places and diffs. Titles are OpenCode's own (`state.title`)."""

from __future__ import annotations

from typing import Any

from traceflow_formats import jsontext

from . import Shown, diff, plan_entries, shown_text

__all__ = ["show"]

_KINDS = {
    "read": "read",
    "write": "edit",
    "edit": "edit",
    "multiedit": "edit",
    "apply_patch": "edit",
    "patch": "edit",
    "bash": "execute",
    "glob": "search",
    "grep": "search",
    "list": "search",
    "codesearch": "search",
    "lsp": "search",
    "webfetch": "fetch",
    "websearch": "fetch",
    "task": "think",
    "batch": "think",
    "plan_enter": "switch_mode",
    "plan_exit": "switch_mode",
}

_PLACES = {
    "read": "filePath",
    "write": "filePath",
    "edit": "filePath",
    "multiedit": "filePath",
    "glob": "path",
    "list": "path",
    "grep": "path",
}
_SHOWN = {  # the argument that a call shows: the first of these that is not empty
    "bash": ("description", "command"),
    "task": ("description",),
    "websearch": ("query",),
    "codesearch": ("query",),
    "webfetch": ("url",),
}
_TODOS = frozenset(("todowrite", "todoread"))


def show(name: str, state: dict[str, Any]) -> Shown:
    """The view of a call: `state` is the tool part's, with `input` and, when it has run, `title` and `output`."""
    tool = name if name in _KINDS else name.lower()
    arguments = state.get("input")
    if not isinstance(arguments, dict):
        arguments = {}
    title = state.get("title")
    if not isinstance(title, str) or not title:
        title = _description(state) or name
    plan = _plan(arguments, state.get("output")) if tool in _TODOS else None
    return Shown(_KINDS.get(tool, "other"), title, _content(tool, arguments), _locations(tool, arguments), plan)


def _description(state: dict[str, Any]) -> str | None:
    metadata = state.get("metadata")
    described = metadata.get("description") if isinstance(metadata, dict) else None
    return described if isinstance(described, str) else None


def _locations(tool: str, arguments: dict[str, Any]) -> list[dict[str, Any]] | None:
    key = _PLACES.get(tool)
    path = arguments.get(key) if key is not None else None
    if not isinstance(path, str) or not path:
        return None
    offset = arguments.get("offset")
    if tool == "read" and type(offset) is int:
        return [{"path": path, "line": max(offset - 1, 0)}]
    return [{"path": path}]


def _content(tool: str, arguments: dict[str, Any]) -> list[dict[str, Any]] | None:
    path = arguments.get("filePath")
    if isinstance(path, str):
        if tool == "write":
            return [diff(path, None, _text(arguments, "content"))]
        if tool == "edit":
            return [diff(path, _text(arguments, "oldString"), _text(arguments, "newString"))]
    for key in _SHOWN.get(tool, ()):
        if words := _text(arguments, key):
            return [shown_text(words)]
    return None


def _text(arguments: dict[str, Any], key: str) -> str:
    value = arguments.get(key)
    return value if isinstance(value, str) else ""


def _plan(arguments: dict[str, Any], output: object) -> list[dict[str, Any]] | None:
    entries = plan_entries(arguments.get("todos"))
    if entries is None and isinstance(output, str):
        try:
            entries = plan_entries(jsontext.loads(output))
        except ValueError:
            return None
    return entries
