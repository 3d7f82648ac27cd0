"""Times as they stand in traces: ISO 8601 in UTC with a Z, as precise as the source wrote them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

__all__ = ["epoch_us", "normal_time", "time_of_number"]

_PLAIN = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OLDEST = 946_684_800  # 2000-01-01: an epoch number below it is no time of an agent run
_NEWEST = 4_102_444_800  # 2100-01-01


def normal_time(value: object) -> tuple[str | None, bool]:
    """The time as ISO 8601 UTC, and whether the source gave no zone (it is then taken as UTC).

    Takes ISO strings with or without zone and epoch numbers in seconds or milliseconds (told apart by size).
    Returns (None, False) for null and for an absent value. Raises ValueError for anything that is no time of
    the years 2000 to 2100.
    """
    if value is None:
        return None, False
    if isinstance(value, bool):
        raise ValueError("a boolean is no time")
    if isinstance(value, int | float):
        return time_of_number(value), False
    if not isinstance(value, str):
        raise ValueError(f"a {type(value).__name__} is no time")
    if _PLAIN.match(value):
        datetime.fromisoformat(value[:19])  # refuses a 13th month
        return value, False
    moment = datetime.fromisoformat(value)  # Python 3.11 reads Z, offsets, space separators, compact forms
    naive = moment.tzinfo is None
    if "T" not in value and " " not in value:
        raise ValueError("a date is no time")
    moment = moment.replace(tzinfo=UTC) if naive else moment.astimezone(UTC)
    return _text(moment), naive


def time_of_number(value: int | float) -> str:
    """The time of an epoch number in seconds or milliseconds. Raises ValueError outside the years 2000 to 2100."""
    if value >= 100_000_000_000 or value <= -100_000_000_000:
        millis, seconds = value, value / 1000
    else:
        millis, seconds = value * 1000, value
    if not _OLDEST <= seconds < _NEWEST:
        raise ValueError(f"{value} is no time of the years 2000 to 2100")
    if millis.__class__ is int:
        minute, rest = divmod(millis, 60_000)
        second, micros = rest // 1000, rest % 1000 * 1000
    else:
        minute, rest = divmod(round(millis * 1000), 60_000_000)
        second, micros = divmod(rest, 1_000_000)
    if not micros:
        return f"{_minute(minute)}:{second:02d}Z"
    if micros % 1000:
        return f"{_minute(minute)}:{second:02d}.{micros:06d}Z"
    return f"{_minute(minute)}:{second:02d}.{micros // 1000:03d}Z"


@lru_cache(maxsize=64)  # the records of a trace follow each other: most stand in the minute of their neighbours
def _minute(number: int) -> str:
    return (_EPOCH + timedelta(minutes=number)).isoformat()[:16]


def _text(moment: datetime) -> str:
    micros = moment.microsecond
    precision = "seconds" if not micros else "microseconds" if micros % 1000 else "milliseconds"
    return moment.isoformat(timespec=precision)[:-6] + "Z"  # the moment is in UTC: its offset is +00:00


def epoch_us(text: str) -> int | None:
    """Microseconds since 1970 of a time that `normal_time` gave, or None for text that is no time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
