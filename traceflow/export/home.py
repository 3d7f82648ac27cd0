"""Where the files of an agent stand: at their real names in its home folder, and at the slots of other tools."""

from __future__ import annotations

from traceflow_formats.harbor.layout import SLOTS

__all__ = ["home_path", "slot_paths"]

# A trial of claude-code has its whole configuration folder at sessions/, not only the sessions.
_CLAUDE_SLOT, _CLAUDE_HOME = "sessions/", ".claude/"
_HOMES = (".claude/", ".codex/", ".gemini/", ".qwen/", ".kimi/", ".kimi-code/", ".factory/", ".local/", ".config/")


def home_path(name: str, harness: str | None) -> str | None:
    """The real name, below the home folder, of a file of the agent (a path below `agent/`); None for what is not of
    the home: stdout, trajectories, and files that only a runner knows."""
    if name.startswith(_HOMES):
        return name
    for owner, slot, home in SLOTS:
        if owner != harness:
            continue
        if slot.endswith("/") and name.startswith(slot):
            return home + name[len(slot) :]
        if name == slot:
            return home
    if harness == "claude-code" and name.startswith(_CLAUDE_SLOT):
        return _CLAUDE_HOME + name[len(_CLAUDE_SLOT) :]
    return None


def slot_paths(home: str, harness: str | None) -> list[str]:
    """Where other tools look for a file of the home folder, below `agent/`: Harbor's slot of that harness, if any.

    A slot that is a single file, whose real name is lost, is not made from a home.
    """
    found = []
    for owner, slot, real in SLOTS:
        if owner == harness and slot.endswith("/") and home.startswith(real) and slot != "qwen-sessions/projects/":
            found.append(slot + home[len(real) :])
    if harness == "claude-code" and not found and home.startswith(_CLAUDE_HOME):
        found.append(_CLAUDE_SLOT + home[len(_CLAUDE_HOME) :])
    return found
