"""Where a conversion goes: a stream, one file, or a folder with a place for each session; redacted or as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from traceflow_formats.errors import TraceflowError
from traceflow_formats.times import normal_time
from traceflow_parsers.source import Source

from ..files import atomic_file
from .sessions import Conversion, convert_all, convert_one

if TYPE_CHECKING:
    from ..pack import PackOptions

__all__ = ["TARGETS", "emit", "given_time", "is_file_name", "save", "write_output", "write_to"]

TARGETS = ("atif", "trace", "job", "chat", "otlp-json")
_SEVERAL = ("chat", "otlp-json")  # one document of these holds any number of sessions


def is_file_name(out: Path) -> bool:
    """Whether an output is one file; anything else is a folder."""
    return out.suffix in (".json", ".jsonl")


def emit(
    sources: list[Source],
    to: str,
    out: BinaryIO,
    conversion: Conversion,
    *,
    root: Path,
    redact: bool = False,
    at: str | None = None,
) -> None:
    """Write one document to a stream. `root` is the path that the sources were found at."""
    if redact:
        from ..redact.conversion import print_redacted

        print_redacted(sources, to, out, conversion, root=root, at=at)
    else:
        write_to(sources, to, out, conversion, at=at)


def save(
    sources: list[Source],
    to: str,
    out: Path,
    conversion: Conversion,
    *,
    root: Path,
    redact: bool = False,
    at: str | None = None,
    job: PackOptions | None = None,
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Write a file, a folder, or with `job` a new job folder. `root` is the path that the sources were found at."""
    if job is not None and redact:
        from ..redact.conversion import pack_redacted

        pack_redacted(sources, out, job, conversion, root=root, progress=progress)
    elif job is not None:
        from ..pack import pack_job

        pack_job(sources, out, job, conversion, root=root, progress=progress)
    elif redact:
        from ..redact.conversion import write_redacted

        write_redacted(sources, to, out, conversion, root=root, at=at, progress=progress)
    else:
        write_output(sources, to, out, conversion, at=at, progress=progress)


def write_to(
    sources: list[Source],
    to: str,
    out: BinaryIO,
    conversion: Conversion,
    *,
    at: str | None = None,
    images: Path | None = None,
    lines: bool = False,
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Write one document to a stream. Raises invalid_input for several sessions where it holds only one."""
    if to in _SEVERAL:
        from .documents import write_stream

        time = given_time(at)
        write_stream(sources, to, out, conversion, at=time, images=images, lines=lines, progress=progress)
        return
    if len(sources) > 1:
        suffix = ".jsonl" if to == "trace" else ".json"
        raise TraceflowError(
            "invalid_input",
            f"there are {len(sources)} sessions; give a folder with -o (here {suffix} is one file)",
            sessions=[str(s.path) for s in sources[:20]],
        )
    convert_one(sources[0], to, out, conversion)


def write_output(
    sources: list[Source],
    to: str,
    out: Path,
    conversion: Conversion,
    *,
    at: str | None = None,
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Write a file (a name that ends in .json or .jsonl), or a folder with a place for each session."""
    if is_file_name(out):
        lines = out.suffix == ".jsonl"
        with atomic_file(out) as file:
            write_to(sources, to, file, conversion, at=at, images=out.parent, lines=lines, progress=progress)
        conversion.outputs.append(str(out))
    elif to in _SEVERAL:
        from .documents import write_folder

        write_folder(sources, to, out, conversion, at=given_time(at), progress=progress)
    else:
        convert_all(sources, to, out, conversion, progress)


def given_time(at: str | None) -> str | None:
    """The time that a user gives for sessions that state none. Raises invalid_input for text that is no time."""
    if at is None:
        return None
    try:
        return normal_time(at)[0]
    except ValueError as error:
        raise TraceflowError("invalid_input", f"--at {at}: {error}; write it as 2026-11-30T12:00:00Z") from None
