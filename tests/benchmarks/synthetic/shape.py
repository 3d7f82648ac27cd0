"""What a harness's records are made of: a shape has a file name, and functions that give the records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from .run import Run, Turn

__all__ = ["Record", "Shape", "iso"]

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """One source of one harness: its records before the first model call, of each, and after the last one."""

    name: str  # of the file
    head: Callable[[Run], Iterable[Record]]
    turn: Callable[[Run, Turn], Iterable[Record]]
    tail: Callable[[Run], Iterable[Record]] = lambda run: ()
    dumps: Callable[[Any], bytes] = orjson.dumps


def iso(millis: int) -> str:
    """Milliseconds since 1970 as most harnesses write a time."""
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
