"""What a codex call returned: the many forms of `output` become content blocks and the facts beside them.

The text of a result stays as it is. Only two wrappers are opened, because they are JSON around the result: the
`{"output", "metadata"}` of shell and patch tools (up to 0.80) and the `{"content": [...]}` of MCP tools.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import orjson
from traceflow_formats import jsontext

from ..emit import image_block, text_block

__all__ = ["Outcome", "item_blocks", "item_outcome", "joined", "picture", "read_arguments", "read_output"]

_SHORT = 256  # facts are numbers, flags and short words; texts stand in the content


@dataclass(slots=True)
class Outcome:
    """How a call ended, as far as it is written down; `failed` is None where nothing says so."""

    exit_code: int | None = None
    duration_ms: int | None = None
    failed: bool | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def over(self, other: Outcome) -> Outcome:
        """This outcome, and what only the other one knows."""
        if self.exit_code is None:
            self.exit_code = other.exit_code
        if self.duration_ms is None:
            self.duration_ms = other.duration_ms
        if self.failed is None:
            self.failed = other.failed
        if other.facts:
            self.facts = {**other.facts, **self.facts}
        return self

    @property
    def status(self) -> str:
        """A command is judged by its exit code, whatever the harness calls it."""
        if self.exit_code is not None:
            return "failed" if self.exit_code != 0 or self.failed else "completed"
        return "failed" if self.failed else "completed"


# "Exit code: 1\nWall time: 0.1 seconds\n" (shell_command, apply_patch), "Chunk ID: ..\nWall time: 0.1 seconds\n
# Process exited with code 1\n" (exec_command), "Script failed\nWall time 0.2 seconds\n" (code mode)
_HEADER = re.compile(
    r"(?:Chunk ID: [^\n]*\n)?(?:Exit code: (-?\d{1,10})\n(?=Wall time|Output:))?(?:Script (completed|failed)\n)?"
    r"(?:Wall time:? (\d{1,9}(?:\.\d+)?) seconds\n)?(?:Process exited with code (-?\d{1,10})\n)?"
)
_REFUSED = re.compile(
    r"unsupported (?:custom tool )?call: |failed to parse function arguments|apply_patch verification failed"
    r"|exec_command failed|execution error: |tool call error: |aborted by user"
)  # what the harness answers instead of running a tool (0.80 to 0.171)
_MCP_KEYS = frozenset(("content", "isError", "is_error", "structuredContent", "structured_content", "_meta", "meta"))


def read_output(output: Any) -> tuple[list[dict[str, Any]], Outcome]:
    """The content blocks of an output and what its text says of how the call ended."""
    outcome = Outcome()
    if isinstance(output, str):
        if output.startswith("{"):
            opened = _opened(output)
            if opened is not None:
                return opened
        _told(output, outcome)
        return ([text_block(output)] if output else []), outcome
    if isinstance(output, list):
        blocks = [block for block in map(_block, output) if block is not None]
        if blocks and blocks[0]["type"] == "text":
            _told(blocks[0]["text"], outcome)
        return blocks, outcome
    if isinstance(output, dict):
        if "content" in output and "success" in output:  # how early versions wrote a function's output
            content = output["content"]
            blocks, outcome = ([], outcome) if isinstance(content, dict) else read_output(content)
            if output["success"] is False:
                outcome.failed = True
            return blocks, outcome
        return [text_block(jsontext.dumps(output).decode())], outcome
    return ([] if output is None else [text_block(str(output))]), outcome


def read_arguments(text: Any, repairs: jsontext.Repairs | None = None) -> Any:
    """The arguments of a function call: the object that the JSON text holds, else the value as it is."""
    if not isinstance(text, str):
        return text
    raw = text.encode()
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        try:
            value = jsontext.loads_repaired(raw, repairs if repairs is not None else jsontext.Repairs())
        except ValueError:
            return text
    if not isinstance(value, dict) or jsontext.too_deep(value):
        return text
    return jsontext.loads(raw, exact=True) if jsontext.rounded(value) else value


def item_outcome(item: dict[str, Any]) -> Outcome:
    """What an item of a tool run, or the old end event of one, says of how it ended."""
    outcome = Outcome()
    code = item.get("exit_code")
    if type(code) is int:
        outcome.exit_code = code
    outcome.duration_ms = _milliseconds(item)
    status = item.get("status")
    if isinstance(status, str) and status in ("failed", "declined"):
        outcome.failed = True
    if status == "declined":
        outcome.facts["status"] = status
    if item.get("success") is False or item.get("error") is not None:
        outcome.failed = True
    return outcome


def item_blocks(item: dict[str, Any]) -> list[dict[str, Any]]:
    """What an item shows of its run: the output of a command, the result or the error of an MCP call."""
    text = item.get("aggregated_output")
    if isinstance(text, str):
        return [text_block(text)] if text else []
    error = item.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    if isinstance(message, str) and message:
        return [text_block(message)]
    result = item.get("result")
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list):
        return [block for block in map(_block, content) if block is not None]
    states = item.get("agents_states")
    if isinstance(states, dict) and states:
        return [text_block(jsontext.dumps(states).decode())]
    return []


def joined(parts: Any) -> str | None:
    """The texts of a list of blocks or of strings, a line each; None where there are none."""
    if isinstance(parts, str):
        return parts
    if not isinstance(parts, list):
        return None
    if len(parts) == 1 and isinstance(parts[0], dict):  # nearly always
        text = parts[0].get("text")
        return text if isinstance(text, str) and text else None
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "\n".join(text for text in texts if isinstance(text, str)) or None


def picture(url: str) -> dict[str, Any]:
    """An image block of a URL: the bytes of a data URL, else the address."""
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return image_block(data, head[5:-7])
    return image_block("", "", url)


def _told(text: str, outcome: Outcome) -> None:
    found = _HEADER.match(text)
    if found is not None and found.end():
        first, script, seconds, last = found.groups()
        code = first if first is not None else last
        if code is not None:
            outcome.exit_code = int(code)
        if seconds is not None:
            outcome.duration_ms = round(float(seconds) * 1000)
        if script is not None:
            outcome.failed = script == "failed"
    elif _REFUSED.match(text):
        outcome.failed = True


def _opened(output: str) -> tuple[list[dict[str, Any]], Outcome] | None:
    if not output.startswith(('{"output"', '{"content"')):
        return None
    try:
        value = orjson.loads(output)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    outcome = Outcome()
    text, facts, content = value.get("output"), value.get("metadata"), value.get("content")
    if isinstance(text, str) and isinstance(facts, dict) and len(value) == 2:
        code, seconds = facts.pop("exit_code", None), facts.pop("duration_seconds", None)
        if type(code) is int:
            outcome.exit_code = code
        if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
            outcome.duration_ms = round(seconds * 1000)
        outcome.facts = {key: fact for key, fact in facts.items() if _is_fact(fact)}
        return ([text_block(text)] if text else []), outcome
    if isinstance(content, list) and value.keys() <= _MCP_KEYS and all(isinstance(part, dict) for part in content):
        if value.get("isError") is True or value.get("is_error") is True:
            outcome.failed = True
        return [block for block in map(_block, content) if block is not None], outcome
    return None


def _is_fact(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _SHORT)


def _block(part: Any) -> dict[str, Any] | None:
    if isinstance(part, str):
        return text_block(part)
    if not isinstance(part, dict):
        return None
    text = part.get("text")
    if isinstance(text, str):
        return text_block(text)
    url = part.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str):
        return picture(url)
    data, mime = part.get("data"), part.get("mimeType", part.get("mime_type"))
    if isinstance(data, str) and isinstance(mime, str) and mime.startswith("image/"):
        return image_block(data, mime)
    kind = part.get("type")
    if kind == "encrypted_content" or not isinstance(kind, str):
        return None
    return text_block(f"[{kind}{f' {mime}' if isinstance(mime, str) else ''}]")


def _milliseconds(item: dict[str, Any]) -> int | None:
    duration = item.get("duration")
    if isinstance(duration, dict):
        seconds, nanos = duration.get("secs"), duration.get("nanos", 0)
        if type(seconds) is int and type(nanos) is int and 0 <= seconds < 1_000_000_000:
            return seconds * 1000 + round(nanos / 1_000_000)
    value = item.get("duration_ms")
    return value if type(value) is int else None
