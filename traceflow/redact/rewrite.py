"""Rewriting a text with markers where its secrets stand, in a stream, so that JSON stays JSON.

In JSON a place that looks like the secret may be the tail of an escape (`\\n` before `123`), or a number of which
the secret's digits are a part: those are no secrets, and are left. A number that is the secret becomes a string.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from .secrets import Matcher, is_number

__all__ = ["Rewriter", "rewritten"]

_BEHIND = 256  # bytes before the place in hand that are kept, for the escapes that end there
_QUOTES = re.compile(rb'\\.|["\n]', re.DOTALL)
_NUMBER = b"0123456789+-.eE"


def rewritten(chunks: Iterable[bytes], matcher: Matcher, counts: Counter[str], *, is_json: bool) -> Iterator[bytes]:
    """The content with markers; `counts` gets how many of each kind. `is_json` says that all of it is JSON, else a
    line is JSON where it begins with a brace or bracket."""
    rewriter = Rewriter(matcher, counts, is_json)
    for chunk in chunks:
        yield from rewriter.feed(chunk)
    yield from rewriter.end()


class Rewriter:
    """Bytes in, bytes out. Of what has come in, only what may still be the beginning of a secret is held back."""

    def __init__(self, matcher: Matcher, counts: Counter[str], is_json: bool) -> None:
        self._matcher = matcher
        self._counts = counts
        self._is_json = is_json
        self._text = b""  # as it came in; the first `_done` bytes are out already
        self._done = 0
        self._begins = b""  # the first character of the line in which `_text` begins, as far as it is known
        self._quoted = False  # whether `_text[_at]` is in a string
        self._at = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        self._text += chunk
        yield from self._go(len(self._text) - self._matcher.longest)

    def end(self) -> Iterator[bytes]:
        yield from self._go(len(self._text))

    def _go(self, limit: int) -> Iterator[bytes]:
        """Take what begins before the limit: there a secret is whole."""
        text, search = self._text, self._matcher.pattern.search
        at = self._done
        while at < limit:
            match = search(text, at)
            if match is None or match.start() >= limit:
                break
            start, end = match.span()
            marker = self._marker(start, end, match.group())
            if marker is None:
                at = start + 1
                continue
            yield text[self._done : start]
            yield marker
            self._done = at = end
        if self._done < limit:
            yield text[self._done : limit]
            self._done = limit
        self._forget()

    def _marker(self, start: int, end: int, spelled: bytes) -> bytes | None:
        secret = self._matcher.secret(spelled)
        marker = self._matcher.marker(spelled)
        if self._is_json or self._line_begins(start) in (b"{", b"["):
            before = self._text[max(0, start - _BEHIND) : start]
            if (len(before) - len(before.rstrip(b"\\"))) % 2:
                return None  # its first character belongs to an escape
            if is_number(spelled) and not self._in_string(start):
                around = self._text[max(0, start - 1) : start] + self._text[end : end + 1]
                if around.strip(_NUMBER) != around:
                    return None  # a part of another number
                marker = b'"' + marker + b'"'
        self._counts[secret.kind] += 1
        return marker

    def _line_begins(self, place: int) -> bytes:
        line = self._text.rfind(b"\n", 0, place)
        if line >= 0:
            return self._text[line + 1 : place].lstrip()[:1]
        return self._begins or self._text[:place].lstrip()[:1]

    def _in_string(self, place: int) -> bool:
        self._read_quotes(place)
        return self._quoted

    def _read_quotes(self, to: int) -> None:
        """Follow the strings up to a place; none goes over the end of a line."""
        for match in _QUOTES.finditer(self._text, self._at, to):
            token = match.group()
            if token == b'"':
                self._quoted = not self._quoted
            elif token == b"\n":
                self._quoted = False
            self._at = match.end()
        if not self._text[self._at : to].endswith(b"\\"):
            self._at = max(self._at, to)

    def _forget(self) -> None:
        """Drop what is out, but for a little that the next place may need to know."""
        cut = self._done - _BEHIND
        if cut < 1 << 16:
            return
        if self._matcher.has_numbers:
            self._read_quotes(self._done)
            cut = min(cut, self._at)
        gone = self._text[:cut]
        line = gone.rfind(b"\n")
        self._begins = gone[line + 1 :].lstrip()[:1] if line >= 0 else self._begins or gone.lstrip()[:1]
        self._text = self._text[cut:]
        self._done -= cut
        self._at -= cut if self._matcher.has_numbers else self._at
