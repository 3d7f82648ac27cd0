"""Times of records: ISO texts and epoch numbers, in UTC as precise as they were written."""

from __future__ import annotations

import math

import pytest
from traceflow_formats.times import normal_time, time_of_number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1_796_040_213, "2026-11-30T12:03:33Z"),
        (1_796_040_213_000, "2026-11-30T12:03:33Z"),
        (1_796_040_213_007, "2026-11-30T12:03:33.007Z"),
        (1_796_040_213.25, "2026-11-30T12:03:33.250Z"),
        (1_796_040_213.446994, "2026-11-30T12:03:33.446994Z"),
        (1_796_040_213_446.994, "2026-11-30T12:03:33.446994Z"),
        (1_796_040_213.9999999, "2026-11-30T12:03:34Z"),
        (946_684_800, "2000-01-01T00:00:00Z"),
        (951_782_399_999, "2000-02-28T23:59:59.999Z"),
        (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
    ],
)
def test_a_number_is_seconds_or_milliseconds(number: float, text: str) -> None:
    assert time_of_number(number) == text
    assert normal_time(number) == (text, False)


@pytest.mark.parametrize("number", [0, -1, 946_684_799, 4_102_444_800, 4_102_444_800_000, 1e300, -1.8e9, 10**40])
def test_a_number_outside_the_century_is_no_time(number: float) -> None:
    with pytest.raises(ValueError, match="no time of the years 2000 to 2100"):
        time_of_number(number)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_time(number: float) -> None:
    with pytest.raises(ValueError):
        normal_time(number)
