"""Text that can be written as UTF-8: lone surrogates become U+FFFD, everything else stays as it is."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["clean_text", "clean_value"]

_LONE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> tuple[str, int]:
    """The text with each lone surrogate replaced by U+FFFD, and how many there were."""
    if text.isascii():
        return text, 0
    return _LONE.subn("\ufffd", text)


def clean_value(value: Any) -> tuple[Any, int]:
    """A JSON value with all its strings, keys included, cleaned; and how many surrogates were replaced."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        count = 0
        items = []
        for item in value:
            cleaned, n = clean_value(item)
            items.append(cleaned)
            count += n
        return items, count
    if isinstance(value, dict):
        count = 0
        pairs: dict[str, Any] = {}
        for key, item in value.items():
            name, n = clean_text(key)
            cleaned, m = clean_value(item)
            pairs[name] = cleaned
            count += n + m
        return pairs, count
    return value, 0
