"""Search patterns: RE2 expressions, checked before anything is read."""

from __future__ import annotations

from functools import lru_cache

import re2
from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any, Self

__all__ = ["MAX_PATTERN", "Pattern"]

MAX_PATTERN = 512


class Pattern(NamedTuple):
    """A pattern that was checked, and the RE2 expression that it stands for.

    Case is ignored unless it was asked for, `^` and `$` are the ends of a line, `.` is not a line feed.
    """

    text: str
    expression: str

    @classmethod
    def parse(cls, text: str, fixed: bool = False, case_sensitive: bool = False) -> Self:
        """Raises TraceflowError invalid_input for an empty pattern, one over 512 characters, or one that RE2
        does not take, with the position where that can be told."""
        if not text:
            raise TraceflowError("invalid_input", "the pattern is empty: it would match every event")
        if len(text) > MAX_PATTERN:
            message = f"the pattern has {len(text)} characters; more than {MAX_PATTERN} are refused"
            raise TraceflowError("invalid_input", message)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            message = f"the pattern is no valid text at position {error.start}"
            raise TraceflowError("invalid_input", message, position=error.start) from None
        if not fixed:
            _compile(text, text)  # by itself: in a group a stray parenthesis would be closed
        flags = "m" if case_sensitive else "im"
        expression = f"(?{flags}:{re2.escape(text) if fixed else text})"
        _compile(expression, text)
        return cls(text, expression)

    def compile(self) -> Any:
        """The expression of google-re2."""
        return _compile(self.expression, self.text)


@lru_cache(maxsize=64)
def _compile(expression: str, shown: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression, options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        at = _position(shown, reason)
        where = "" if at is None else f" at position {at}"
        raise TraceflowError(
            "invalid_input",
            f"the pattern {shown!r} is refused{where}: {reason}. Patterns are RE2, without look-around and "
            "back-references; -F takes the text as it is",
            position=at,
            reason=reason,
        ) from None


def _position(pattern: str, reason: str) -> int | None:
    """Where the part stands that RE2 complains of: `missing ): (a` names it after the colon."""
    _, colon, part = reason.partition(": ")
    if not colon:
        return len(pattern) - 1 if "trailing" in reason else None
    at = pattern.find(part)
    return at if part and at >= 0 else None
