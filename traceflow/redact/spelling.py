"""How a secret may be spelled in a file: as it is, escaped as JSON writes it, in a URL, in base64.

JSON in JSON is usual in the logs of agents (a tool's arguments, a record in a record), so a secret is looked for up to
three times escaped. In base64 only what follows from the secret alone can be searched: its first and last characters
depend on what stands around it, so up to two bytes at each end of a secret stay as base64.
"""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

__all__ = ["spellings", "wide_spellings"]

_LEVELS = 3
_BASE64_BYTES = 9  # of a shorter secret too little is left to be searched for


def spellings(value: str) -> set[bytes]:
    """The byte strings that spell a secret in a text."""
    raw = _bytes(value)
    found = {raw}
    level = {value}
    for _ in range(_LEVELS):
        level = {spelled for text in level for spelled in _escaped(text)}
        found.update(map(_bytes, level))
    for safe in ("", "/"):
        encoded = quote(raw, safe=safe)
        found.update((encoded.encode(), encoded.lower().encode() if value.islower() else encoded.encode()))
    found.update(_base64(raw))
    return found


def wide_spellings(value: str) -> set[bytes]:
    """A secret as programs for Windows write text; searched for where a file is no UTF-8 text."""
    return {value.encode(codec, "surrogatepass") for codec in ("utf-16-le", "utf-16-be")}


def _escaped(text: str) -> set[str]:
    """The text inside a JSON string, as the writers that there are spell it."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    ascii_only = json.dumps(text)[1:-1]
    found = {plain, ascii_only}
    if "/" in text:
        found.update(spelled.replace("/", "\\/") for spelled in (plain, ascii_only))
    if any(c in text for c in "<>&"):  # writers that keep HTML safe
        found.add(ascii_only.translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&"}))
    return found


def _base64(raw: bytes) -> set[bytes]:
    """What of the secret's base64 does not depend on the bytes around it, for each place in a group of three."""
    if len(raw) < _BASE64_BYTES:
        return set()
    found: set[bytes] = set()
    for before in range(3):
        whole = base64.b64encode(bytes(before) + raw).rstrip(b"=")
        start = (0, 2, 3)[before]  # characters that hold bits of the bytes before
        end = (before + len(raw)) * 8 // 6  # and those that hold only the secret's
        core = whole[start:end]
        found.update((core, core.replace(b"+", b"-").replace(b"/", b"_")))
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
