"""One run, two sources: the session is the trace, and stdout adds what only it has.

Stdout knows the cost, the duration, the retries, and often the tail of a killed run; the session has the rest.
What each lacked is said in the report, and where both state totals that differ, both numbers are in a warning.
A stream is never reconciled with itself: a session file that holds stdout lines is stdout.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from traceflow_formats.trace import Event

from .report import Report
from .source import Source

__all__ = ["Reconciled"]

_SPOKEN = ("agent_message_chunk", "agent_thought_chunk", "tool_call")
_TOKENS = ("promptTokens", "completionTokens")


@dataclass(eq=False, repr=False)
class _Seen:
    """What a source held, in little memory: hashes of ids, counts, totals."""

    calls: set[int] = field(default_factory=set)
    open_calls: set[int] = field(default_factory=set)
    messages: set[int] = field(default_factory=set)
    texts: _Texts = field(default_factory=lambda: _Texts())
    prompts: int = 0
    retried: int = 0
    fatal: int = 0
    thoughts: int = 0
    timed: bool = False
    model: bool = False
    call_usage: bool = False
    sums: dict[str, int] = field(default_factory=dict)
    run: Event | None = None

    def take(self, event: Event) -> None:
        data = event.data
        self.timed = self.timed or "timestamp" in data
        self.model = self.model or "model" in data
        message = data.get("messageId")
        if event.type in _SPOKEN:
            if message is not None:
                self.messages.add(hash(message))
            self.texts.take(event)
        if event.type in ("prompt", "user_message_chunk"):
            self.prompts += "injected" not in (data.get("extra") or {})
            return
        if event.type == "agent_thought_chunk":
            self.thoughts += 1
            return
        update = data.get("update") or {}
        if event.type == "tool_call":
            self.calls.add(hash(update["toolCallId"]))
            self.open_calls.add(hash(update["toolCallId"]))
        elif event.type == "tool_call_update":
            self.open_calls.discard(hash(update["toolCallId"]))
        elif event.type == "error":
            self.retried += bool((data.get("extra") or {}).get("retried"))
            self.fatal += bool(update.get("fatal"))
        elif event.type == "usage":
            self._usage(event, update)

    def _usage(self, event: Event, update: dict[str, Any]) -> None:
        if update.get("scope") == "run":
            self.run = event
            return
        self.call_usage = True
        extra = event.data.get("extra") or {}
        if "agentId" in extra or extra.get("copied") or extra.get("abandoned"):
            return
        for key in _TOKENS:
            value = update["usage"].get(key)
            if isinstance(value, int):
                self.sums[key] = self.sums.get(key, 0) + value


class Reconciled:
    """The events of a session with what its stdout adds. Iterate once; `report` is complete after that.

    `lacks` then says, for each side, which facts only the other one had.
    """

    def __init__(self, session: Source, stdout: Source) -> None:
        self._session = session.parse()
        self._stdout = stdout.parse()
        self.stdout_path = stdout.path
        self.lacks: dict[str, list[str]] = {"session": [], "stdout": []}

    @property
    def report(self) -> Report:
        return self._session.report

    @property
    def stdout_report(self) -> Report:
        return self._stdout.report

    def __iter__(self) -> Iterator[Event]:
        seen = _Seen()
        held: Event | None = None  # the session's totals stand last
        for event in self._session:
            seen.take(event)
            if event.type == "usage" and event.data["update"].get("scope") == "run":
                held = event
                continue
            yield event
        said = _Seen()
        tail = _Tail(seen)
        for event in self._stdout:
            said.take(event)
            tail.take(event)
        yield from tail.events()
        run = _merge(held, said.run)
        if run is not None:
            yield run
        self._compare(seen, said, tail)

    def _compare(self, seen: _Seen, said: _Seen, tail: _Tail) -> None:
        lacks = self.lacks
        cost = (said.run.data["update"]["usage"] if said.run else {}).get("costUsd")
        for missing, name in (
            (cost is not None and not _cost(seen.run), "cost"),
            (said.run is not None and seen.run is None, "run totals"),
            (said.retried > seen.retried, "retries"),
            (tail.added, "the end of the run"),
            (bool(said.fatal) and not seen.fatal, "the final error"),
        ):
            if missing:
                lacks["session"].append(name)
        for missing, name in (
            (bool(seen.prompts) and not said.prompts, "prompt"),
            (seen.timed and not said.timed, "timestamps"),
            (seen.model and not said.model, "model"),
            (bool(seen.thoughts) and not said.thoughts, "reasoning"),
            (seen.call_usage and not said.call_usage, "usage per model call"),
            (seen.run is not None and said.run is None, "run totals"),
            (bool(seen.calls - said.calls) and bool(seen.calls & said.calls), "some tool calls"),
        ):
            if missing:
                lacks["stdout"].append(name)
        self._totals(seen, said)

    def _totals(self, seen: _Seen, said: _Seen) -> None:
        if said.run is None or (said.run.data.get("extra") or {}).get("cumulative"):
            return
        stated = said.run.data["update"]["usage"]
        ours = seen.sums or (seen.run.data["update"]["usage"] if seen.run else {})
        both = [(key, ours[key], stated[key]) for key in _TOKENS if isinstance(ours.get(key), int) and key in stated]
        different = [f"{key} {mine} in the session, {theirs} on stdout" for key, mine, theirs in both if mine != theirs]
        if different:
            report = self.report
            report.path, report.line, report.byte = "", 0, 0
            report.warn("totals_differ", "; ".join(different))


class _Texts:
    """What an agent said, as hashes of whole texts: chunks that continue each other are one."""

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._open: tuple[object, ...] = ()
        self._parts: list[str] = []

    def take(self, event: Event) -> None:
        content = (event.data.get("update") or {}).get("content")
        if event.type == "tool_call" or not isinstance(content, dict):
            return self._close()
        key = event.type, event.data.get("messageId"), bool((event.data.get("extra") or {}).get("delta"))
        if key != self._open or not key[2]:
            self._close()
            self._open = key
        self._parts.append(str(content.get("text") or content.get("data") or ""))
        return None

    def _close(self) -> None:
        if self._parts:
            self._known.add(hash("".join(self._parts).strip()))
            self._parts = []

    def knows(self, events: list[Event]) -> bool:
        """Whether these chunks of one text were said."""
        self._close()
        texts = [
            str(e.data["update"]["content"].get("text") or e.data["update"]["content"].get("data")) for e in events
        ]
        return hash("".join(texts).strip()) in self._known


class _Tail:
    """What stdout holds after the last thing that the session knows, and failures that it alone printed.

    Only a stream that shares the session's ids can be joined: by its tool calls, and by its messages, where their
    ids are the harness's own on both sides; words without such ids are told by their text. Without one common id
    nothing is taken over but the errors.
    """

    def __init__(self, seen: _Seen) -> None:
        self.seen = seen
        self.added = False
        self._common_call = False
        self._common_message = False
        self._pending: list[Event] = []
        self._errors: list[Event] = []
        self._new_calls: set[str] = set()

    def take(self, event: Event) -> None:
        data = event.data
        update = data.get("update") or {}
        if event.type == "error":
            retried = bool((data.get("extra") or {}).get("retried"))
            if (retried and not self.seen.retried) or (update.get("fatal") and not self.seen.fatal):
                self._errors.append(event)
        elif event.type == "tool_call":
            if hash(update["toolCallId"]) in self.seen.calls:
                self._common_call = True
                self._known()
            else:
                self._new_calls.add(update["toolCallId"])
                self._pending.append(event)
        elif event.type == "tool_call_update":
            call = update["toolCallId"]
            if hash(call) in self.seen.open_calls or call in self._new_calls:
                self._pending.append(event)  # the session lacks the result
        elif event.type in _SPOKEN:
            if hash(data.get("messageId")) in self.seen.messages:
                self._common_message = True
                self._known()
            else:
                self._pending.append(event)

    def _known(self) -> None:
        """The session holds this: what stdout held before it stands in the session too, but for results it lacks."""
        self._pending = [
            e
            for e in self._pending
            if e.type == "tool_call_update" and hash(e.data["update"]["toolCallId"]) in self.seen.open_calls
        ]

    def events(self) -> Iterator[Event]:
        if self._common_call or self._common_message:
            for event in self._unsaid() if not self._common_message else self._pending:
                self.added = True
                yield event
        yield from self._errors

    def _unsaid(self) -> Iterator[Event]:
        """What is pending, without words that the session has under another id."""
        words: list[Event] = []
        for event in [*self._pending, None]:
            goes_on = bool(words) and event is not None and _same_text(words[-1], event)
            if words and not goes_on:
                if not self.seen.texts.knows(words):
                    yield from words
                words = []
            if event is None:
                return
            if event.type in ("agent_message_chunk", "agent_thought_chunk"):
                words.append(event)
            else:
                yield event


def _same_text(before: Event, event: Event) -> bool:
    """Whether a chunk continues the one before it."""
    delta = (event.data.get("extra") or {}).get("delta")
    return bool(delta) and (before.type, before.data.get("messageId")) == (event.type, event.data.get("messageId"))


def _cost(run: Event | None) -> bool:
    return run is not None and run.data["update"]["usage"].get("costUsd") is not None


def _merge(session: Event | None, stdout: Event | None) -> Event | None:
    """One total of two: the session's numbers, completed by what only stdout states."""
    if session is None or stdout is None:
        return session or stdout
    ours, theirs = session.data, stdout.data
    usage = {**theirs["update"]["usage"], **ours["update"]["usage"]}
    extra = {**(theirs["update"]["usage"].get("extra") or {}), **(ours["update"]["usage"].get("extra") or {})}
    if extra:
        usage["extra"] = extra
    data = {**ours, "update": {**ours["update"], "usage": usage}}
    beside = {**(theirs.get("extra") or {}), **(ours.get("extra") or {})}
    if beside:
        data["extra"] = beside
    return Event("usage", data)
