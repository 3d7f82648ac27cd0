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


def show(name: str, state: dict[str, Any]) -> Shown:
    """The view of a call: `state` is the tool part's, with `input` and, when it has run, `title` and `output`."""
    tool = name.lower()
    given = state.get("input")
    arguments = given if isinstance(given, dict) else {}
    return Shown(
        _KINDS.get(tool, "other"),
        _title(name, state),
        _content(tool, arguments),
        _locations(tool, arguments),
        _plan(tool, arguments, state.get("output")),
    )


def _title(name: str, state: dict[str, Any]) -> str:
    metadata = state.get("metadata")
    described = metadata.get("description") if isinstance(metadata, dict) else None
    return next((t for t in (state.get("title"), described) if isinstance(t, str) and t), name)


def _locations(tool: str, arguments: dict[str, Any]) -> list[dict[str, Any]] | None:
    key = {"read": "filePath", "write": "filePath", "edit": "filePath", "multiedit": "filePath"}.get(tool)
    path = arguments.get(key or "path") if key or tool in ("glob", "list", "grep") else None
    if not isinstance(path, str) or not path:
        return None
    offset = arguments.get("offset")
    if tool == "read" and isinstance(offset, int) and not isinstance(offset, bool):
        return [{"path": path, "line": max(offset - 1, 0)}]
    return [{"path": path}]


def _content(tool: str, arguments: dict[str, Any]) -> list[dict[str, Any]] | None:
    def text(key: str) -> str | None:
        value = arguments.get(key)
        return value if isinstance(value, str) else None

    path = text("filePath")
    if tool == "write" and path is not None:
        return [diff(path, None, text("content") or "")]
    if tool == "edit" and path is not None:
        return [diff(path, text("oldString") or "", text("newString") or "")]
    shown = {
        "bash": text("description") or text("command"),
        "task": text("description"),
        "websearch": text("query"),
        "codesearch": text("query"),
        "webfetch": text("url"),
    }.get(tool)
    return [shown_text(shown)] if shown else None


def _plan(tool: str, arguments: dict[str, Any], output: object) -> list[dict[str, Any]] | None:
    if tool not in ("todowrite", "todoread"):
        return None
    entries = plan_entries(arguments.get("todos"))
    if entries is None and isinstance(output, str):
        try:
            entries = plan_entries(jsontext.loads(output))
        except ValueError:
            return None
    return entries
