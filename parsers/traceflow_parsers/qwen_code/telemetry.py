"""What the `ui_telemetry` records of a qwen-code session say beside its messages.

Each request to the model and each tool call leaves a record there: the request's tokens before its answer is
recorded, and those of subagents, which have no messages of their own up to 0.15. Requests whose answer is in no
record are told from those that have one by their counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..facts import as_text
from ..genai import Keys, count, usage_of

__all__ = ["SUBAGENT", "Answer", "Run", "answer_of", "counts_of"]

SUBAGENT = re.compile(r"[^#]+#(?P<run>[^#]+)#\d+").fullmatch  # <session>#<agent>-<random>#<round>; main: no such id
KEYS = Keys(
    "input_token_count",
    "output_token_count",
    "cached_content_token_count",
    "thoughts_token_count",
    "tool_token_count",
    "total_token_count",
)

Counts = tuple[int | None, int | None, int | None]


class Answer(NamedTuple):
    """One response of the model, as telemetry has it."""

    name: str  # the provider's id of the response
    prompt: str | None  # the prompt it belongs to
    counts: Counts
    text: str
    model: str | None
    time: str | None
    duration: int | None
    event: dict[str, Any]

    def usage(self) -> dict[str, Any] | None:
        """The tokens, where the event states them."""
        counts = {k: v for k, v in self.event.items() if k in KEYS}
        return usage_of(counts, KEYS, output_holds_thoughts=True)


@dataclass(slots=True)
class Run:
    """The records of one run of a subagent, in order: (kind, event, time)."""

    records: list[tuple[str, dict[str, Any], str | None]] = field(default_factory=list)
    rounds: int = 0
    input: int = 0

    def add(self, kind: str, event: dict[str, Any], time: str | None) -> None:
        self.records.append((kind, event, time))
        if kind == "api_response":
            self.rounds += 1
            self.input += count(event.get(KEYS.input)) or 0


def answer_of(event: dict[str, Any], time: str | None) -> Answer:
    """The response that an `api_response` event reports."""

    return Answer(
        as_text(event.get("response_id")) or "",
        as_text(event.get("prompt_id")),
        counts_of(event, KEYS),
        as_text(event.get("response_text")) or "",
        as_text(event.get("model")),
        time,
        count(event.get("duration_ms")),
        event,
    )


def counts_of(raw: object, keys: Keys) -> Counts:
    """The counts by which a response and its record are known to be the same."""
    if not isinstance(raw, dict):
        return None, None, None
    return count(raw.get(keys.input)), count(raw.get(keys.output)), count(raw.get(keys.total))
