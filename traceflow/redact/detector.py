"""Finding secrets by their form, with the rules of a library that is kept for it (the extra `redact`).

It reads bytes in overlapping windows, so that a file of any size fits and a secret on the border of two is seen
whole. What it finds in JSON is unescaped: the secret is what the text means, not how it is spelled there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Any, NamedTuple

from traceflow_formats.errors import TraceflowError

__all__ = ["DETECTOR", "Detector", "Found"]

DETECTOR = "kingfisher-secret-scanner"
_WINDOW = 4 << 20
_OVERLAP = 64 << 10
_SHORTEST = 8
_ESCAPED = 3  # levels of JSON in JSON
_IN_PAIRS = re.compile(r"secret|passphrase|security-token")  # rules that hide a finding unless its partner is near
_WORDS = re.compile(r"[a-z]+(?:[ _.\-/][a-z]+)*|(.)\1*|.*(?:\*{4}|\[REDACTED).*", re.DOTALL)  # names and masks
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{32,}")
_UNESCAPED_QUOTE = re.compile(r'(?<!\\)(?:\\\\)*"')


class Found(NamedTuple):
    """A secret: the kind, what it is, and further texts that are part of it and as secret."""

    kind: str
    value: str
    parts: tuple[str, ...] = ()


class Detector:
    """The compiled rules; making one takes a second, and more the first time on a machine.

    Raises missing_extra where the library is not installed.
    """

    def __init__(self) -> None:
        try:
            from kingfisher_sdk import Scanner
        except ImportError:
            raise TraceflowError(
                "missing_extra",
                'redaction needs the rules of kingfisher-secret-scanner: pip install "traceflow[redact]"',
                extra="redact",
            ) from None
        self._scanner: Any = Scanner()
        self.name = f"{DETECTOR} {version(DETECTOR)}"

    def find(self, chunks: Iterable[bytes]) -> Iterator[Found]:
        """The secrets in a content, in the order of their first place; the same one may come again."""
        window = b""
        first = True
        for window, last in _windows(chunks):
            found = []
            for finding in self._scanner.scan(window):
                if not (finding.visible or _IN_PAIRS.search(_kind(finding.rule_id))):
                    continue
                place = finding.location
                start, end = place["start_offset"], place["end_offset"]
                cut = (end >= len(window) - 1 and not last) or (start == 0 and not first)
                if not cut:  # one that is cut is whole in the other window
                    found.append((start, -end, finding.rule_id, finding.secret, finding.is_base64_encoded))
            for _, _, rule, secret, encoded in sorted(found):
                yield from _secrets(_kind(rule), secret, encoded)
            first = False


def _windows(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Pieces that overlap, and whether it is the last one."""
    waiting = bytearray()
    seen = 0  # bytes at the beginning that the window before had
    for chunk in chunks:
        waiting += chunk
        while len(waiting) >= seen + _WINDOW + _OVERLAP:
            yield bytes(waiting[: seen + _WINDOW]), False
            del waiting[: seen + _WINDOW - _OVERLAP]
            seen = _OVERLAP
    yield bytes(waiting), True


def _kind(rule: str) -> str:
    """The name of a rule without that of its collection."""
    name = re.split(r"[./]", rule, maxsplit=1)[-1].rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\.\d+$", "", name.lower())).strip("-") or "secret"


def _secrets(kind: str, raw: str, encoded: bool) -> Iterator[Found]:
    if kind == "private-key":
        parts = tuple(dict.fromkeys(_KEY_LINE.findall(_unescaped(raw))))
        if parts:  # words about keys have none
            whole = _unescaped(raw).strip()
            yield Found(kind, whole if _UNESCAPED_QUOTE.search(raw) is None else parts[0], parts)
        return
    if not encoded and _UNESCAPED_QUOTE.search(raw):
        return  # it goes over the end of a JSON string: a chance match
    value = _unescaped(raw).strip()
    if len(value) >= _SHORTEST and not _WORDS.fullmatch(value):
        yield Found(kind, value)


def _unescaped(text: str) -> str:
    """The text that JSON escapes stand for, as often as it is escaped; text with other backslashes as it is."""
    for _ in range(_ESCAPED):
        if "\\" not in text:
            return text
        try:
            inner = json.loads(f'"{text}"', strict=False)
        except ValueError:
            try:
                inner = json.loads(f'"{text[:-1]}"', strict=False)  # the backslash of an escape behind it
            except ValueError:
                return text
        text = inner
    return text
