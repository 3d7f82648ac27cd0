"""What a gemini-cli session log says of its own history: which messages stand, which were withdrawn.

The log only appends, yet three kinds of records change what was written before: a message with an id that was seen
is its newer version, `$rewindTo` takes a message and all after it back, `$set.messages` states the whole history
anew. The last one is written when a run is resumed (the history again, without tokens and thoughts), when a failed
prompt is taken out, when tool results are masked and when the history is compacted; they are told apart here.

A message is known by its type and its id: a resumed history may give a person's message the id of the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from ..genai import parts_of

__all__ = ["SNAPSHOT", "Change", "History", "Listed", "key_of", "listed_of", "text_of"]

SNAPSHOT = "<state_snapshot>"  # the form in which both harnesses have the model write a summary
_SPOKEN = ("user:", "gemini:")


class Listed(NamedTuple):
    """A message of a `$set.messages`: its key, and what words of the user's side are in it ("" for the model's)."""

    key: str
    words: str
    record: dict[str, Any]


class Change(Enum):
    """What a `$set.messages` was."""

    RESUMED = "resumed"  # the history as it is sent again
    EDITED = "edited"  # nothing left it
    WITHDRAWN = "withdrawn"  # its end was taken out
    COMPACTED = "compacted"  # a summary stands for what left it
    TRIMMED = "trimmed"  # its beginning or middle left it


def key_of(record: dict[str, Any]) -> str | None:
    """The key of a message record, or None for a record that is none."""
    kind, name = record.get("type"), record.get("id")
    return f"{kind}:{name}" if isinstance(kind, str) and kind and isinstance(name, str) and name else None


def text_of(record: dict[str, Any]) -> str:
    """The words of a message, thoughts left out."""
    texts = (p.get("text") for p in parts_of(record.get("content")) if not p.get("thought"))
    return "".join(t for t in texts if isinstance(t, str))


def listed_of(messages: Sequence[object]) -> list[Listed]:
    """The messages of a `$set.messages` that have a type and an id."""
    found = []
    for message in messages:
        if isinstance(message, dict) and (key := key_of(message)) is not None:
            words = text_of(message).strip() if key.startswith("user:") else ""
            found.append(Listed(key, words, message))
    return found


class History:
    """The keys of the messages that stand, in order; `known` holds all that were ever seen."""

    def __init__(self) -> None:
        self.current: dict[str, None] = {}
        self.known: set[str] = set()
        self.abandoned: set[str] = set()
        self.resuming = False  # a run began anew in this file: the history that follows is a copy

    def restart(self) -> None:
        """A header or a session id: the first one opens the log, a later one a resumed run."""
        if self.current:
            self.resuming = True

    def message(self, key: str) -> bool:
        """A message was written; is it a new one?"""
        self.resuming = False
        new = key not in self.known
        self.known.add(key)
        self.current[key] = None
        self.abandoned.discard(key)
        return new

    def rewind(self, name: str) -> list[str]:
        """The message of this id and all after it are withdrawn; for an id that does not stand, all (as the harness
        does). Returns the keys."""
        keys = []
        for key in reversed(self.current):
            keys.append(key)
            if key.partition(":")[2] == name:
                break
        return self._withdraw(keys)

    def replace(self, listed: Sequence[Listed]) -> Change:
        """The whole history is stated anew. New messages in it are known afterwards."""
        names = {entry.key for entry in listed}
        new = [entry.words for entry in listed if entry.words and entry.key not in self.known]
        gone = [key for key in self.current if key not in names and key.startswith(_SPOKEN)]
        tail = []
        for key in reversed(self.current):
            if key in names:
                break
            tail.append(key)
        self.known.update(names)
        self.current = dict.fromkeys(entry.key for entry in listed)
        if self.resuming:
            return Change.RESUMED
        if not gone:
            return Change.EDITED
        # A summary stands for answers that left with their prompts; words in place of a prompt alone are its retry.
        if new and (any(SNAPSHOT in words for words in new) or any(key.startswith("gemini:") for key in gone)):
            return Change.COMPACTED
        withdrawn = [key for key in tail if key.startswith(_SPOKEN)]
        self.abandoned.update(withdrawn)
        return Change.WITHDRAWN if withdrawn else Change.TRIMMED

    def _withdraw(self, keys: list[str]) -> list[str]:
        for key in keys:
            del self.current[key]
        self.abandoned.update(keys)
        return keys
