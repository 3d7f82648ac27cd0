"""How often Python looks for cycles is the program's own again after the last import that runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from traceflow.collecting import CollectingSeldom


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_blocks_that_overlap_leave_the_setting_as_it_was() -> None:
    gc.set_threshold(701, 11, 12)
    first, second = CollectingSeldom(), CollectingSeldom()
    first.__enter__()
    second.__enter__()
    first.__exit__()
    assert gc.get_threshold()[0] == 100_000
    second.__exit__()
    assert gc.get_threshold() == (701, 11, 12)


@pytest.mark.parametrize("own", [(0, 10, 10), (500_000, 5, 5)])
def test_a_program_that_looks_less_often_is_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    with CollectingSeldom():
        assert gc.get_threshold() == own
    assert gc.get_threshold() == own
