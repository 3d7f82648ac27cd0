"""Progress of long work, as a bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .output import cell

__all__ = ["Advance", "shown"]

Advance = Callable[[int, str], None]


@contextmanager
def shown(label: str, total: int | None) -> Iterator[Advance]:
    """The bar, as long as the block runs; see `output.progress`."""
    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(amount: int, word: str) -> None:
            bar.update(task, advance=amount, description=f"{label} {cell(word)[:40]}")

        yield advance
