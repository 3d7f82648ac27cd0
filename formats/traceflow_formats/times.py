"""Times as they stand in traces: ISO 8601 in UTC with a Z, as precise as the source wrote them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

__all__ = ["epoch_us", "normal_time", "time_of_number"]

_PLAIN = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?Z\Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLIS = 100_000_000_000  # an epoch number from here on is in milliseconds
_OLDEST = 946_684_800  # 2000-01-01: an epoch number below it is no time of an agent run
_NEWEST = 4_102_444_800  # 2100-01-01
_FIRST, _LAST = float(_OLDEST), float(_NEWEST)


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
    if value.__class__ is int:
        millis = value if value >= _MILLIS or value <= -_MILLIS else value * 1000
        whole, rest = millis // 1000, millis % 1000
        if not _OLDEST <= whole < _NEWEST:
            raise ValueError(f"{value} is no time of the years 2000 to 2100")
        return f"{_second(whole)}.{rest:03d}Z" if rest else f"{_second(whole)}Z"
    if _FIRST <= value < _LAST:  # floats are compared with floats: with integers it takes several times as long
        micros = round(value * 1000 * 1000)
    elif _FIRST <= value / 1000 < _LAST:
        micros = round(value * 1000)
    else:
        raise ValueError(f"{value} is no time of the years 2000 to 2100")
    whole, rest = micros // 1_000_000, micros % 1_000_000
    if rest % 1000:
        return f"{_second(whole)}.{rest:06d}Z"
    return f"{_second(whole)}.{rest // 1000:03d}Z" if rest else f"{_second(whole)}Z"


# The records of a trace follow each other: most stand in the second of a neighbour, and nearly all in its minute.


@lru_cache(maxsize=64)
def _second(number: int) -> str:
    return f"{_minute(number // 60)}:{number % 60:02d}"


@lru_cache(maxsize=64)
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
