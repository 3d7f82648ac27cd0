"""Droid (Factory): `droid exec --output-format stream-json | debug | json`, and its session files.

A session is `~/.factory/sessions/<folder>/<id>.jsonl`, one record per response in the shape of Anthropic's messages;
its totals are in `<id>.settings.json` beside it, and tokens per call are nowhere. A session that names its calling
session and tool use is a subagent of that call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
from traceflow_formats import jsontext
from traceflow_formats.jsontext import rounded

from .content import content_blocks, last_text
from .contract import JsonLineParser, Line, Part
from .emit import image_block, text_block
from .facts import as_dict, as_text, count
from .source import Harness, Input, Source, file_input, head_records, walk_files
from .tools.droid import show, todo_plan

__all__ = ["HARNESS", "DroidSession", "DroidStdout"]

_NAME = "droid"
_EXIT = re.compile(r"\[Process exited with code (\d{1,9})\]\s*\Z")
_PARSED = Line.PARSED
_SILENT = frozenset({"session_settings", "session_title", "session_end"})
_SETTINGS_BYTES = 4 << 20


class _Droid(JsonLineParser):
    """What both sources share: tool results, totals."""

    harness = _NAME

    def returned(self, call_id: str, content: object, failed: bool, time: str | None, message: str | None) -> None:
        """A result: a command's exit code stands at the end of its text."""
        blocks = content_blocks(content, _image_of, keep_empty=True)
        found = _EXIT.search(last_text(blocks)[-200:])
        if found is None:
            self.emit.result(call_id, blocks, "failed" if failed else "completed", time, None, None, message)
            return
        code = int(found[1])
        status = "failed" if failed or code else "completed"
        self.emit.result(call_id, blocks, status, time, None, None, message, exitCode=code)

    def totals(self, usage: dict[str, Any], names: tuple[str, str, str, str]) -> dict[str, Any] | None:
        """Totals whose input leaves out the cache. `names`: input, output, cache read, cache creation."""
        given, written, read, created = (count(usage.get(name)) for name in names)
        if not any((given, written, read, created)):
            return None
        total: dict[str, Any] = {}
        if given is not None:
            total["promptTokens"] = given + (read or 0) + (created or 0)
        if written is not None:
            total["completionTokens"] = written
        if read is not None:
            total["cachedTokens"] = read
        extra = {k: v for k, v in usage.items() if k not in names[:3] and isinstance(v, int | float)}
        if extra:
            total["extra"] = extra
        return total


class DroidStdout(_Droid):
    """The lines of `droid exec`: messages, reasoning, calls and results as they come, or one `result` object."""

    source = "stdout"

    def __init__(self) -> None:
        super().__init__()
        self._model: str | None = None
        self._last = ""  # the last answer
        self._failures: list[str] = []
        self._before: tuple[object, ...] = ()
        self._ended = False

    def record(self, record: dict[str, Any]) -> Line:
        kind, session = record.get("type"), record.get("session_id")
        if type(session) is str and session:
            self.report.session_id = self.report.session_id or session
            self.emit.session_id = session
        time = self.time(record.get("timestamp"))
        if kind == "tool_call":
            return self._call(record, time)
        if kind == "tool_result":
            return self._result(record, time)
        if kind == "message" or kind == "reasoning":
            return self._words(kind, record, time)
        if kind == "system":
            if record.get("subtype") != "init":
                return Line.UNKNOWN
            self._model = as_text(record.get("model"))
            return _PARSED
        if kind == "error":
            return self._error(record, time)
        if kind in ("completion", "result"):
            self._completion(record, time)
            return _PARSED
        return Line.UNKNOWN

    def end_part(self) -> None:
        if not self._ended and not self._failures:
            self.report.incomplete = True

    def _words(self, kind: str, record: dict[str, Any], time: str | None) -> Line:
        text, message, role = record.get("text"), as_text(record.get("id")), record.get("role")
        if not isinstance(text, str) or (kind == "message" and role not in ("user", "assistant")):
            return Line.UNKNOWN
        mark = (kind, message, role, text)
        if self._before and mark == self._before:
            return Line.DUPLICATE
        self._before = mark
        self._ended = False
        if kind == "reasoning":
            self.emit.thought(text, time, self._model, message or "message")
        elif role == "user":
            self.emit.prompt(text, time)
        else:
            self._last = text
            self.emit.message({"type": "text", "text": text}, time, self._model, message or "message")
        return _PARSED

    def _call(self, record: dict[str, Any], time: str | None) -> Line:
        call_id = as_text(record.get("toolUseId")) or as_text(record.get("id"))
        name = as_text(record.get("toolName")) or as_text(record.get("toolId"))
        if call_id is None or name is None:
            return Line.UNKNOWN
        key = "parameters" if "parameters" in record else "input"
        given = record.get(key)
        if rounded(given):
            given = self.exact(given, key)
        message = as_text(record.get("messageId")) or "message"
        self.emit.call(call_id, name, show(name, given), given, time, self._model, message)
        self._before = ()
        return _PARSED

    def _result(self, record: dict[str, Any], time: str | None) -> Line:
        call_id = as_text(record.get("toolUseId")) or as_text(record.get("id"))
        if call_id is None:
            return Line.UNKNOWN
        failed = record.get("isError") is True or record.get("is_error") is True
        value = record.get("value", record.get("content"))
        if value is None:
            error = record.get("error")
            value = as_dict(error).get("message", error)
        self.returned(call_id, value, failed, time, None)
        self._before = ()
        return _PARSED

    def _error(self, record: dict[str, Any], time: str | None) -> Line:
        words = record.get("message")
        text = words if isinstance(words, str) else jsontext.dumps(words).decode() if words is not None else ""
        # 0.215 reports a failed run twice; the second line, of the `cli`, holds the last answer or "Exec failed".
        repeated = text in (self._last, "Exec failed") or any(text in told for told in self._failures)
        if record.get("source") == "cli" and self._failures and repeated:
            return Line.DUPLICATE
        self._failures.append(text)
        self.emit.error(text, True, time, source=as_text(record.get("source")))
        return Line.PARSED

    def _completion(self, record: dict[str, Any], time: str | None) -> None:
        text = record.get("finalText", record.get("result"))
        failed = record.get("is_error") is True
        if isinstance(text, str) and failed:
            self._failures.append(text)
            self.emit.error(text, True, time)
        elif isinstance(text, str) and text and not self._last:  # `--output-format json` prints nothing else
            self.emit.message(text_block(text), time, self._model, "result")
        self._ended = True
        names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        usage = self.totals(as_dict(record.get("usage")), names)
        if usage is not None:
            turns = count(record.get("numTurns", record.get("num_turns")))
            spent = count(record.get("durationMs", record.get("duration_ms")))
            self.emit.run_usage(usage, time, numTurns=turns, durationMs=spent)


class DroidSession(_Droid):
    """A session file with those of its subagents. `part.info["settings"]` is the sidecar of the file."""

    source = "session"

    def __init__(self) -> None:
        super().__init__()
        self._notice: tuple[str, str | None] | None = None  # what only the user was shown: a failure's words
        self._done = True  # nothing is due: the turn has ended, or the last answer asked for nothing
        self._seen: set[str] = set()
        self._model: str | None = None  # of the messages that do not name theirs

    def start_part(self) -> None:
        self._done = True
        self._seen = set()
        self._model = as_text(as_dict(self.part.info.get("settings")).get("model"))

    def record(self, record: dict[str, Any]) -> Line:
        kind = record.get("type")
        time = self.time(record.get("timestamp"))
        if kind == "message":
            return self._message(record, time)
        if kind == "session_start":
            session = as_text(record.get("id"))
            if self.part.agent_id is None and self.report.session_id is None:
                self.report.session_id = self.emit.session_id = session
            return Line.PARSED
        if kind == "agent_turn_outcome":
            self._outcome(record, time)
            return Line.PARSED
        if kind == "compaction_state":
            self._told()
            summary = record.get("summaryText", record.get("summary"))
            text = summary if isinstance(summary, str) else as_text(as_dict(summary).get("body")) or ""
            facts = {k: record[k] for k in ("summaryKind", "summaryTokens", "removedCount") if k in record}
            self.emit.user(text_block(text), time, compaction=facts)
            return Line.PARSED
        if kind == "todo_state":
            plan = todo_plan(record.get("todos"))
            if plan is None:
                return Line.UNKNOWN
            self.emit.plan(plan, time)
            return Line.PARSED
        return Line.PARSED if isinstance(kind, str) and kind in _SILENT else Line.UNKNOWN

    def end_part(self) -> None:
        self._told()
        if not self._done and self.part.agent_id is None:
            self.report.incomplete = True
        if self.part.agent_id is None:
            self._totals(as_dict(self.part.info.get("settings")))

    # -- messages ----------------------------------------------------------------------------------------

    def _message(self, record: dict[str, Any], time: str | None) -> Line:
        message = as_dict(record.get("message"))
        role, content = message.get("role"), message.get("content")
        record_id = as_text(record.get("id"))
        if role not in ("user", "assistant") or not isinstance(content, str | list):
            return Line.UNKNOWN
        if record_id is not None:
            if record_id in self._seen:
                return Line.DUPLICATE
            self._seen.add(record_id)
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if self._notice is not None:
            self._told()
        if role == "assistant":
            self._assistant(record_id or f"line-{self.report.line}", message, blocks, time)
        else:
            self._user(record_id, message, blocks, time)
        return _PARSED

    def _assistant(self, message_id: str, message: dict[str, Any], blocks: list[Any], time: str | None) -> None:
        model = as_text(message.get("modelId")) or self._model
        self._done = True
        for at, block in enumerate(blocks):
            if type(block) is not dict:
                continue
            kind = block.get("type")
            if kind == "tool_use":
                self._done = False
                name = as_text(block.get("name")) or "unknown"
                call_id = as_text(block.get("id")) or f"{message_id}-{at}"
                given = block.get("input")
                if rounded(given):
                    given = self.exact(given, "message", "content", at, "input")
                self.emit.call(call_id, name, show(name, given), given, time, model, message_id)
            elif kind == "text":
                if (text := as_text(block.get("text"))) is not None:
                    self.emit.message({"type": "text", "text": text}, time, model, message_id)
            elif kind == "thinking" and (text := as_text(block.get("thinking")) or as_text(block.get("text"))):
                self.emit.thought(text, time, model, message_id)

    def _user(self, record_id: str | None, message: dict[str, Any], blocks: list[Any], time: str | None) -> None:
        seen_by = message.get("visibility")
        blocks = [block for block in blocks if type(block) is dict]
        if seen_by == "user_only":
            self._notice = ("\n".join(t for b in blocks if (t := as_text(b.get("text")))), time)
            return
        self._done = False
        context = seen_by == "llm_only" or (record_id is not None and record_id.startswith("context-"))
        words: list[str] = []
        pictures: list[dict[str, Any]] = []
        for block in blocks:
            kind = block.get("type")
            if kind == "tool_result":
                if (call_id := as_text(block.get("tool_use_id"))) is not None:
                    self.returned(call_id, block.get("content"), block.get("is_error") is True, time, None)
            elif kind == "image":
                pictures += _image_of(block) or []
            elif kind == "text" and (text := as_text(block.get("text"))) is not None:
                reminder = text.startswith("<system-reminder>")
                if context or reminder:
                    self.emit.user(
                        text_block(text), time, record_id, injected="system_reminder" if reminder else "context"
                    )
                else:
                    words.append(text)
        if words:
            self.emit.prompt("\n".join(words), time, message_id=record_id)
        for picture in pictures:
            self.emit.user(picture, time, record_id, injected="context" if context else None)

    # -- ends --------------------------------------------------------------------------------------------

    def _outcome(self, record: dict[str, Any], time: str | None) -> None:
        reason = as_text(record.get("reason"))
        self._done = True
        if reason in (None, "completed"):
            return
        notice, self._notice = self._notice, None
        text, moment = notice if notice is not None else (reason or "", time)
        self.emit.error(text, True, moment or time, reason=reason)

    def _told(self) -> None:
        """A notice that no failed turn followed is something else that the harness showed."""
        if self._notice is not None:
            text, time = self._notice
            self._notice = None
            self.emit.user(text_block(text), time, injected="notice")

    def _totals(self, settings: dict[str, Any]) -> None:
        names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheCreationTokens")
        usage = self.totals(as_dict(settings.get("tokenUsage")), names)
        if usage is None:
            return
        whole = self.totals(as_dict(settings.get("inclusiveTokenUsage")), names)
        if whole is not None and as_dict(settings.get("childInclusiveTokenUsageBySessionId")):
            whole.pop("extra", None)
            usage.setdefault("extra", {})["includingSubagents"] = whole
        self.emit.run_usage(usage, assistantActiveTimeMs=count(settings.get("assistantActiveTimeMs")))


def _image_of(block: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The picture of an image block; None for any other block."""
    if block.get("type") != "image":
        return None
    source = as_dict(block.get("source"))
    mime = as_text(source.get("media_type")) or ""
    return [image_block(as_text(source.get("data")) or "", mime, as_text(source.get("url")))]


# -- places ------------------------------------------------------------------------------------------------


def session_at(path: Path) -> Source:
    """The session of a file with its settings beside it, and the subagents whose files are in the same folder."""
    children = [(p, s) for p, s in _started(path.parent.glob("*.jsonl")) if p != path and s.get("callingSessionId")]
    return _source(path, _start(path), children)


def sessions_in(folder: Path) -> list[Source]:
    """The root sessions below any `.factory/sessions`, and those whose files lie in the folder itself."""
    home = folder.absolute()
    paths = [p for p in walk_files(folder, (".jsonl",)) if p.parent == folder or _at_home(home / p.relative_to(folder))]
    found = _started(paths)
    ids = {as_text(start.get("id")) for _, start in found}
    children = [(p, s) for p, s in found if as_text(s.get("callingSessionId")) in ids - {None, as_text(s.get("id"))}]
    own = {path for path, _ in children}
    return [_source(path, start, children) for path, start in found if path not in own]


def _at_home(path: Path) -> bool:
    parts = path.parts
    return any(parts[n : n + 2] == (".factory", "sessions") for n in range(len(parts) - 2))


def _started(paths: Iterable[Path]) -> list[tuple[Path, dict[str, Any]]]:
    files = sorted(path for path in paths if path.is_file() and not path.is_symlink())
    return [(path, start) for path in files if (start := _start(path))]


def _start(path: Path) -> dict[str, Any]:
    """The record that begins a session, or an empty one for any other file."""
    records = head_records(path)
    if not _is_session(records):
        return {}
    return next((r for r in records if r.get("type") == "session_start"), {"type": "session_start", "id": path.stem})


def _source(path: Path, start: dict[str, Any], children: list[tuple[Path, dict[str, Any]]]) -> Source:
    session = as_text(start.get("id")) or path.stem
    inputs, files = [_input(path, path.parent, None, None)], [path]
    waiting, told = [session], {session}
    while waiting:
        parent = waiting.pop(0)
        for child_path, child in children:
            child_id = as_text(child.get("id")) or child_path.stem
            if child.get("callingSessionId") == parent and child_id not in told:
                told.add(child_id)
                waiting.append(child_id)
                call = as_text(child.get("callingToolUseId"))
                inputs.append(_input(child_path, path.parent, child_id, call))
                files.append(child_path)
    beside = [f for p in files if (f := p.with_suffix(".settings.json")).is_file()]
    return Source(_NAME, "session", path, tuple(inputs), DroidSession, session, (*files, *beside))


def _input(path: Path, root: Path, agent: str | None, call: str | None) -> Input:
    name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
    sidecar = path.with_suffix(".settings.json")
    settings: object = None
    if sidecar.is_file() and not sidecar.is_symlink() and sidecar.stat().st_size <= _SETTINGS_BYTES:
        try:
            settings = orjson.loads(sidecar.read_bytes())
        except orjson.JSONDecodeError:
            settings = None
    return file_input(path, Part(name, agent, call, {"settings": as_dict(settings)}))


# -- detection ---------------------------------------------------------------------------------------------


def _is_session(records: Sequence[dict[str, Any]]) -> bool:
    for record in records:
        kind = record.get("type")
        if kind == "session_start" and as_text(record.get("id")) and not {"payload", "session_id"} & record.keys():
            return True
        if kind == "agent_turn_outcome" and "turnId" in record:
            return True
        message = as_dict(record.get("message"))
        if kind == "message" and "modelId" in message and isinstance(message.get("content"), list):
            return True
    return False


def _is_stdout(records: Sequence[dict[str, Any]]) -> bool:
    return any(as_text(record.get("session_id")) and _is_stdout_line(record) for record in records)


def _is_stdout_line(record: dict[str, Any]) -> bool:
    """Claude Code and Qwen Code print `system/init` and `result` too: `reasoning_effort` and the credits tell."""
    kind = record.get("type")
    if kind == "system":
        return "reasoning_effort" in record and not {"claude_code_version", "mcp_servers", "uuid"} & record.keys()
    if kind == "message":
        return isinstance(record.get("text"), str) and "id" in record and record.get("role") in ("user", "assistant")
    if kind == "tool_call":
        return "toolName" in record and "messageId" in record
    if kind == "error":
        return record.get("source") in ("agent_loop", "cli")
    if kind == "completion":
        return "finalText" in record
    if kind == "result":
        usage = as_dict(record.get("usage"))
        return "factory_credits" in usage and not {"uuid", "modelUsage", "stats"} & record.keys()
    return False


HARNESS = Harness(
    name=_NAME,
    version=1,
    stdout_names=("droid.txt",),
    is_stdout=_is_stdout,
    is_session=_is_session,
    stdout=DroidStdout,
    session_at=session_at,
    sessions_in=sessions_in,
)
