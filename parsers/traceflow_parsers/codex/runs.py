"""The tool runs of a codex thread: which calls are open, and how they ended.

A run is written twice: as the call and output that the model sees, and as an item (or an end event, up to
0.15x) with its exit code and duration, which stands between the two under the id of the call. In code mode the
call is a script, and the commands that it ran have ids of their own: they are facts of the script that is open,
where only one is.
"""

from __future__ import annotations

from typing import Any

from ..tools.codex import command_line, item_type
from .output import Outcome, item_outcome

__all__ = ["ToolRuns"]

_COMMANDS = 100  # the commands of one script that are kept
_SHORT = 256


class ToolRuns:
    """The calls of one thread, by their ids."""

    def __init__(self) -> None:
        self._open: dict[str, Outcome | None] = {}
        self._scripts: dict[str, list[dict[str, Any]]] = {}
        self._known: set[int] = set()  # hashes of all ids: a command may end long after its output

    def opened(self, call_id: str, script: bool = False) -> None:
        """A call was made, and its output will follow."""
        self._open[call_id] = None
        self._known.add(hash(call_id))
        if script:
            self._scripts[call_id] = []

    def whole(self, call_id: str) -> bool:
        """Whether an item with this id is of no call that was seen."""
        return hash(call_id) not in self._known

    def ended(self, item: dict[str, Any], call_id: str) -> None:
        """An item says how a run ended."""
        if call_id in self._open:
            self._open[call_id] = item_outcome(item)
        elif len(self._scripts) == 1 and item_type(item) == "command_execution":
            (commands,) = self._scripts.values()
            if len(commands) < _COMMANDS:
                commands.append(_command(item))

    def closed(self, call_id: str, told: Outcome) -> Outcome:
        """The output of a call has come: how it ended, by its item first and by its text second."""
        known = self._open.pop(call_id, None)
        outcome = told if known is None else known.over(told)
        commands = self._scripts.pop(call_id, None)
        if commands:
            outcome.facts["commands"] = commands
            if len(commands) == 1 and outcome.exit_code is None:
                outcome.exit_code = commands[0].get("exit_code")
        return outcome

    def forget(self) -> None:
        """The copied history ends here: what is open in it goes on elsewhere."""
        self._open.clear()
        self._scripts.clear()


def _command(item: dict[str, Any]) -> dict[str, Any]:
    outcome = item_outcome(item)
    command = command_line(item, "command")
    facts: dict[str, Any] = {
        "command": command[:_SHORT] if command is not None else None,
        "exit_code": outcome.exit_code,
        "duration_ms": outcome.duration_ms,
    }
    return {name: fact for name, fact in facts.items() if fact is not None}
