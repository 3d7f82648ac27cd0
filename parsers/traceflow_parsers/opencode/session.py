"""OpenCode's sessions: 1.2 and later in SQLite, before in JSON files.

The parser reads rows, one JSON object each, as `files` and `database` hand them over:
`{"row": "session" | "message" | "part", "id", "message_id", "time", "data": {...}}`, a session first, then each message
with its parts. Message and part objects without such a frame are read too (dumps of a storage), and the column
`time_created` where it was put into the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..contract import Line
from ..emit import text_block
from ..facts import as_dict, as_text
from .parts import Calls, PartsParser, image_of, injected_as, stated, usage_of

__all__ = ["OpencodeSession", "is_session"]

_SILENT_PARTS = frozenset({"snapshot", "patch", "agent"})
_IN_ROW = ("data",)
_PARSED = Line.PARSED


class OpencodeSession(PartsParser):
    """One session with the sessions of its subagents, from rows."""

    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._info: dict[str, Any] = {}  # the message in hand
        self._model: str | None = None
        self._provider: str | None = None
        self._summary = False  # it is the summary of a compaction
        self._tellers: Mapping[str, _Teller] = {}  # what tells its parts, by their type
        self._calls: Calls | None = None
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
        self._stamp: object = None  # the time of the part in hand, as its row has it
        self._path: tuple[str, ...] = ()  # where the part stands in its line

    # -- rows --------------------------------------------------------------------------------------------

    def record(self, record: dict[str, Any]) -> Line:
        row, data = record.get("row"), record.get("data")
        if row is None:
            return self._bare(record)
        if data.__class__ is not dict:
            data = {}
        row_id = record.get("id")
        if type(row_id) is not str or not row_id:
            row_id = as_text(data.get("id"))
        stamp = record["time"] if "time" in record else data.get("time_created")
        if row == "part":
            message = record.get("message_id")
            if type(message) is not str or not message:
                message = as_text(data.get("messageID")) or "message"
            return self._part(row_id, message, data, stamp, record)
        if row == "message":
            return self._message(row_id, data, stamp)
        if row != "session":
            return Line.UNKNOWN
        self._session(data)
        return _PARSED

    def _bare(self, data: dict[str, Any]) -> Line:
        """A message or part without a frame."""
        if isinstance(data.get("role"), str):
            return self._message(as_text(data.get("id")), data, None)
        if (message := as_text(data.get("messageID"))) is None:
            return Line.UNKNOWN
        return self._part(as_text(data.get("id")), message, data, None, data)

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

    def _message(self, row_id: str | None, info: dict[str, Any], row_time: object) -> Line:
        if info.get("role") not in ("user", "assistant") or row_id is None:
            return Line.UNKNOWN
        if row_id in self._seen:
            return Line.DUPLICATE
        self._seen.add(row_id)
        self._end_message()
        self._begin_message(row_id, info, row_time, as_text(info.get("sessionID")))
        return _PARSED

    def _begin_message(self, message: str, info: dict[str, Any], row_time: object, session: str | None) -> None:
        self._know(session)
        self._info = info
        self._model, self._provider = as_text(info.get("modelID")), as_text(info.get("providerID"))
        self._summary = info.get("summary") is True
        self._tellers = _OF_A_PERSON if info.get("role") == "user" else _OF_THE_MODEL
        self._calls = Calls(message)
        created: Any = as_dict(info.get("time")).get("created")
        self._time = self.time(created) or self.time(row_time)
        # A fork copies the messages of another session: they are older than the session they stand in.
        self.emit.copied = self._born is not None and type(created) in (int, float) and created < self._born
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
            self._blocks, self._injected = [], []
        else:
            self._end_assistant(calls, info)
        self._calls, self._info = None, {}
        if self._texts:
            self._texts = []

    def _end_user(self) -> None:
        assert self._calls is not None
        if self._texts or self._blocks:
            self.emit.prompt("\n".join(self._texts), self._time, message_id=self._calls.message)
        for block in self._blocks:
            self.emit.user(block, self._time, self._calls.message)
        for kind, text in self._injected:
            self.emit.user(text_block(text), self._time, self._calls.message, injected=kind)

    def _end_assistant(self, calls: Calls, info: dict[str, Any]) -> None:
        times = as_dict(info.get("time"))
        summary, failed = self._summary, info.get("error") is not None
        self._stamp, done = None, self._time
        if summary or failed or not calls.counted:
            done = self.moment(times.get("completed"))
        if summary and (self._texts or not failed):
            facts = self._compaction or {"trigger": "auto"}
            self.emit.user(text_block("\n".join(self._texts)), done, compaction=facts)
        if summary:
            self._compaction = None
        if not calls.counted:
            self._tokens(info.get("tokens"), info.get("cost"), calls.id, done, stated(summary, info.get("finish")))
        if failed:
            self.failure(info.get("error"), done)
        if self.part.agent_id is None:
            self._cut = not failed and "time" in info and "completed" not in times

    # -- parts -------------------------------------------------------------------------------------------

    def _part(
        self, part_id: str | None, message: str, part: dict[str, Any], stamp: object, record: dict[str, Any]
    ) -> Line:
        """A part of a message. `stamp` is the time of its row as it stands, `record` what it came in."""
        kind = part.get("type")
        if type(kind) is not str:
            return Line.UNKNOWN
        if part_id is not None:
            if part_id in self._seen:
                return Line.DUPLICATE
            self._seen.add(part_id)
        calls = self._calls
        if calls is None or calls.message != message:
            self.report.warn("orphan_part", "a part whose message is not in the source")
            self._end_message()
            self._begin_message(message, {"role": "assistant"}, None, as_text(part.get("sessionID")))
            calls = self._calls
            assert calls is not None
        if self._revert is not None and self._revert == (message, part_id):
            self.emit.abandoned = True
        tell = self._tellers.get(kind)
        if tell is not None:
            self._stamp, self._path = stamp, () if part is record else _IN_ROW
            tell(self, calls, part)
            return _PARSED
        if kind in _SILENT_PARTS:
            return _PARSED
        record["type"] = f"part {kind}"  # the name under which the report counts it
        return Line.UNKNOWN

    def when(self) -> str | None:
        return self.time(self._stamp) or self._time

    def _persons_text(self, calls: Calls, part: dict[str, Any]) -> None:
        text = as_text(part.get("text")) or (as_text(part.get("prompt")) if part["type"] == "subtask" else None)
        if text is None:
            return
        if part.get("synthetic") is True or part.get("ignored") is True:
            self._injected.append((injected_as(part), text))
        else:
            self._texts.append(text)

    def _persons_file(self, calls: Calls, part: dict[str, Any]) -> None:
        if (block := image_of(part)) is not None:
            self._blocks.append(block)

    def _compacted(self, calls: Calls, part: dict[str, Any]) -> None:
        facts: dict[str, Any] = {"trigger": "manual" if part.get("auto") is False else "auto"}
        if isinstance(part.get("overflow"), bool):
            facts["overflow"] = part["overflow"]
        self._compaction = facts

    def _step(self, calls: Calls, part: dict[str, Any]) -> None:
        calls.step()

    def _words(self, calls: Calls, part: dict[str, Any]) -> None:
        text = part.get("text")
        if type(text) is not str or not text:
            return
        if self._summary:
            if part["type"] == "text":
                self._texts.append(text)
            return
        calls.spoke = True
        begun = self.moment(as_dict(part.get("time")).get("start"))
        if part["type"] == "text":
            self.emit.message({"type": "text", "text": text}, begun, self._model, calls.id)
        else:
            self.emit.thought(text, begun, self._model, calls.id)

    def _called(self, calls: Calls, part: dict[str, Any]) -> None:
        calls.spoke = True
        self.tool(part, calls.id, self._model, *self._path)

    def _finished(self, calls: Calls, part: dict[str, Any]) -> None:
        calls.closed = True
        cost = part.get("cost", self._info.get("cost") if calls.number == 1 else None)
        said = stated(self._summary, part.get("reason"))
        if self._tokens(part.get("tokens"), cost, calls.id, self.when(), said):
            calls.counted = True

    def _retried(self, calls: Calls, part: dict[str, Any]) -> None:
        created = as_dict(part.get("time")).get("created")
        self.failure(part.get("error"), self.moment(created), retried=True)

    def _file(self, calls: Calls, part: dict[str, Any]) -> None:
        if (block := image_of(part)) is not None:
            calls.spoke = True
            begun = self.moment(as_dict(part.get("time")).get("start"))
            self.emit.message(block, begun, self._model, calls.id)

    def _tokens(self, tokens: object, cost: object, message: str, time: str | None, said: dict[str, Any]) -> bool:
        if type(cost) is float or type(cost) is int:
            self._priced = True
        if self._provider is not None:
            said = {"provider": self._provider, **said}
        return self.tokens(tokens, cost, message, self._model, time, said)


_Teller = Callable[[OpencodeSession, Calls, dict[str, Any]], None]
_OF_A_PERSON: dict[str, _Teller] = {
    "text": OpencodeSession._persons_text,
    "subtask": OpencodeSession._persons_text,
    "file": OpencodeSession._persons_file,
    "compaction": OpencodeSession._compacted,
}
_OF_THE_MODEL: dict[str, _Teller] = {
    "step-start": OpencodeSession._step,
    "text": OpencodeSession._words,
    "reasoning": OpencodeSession._words,
    "tool": OpencodeSession._called,
    "step-finish": OpencodeSession._finished,
    "retry": OpencodeSession._retried,
    "file": OpencodeSession._file,
}


def is_session(records: Sequence[dict[str, Any]]) -> bool:
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
