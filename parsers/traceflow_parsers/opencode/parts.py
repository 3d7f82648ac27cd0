"""What OpenCode's stdout and its storage share: message parts, token buckets, errors.

Both hold the same parts (`text`, `reasoning`, `tool`, `step-start`, `step-finish`, ...). One model call lies between
a step-start and its step-finish; a message is one call, except in releases before 0.5 and where a broken stream
was tried again inside the message.
"""

from __future__ import annotations

from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.jsontext import rounded

from ..contract import JsonLineParser
from ..emit import image_block, text_block
from ..facts import as_dict, as_list, as_text, count, facts
from ..tools.opencode import show

__all__ = ["HARNESS_NAME", "Calls", "PartsParser", "image_of", "injected_as", "stated", "usage_of"]

HARNESS_NAME = "opencode"
_BUCKETS = ("input", "output", "reasoning", "total")
_NUMBERS = (int, float)
_OLDEST_MS = 946_684_800_000
_TEXTS = frozenset({"output", "preview", "diff", "title", "exit", "description", "todos", "files", "filediff"})


def usage_of(tokens: object, cost: object) -> tuple[dict[str, Any] | None, bool]:
    """The usage of one call from its token buckets and cost, and whether the buckets overlap.

    `input` leaves out what was read from and written to the cache, and `output` leaves out reasoning. Forks
    count otherwise: where `total` is input plus output although other buckets are filled, these lie inside them.
    All buckets 0 is what stands in a message before its call has ended: no number at all. None where nothing
    is stated.
    """
    if not isinstance(tokens, dict):
        tokens = {}
    get = tokens.get
    given, written, reasoning, total = map(count, map(get, _BUCKETS))
    cache = as_dict(get("cache"))
    read, created = count(cache.get("read")), count(cache.get("write"))
    others = (reasoning or 0) + (read or 0) + (created or 0)
    usage: dict[str, Any] = {}
    inclusive = False
    if given or written or others:
        inclusive = others > 0 and total is not None and total == (given or 0) + (written or 0)
        if given is not None:
            usage["promptTokens"] = given if inclusive else given + (read or 0) + (created or 0)
        if written is not None:
            usage["completionTokens"] = written if inclusive else written + (reasoning or 0)
        if read is not None:
            usage["cachedTokens"] = read
        extra: dict[str, Any] = {}
        if reasoning is not None:
            extra["reasoning"] = reasoning
        if created is not None:
            extra["cache"] = {"write": created}
        if total is not None:
            extra["total"] = total
        usage["extra"] = extra
    if type(cost) in _NUMBERS and 0 <= cost < 1e9 and (usage or cost):  # type: ignore[operator]
        usage["costUsd"] = cost
    return usage or None, inclusive


class PartsParser(JsonLineParser):
    """A parser that can tell the parts of a message."""

    harness = HARNESS_NAME

    def when(self) -> str | None:
        """The time of the record in hand, looked at where its part states none."""
        raise NotImplementedError

    def moment(self, value: object) -> str | None:
        """The time of a part, in milliseconds, or the time of its record where the part has none."""
        if (type(value) is int or type(value) is float) and value >= _OLDEST_MS:
            return self.time(value) or self.when()
        return self.when()

    def tool(self, part: dict[str, Any], message: str, model: str | None, *path: str | int) -> None:
        """A tool part: the call, and what it returned if it has ended. `path` leads to the part in the line."""
        state, name, call_id = as_dict(part.get("state")), part.get("tool"), part.get("callID")
        if type(name) is not str or not name:
            name = "unknown"
        if type(call_id) is not str or not call_id:
            call_id = as_text(part.get("id")) or f"{message}-call"
        times = as_dict(state.get("time"))
        status, given = state.get("status"), state.get("input")
        if not given and (raw := as_text(state.get("raw"))):
            given = raw  # the arguments of a call that was still being written
        elif rounded(given):
            given = self.exact(given, *path, "state", "input")
        asked = "in_progress" if status == "running" else "pending"
        time = self.moment(times.get("start"))
        self.emit.call(call_id, name, show(name, state), given, time, model, message, asked)
        if status != "completed" and status != "error":
            return
        metadata = as_dict(state.get("metadata"))
        failed = status == "error" or name == "invalid"  # `invalid` answers an unknown tool
        extra: dict[str, Any] = {}
        if type(exit_code := metadata.get("exit")) is int:
            extra["exitCode"] = exit_code
            failed = failed or exit_code != 0
        if (spent := _duration(times)) is not None:
            extra["durationMs"] = spent
        known, time = facts(metadata, _TEXTS), self.moment(times.get("end"))
        status = "failed" if failed else "completed"
        self.emit.result(call_id, _result(state), status, time, known, None, message, **extra)

    def tokens(
        self,
        tokens: object,
        cost: object,
        message: str,
        model: str | None,
        time: str | None,
        said: dict[str, Any],
    ) -> bool:
        """The usage of a call with what is `said` beside it, if any is stated; says whether it was."""
        usage, inclusive = usage_of(tokens, cost)
        if inclusive:
            self.report.warn("inclusive_tokens", "token buckets overlap: input holds the cache, output the reasoning")
        if usage is None:
            return False
        self.emit.usage(usage, message, time, model, **said)
        return True

    def failure(self, error: object, time: str | None, retried: bool = False) -> None:
        """An error object {name, data: {message, statusCode, ...}} of a message, of stdout or of a retry."""
        found = as_dict(error)
        data = as_dict(found.get("data"))
        name = as_text(found.get("name"))
        words = as_text(data.get("message")) or as_text(found.get("message")) or name
        if words is None:
            words = error if isinstance(error, str) else jsontext.dumps(error).decode()
        status = count(data.get("statusCode"))
        flag = True if retried else None
        self.emit.error(words, fatal=not retried, time=time, retried=flag, errorName=name, statusCode=status)


def stated(summary: bool, reason: object) -> dict[str, Any]:
    """What stands beside the usage of a call: whether it wrote a summary, and why it stopped."""
    said: dict[str, Any] = {"compaction": True} if summary else {}
    if isinstance(reason, str) and reason:
        said["stopReason"] = reason
    return said


def _result(state: dict[str, Any]) -> list[dict[str, Any]]:
    value = state.get("error") if state.get("status") == "error" else state.get("output")
    text = value if isinstance(value, str) else "" if value is None else jsontext.dumps(value).decode()
    blocks = [text_block(text)] if text else []
    if "attachments" in state:
        images = (image_of(as_dict(item)) for item in as_list(state["attachments"]))
        blocks += [image for image in images if image is not None]
    return blocks


def image_of(part: dict[str, Any]) -> dict[str, Any] | None:
    """The block of a file part that is an image: its data where the address is a data URL, else the address."""
    mime, url = as_text(part.get("mime")), as_text(part.get("url"))
    if mime is None or url is None or not mime.startswith("image/"):
        return None
    if url.startswith("data:"):
        return image_block(url.partition(",")[2], mime)
    return image_block("", mime, url)


def _duration(times: dict[str, Any]) -> int | float | None:
    start, end = times.get("start"), times.get("end")
    if type(start) not in _NUMBERS or type(end) not in _NUMBERS or end < start:  # type: ignore[operator]
        return None
    spent: int | float = end - start  # type: ignore[operator]
    return spent


class Calls:
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


def injected_as(part: dict[str, Any]) -> str:
    """What a text is that the harness put in."""
    if as_dict(part.get("metadata")).get("compaction_continue") is True:
        return "compaction_continue"
    return "ignored" if part.get("ignored") is True else "synthetic"
