"""A raw file of a run: where it goes below a trial's `agent/`, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

__all__ = ["Raw", "file_raw", "read_ranges"]

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Raw:
    """One file to write: its path below `agent/`, and its bytes (opened anew at each call)."""

    name: str
    chunks: Callable[[], Iterator[bytes]]


def file_raw(name: str, path: Path) -> Raw:
    """A file that is copied as it is."""
    return Raw(name, partial(read_ranges, path, ((0, None),)))


def read_ranges(path: Path, ranges: tuple[tuple[int, int | None], ...]) -> Iterator[bytes]:
    """The bytes of a file between pairs of offsets, one pair after the other; None is the end of the file."""
    with path.open("rb") as stream:
        for start, end in ranges:
            stream.seek(start)
            left = end - start if end is not None else None
            while left is None or left > 0:
                chunk = stream.read(_CHUNK if left is None else min(_CHUNK, left))
                if not chunk:
                    break
                left = left - len(chunk) if left is not None else None
                yield chunk
