"""Codex: its real tools, as rollouts name them, and the items that `codex exec --json` prints in their place.

Titles of commands keep the whole command line, a patch is named by its files. The items of stdout have no tool
names; `shown_item` gives them the item's type, an MCP call the joined name and a subagent call its tool.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from . import Shown, diff, plan_entries, shown_text

__all__ = ["item_type", "shown_call", "shown_item"]

_AGENT_TOOLS = (
    "assign_task", "close_agent", "followup_task", "interrupt_agent", "list_agents", "resume_agent", "send_input",
    "send_message", "spawn_agent", "wait", "wait_agent",
)  # fmt: skip


def shown_call(name: str, raw: Any, namespace: str | None = None) -> Shown:
    """The view of a call of a rollout. `raw` is its input: an object, or the text of a custom tool."""
    view = _TOOLS.get(name)
    if view is not None:
        return view(name, raw)
    if name.startswith("mcp__"):
        return Shown("other", _mcp_title(name))
    if namespace is not None and namespace.startswith("mcp__"):
        return Shown("other", f"{namespace[5:].rstrip('_')}: {name}")
    return Shown("other", name)


def shown_item(item: dict[str, Any]) -> tuple[str, Shown, Any] | None:
    """The tool name, view and input of an item, or None where the item is no tool.

    Takes the items of stdout (`command_execution`) and those of rollouts (`CommandExecution`).
    """
    kind = item_type(item)
    view = _ITEMS.get(kind)
    return view(kind, item) if view is not None else None


def item_type(item: dict[str, Any]) -> str:
    """The type of an item as stdout spells it: rollouts write CommandExecution, stdout command_execution."""
    kind = item.get("type")
    if not isinstance(kind, str):
        return ""
    return _SPELLINGS.get(kind, kind)


_SPELLINGS = {
    "AgentMessage": "agent_message",
    "CollabAgentToolCall": "collab_tool_call",
    "CommandExecution": "command_execution",
    "FileChange": "file_change",
    "McpToolCall": "mcp_tool_call",
    "Reasoning": "reasoning",
    "UserMessage": "user_message",
    "WebSearch": "web_search",
}


def _field(raw: Any, *keys: str) -> str | None:
    """The first of the fields that holds text."""
    if isinstance(raw, dict):
        for key in keys:
            value = raw.get(key)
            if isinstance(value, str) and value:
                return value
    return None


def command_line(raw: Any, *keys: str) -> str | None:
    """The command of an input: a string, or a list of words that is quoted into one line."""
    if isinstance(raw, dict):
        for key in keys:
            value = raw.get(key)
            if isinstance(value, str) and value:
                return value
            if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
                return shlex.join(value)
    return None


def _mcp_title(name: str) -> str:
    server, _, tool = name[5:].partition("__")
    return f"{server}: {tool}" if tool else name


# -- tools of rollouts ---------------------------------------------------------------------------------------


def _command(name: str, raw: Any) -> Shown:
    words = raw.get("command") if isinstance(raw, dict) else None
    if isinstance(words, list) and len(words) == 2 and words[0] == "apply_patch":  # the old shell tool's patches
        return _patch(name, words[1])
    command = command_line(raw, "cmd", "command")
    return Shown("execute", f"`{command}`" if command is not None else name)


def _script(name: str, raw: Any) -> Shown:
    """Code mode: the input is the source of a script, its first line the title."""
    source = raw if isinstance(raw, str) else _field(raw, "code", "source", "input") or ""
    lines = (line.strip() for line in source.split("\n"))
    first = next((line for line in lines if line and not line.startswith("// @exec:")), None)
    return Shown("execute", f"`{first}`" if first else name)


def _waiting(name: str, raw: Any) -> Shown:
    if isinstance(raw, dict) and "cell_id" in raw:  # code mode waits for a script of its own
        return Shown("execute", name)
    return _agent(name, raw)


def _plain(kind: str) -> Callable[[str, Any], Shown]:
    return lambda name, raw: Shown(kind, name)


def _patch(name: str, raw: Any) -> Shown:
    text = raw if isinstance(raw, str) else _field(raw, "input", "patch")
    files = _patched(text) if text is not None else []
    if not files:
        return Shown("edit", name)
    content: list[dict[str, Any]] = []
    places: list[dict[str, Any]] = []
    for file in files:
        places.append({"path": file.path})
        if file.moved is not None:
            places.append({"path": file.moved})
        content.extend(file.diffs())
    return Shown("edit", _changed_title([(file.how, file.path) for file in files]), content, places)


def _changed_title(changes: list[tuple[str, str]]) -> str:
    if len(changes) == 1:
        how, path = changes[0]
        return f"{'Create' if how == 'add' else 'Edit'} {path}"
    return f"Edit {len(changes)} files"


class _PatchedFile:
    """One file of a patch: how it changes, and its hunks as (old lines, new lines)."""

    __slots__ = ("how", "hunks", "moved", "path")

    def __init__(self, how: str, path: str) -> None:
        self.how = how
        self.path = path
        self.moved: str | None = None
        self.hunks: list[tuple[list[str], list[str]]] = []

    def diffs(self) -> list[dict[str, Any]]:
        path = self.moved or self.path
        if self.how == "delete":
            return [diff(path, "", "")]
        out = []
        for old, new in self.hunks:
            before = "".join(f"{line}\n" for line in old) if self.how == "update" else None
            out.append(diff(path, before, "".join(f"{line}\n" for line in new)))
        return out


def _patched(text: str) -> list[_PatchedFile]:
    files: list[_PatchedFile] = []
    for line in text.split("\n"):
        if line.startswith("*** "):
            how, _, path = line[4:].partition(" File: ")
            if path and how in ("Add", "Update", "Delete"):
                files.append(_PatchedFile(how.lower(), path.strip()))
                if how == "Add":
                    files[-1].hunks.append(([], []))
            elif files and line.startswith("*** Move to: "):
                files[-1].moved = line[13:].strip()
            elif line.startswith("*** End Patch"):
                break
            continue
        if not files or files[-1].how == "delete":
            continue
        hunks = files[-1].hunks
        if files[-1].how == "update":
            if line.startswith("@@"):
                hunks.append(([], []))
                continue
            if not hunks:
                hunks.append(([], []))
        old, new = hunks[-1]
        if line.startswith("+"):
            new.append(line[1:])
        elif line.startswith("-"):
            old.append(line[1:])
        else:
            old.append(line[1:])
            new.append(line[1:])
    return files


def _plan(name: str, raw: Any) -> Shown:
    plan = plan_entries(raw.get("plan"), ("step", "text", "content")) if isinstance(raw, dict) else None
    return Shown("other", "Update plan", plan=plan)


def _agent(name: str, raw: Any) -> Shown:
    title = _field(raw, "task_name") or name
    words = _field(raw, "message", "prompt")
    return Shown("think", title, [shown_text(words)] if words is not None else None)


def _read(name: str, raw: Any) -> Shown:
    path = _field(raw, "path", "file_path")
    return Shown("read", f"Read {path or 'File'}", locations=[{"path": path}] if path else None)


def _list(name: str, raw: Any) -> Shown:
    path = _field(raw, "dir_path", "path")
    return Shown("search", f"List {path}" if path else name, locations=[{"path": path}] if path else None)


def _grep(name: str, raw: Any) -> Shown:
    pattern = _field(raw, "pattern")
    return Shown("search", f'grep "{pattern}"' if pattern else name)


def _tool_search(name: str, raw: Any) -> Shown:
    query = _field(raw, "query")
    return Shown("search", f"Search tools: {query}" if query else name)


def _web(name: str, raw: Any) -> Shown:
    url = _field(raw, "url")
    query = _field(raw, "query")
    if query is None and isinstance(raw, dict) and isinstance(raw.get("queries"), list):
        query = ", ".join(q for q in raw["queries"] if isinstance(q, str)) or None
    if query is not None:
        return Shown("fetch", f"Search: {query}")
    return Shown("fetch", f"Fetch {url}" if url else name)


_TOOLS: dict[str, Callable[[str, Any], Shown]] = {
    **dict.fromkeys(("shell", "shell_command", "exec_command", "local_shell", "container.exec"), _command),
    "exec": _script,
    "write_stdin": _plain("execute"),
    "apply_patch": _patch,
    "update_plan": _plan,
    **dict.fromkeys(_AGENT_TOOLS, _agent),
    "wait": _waiting,
    "view_image": _read,
    "read_file": _read,
    "list_dir": _list,
    "grep_files": _grep,
    "tool_search": _tool_search,
    "web_search": _web,
}


# -- items ---------------------------------------------------------------------------------------------------


def _command_item(kind: str, item: dict[str, Any]) -> tuple[str, Shown, Any]:
    command = command_line(item, "command")
    shown = Shown("execute", f"`{command}`" if command is not None else kind)
    return kind, shown, {"command": item.get("command")} if command is not None else {}


def _change_item(kind: str, item: dict[str, Any]) -> tuple[str, Shown, Any]:
    """Stdout says which files changed and how, not what they hold, so there is no diff to show."""
    changes: list[tuple[str, str]] = []
    said = item.get("changes")
    if isinstance(said, dict):  # the rollout's form: path -> {"type": "add", ...}
        for path, change in said.items():
            how = change.get("type") if isinstance(change, dict) else None
            changes.append((how if isinstance(how, str) else "update", path))
    elif isinstance(said, list):
        for change in said:
            path = change.get("path") if isinstance(change, dict) else None
            if isinstance(path, str):
                how = change.get("kind")
                changes.append((how if isinstance(how, str) else "update", path))
    raw = {"changes": [{"path": path, "kind": how} for how, path in changes]}
    if not changes:
        return kind, Shown("edit", kind), raw
    places = [{"path": path} for _, path in changes]
    return kind, Shown("edit", _changed_title(changes), locations=places), raw


def _mcp_item(kind: str, item: dict[str, Any]) -> tuple[str, Shown, Any]:
    server, tool = _field(item, "server") or "", _field(item, "tool") or ""
    return f"mcp__{server}__{tool}", Shown("other", f"{server}: {tool}"), item.get("arguments")


def _web_item(kind: str, item: dict[str, Any]) -> tuple[str, Shown, Any]:
    action = item.get("action")
    raw: dict[str, Any] = dict(action) if isinstance(action, dict) else {}
    query = _field(item, "query")
    if query is not None:
        raw.setdefault("query", query)
    return kind, _web(kind, raw), raw


def _agent_item(kind: str, item: dict[str, Any]) -> tuple[str, Shown, Any]:
    tool = _field(item, "tool") or kind
    raw = {key: item[key] for key in ("prompt", "receiver_thread_ids", "model") if item.get(key)}
    return tool, _agent(tool, raw), raw


def _todo_item(kind: str, item: dict[str, Any]) -> tuple[str, Shown, Any]:
    """Stdout only says what is completed; the first entry that is not counts as in progress, as on the platform."""
    entries: list[dict[str, Any]] = []
    working = False
    todos = item.get("items")
    for todo in todos if isinstance(todos, list) else []:
        text = _field(todo, "text")
        if text is None:
            continue
        if todo.get("completed") is True:
            status = "completed"
        else:
            status = "pending" if working else "in_progress"
            working = True
        entries.append({"content": text, "status": status, "priority": "medium"})
    return kind, Shown("other", "Update plan", plan=entries), {"items": todos}


_ITEMS: dict[str, Callable[[str, dict[str, Any]], tuple[str, Shown, Any]]] = {
    "command_execution": _command_item,
    "file_change": _change_item,
    "mcp_tool_call": _mcp_item,
    "web_search": _web_item,
    "collab_tool_call": _agent_item,
    "todo_list": _todo_item,
}
