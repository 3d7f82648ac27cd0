"""The content of a message or result as blocks: harnesses write a text, or a list of typed blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traceflow_formats import jsontext

from .emit import text_block

__all__ = ["content_blocks", "last_text"]


def content_blocks(
    content: object, other: Callable[[dict[str, Any]], list[dict[str, Any]] | None], keep_empty: bool = False
) -> list[dict[str, Any]]:
    """The blocks of a content: its text as it stands, or one after the other what its blocks are.

    `other` gives what a block without text is, None where it knows none: such a block, and a content that is
    neither text nor list, stand as JSON. Blocks of an empty text are left out unless `keep_empty`.
    """
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    if content is None:
        return []
    if not isinstance(content, list):
        return [text_block(jsontext.dumps(content).decode())]
    blocks: list[dict[str, Any]] = []
    for item in content:
        known: list[dict[str, Any]] | None = None
        if type(item) is dict:
            text = item.get("text")
            if type(text) is str:
                if text or keep_empty:
                    blocks.append({"type": "text", "text": text})
                continue
            known = other(item)
        if known is None:
            known = [text_block(item if isinstance(item, str) else jsontext.dumps(item).decode())]
        blocks += known
    return blocks


def last_text(blocks: list[dict[str, Any]]) -> str:
    """The last text among blocks, "" where there is none: a command's exit code stands at its end."""
    for block in blocks[::-1]:
        if block["type"] == "text":
            text: str = block["text"]
            return text
    return ""
