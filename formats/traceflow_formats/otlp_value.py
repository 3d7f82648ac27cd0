"""OTLP as JSON: attributes, ids and times as its JSON encoding wants them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from .atif.spool import dumped

__all__ = ["attributes", "json_text", "made_id", "nanos"]

_FRACTION = re.compile(r"[.,](\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def attributes(pairs: Iterable[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Attributes of a span; those that are None are left out."""
    return [{"key": key, "value": _value(value)} for key, value in pairs if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # 64 bits are a string in the JSON of protobuf
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": value}


def json_text(value: Any) -> str:
    """A structured value as text: on spans the conventions allow JSON, and more readers take it."""
    return dumped(value).decode()


def made_id(size: int, *parts: object) -> str:
    """An id of so many bytes, in hex, that follows from the parts alone."""
    digest = hashlib.sha256(dumped(["traceflow", *parts])).digest()[:size]
    return (digest if any(digest) else b"\1" * size).hex()  # all zeros is no id


def nanos(time: object) -> int | None:
    """Nanoseconds since 1970 of an ISO time, UTC where it names no zone; None for anything else."""
    if not isinstance(time, str):
        return None
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment.replace(microsecond=0) - _EPOCH
    fraction = _FRACTION.search(time)
    count = (delta.days * 86_400 + delta.seconds) * 1_000_000_000
    count += int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    return count if 0 < count < 1 << 63 else None
