"""What Kimi Code and kimi-cli share: content parts, token counts, results, and how their stdout is told apart.

Both print messages in the shape of chat completions, `{"role": ..., "content": ...}`. Kimi Code begins with a `meta`
line of its version; where that is missing, the names of the tools and the order of the keys tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..content import content_blocks
from ..emit import image_block, text_block
from ..facts import as_dict, as_list, as_text, count

__all__ = ["blocks_of", "exit_code", "text_of_parts", "usage_of", "written_by"]

_EXIT = re.compile(r"Command failed with exit code: (-?\d{1,9})\.(?:</system>)?\s*\Z")
_CODE_TOOLS = frozenset({"Bash", "Read", "Write", "Edit", "TodoList", "WebSearch", "AgentSwarm", "TaskOutput"})
_CLI_TOOLS = frozenset({"Shell", "ReadFile", "WriteFile", "StrReplaceFile", "SetTodoList", "SearchWeb", "SendDMail"})


def blocks_of(content: object) -> list[dict[str, Any]]:
    """The blocks of a content: a text, or parts of text, images and other media. Thoughts are left out."""
    return content_blocks(content, _media)


def _media(part: dict[str, Any]) -> list[dict[str, Any]] | None:
    kind = part.get("type")
    if kind == "think":
        return []
    if kind == "image_url":
        return [_image(_url(part, "image"))]
    if kind in ("audio_url", "video_url"):
        medium = str(kind)[:5]
        url = _url(part, medium)
        return [text_block(f"[{medium}]" if url.startswith("data:") else f"[{medium}] {url}")]
    return None


def text_of_parts(content: object) -> str:
    """The text of a content, its parts joined as they stand."""
    if isinstance(content, str):
        return content
    return "".join(t for part in as_list(content) if isinstance(t := as_dict(part).get("text"), str))


def usage_of(usage: object, names: tuple[str, str, str, str]) -> dict[str, Any] | None:
    """The usage of one call. `names`: the keys of other input, output, cache read and cache creation.

    The input is given without what was read from and written to the cache; the output holds the reasoning. All
    zeros are what a provider leaves that counts nothing.
    """
    counts = as_dict(usage)
    given, written, read, created = map(count, map(counts.get, names))
    if not (given or written or read or created):
        return None
    numbers: dict[str, Any] = {}
    if given is not None:
        numbers["promptTokens"] = given + (read or 0) + (created or 0)
    if written is not None:
        numbers["completionTokens"] = written
    if read is not None:
        numbers["cachedTokens"] = read
    taken = names[:3]
    extra = {k: v for k, v in counts.items() if k not in taken and count(v) is not None}
    if extra:
        numbers["extra"] = extra
    return numbers


def exit_code(text: str) -> int | None:
    """The exit code of a command, from the sentence that the shell tools put at the end of their text."""
    found = _EXIT.search(text[-200:])
    return int(found[1]) if found is not None else None


def written_by(records: Sequence[dict[str, Any]]) -> str | None:
    """Which of the two printed these lines: `kimi-code`, `kimi-cli`, or None where nothing tells.

    Logs of chat messages of any other program give None: neither of the two prints a prompt.
    """
    votes = {"kimi-code": 0, "kimi-cli": 0}
    for record in records:
        role = record.get("role")
        if role == "meta" and "." in (as_text(record.get("type")) or ""):
            return "kimi-code"
        if record.get("jsonrpc") == "2.0" and _is_wire_event(record):
            return "kimi-cli"
        if role == "tool" and as_text(record.get("tool_call_id")) is not None:
            content = record.get("content")
            first = content[:1] if isinstance(content, list) else content
            votes["kimi-cli"] += text_of_parts(first).startswith("<system>")
        elif role == "assistant":
            _vote(record, votes)
        elif isinstance(role, str):
            return None
    code, cli = votes["kimi-code"], votes["kimi-cli"]
    return None if code == cli else "kimi-code" if code > cli else "kimi-cli"


def _vote(record: dict[str, Any], votes: dict[str, int]) -> None:
    content = record.get("content", "")
    calls = as_list(record.get("tool_calls"))
    names = {as_text(as_dict(as_dict(call).get("function")).get("name")) for call in calls}
    if names & _CLI_TOOLS or any(as_dict(part).get("type") == "think" for part in as_list(content)):
        votes["kimi-cli"] += 1
    elif names & _CODE_TOOLS and isinstance(content, str):
        votes["kimi-code"] += 1


def _is_wire_event(record: dict[str, Any]) -> bool:
    params = as_dict(record.get("params"))
    return record.get("method") in ("event", "request") and isinstance(params.get("type"), str) and "payload" in params


def _url(part: dict[str, Any], kind: str) -> str:
    found = part.get(f"{kind}_url", part.get(f"{kind}Url"))
    return as_text(as_dict(found).get("url")) or (found if isinstance(found, str) else "")


def _image(url: str) -> dict[str, Any]:
    if url.startswith("data:"):
        head, _, data = url.partition(",")
        return image_block(data, head[5:].partition(";")[0])
    return image_block("", "", url)
