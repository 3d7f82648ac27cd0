"""Sessions as documents of other tools: chat records for training sets, OTLP traces for observability backends.

One file takes any number of sessions. Images lie in `images/` beside it; where there is no file there are none, and
that is counted among what was lost, like everything else that the format cannot hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from traceflow_formats.atif import Built
from traceflow_formats.chat import write_chat
from traceflow_formats.losses import Losses
from traceflow_formats.otlp import first_time, write_resource_spans
from traceflow_parsers.report import Report
from traceflow_parsers.source import Source

from ..files import atomic_file
from .sessions import Conversion, build, each_source, folder_name, refuse_empty

__all__ = ["DOCUMENTS", "Document", "write_folder", "write_images", "write_stream"]

DOCUMENTS = {"chat": "chat.jsonl", "otlp-json": "otlp.json"}  # what can be written, and its name in a folder

Progress = Callable[[int, str], None]


def write_stream(
    sources: list[Source],
    to: str,
    out: BinaryIO,
    conversion: Conversion,
    *,
    at: str | None = None,
    images: Path | None = None,
    lines: bool = False,
    progress: Progress = lambda amount, word: None,
) -> None:
    """Write all sessions as one document. `images` is the folder beside which it will lie; without it a few words
    stand for each image.

    With `lines` an OTLP document is one line for each session, as OTLP's file exporters write it. `at` is the time of
    sessions that state none. Raises empty_trace, and invalid_trajectory for OTLP without times, where no session
    can be written; among others such a one is a warning.
    """
    document = Document(to, out, conversion, at=at, lines=lines)

    def convert(source: Source) -> None:
        found: dict[str, bytes] = {}
        parse = source.parse()
        with build(parse, None if images is None else found, times=to == "otlp-json") as built:
            refuse_empty(source, parse.report, empty=built.is_empty)
            document.write(built, parse.report)
        if images is not None:
            write_images(images, found)

    each_source(sources, conversion, convert, progress)
    document.end()


def write_folder(
    sources: list[Source],
    to: str,
    folder: Path,
    conversion: Conversion,
    *,
    at: str | None = None,
    progress: Progress = lambda amount, word: None,
) -> None:
    """Write `FOLDER/<session id>/chat.jsonl` or `otlp.json` for each session, with `images/` beside it."""
    taken: set[str] = set()

    def convert(source: Source) -> None:
        images: dict[str, bytes] = {}
        parse = source.parse()
        with build(parse, images, times=to == "otlp-json") as built:
            refuse_empty(source, parse.report, empty=built.is_empty)
            target = folder / folder_name(source, parse.report, taken) / DOCUMENTS[to]
            with atomic_file(target) as out:
                document = Document(to, out, conversion, at=at)
                document.write(built, parse.report)
                document.end()
                write_images(target.parent, images)
        conversion.outputs.append(str(target))

    each_source(sources, conversion, convert, progress)


def write_images(folder: Path, images: dict[str, bytes]) -> None:
    for name, data in sorted(images.items()):
        with atomic_file(folder / name) as out:
            out.write(data)


class Document:
    """A document that grows by sessions: nothing is written of one that is refused."""

    def __init__(
        self, to: str, out: BinaryIO, conversion: Conversion, *, at: str | None = None, lines: bool = False
    ) -> None:
        self._otlp = to == "otlp-json"
        self._out = out
        self._conversion = conversion
        self._at = at
        self._lines = lines
        self._sessions: Counter[tuple[str | None, str]] = Counter()
        if conversion.losses is None:
            conversion.losses = Losses()
        self._losses = conversion.losses

    def write(self, built: Built, report: Report, trial: Mapping[str, Any] | None = None) -> None:
        """Write a session; `trial` is what is known of its trial."""
        if self._otlp:
            self._write_spans(built, trial)
        else:
            write_chat(built, self._out, self._losses, source=report.source, harness=report.harness, trial=trial)
        self._losses.add("image", built.images_in_words)
        self._conversion.add(report, built.summary)

    def _write_spans(self, built: Built, trial: Mapping[str, Any] | None) -> None:
        begins = first_time(built, self._at)
        self._out.write(b'{"resourceSpans":[' if self._lines or not self._sessions else b",\n")
        root = next(built.trajectories())
        session = (root.facts.get("session_id"), root.id)
        line = b"" if self._lines else b"\n"
        number = self._sessions[session]
        write_resource_spans(built, self._out, self._losses, begins, number=number, line=line, trial=trial)
        self._sessions[session] += 1
        if self._lines:
            self._out.write(b"]}\n")

    def end(self) -> None:
        if self._sessions and not self._lines:
            self._out.write(b"]}\n")
