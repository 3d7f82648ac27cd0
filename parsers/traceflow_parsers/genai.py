"""Content parts and token counts of the GenAI API, as gemini-cli and its fork qwen-code store them.

A content is a string or a list of parts: `{"text"}`, `{"text", "thought": true}`, `{"functionCall"}`,
`{"functionResponse"}`, `{"inlineData"}`, `{"fileData"}`. Both harnesses count tokens as the API does; only the
names of the keys differ.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from traceflow_formats import jsontext

from .emit import image_block, text_block

__all__ = [
    "SHELL_TOOLS",
    "Keys",
    "count",
    "exit_code",
    "facts",
    "media_block",
    "parts_of",
    "response_of",
    "result_blocks",
    "split_references",
    "usage_of",
]

SHELL_TOOLS = frozenset({"run_shell_command", "shell", "Shell", "Bash"})

_LONGEST_FACT = 256

# A shell result is a list of labelled lines with the command's output in the middle. "Exit Code" is the label; 0.61
# of gemini-cli leaves it out when it is 0. The output may hold such a line itself, so only the tail of the text counts.
_EXIT_CODE = re.compile(
    r"\n?Exit Code: (-?\d{1,10})"
    r"(?:\n(?:Signal|Background PIDs|Process Group PGID): [^\n]*)*\s*(?:</untrusted_context>)?\s*\Z"
).match
_TAIL = 2000
_REFERENCED = "--- Content from referenced files ---"  # gemini-cli 0.61, qwen-code 0.15
_REFERENCED_END = "--- End of content ---"


class Keys(NamedTuple):
    """What a harness calls the counts of a model call."""

    input: str
    output: str
    cached: str
    thoughts: str
    tool: str
    total: str


def count(value: object) -> int | None:
    """A number of tokens or milliseconds: a whole number that is not negative, else None."""
    if type(value) is int and value >= 0:
        return value
    return None


def usage_of(raw: object, keys: Keys, output_holds_thoughts: bool) -> dict[str, Any] | None:
    """The usage of one model call, or None where the harness gives none (or a placeholder of zeros).

    `input` holds the cached tokens. Whether `output` holds the thoughts and `input` the tool-use prompt depends
    on the provider behind the harness: the total decides, `output_holds_thoughts` where it cannot.
    """
    if not isinstance(raw, dict):
        return None
    given, written = count(raw.get(keys.input)), count(raw.get(keys.output))
    total = count(raw.get(keys.total))
    if not given and not written and not total:
        return None
    thoughts, tool = count(raw.get(keys.thoughts)) or 0, count(raw.get(keys.tool)) or 0
    usage: dict[str, Any] = {}
    if given is not None and written is not None:
        usage["promptTokens"], usage["completionTokens"] = _split(
            given, written, thoughts, tool, total, output_holds_thoughts
        )
    elif given is not None:
        usage["promptTokens"] = given
    elif written is not None:
        usage["completionTokens"] = written
    if (cached := count(raw.get(keys.cached))) is not None:
        usage["cachedTokens"] = cached
    taken = keys[:3]
    extra = {k: v for k, v in raw.items() if type(v) is int and v >= 0 and k not in taken}
    if extra:
        usage["extra"] = extra
    return usage


def _split(given: int, written: int, thoughts: int, tool: int, total: int | None, whole: bool) -> tuple[int, int]:
    prompts = (given + tool, given) if tool else (given,)
    completions = (written + thoughts, written) if thoughts else (written,)
    for prompt in prompts:
        for completion in completions:
            if prompt + completion == total:
                return prompt, completion
    return prompts[0], completions[-1 if whole else 0]


def parts_of(content: object) -> list[dict[str, Any]]:
    """The parts of a content, whatever its shape: text, one part, a list of parts and strings."""
    if isinstance(content, list):
        for part in content:
            if part.__class__ is not dict:
                return [{"text": p} if isinstance(p, str) else p for p in content if isinstance(p, str | dict)]
        return content
    if isinstance(content, str):
        return [{"text": content}]
    return [content] if isinstance(content, dict) else []


def media_block(part: dict[str, Any]) -> dict[str, Any] | None:
    """The block of an inlineData or fileData part: an image, or a line that names the attachment."""
    if "inlineData" not in part and "fileData" not in part:
        return None
    for key, body in (("inlineData", "data"), ("fileData", "fileUri")):
        media = part.get(key)
        if not isinstance(media, dict):
            continue
        mime, value = media.get("mimeType"), media.get(body)
        mime = mime if isinstance(mime, str) else ""
        if not isinstance(value, str):
            continue
        if mime.startswith("image/"):
            return image_block(value, mime) if key == "inlineData" else image_block("", mime, value)
        name = media.get("displayName") if key == "inlineData" else value
        return text_block(" ".join(filter(None, ("[attachment]", name if isinstance(name, str) else "", f"({mime})"))))
    return None


def split_references(parts: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str, list[dict[str, Any]]]:
    """The parts of a message, without the files that a person named in it (`@dot.png`): those as one text, and media.

    Both harnesses put them behind the words, between two lines of their own.
    """
    if not any(_REFERENCED in text for part in parts if isinstance(text := part.get("text"), str)):
        return parts, "", []
    lines = [text.strip() if isinstance(text := part.get("text"), str) else None for part in parts]
    if _REFERENCED not in lines:
        return parts, "", []
    start = lines.index(_REFERENCED)
    end = next((at + 1 for at in range(start + 1, len(lines)) if lines[at] == _REFERENCED_END), len(parts))
    named = parts[start:end]
    text = "".join(text for part in named if isinstance(text := part.get("text"), str))
    return parts[:start] + parts[end:], text, [block for part in named if (block := media_block(part)) is not None]


def response_of(part: dict[str, Any]) -> tuple[str | None, dict[str, Any]] | None:
    """The call id and the body of a functionResponse part, or None for any other part."""
    found = part.get("functionResponse")
    if not isinstance(found, dict):
        return None
    call_id = found.get("id")
    return (call_id if isinstance(call_id, str) else None), found


def result_blocks(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a tool returned, verbatim: the output or the error of each response, and the media beside it."""
    blocks: list[dict[str, Any]] = []
    for part in parts:
        found = part.get("functionResponse")
        if isinstance(found, dict):
            if output := _response_text(found.get("response")):
                blocks.append({"type": "text", "text": output})
            if "parts" in found:
                blocks.extend(filter(None, map(media_block, parts_of(found["parts"]))))
        elif (block := media_block(part)) is not None:
            blocks.append(block)
        elif isinstance(text := part.get("text"), str) and text:
            blocks.append(text_block(text))
    return blocks


def _response_text(response: object) -> str:
    if isinstance(response, str):
        return response
    if not isinstance(response, dict) or not response:
        return ""
    value: object = response
    for key in ("output", "error"):
        if key in response:
            value = response[key]
            break
    if isinstance(value, str):
        return value
    return "" if value is None else jsontext.dumps(value).decode("utf-8")


def exit_code(text: str) -> int | None:
    """The exit code that a shell result states, or None."""
    tail = text[-_TAIL:]
    start = tail.rfind("\nExit Code: ")  # nothing that may follow the label is a line of the same label
    if start < 0 and not tail.startswith("Exit Code: "):
        return None
    found = _EXIT_CODE(tail, max(start, 0))
    return int(found[1]) if found else None


def facts(value: object, leave_out: frozenset[str], depth: int = 1) -> dict[str, Any] | None:
    """The short facts of an object (numbers, flags, strings up to 256 characters), nested one level, or None."""
    if not isinstance(value, dict):
        return None
    out: dict[str, Any] = {}
    for key, item in value.items():
        if key in leave_out:
            continue
        if isinstance(item, bool | int | float) or (isinstance(item, str) and 0 < len(item) <= _LONGEST_FACT):
            out[key] = item
        elif depth and (inner := facts(item, leave_out, depth - 1)):
            out[key] = inner
    return out or None
