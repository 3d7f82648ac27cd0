"""The session files of gemini-cli as events (checked with 0.22 and 0.61).

The file is an append log that is rewritten (see `gemini_history`): the message last written is held until another
one follows, and what a first pass found to be withdrawn later is marked as such.
"""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from traceflow_formats.jsontext import rounded

from ..contract import JsonLineParser, Line
from ..emit import text_block
from ..genai import (
    SHELL_TOOLS,
    Keys,
    exit_code,
    facts,
    media_block,
    parts_of,
    response_of,
    result_blocks,
    split_references,
    usage_of,
)
from ..tools.gemini import show
from .files import is_header
from .history import SNAPSHOT, Change, History, key_of, listed_of, text_of

__all__ = ["GeminiSession"]

_COUNTS = Keys("input", "output", "cached", "thoughts", "tool", "total")
_KINDS = frozenset(("user", "gemini", "info", "warning", "error"))
_TOUCHED = frozenset(("lastUpdated",))
_PARSED = Line.PARSED
_INJECTED = {
    "<session_context>": "session_context",
    "<hook_context>": "hook_context",
    "<system-reminder>": "system_reminder",
    "System: Please continue.": "continue",
}
_TEXTS = frozenset({"fileDiff", "originalContent", "newContent", "result"})  # what the result's text says already


class GeminiSession(JsonLineParser):
    """A session: its file, other files of the same session id, then those of its subagents.

    `Part.info["abandoned"]` are the keys of the messages that the log withdraws later. Without it (a live tail)
    what was handed over before it was withdrawn stays as it is, with a warning.
    """

    harness = "gemini-cli"
    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._begun = False
        self._agent: str | None = None  # whose history is in hand
        self._fresh()

    def _fresh(self) -> None:
        self._history = History()
        self._held: tuple[str, dict[str, Any]] | None = None  # the model's message that may be written again
        self._answered: dict[str, bool] = {}  # calls of this agent, and whether they have their result
        self._names: dict[str, str] = {}
        self._counted: set[str] = set()  # messages whose usage is known
        self._prints: set[int] = set()  # words that were handed over
        self._updates: dict[str, list[dict[str, Any]]] = {}
        self._failure: tuple[str, str | None, bool] | None = None

    def start_part(self) -> None:
        if not self._begun or self._agent != self.part.agent_id:
            self._begun, self._agent = True, self.part.agent_id
            self._fresh()
        self._abandoned: frozenset[str] | None = self.part.info.get("abandoned")

    def end_part(self) -> None:
        self._release()
        self._settle(fatal=True)

    def record(self, record: dict[str, Any]) -> Line:
        if "$set" in record or "$rewindTo" in record:
            return self._rewritten(record)
        if rounded(record.get("toolCalls")):  # arguments keep all their digits
            record = self.exact(record)
        if record.get("type") == "message_update" and isinstance(name := record.get("id"), str):
            return self._update(name, record)
        if (key := key_of(record)) is not None:
            return self._message(key, record)
        if is_header(record):
            return self._header(record)
        return Line.UNKNOWN

    def _rewritten(self, record: dict[str, Any]) -> Line:
        """The log changes what it said before. Most often only the moment of its last change."""
        values = record.get("$set")
        if len(record) == 1 and type(values) is dict and values.keys() == _TOUCHED:
            return _PARSED
        record = self.exact(record)
        if isinstance(target := record.get("$rewindTo"), str):
            self._release()
            self._withdrawn(bool(self._history.rewind(target)))
            return _PARSED
        if record.get("type") == "message_update" and isinstance(name := record.get("id"), str):
            return self._update(name, record)
        if (key := key_of(record)) is not None:
            return self._message(key, record)
        if isinstance(values := record.get("$set"), dict):
            return self._set(values)
        return self._header(record) if is_header(record) else Line.UNKNOWN

    # -- records ------------------------------------------------------------------------------------------

    def _header(self, record: dict[str, Any]) -> Line:
        session_id = record["sessionId"]
        if self.part.agent_id is None and self.emit.session_id is None:
            self.emit.session_id = self.report.session_id = session_id
        self._history.restart()
        messages = record.get("messages")
        for message in messages if isinstance(messages, list) else ():  # a document that was not taken apart
            if isinstance(message, dict) and (key := key_of(message)) is not None:
                self._message(key, message)
        return Line.PARSED

    def _message(self, key: str, record: dict[str, Any]) -> Line:
        kind, held = record["type"], self._held
        if kind not in _KINDS:
            return Line.UNKNOWN
        if held is not None and held[0] == key:
            before = held[1]
            after = _merged(before, record)
            self._held = (key, after)
            return Line.DUPLICATE if after == before else _PARSED
        new = self._history.message(key)
        if not new:
            return self._again(key, record)
        if held is not None:
            self._release()
        if kind == "gemini":
            if self._updates:
                for update in self._updates.pop(record["id"], ()):
                    record = _merged(record, update)
            self._held = (key, record)
            return _PARSED
        return _PARSED if self._other(key, record) else Line.DUPLICATE

    def _update(self, name: str, record: dict[str, Any]) -> Line:
        """A patch of a message, kept until the message comes."""
        patch = {k: v for k, v in record.items() if k not in ("type", "id", "timestamp")}
        key = f"gemini:{name}"
        if self._held is not None and self._held[0] == key:
            self._held = (key, _merged(self._held[1], patch))
        elif key in self._history.known:
            return self._again(key, {"id": name, "type": "gemini", **patch})
        else:
            self._updates.setdefault(name, []).append(patch)
        return Line.PARSED

    def _again(self, key: str, record: dict[str, Any]) -> Line:
        """A message that was handed over is written once more: what it lacked then follows."""
        if not key.startswith("gemini:"):
            return Line.DUPLICATE
        self._release()
        return Line.PARSED if self._model_call(key, record, again=True) else Line.DUPLICATE

    def _set(self, values: dict[str, Any]) -> Line:
        if "sessionId" in values:
            self._history.restart()
        messages = values.get("messages")
        if not isinstance(messages, list):
            return Line.PARSED
        listed = listed_of(messages)
        new = {entry.key for entry in listed if entry.key not in self._history.known}
        change = self._history.replace(listed)
        told = change is Change.WITHDRAWN
        if told:
            self._withdrawn(True)
        summary_due = change is Change.COMPACTED
        for entry in listed:
            if entry.key not in new:
                if self._held is None or self._held[0] != entry.key:
                    told |= entry.key.startswith("gemini:") and self._model_call(entry.key, entry.record, again=True)
                continue
            if change is Change.RESUMED and _print(entry.record) in self._prints:
                continue
            self._release()
            if summary_due and entry.words:
                summary_due = False
                self._speaker(entry.key)
                self.emit.user(text_block(text_of(entry.record)), self._when(entry.record), compaction={})
                told = True
            elif change is Change.COMPACTED and entry.key.startswith("gemini:") and "toolCalls" not in entry.record:
                # the harness answers its summary in the model's name: "Got it. Thanks for the additional context!"
                self._speaker(entry.key)
                self.emit.user(text_block(text_of(entry.record)), self._when(entry.record), injected="compaction")
                told = True
            elif entry.key.startswith("gemini:"):
                told |= self._model_call(entry.key, entry.record)
            else:
                told |= self._other(entry.key, entry.record)
        return Line.PARSED if told else Line.DUPLICATE

    # -- events -------------------------------------------------------------------------------------------

    def _when(self, record: dict[str, Any]) -> str | None:
        return self.time(record.get("timestamp"))

    def _speaker(self, key: str) -> None:
        self.emit.abandoned = self._abandoned is not None and key in self._abandoned

    def _withdrawn(self, any_of_them: bool) -> None:
        if any_of_them and self._abandoned is None:
            self.report.warn("late_withdrawal", "messages were withdrawn that had been handed over")

    def _release(self) -> None:
        """The held message is final: hand it over."""
        if self._held is not None:
            (key, record), self._held = self._held, None
            self._model_call(key, record)

    def _settle(self, fatal: bool) -> None:
        """What came after an error says whether the turn ended with it."""
        if self._failure is not None:
            (text, time, abandoned), self._failure = self._failure, None
            now, self.emit.abandoned = self.emit.abandoned, abandoned
            self.emit.error(text, fatal, time)
            self.emit.abandoned = now

    def _other(self, key: str, record: dict[str, Any]) -> bool:
        """A message of the user's side, or of the harness about itself. False when it holds nothing new."""
        kind, time, parts = record["type"], self._when(record), parts_of(record.get("content"))
        self._speaker(key)
        if kind == "user" and all(map(self._is_answer, parts)):
            return False
        if kind == "error":
            self._settle(fatal=False)
            self._failure = (text_of(record), time, self.emit.abandoned)
            return True
        if kind != "user":
            self.emit.user(text_block(text_of(record)), time, injected=kind)
            return True
        told, words = False, ""
        parts, referenced, pictures = split_references(parts)
        name = f"user-{record['id']}" if pictures else None
        for at, part in enumerate([*parts, {}]):
            text = part.get("text")
            injected = _injected(text) if isinstance(text, str) else None
            if isinstance(text, str) and injected is None:
                words += text
                continue
            if words.strip():
                self._settle(fatal=True)
                self._prints.add(_print(record))
                self.emit.prompt(words, time, message_id=name)
                told, words = True, ""
            if injected is not None and isinstance(text, str):
                if injected == "compaction":
                    self.emit.user(text_block(text), time, compaction={})
                else:
                    self.emit.user(text_block(text), time, injected=injected)
                told = True
            elif (found := response_of(part)) is not None:
                told |= self._late_result(found[0], part, _media_after(parts, at), time)
            elif (block := media_block(part)) is not None and not _is_returned(parts, at):
                self.emit.user(block, time)
                told = True
        for block in pictures:
            self.emit.user(block, time, name)
        if referenced:
            self.emit.user(text_block(referenced), time, injected="referenced_files")
        return told or bool(referenced)

    def _is_answer(self, part: dict[str, Any]) -> bool:
        """Whether a part repeats a result that stands with its call, and nothing else."""
        found = part.get("functionResponse")
        call_id = found.get("id") if type(found) is dict and len(part) == 1 else None
        return type(call_id) is str and self._answered.get(call_id, False)

    def _late_result(
        self, call_id: str | None, part: dict[str, Any], media: list[dict[str, Any]], time: str | None
    ) -> bool:
        """A functionResponse on the user's side, with the media after it, repeats what stands with the call, unless
        that was lost."""
        if call_id is None or self._answered.get(call_id):
            return False
        self._answered[call_id] = True
        response = part["functionResponse"].get("response")
        failed = isinstance(response, dict) and "error" in response and "output" not in response
        self._result(call_id, result_blocks([part, *media]), "failed" if failed else "completed", time, None)
        return True

    def _model_call(self, key: str, record: dict[str, Any], again: bool = False) -> bool:
        """Hand over a message of the model: thoughts, words, calls, usage, results. `again`: what is new of it."""
        time, model, name = self._when(record), _text(record.get("model")), record["id"]
        self._speaker(key)
        told = False
        parts = parts_of(record.get("content"))
        if not again:
            self._settle(fatal=False)
            self._prints.add(_print(record))
            told = True
            self._words(record, parts, time, model, name)
        calls = _calls_of(record, [] if again else parts)
        answered = self._answered
        for call in calls:
            call_id, tool = call["id"], call["name"]
            if call_id not in answered or not again:
                args = call.get("args")
                self.emit.call(call_id, tool, show(tool, args), args, time, model, name)
                answered[call_id] = False
                self._names[call_id] = tool
                told = True
        if key not in self._counted:
            usage = usage_of(record.get("tokens"), _COUNTS, output_holds_thoughts=False)
            if usage is not None:
                self._counted.add(key)
                self.emit.usage(usage, name, time, model)
                told = True
        for call in calls:
            if not answered[call["id"]] and self._call_result(call):
                told = True
        return told

    def _words(
        self, record: dict[str, Any], parts: list[dict[str, Any]], time: str | None, model: str | None, name: str
    ) -> None:
        thoughts = record.get("thoughts")
        for thought in thoughts if isinstance(thoughts, list) else ():
            if isinstance(thought, dict):
                subject, body = _text(thought.get("subject")), _text(thought.get("description"))
                thinking = " ".join(filter(None, (f"**{subject}**" if subject else None, body)))
                if thinking:
                    self.emit.thought(thinking, self.time(thought.get("timestamp")) or time, model, name)
        for part in parts:
            text = part.get("text")
            if type(text) is str and text:
                if part.get("thought"):
                    self.emit.thought(text, time, model, name)
                else:
                    self.emit.message({"type": "text", "text": text}, time, model, name)
            elif (block := media_block(part)) is not None:
                self.emit.message(block, time, model, name)

    def _call_result(self, call: dict[str, Any]) -> bool:
        """The result that stands with its call; False while there is none."""
        status, display, parts = call.get("status"), call.get("resultDisplay"), parts_of(call.get("result"))
        if not parts and status not in ("success", "error", "cancelled"):
            return False
        blocks = result_blocks(parts)
        if not blocks and isinstance(display, str) and display:
            blocks = [text_block(display)]
        said = facts(display, _TEXTS) if isinstance(display, dict) else None
        if (agent := _text(call.get("agentId"))) is not None:
            said = {"agentId": agent, **(said or {})}
        if status != "success" and status is not None:
            said = {"status": status, **(said or {})}
        self._answered[call["id"]] = True
        state = "failed" if status in ("error", "cancelled") else "completed"
        self._result(call["id"], blocks, state, self._when(call), said)
        return True

    def _result(
        self, call_id: str, blocks: list[dict[str, Any]], status: str, time: str | None, said: dict[str, Any] | None
    ) -> None:
        if self._names.pop(call_id, "") in SHELL_TOOLS and blocks and blocks[0]["type"] == "text":
            code = exit_code(blocks[0]["text"])
            if code is not None:
                self.emit.result(call_id, blocks, "failed" if code else status, time, said, exitCode=code)
                return
        self.emit.result(call_id, blocks, status, time, said)


def _print(record: dict[str, Any]) -> int:
    """A mark of a message's words and calls: a resumed history may give it a new id."""
    names: set[str] = set()
    words = ""
    for part in parts_of(record.get("content")):
        text, call = part.get("text"), part.get("functionCall")
        if isinstance(text, str) and not part.get("thought"):
            words += text
        if isinstance(call, dict) and isinstance(name := call.get("id"), str):
            names.add(name)
    made = record.get("toolCalls")
    for call in made if isinstance(made, list) else ():
        if isinstance(call, dict) and isinstance(name := call.get("id"), str):
            names.add(name)
    return hash((record["type"], words.strip(), *sorted(names)))


def _calls_of(record: dict[str, Any], parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The calls of a model's message: `toolCalls`, and what a resumed history has as functionCall parts instead."""
    made = record.get("toolCalls")
    made = made if isinstance(made, list) else []
    calls = [c for c in made if isinstance(c, dict) and _text(c.get("id")) and isinstance(c.get("name"), str)]
    listed = {call["id"] for call in calls}
    for part in parts:
        given = part.get("functionCall")
        if isinstance(given, dict) and isinstance(given.get("name"), str) and given.get("id") not in listed:
            call_id = _text(given.get("id")) or f"{record['id']}#{len(calls)}"
            calls.append({"id": call_id, "name": given["name"], "args": given.get("args")})
    return calls


def _injected(text: str) -> str | None:
    """What the harness put in: its kind, or None for a person's words."""
    start = text.lstrip()
    if start.startswith(SNAPSHOT):
        return "compaction"
    return next((kind for mark, kind in _INJECTED.items() if start.startswith(mark)), None)


def _merged(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The newer version of a message, with what only the older one had."""
    merged = {**before, **{k: v for k, v in after.items() if v is not None}}
    old, new = before.get("toolCalls"), after.get("toolCalls")
    if isinstance(old, list) and isinstance(new, list):
        calls = {c["id"]: c for c in old if isinstance(c, dict) and isinstance(c.get("id"), str)}
        for call in new:
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                calls[call["id"]] = {**calls.get(call["id"], {}), **call}
        merged["toolCalls"] = list(calls.values())
    return merged


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _media_after(parts: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """The media that a functionResponse returned: they stand behind it as parts of their own (0.61)."""
    return list(takewhile(lambda part: media_block(part) is not None, parts[at + 1 :]))


def _is_returned(parts: list[dict[str, Any]], at: int) -> bool:
    """Whether a tool returned the media part at this place, and no person gave it."""
    before: dict[str, Any] = next((part for part in parts[:at][::-1] if media_block(part) is None), {})
    return response_of(before) is not None
