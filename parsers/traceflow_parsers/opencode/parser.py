"""OpenCode: `opencode run --format json` on stdout, and its sessions (1.2 and later in SQLite, before in JSON files).

The session parser reads rows, one JSON object each, as `opencode_files` hands them over:
`{"row": "session" | "message" | "part", "id", "message_id", "time", "data": {...}}`, a session first, then each message
with its parts. Message and part objects without such a frame are read too (dumps of a storage), and the column
`time_created` where it was put into the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..contract import Line
from ..emit import text_block
from ..facts import as_dict, as_text, count
from ..source import Harness
from .files import is_database, session_at, sessions_in
from .parts import HARNESS_NAME, PartsParser, image_of, usage_of

__all__ = ["HARNESS", "OpencodeSession", "OpencodeStdout"]

_EVENTS = {
    "step_start": "step-start",
    "text": "text",
    "reasoning": "reasoning",
    "tool_use": "tool",
    "step_finish": "step-finish",
}
_SILENT_PARTS = frozenset({"snapshot", "patch", "agent"})


class _Calls:
    """Names the model calls of one message: the first by the message's id, further ones by their number."""

    def __init__(self, message: str) -> None:
        self.message = message
        self.id = message
        self.number = 1
        self.spoke = False  # the call has content
        self.closed = False  # its step-finish was seen
        self.counted = False  # a usage was stated for one of the calls

    def step(self) -> None:
        """A step begins. An empty one before it was an attempt that left nothing: still the same call."""
        if self.spoke or self.closed:
            self.number += 1
            self.id = f"{self.message}#{self.number}"
        self.spoke = self.closed = False


class OpencodeStdout(PartsParser):
    """The lines of `opencode run --format json`. Parts come when they have ended, tools in the order they ended.

    The words of a message are held until its step is over: a step that is followed by the synthetic text
    `compaction_continue` was no answer but the summary of a compaction, and only that next line tells.
    """

    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._calls: _Calls | None = None
        self._held: list[tuple[str, dict[str, Any], str | None]] = []
        self._seen: set[str] = set()
        self._finished = False  # the step of the message in hand is over
        self._open = False  # a step is under way, or the next one is due

    def record(self, record: dict[str, Any]) -> Line:
        kind, session = record.get("type"), as_text(record.get("sessionID"))
        if session is None or not isinstance(kind, str):
            return Line.UNKNOWN
        time = self.time(record.get("timestamp"))
        if kind in ("error", "done"):
            self._begin(session)
            self._release()
            self._open = False
            if kind == "error":
                self.failure(record.get("error"), time)
            return Line.PARSED
        part = as_dict(record.get("part"))
        if kind not in _EVENTS or not part:
            return Line.UNKNOWN
        self._begin(session)
        part_id = as_text(part.get("id"))
        if part_id is not None:
            if part_id in self._seen:
                return Line.DUPLICATE
            self._seen.add(part_id)
        self._part(_EVENTS[kind], part, time)
        return Line.PARSED

    def end_part(self) -> None:
        self._release()
        if self._open:
            self.report.incomplete = True

    def _begin(self, session: str) -> None:
        if self.report.session_id is None:
            self.report.session_id = session
        self.emit.session_id = session

    def _part(self, kind: str, part: dict[str, Any], time: str | None) -> None:
        message = as_text(part.get("messageID")) or "message"
        if kind == "text" and part.get("synthetic") is True:
            goes_on = as_dict(part.get("metadata")).get("compaction_continue") is True
            self._release(summary=goes_on and self._finished)
            self._calls, self._finished = None, False
            self.emit.user(text_block(as_text(part.get("text")) or ""), time, message, injected=_injected(part))
            return
        if self._calls is None or self._calls.message != message:
            self._release()
            self._calls, self._finished = _Calls(message), False
        elif kind == "step-start":
            self._release()
            self._finished = False
        self._held.append((kind, part, time))
        self._open = True
        if kind == "tool" or self._calls.spoke:
            self._release()  # what has called a tool is no summary
        if kind == "step-finish":
            self._finished = True
            self._open = part.get("reason") == "tool-calls"
            if self._open:
                self._release()

    def _release(self, summary: bool = False) -> None:
        held, self._held = self._held, []
        calls = self._calls
        if calls is None:
            return
        if summary:
            words = "\n".join(t for kind, part, _ in held if kind == "text" and (t := as_text(part.get("text"))))
            self.emit.user(text_block(words), held[0][2] if held else None, compaction={"trigger": "auto"})
        for kind, part, time in held:
            text = as_text(part.get("text"))
            begun = self.moment(as_dict(part.get("time")).get("start"), time)
            if kind == "step-start":
                calls.step()
            elif kind == "step-finish":
                calls.closed = True
                flag = True if summary else None
                self.tokens(
                    part.get("tokens"), part.get("cost"), calls.id, None, time,
                    compaction=flag, stopReason=as_text(part.get("reason")),
                )  # fmt: skip
            elif kind == "tool":
                calls.spoke = True
                self.tool(part, calls.id, None, time, "part")
            elif text is not None and not summary:
                calls.spoke = True
                if kind == "text":
                    self.emit.message(text_block(text), begun, None, calls.id)
                else:
                    self.emit.thought(text, begun, None, calls.id)


class OpencodeSession(PartsParser):
    """One session with the sessions of its subagents, from rows."""

    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._info: dict[str, Any] = {}  # the message in hand
        self._calls: _Calls | None = None
        self._texts: list[str] = []  # words of a user's message, or of a summary
        self._blocks: list[dict[str, Any]] = []
        self._injected: list[tuple[str, str]] = []
        self._time: str | None = None
        self._compaction: dict[str, Any] | None = None  # what the compaction part said, for the summary that follows
        self._born: float | None = None
        self._revert: tuple[str, str | None] | None = None
        self._priced = False
        self._cut = False  # the last message of the main agent never ended
        self._totals: dict[str, Any] | None = None
        self._seen: set[str] = set()

    # -- rows --------------------------------------------------------------------------------------------

    def record(self, record: dict[str, Any]) -> Line:
        row = record.get("row")
        data = as_dict(record.get("data")) if row is not None else record
        if row == "session":
            self._session(data)
            return Line.PARSED
        row_id = as_text(record.get("id")) or as_text(data.get("id"))
        if row == "message" or (row is None and isinstance(data.get("role"), str)):
            if data.get("role") not in ("user", "assistant") or row_id is None:
                return Line.UNKNOWN
            if row_id in self._seen:
                return Line.DUPLICATE
            self._seen.add(row_id)
            self._end_message()
            stamp = record.get("time", data.get("time_created")) if row is not None else None
            self._message(row_id, data, stamp, as_text(data.get("sessionID")))
            return Line.PARSED
        if row == "part" or (row is None and as_text(data.get("messageID")) is not None):
            message = as_text(record.get("message_id")) or as_text(data.get("messageID")) or "message"
            if not isinstance(data.get("type"), str):
                return Line.UNKNOWN
            if row_id is not None:
                if row_id in self._seen:
                    return Line.DUPLICATE
                self._seen.add(row_id)
            if self._calls is None or self._calls.message != message:
                self.report.warn("orphan_part", "a part whose message is not in the source")
                self._end_message()
                self._message(message, {"role": "assistant"}, None, as_text(data.get("sessionID")))
            stamp = self.time(record.get("time", data.get("time_created"))) if row is not None else None
            if self._part(row_id, data, stamp or self._time, ("data",) if row is not None else ()):
                return Line.PARSED
            record["type"] = f"part {data['type']}"  # the name under which the report counts it
            return Line.UNKNOWN
        return Line.UNKNOWN

    def end_part(self) -> None:
        self._end_message()
        self._born = self._revert = self._compaction = None
        self._seen = set()
        self.emit.abandoned = self.emit.copied = False

    def end(self) -> None:
        if self._cut:
            self.report.incomplete = True
        if self._totals is not None:
            self.emit.agent(None)
            usage = self._totals
            if not usage.get("costUsd") and not self._priced:
                usage.pop("costUsd", None)  # the column is never null: 0 there may stand for an unknown price
            self.emit.run_usage(usage)

    # -- sessions ----------------------------------------------------------------------------------------

    def _session(self, data: dict[str, Any]) -> None:
        version, session = as_text(data.get("version")), as_text(data.get("id"))
        if self.report.version is None:
            self.report.version = version
        if self.part.agent_id is None:
            self._know(session)
            cache = {"read": data.get("tokens_cache_read"), "write": data.get("tokens_cache_write")}
            named = {"input": "tokens_input", "output": "tokens_output", "reasoning": "tokens_reasoning"}
            buckets = {key: data.get(column) for key, column in named.items()} | {"cache": cache}
            self._totals, _ = usage_of(data.get("tokens") or buckets, data.get("cost"))
        created = data.get("time_created", as_dict(data.get("time")).get("created"))
        self._born = created if isinstance(created, int | float) and not isinstance(created, bool) else None
        revert = as_dict(data.get("revert"))
        message = as_text(revert.get("messageID"))
        self._revert = (message, as_text(revert.get("partID"))) if message is not None else None

    def _know(self, session: str | None) -> None:
        if session is not None and self.report.session_id is None:
            self.report.session_id = self.emit.session_id = session

    # -- messages ----------------------------------------------------------------------------------------

    def _message(self, message: str, info: dict[str, Any], row_time: object, session: str | None) -> None:
        self._know(session)
        self._info = info
        self._calls = _Calls(message)
        created = as_dict(info.get("time")).get("created")
        self._time = self.time(created) or self.time(row_time)
        # A fork copies the messages of another session: they are older than the session they stand in.
        self.emit.copied = (
            self._born is not None and isinstance(created, int | float) and not isinstance(created, bool)
            and created < self._born
        )  # fmt: skip
        if self._revert is not None and self._revert[0] == message and self._revert[1] is None:
            self.emit.abandoned = True
        if (system := as_text(info.get("system"))) is not None:
            self.emit.prompt(system, self._time, role="system")

    def _end_message(self) -> None:
        calls, info = self._calls, self._info
        if calls is None:
            return
        if info.get("role") == "user":
            self._end_user()
        else:
            self._end_assistant(calls, info)
        self._calls, self._info = None, {}
        self._texts, self._blocks, self._injected = [], [], []

    def _end_user(self) -> None:
        assert self._calls is not None
        if self._texts or self._blocks:
            self.emit.prompt("\n".join(self._texts), self._time, message_id=self._calls.message)
        for block in self._blocks:
            self.emit.user(block, self._time, self._calls.message)
        for kind, text in self._injected:
            self.emit.user(text_block(text), self._time, self._calls.message, injected=kind)

    def _end_assistant(self, calls: _Calls, info: dict[str, Any]) -> None:
        done = self.moment(as_dict(info.get("time")).get("completed"), self._time)
        summary = info.get("summary") is True
        failed = info.get("error") is not None
        if summary and (self._texts or not failed):
            facts = self._compaction or {"trigger": "auto"}
            self.emit.user(text_block("\n".join(self._texts)), done, compaction=facts)
        if summary:
            self._compaction = None
        if not calls.counted:
            flag = True if summary else None
            reason = as_text(info.get("finish"))
            self._tokens(info.get("tokens"), info.get("cost"), calls.id, done, compaction=flag, stopReason=reason)
        if failed:
            self.failure(info.get("error"), done)
        if self.part.agent_id is None:
            self._cut = not failed and "time" in info and "completed" not in as_dict(info.get("time"))

    # -- parts -------------------------------------------------------------------------------------------

    def _part(self, part_id: str | None, part: dict[str, Any], time: str | None, path: tuple[str, ...]) -> bool:
        assert self._calls is not None
        if self._revert is not None and self._revert == (self._calls.message, part_id):
            self.emit.abandoned = True
        kind = part["type"]
        if kind in _SILENT_PARTS:
            return True
        if self._info.get("role") == "user":
            return self._user_part(kind, part)
        return self._assistant_part(kind, part, time, path)

    def _user_part(self, kind: str, part: dict[str, Any]) -> bool:
        text = as_text(part.get("text")) or (as_text(part.get("prompt")) if kind == "subtask" else None)
        if kind in ("text", "subtask"):
            if text is None:
                return True
            if part.get("synthetic") is True or part.get("ignored") is True:
                self._injected.append((_injected(part), text))
            else:
                self._texts.append(text)
        elif kind == "file":
            block = image_of(part)
            if block is not None:
                self._blocks.append(block)
        elif kind == "compaction":
            facts: dict[str, Any] = {"trigger": "manual" if part.get("auto") is False else "auto"}
            if isinstance(part.get("overflow"), bool):
                facts["overflow"] = part["overflow"]
            self._compaction = facts
        else:
            return False
        return True

    def _assistant_part(self, kind: str, part: dict[str, Any], time: str | None, path: tuple[str, ...]) -> bool:
        calls = self._calls
        assert calls is not None
        model = as_text(self._info.get("modelID"))
        summary = self._info.get("summary") is True
        text = as_text(part.get("text"))
        begun = self.moment(as_dict(part.get("time")).get("start"), time)
        if kind == "step-start":
            calls.step()
        elif kind == "text":
            if text is not None and summary:
                self._texts.append(text)
            elif text is not None:
                calls.spoke = True
                self.emit.message(text_block(text), begun, model, calls.id)
        elif kind == "reasoning":
            if text is not None and not summary:
                calls.spoke = True
                self.emit.thought(text, begun, model, calls.id)
        elif kind == "tool":
            calls.spoke = True
            self.tool(part, calls.id, model, time, *path)
        elif kind == "step-finish":
            calls.closed = True
            cost = part.get("cost", self._info.get("cost") if calls.number == 1 else None)
            flag = True if summary else None
            reason = as_text(part.get("reason"))
            if self._tokens(part.get("tokens"), cost, calls.id, time, compaction=flag, stopReason=reason):
                calls.counted = True
        elif kind == "retry":
            self.failure(part.get("error"), self.moment(as_dict(part.get("time")).get("created"), time), retried=True)
        elif kind == "file":
            block = image_of(part)
            if block is not None:
                calls.spoke = True
                self.emit.message(block, begun, model, calls.id)
        else:
            return False
        return True

    def _tokens(self, tokens: object, cost: object, message: str, time: str | None, **extra: Any) -> bool:
        if isinstance(cost, int | float) and not isinstance(cost, bool):
            self._priced = True
        model = as_text(self._info.get("modelID"))
        provider = as_text(self._info.get("providerID"))
        return self.tokens(tokens, cost, message, model, time, provider=provider, **extra)


def _injected(part: dict[str, Any]) -> str:
    if as_dict(part.get("metadata")).get("compaction_continue") is True:
        return "compaction_continue"
    return "ignored" if part.get("ignored") is True else "synthetic"


def _is_stdout(records: Sequence[dict[str, Any]]) -> bool:
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


def _is_session(records: Sequence[dict[str, Any]]) -> bool:
    """Messages of a storage, alone or in an export document: they name their session as `sessionID`."""
    for record in records[:5]:
        messages = record.get("messages")
        if isinstance(record.get("info"), dict) and isinstance(messages, list):
            return as_text(record["info"].get("projectID")) is not None or any(
                _is_message(as_dict(as_dict(item).get("info"))) for item in messages[:5]
            )
        if _is_message(record) or (
            record.get("row") in ("session", "message") and isinstance(record.get("data"), dict)
        ):
            return True
        if all(as_text(record.get(key)) for key in ("id", "projectID", "directory", "version")):
            return True  # the session's own file in an older storage
    return False


def _is_message(info: dict[str, Any]) -> bool:
    if as_text(info.get("sessionID")) is None or as_text(info.get("id")) is None:
        return False
    if info.get("role") == "assistant":
        return as_text(info.get("modelID")) is not None and isinstance(info.get("time"), dict)
    return info.get("role") == "user" and isinstance(as_dict(info.get("time")).get("created"), int)


HARNESS = Harness(
    name=HARNESS_NAME,
    version=1,
    stdout_names=("opencode.txt",),
    is_stdout=_is_stdout,
    is_session=_is_session,
    stdout=OpencodeStdout,
    session_at=lambda path: session_at(path, OpencodeSession),
    sessions_in=lambda folder: sessions_in(folder, OpencodeSession),
    is_store=is_database,
)
