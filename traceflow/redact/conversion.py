"""Conversions that are redacted before they appear: written to a folder of their own, redacted, and then published."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from traceflow_formats import jsontext
from traceflow_parsers.source import Source

from ..conversion import Conversion
from ..conversion.outputs import write_output, write_to
from ..files import atomic_file
from ..mark import EXPORT_FORMAT, EXPORT_VERSION, MARK
from .folder import records_near, redact_folder

if TYPE_CHECKING:
    from ..pack import PackOptions

__all__ = ["pack_redacted", "print_redacted", "write_redacted"]

_PIECE = 1 << 20

Progress = Callable[[int, str], None]


def print_redacted(
    sources: list[Source], to: str, out: BinaryIO, conversion: Conversion, *, root: Path, at: str | None = None
) -> None:
    """Write one document to a stream. `root` is the path that the sources were found at."""
    with tempfile.TemporaryDirectory(prefix="traceflow-redact-") as place:
        file = Path(place) / "document.json"
        with file.open("wb") as spool:
            write_to(sources, to, spool, conversion, at=at)
        conversion.redacted = redact_folder(Path(place), records_near(root))
        _copy(file, out)


def write_redacted(
    sources: list[Source],
    to: str,
    out: Path,
    conversion: Conversion,
    *,
    root: Path,
    at: str | None = None,
    progress: Progress = lambda amount, word: None,
) -> None:
    """Write a file, or a folder with a place for each session."""
    with _beside(out) as place:
        write_output(sources, to, place / out.name, conversion, at=at, progress=progress)
        conversion.redacted = redact_folder(place, records_near(root))
        for path in sorted(path for path in place.rglob("*") if path.is_file()):
            with atomic_file(out.parent / path.relative_to(place)) as file:
                _copy(path, file)
        conversion.outputs = [str(out.parent / Path(path).relative_to(place)) for path in conversion.outputs]


def pack_redacted(
    sources: list[Source],
    out: Path,
    options: PackOptions,
    conversion: Conversion,
    *,
    root: Path,
    progress: Progress = lambda amount, word: None,
) -> None:
    """Write a job. Its own record says that it is redacted, so that an import does not take it for the job of the
    original sessions, whose ids it has."""
    from ..pack.job import check_new, new_folder, pack_job

    check_new(out)
    named = replace(options, job_name=options.job_name or out.absolute().name)
    with _beside(out) as place:
        target = place / out.name
        pack_job(sources, target, named, conversion, root=root, progress=progress)
        conversion.redacted = redact_folder(target, records_near(root))
        record = {
            "format": EXPORT_FORMAT,
            "version": EXPORT_VERSION,
            "job": {},
            "derived": [],
            "redacted": conversion.redacted,
        }
        (target / MARK).write_bytes(jsontext.pretty(record))
        with new_folder(out) as folder:
            for child in sorted(target.iterdir()):
                child.rename(folder / child.name)
        conversion.outputs = [str(out.parent / Path(path).relative_to(place)) for path in conversion.outputs]


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A folder on the disk of the output; what is left in it at the end is removed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".traceflow-redact-", dir=out.parent) as place:
        yield Path(place)


def _copy(path: Path, out: BinaryIO) -> None:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            out.write(piece)
