"""The rows of events.parquet, and how an event lies in one.

What has a column is cut out of the event's data and a control character stands in its place; the text that is
left is the row's `rest`. JSON never holds a raw control character, so a mark cannot be mistaken for data, and
whatever a foreign trace holds in an unusual place simply stays in `rest`. Since all that varies is in columns,
most events of a trace share a handful of `rest` values, which Parquet stores once.

    U+001D N U+001D   piece N of `text`, as a JSON string
    U+001E N U+001E   piece N of `text`, inside a JSON string
    U+0012            the call's input: `raw_input`, in which U+0001 is the next piece of `text`, from piece 0
    others            the value of one column, see MARKS

A string that stands twice in an event (a file's content in the input and in the diff) is one piece. `encode` and
`decode` are each other's inverse: key order, types and digits included.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from traceflow_formats.text import clean_text

from .schema import EVENTS, arrow_schema

__all__ = [
    "DURATION",
    "INPUT",
    "MARKS",
    "NEW_ROW",
    "PIECE",
    "PIECE_INSIDE",
    "PIECE_STRING",
    "TIMESTAMP",
    "EventRow",
    "to_batch",
]

PIECE = "\x01"
PIECE_STRING = "\x1d"
PIECE_INSIDE = "\x1e"
INPUT = "\x12"
TIMESTAMP = "\x02"  # rebuilt from microseconds, with as many digits as it needs
DURATION = "\x18"  # a whole number of milliseconds
MARKS = {
    "session_id": "\x03",
    "model": "\x04",
    "message_id": "\x05",
    "parent_tool_call_id": "\x06",
    "agent_id": "\x07",
    "tool_call_id": "\x08",
    "tool_name": "\x0e",
    "kind": "\x0f",
    "status": "\x10",
    "title": "\x11",
    "prompt_tokens": "\x13",
    "completion_tokens": "\x14",
    "cached_tokens": "\x15",
    "cost_usd": "\x16",
    "exit_code": "\x17",
}


class EventRow(NamedTuple):
    """One row of events.parquet, in the order of its columns; what they mean is in `schema.EVENTS`.

    `timestamp` is microseconds since 1970.
    """

    job_id: str = ""
    trial_id: str = ""
    seq: int = 0
    type: str = ""
    timestamp: int | None = None
    session_id: str | None = None
    agent_id: str | None = None
    parent_tool_call_id: str | None = None
    step_id: int | None = None
    step_name: str | None = None
    message_id: str | None = None
    model: str | None = None
    tool_call_id: str | None = None
    call_seq: int | None = None
    tool_name: str | None = None
    kind: str | None = None
    status: str | None = None
    title: str | None = None
    text: str = ""
    text_parts: list[int] | None = None
    raw_input: str | None = None
    exit_code: int | None = None
    duration_ms: float | None = None
    scope: str | None = None
    usage_source: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    fatal: bool | None = None
    delta: bool | None = None
    injected: str | None = None
    compaction: bool | None = None
    abandoned: bool | None = None
    copied: bool | None = None
    retried: bool | None = None
    rest: str = ""


NEW_ROW: list[Any] = [getattr(EventRow(), column.name) for column in EVENTS]  # to be copied and filled


def to_batch(rows: Sequence[list[Any]]) -> pa.RecordBatch:
    """Rows as `encode` makes them, as an Arrow batch of the schema of events."""
    schema = arrow_schema("events")
    cells: list[Any] = []
    for row in rows:
        cells += row
    columns = [cells[n :: len(schema)] for n in range(len(schema))]
    return pa.RecordBatch.from_arrays(list(map(_array, columns, schema.types)), schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    count = len(values)
    try:
        if count and values[0] is values[-1] and values.count(values[0]) == count:  # most columns of most batches
            return _nulls(kind, count) if values[0] is None else pa.repeat(pa.scalar(values[0], kind), count)
        return pa.array(values, kind)
    except UnicodeEncodeError:  # the last resort: parsers give valid text
        return pa.array([v if v is None else clean_text(v)[0] for v in values], kind)


@lru_cache(maxsize=64)
def _nulls(kind: pa.DataType, count: int) -> pa.Array:
    return pa.nulls(count, kind)
