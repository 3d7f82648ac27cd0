"""OpenCode's stdout: `opencode run --format json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ..contract import Line
from ..emit import text_block
from ..facts import as_dict, as_text, count
from .parts import Calls, PartsParser, injected_as, stated

__all__ = ["OpencodeStdout", "is_stdout"]

_EVENTS = {"step_start": "step-start", "step_finish": "step-finish", "tool_use": "tool"}
_EVENTS |= {"text": "text", "reasoning": "reasoning"}
_MOST_HELD = 1_000  # parts of one step: memory stays bounded where no step ever ends
_PARSED = Line.PARSED


class OpencodeStdout(PartsParser):
    """The lines of `opencode run --format json`. Parts come when they have ended, tools in the order they ended.

    The parts of a step are held until it is over and then told in the order of their ids, which is the order in
    which the model began them and the one of the session's own file (1.0 and 1.18 number them so). A step without
    tools is held for one line more: if the synthetic text `compaction_continue` follows, it was no answer but the
    summary of a compaction, and only that next line tells.
    """

    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._calls: Calls | None = None
        self._held: list[tuple[str, dict[str, Any], object]] = []  # with the time of their line, as it stands
        self._stamp: object = None  # that of the part in hand
        self._seen: set[str] = set()
        self._finished = False  # the step of the message in hand is over
        self._open = False  # a step is under way, or the next one is due

    def record(self, record: dict[str, Any]) -> Line:
        kind, session = record.get("type"), record.get("sessionID")
        if type(session) is not str or not session or type(kind) is not str:
            return Line.UNKNOWN
        stamp, part = record.get("timestamp"), record.get("part")
        if kind == "error" or kind == "done":
            self._begin(session)
            self._release()
            self._open = False
            if kind == "error":
                self.failure(record.get("error"), self.time(stamp))
            return _PARSED
        told = _EVENTS.get(kind)
        if told is None or type(part) is not dict or not part:
            return Line.UNKNOWN
        self._begin(session)
        part_id = part.get("id")
        if type(part_id) is str and part_id:
            if part_id in self._seen:
                return Line.DUPLICATE
            self._seen.add(part_id)
        self._part(told, part, stamp)
        return _PARSED

    def when(self) -> str | None:
        return self.time(self._stamp)

    def end_part(self) -> None:
        self._release()
        if self._open:
            self.report.incomplete = True

    def _begin(self, session: str) -> None:
        if self.report.session_id is None:
            self.report.session_id = session
        self.emit.session_id = session

    def _part(self, kind: str, part: dict[str, Any], stamp: object) -> None:
        message, calls = as_text(part.get("messageID")) or "message", self._calls
        if kind == "text" and part.get("synthetic") is True:
            goes_on = as_dict(part.get("metadata")).get("compaction_continue") is True
            self._release(summary=goes_on and self._finished)
            self._calls, self._finished = None, False
            text = text_block(as_text(part.get("text")) or "")
            self.emit.user(text, self.time(stamp), message, injected=injected_as(part))
            return
        if calls is None or calls.message != message:
            self._release()
            calls = self._calls = Calls(message)
            self._finished = False
        elif kind == "step-start":
            self._release()
            self._finished = False
        self._held.append((kind, part, stamp))
        self._open = True
        if kind == "step-finish":
            self._finished = True
            self._open = part.get("reason") == "tool-calls"
            if self._open or calls.spoke or any(held[0] == "tool" for held in self._held):
                self._release()  # what has called a tool is no summary
        elif len(self._held) >= _MOST_HELD:
            self._release()

    def _release(self, summary: bool = False) -> None:
        calls = self._calls
        if not self._held and not summary:
            return
        held, self._held = self._held, []
        if calls is None:
            return
        if summary:
            words = "\n".join(t for kind, part, _ in held if kind == "text" and (t := as_text(part.get("text"))))
            time = self.time(held[0][2]) if held else None
            self.emit.user(text_block(words), time, compaction={"trigger": "auto"})
        if all(isinstance(part.get("id"), str) for _, part, _ in held):
            held.sort(key=lambda item: cast(str, item[1]["id"]))
        for kind, part, self._stamp in held:
            if kind == "tool":
                calls.spoke = True
                self.tool(part, calls.id, None, "part")
            elif kind == "step-start":
                calls.step()
            elif kind == "step-finish":
                calls.closed = True
                said = stated(summary, part.get("reason"))
                self.tokens(part.get("tokens"), part.get("cost"), calls.id, None, self.when(), said)
            elif not summary and type(text := part.get("text")) is str and text:
                calls.spoke = True
                begun = self.moment(as_dict(part.get("time")).get("start"))
                if kind == "text":
                    self.emit.message({"type": "text", "text": text}, begun, None, calls.id)
                else:
                    self.emit.thought(text, begun, None, calls.id)


def is_stdout(records: Sequence[dict[str, Any]]) -> bool:
    for record in records:
        kind = record.get("type")
        if (
            not isinstance(kind, str)
            or as_text(record.get("sessionID")) is None
            or count(record.get("timestamp")) is None
        ):
            continue
        if kind == "error" and isinstance(record.get("error"), dict):
            return True
        if kind in _EVENTS and as_dict(record.get("part")).get("type") == _EVENTS[kind]:
            return True
    return False
