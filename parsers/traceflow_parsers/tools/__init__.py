"""What a tool call looks like in a trace: its kind, its title, where it acts, what it shows.

One module per family of tool names. The tables follow the platform's (kinds, titles, diffs), with its gaps
filled: the agent tools are `think`, and every todo tool gives a plan.
"""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["Shown", "diff", "plan_entries", "shown_text"]


class Shown(NamedTuple):
    """The view of one call: `content` are tool content items (text or diff), `plan` the entries of a todo tool."""

    kind: str
    title: str
    content: list[dict[str, Any]] | None = None
    locations: list[dict[str, Any]] | None = None
    plan: list[dict[str, Any]] | None = None


def shown_text(text: str) -> dict[str, Any]:
    """A text item of a call's content."""
    return {"type": "content", "content": {"type": "text", "text": text}}


def diff(path: str, old: str | None, new: str) -> dict[str, Any]:
    """A diff item of a call's content; `old` is None where the file is new or unknown."""
    return {"type": "diff", "path": path, "oldText": old, "newText": new}


_PLAN_STATUS = {
    "": "pending",
    "pending": "pending",
    "todo": "pending",
    "in_progress": "in_progress",
    "in-progress": "in_progress",
    "running": "in_progress",
    "completed": "completed",
    "complete": "completed",
    "done": "completed",
    "cancelled": "completed",
    "canceled": "completed",
}


def plan_entries(todos: object, text_keys: tuple[str, ...] = ("content",)) -> list[dict[str, Any]] | None:
    """The plan of a list of todos, or None where the value is no such list.

    The text is the first of `text_keys` that holds one; entries without text are left out. A status that is
    no word of the vocabulary is pending; a priority is kept when it is high, medium or low.
    """
    if not isinstance(todos, list):
        return None
    entries = []
    for todo in todos:
        if not isinstance(todo, dict):
            continue
        text = next((t for k in text_keys if isinstance(t := todo.get(k), str) and t), None)
        if text is None:
            continue
        status, priority = todo.get("status"), todo.get("priority")
        entries.append(
            {
                "content": text,
                "status": _PLAN_STATUS.get(status, "pending") if isinstance(status, str) else "pending",
                "priority": priority if priority in ("high", "medium", "low") else "medium",
            }
        )
    return entries
