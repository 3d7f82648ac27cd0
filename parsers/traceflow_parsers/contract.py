"""What a parser is: a pure state machine, lines in, events out, no I/O and no clock.

`begin` names the file whose lines follow, `feed` takes one line and returns the events that it completes,
`finish` returns what was held back. The same object serves a whole file and a live tail. `JsonLineParser`
holds what every JSON-lines harness needs: decoding, repair, line accounting; a harness adds `record`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import orjson
from traceflow_formats import jsontext
from traceflow_formats.text import clean_value
from traceflow_formats.times import normal_time, time_of_number
from traceflow_formats.trace import Event

from .emit import Emitter
from .lines import LongLine
from .report import Report

__all__ = ["JsonLineParser", "Line", "Parser", "Part"]


class Part(NamedTuple):
    """One file of a source, as its reader knows it: the name is relative to the source's root, POSIX."""

    name: str
    agent_id: str | None = None  # the subagent whose file it is
    parent_call: str | None = None  # the tool call that spawned it
    info: Mapping[str, Any] = MappingProxyType({})  # what sidecars and a first pass said


class Line(Enum):
    """What became of a line. A parser's `record` returns one of the first three."""

    PARSED = "parsed"
    UNKNOWN = "unknown"
    DUPLICATE = "duplicate"
    MALFORMED = "malformed"


_PARSED, _DUPLICATE = Line.PARSED, Line.DUPLICATE  # members of an enumeration are slow to look up for every line
_loads = orjson.loads


class Parser:
    """One session, or one stdout stream, of one harness."""

    harness: ClassVar[str]
    source: ClassVar[str]  # session | stdout | trace | atif | sdk

    def __init__(self) -> None:
        self.report = Report(harness=self.harness, source=self.source)
        self.emit = Emitter(self.report)

    def begin(self, part: Part) -> None:
        """The lines of this file follow. Called before the first line and again for each further file."""
        raise NotImplementedError

    def feed(self, line: bytes) -> list[Event]:
        """Take one line, with or without its LF, and return the events that it completes."""
        raise NotImplementedError

    def finish(self) -> list[Event]:
        """The input has ended: return what was held back, totals last."""
        raise NotImplementedError


_UTC_MILLIS = re.compile(  # a day that every year has; the 29th of February is looked up
    r"20[0-9]{2}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\.[0-9]{3}Z"
).fullmatch
_STDOUT_NOISE = "lines on stdout that are no events of the harness"


class JsonLineParser(Parser):
    """A parser of JSON lines. Subclasses give `record`, and `end_part` and `end` where something is held back."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Part("")
        self.raw = b""  # the line of the record in hand
        self._torn: tuple[int, int] | None = None  # a malformed line that may be the last one
        self._next_byte = 0

    # -- what a harness adds -----------------------------------------------------------------------------

    def record(self, record: dict[str, Any]) -> Line:
        """Handle one JSON object: emit its events and say what became of the line."""
        raise NotImplementedError

    def start_part(self) -> None:
        """A new file begins; `self.part` is set."""

    def end_part(self) -> None:
        """The file ends; emit what waits for its end."""

    def end(self) -> None:
        """All files have ended; emit totals."""

    # -- the contract ------------------------------------------------------------------------------------

    def begin(self, part: Part) -> None:
        if self.report.path:
            self._close_part()
        self.part = part
        self.report.path = part.name or "input"
        self.report.line = self.report.byte = self._next_byte = 0
        self.emit.agent(part.agent_id, part.parent_call)
        self.start_part()

    def feed(self, line: bytes) -> list[Event]:
        if line.__class__ is LongLine:
            return self._skipped(line)
        try:
            record = _loads(line)
        except orjson.JSONDecodeError:
            return self._refused(line)
        return self.take(line, record)

    def take(self, line: bytes, record: Any) -> list[Event]:
        """Take a line whose JSON has been read."""
        report, start = self.report, self._next_byte
        counts = report.lines
        report.line += 1
        report.byte = start
        self._next_byte = start + len(line)
        counts.read += 1
        if self._torn is not None:
            self._settle_torn(last=False)
        if record.__class__ is not dict:
            counts.unknown += 1
            report.unknown(f"({type(record).__name__})")
            self._noise()
            return self.emit.drain()
        self.raw = line
        try:
            outcome = self.record(record)
        except RecursionError:  # no use to look at the record now: parsers take members out
            return self._bottomless()
        if outcome is _PARSED:
            counts.parsed += 1
        elif outcome is _DUPLICATE:
            counts.duplicate += 1
        else:
            counts.unknown += 1
            name = record.get("type")
            report.unknown(name if isinstance(name, str) and name else "(no type)")
            if not isinstance(name, str):
                self._noise()
        return self.emit.drain() if self.emit.ready else []

    def _bottomless(self) -> list[Event]:
        """A record nested more deeply than it can be worked on: counted as malformed."""
        report = self.report
        report.lines.malformed += 1
        report.malformed(report.line, report.byte)
        self.emit.left_out()
        return self.emit.drain()

    def _refused(self, line: bytes) -> list[Event]:
        """Take a line that orjson cannot read: blank, in need of repair, or malformed."""
        report, start = self.report, self._next_byte
        report.line += 1
        report.byte = start
        self._next_byte = start + len(line)
        if not line.strip():
            return []
        record = self._repair(line)
        if record is _BROKEN:
            return self.emit.drain()
        report.line -= 1
        self._next_byte = start
        return self.take(line, record)

    def _skipped(self, line: LongLine) -> list[Event]:
        """A line over the bound: counted as malformed."""
        report = self.report
        report.line += 1
        report.byte = self._next_byte
        self._next_byte += line.length
        report.lines.read += 1
        report.lines.malformed += 1
        report.malformed(report.line, report.byte)
        report.warn("line_too_long", f"a line of {line.length} bytes is over the bound and was skipped")
        return self.emit.drain()

    def finish(self) -> list[Event]:
        if self.report.path:
            self._close_part()
        self.report.line = self.report.byte = 0
        self.end()
        self.emit.finish()
        return self.emit.drain()

    # -- shared mechanics --------------------------------------------------------------------------------

    def time(self, value: object) -> str | None:
        """The time of a record in the trace's form; a bad or a naive one is counted, a missing one is None."""
        if type(value) is str and _UTC_MILLIS(value):
            return value
        if value is None:
            return None
        naive = False
        try:
            if type(value) is int or type(value) is float:
                return time_of_number(value)
            text, naive = normal_time(value)
        except (ValueError, OverflowError):
            self.report.warn("bad_time", f"no time: {str(value)[:40]!r}")
            return None
        if naive:
            self.report.warn("naive_time", "a time without a zone was taken as UTC")
        return text

    def exact(self, value: Any, *path: str | int) -> Any:
        """The value at `path` of the line in hand with all digits of its integers, where orjson rounded one."""
        if not jsontext.rounded(value):
            return value
        try:
            found = jsontext.loads(self.raw, exact=True)
            for key in path:
                found = found[key]
            return clean_value(found)[0]
        except (ValueError, LookupError, TypeError, RecursionError):
            return value

    def _close_part(self) -> None:
        if self._torn is not None:
            self._settle_torn(last=True)
        self.end_part()

    def _noise(self) -> None:
        if self.source == "stdout":
            self.report.warn("non_event_line", _STDOUT_NOISE)

    def _repair(self, line: bytes) -> Any:
        """Read a line that orjson refused, or count it as malformed and return the mark for that."""
        report = self.report
        text = line.strip()
        if b"\xef\xbb\xbf" in text[:3]:
            if report.line > 1:
                report.warn("bom_mid_file", "a byte order mark inside the file (concatenated logs)")
            text = text[3:].strip()
            if not text:
                return _BROKEN
        elif text.startswith(b"\x1b") or b"\r" in text:
            text = text[max(text.find(b"{"), 0) :]
        repairs = jsontext.Repairs()
        try:
            record = jsontext.loads_repaired(text, repairs)
        except ValueError:
            report.lines.read += 1
            report.lines.malformed += 1
            report.malformed(report.line, report.byte)
            if self._torn is not None:
                self._settle_torn(last=False)
            if text.startswith(b"{"):
                self._torn = (report.line, report.byte)
            else:
                self._malformed()
            return _BROKEN
        if repairs.surrogates:
            report.warn("lone_surrogate", "lone surrogates were replaced by U+FFFD", repairs.surrogates)
        if repairs.invalid_utf8:
            report.warn("invalid_utf8", "bytes that are no UTF-8 were replaced by U+FFFD", repairs.invalid_utf8)
        return record

    def _settle_torn(self, last: bool) -> None:
        """Decide on a malformed line that began like an object: the torn end of the file, or a bad line in it."""
        report = self.report
        place, self._torn = self._torn, None
        assert place is not None
        kept = report.line, report.byte
        report.line, report.byte = place
        if last:
            report.warn("truncated_tail", "the last line is cut off")
            report.incomplete = True
            self.emit.loss("truncated_tail", 1, report.path, [place[0]])
        else:
            self._malformed()
        report.line, report.byte = kept

    def _malformed(self) -> None:
        report = self.report
        if self.source == "stdout":
            report.warn("non_event_line", _STDOUT_NOISE)
        else:
            report.warn("malformed_line", "a line that is no JSON was left out")
            self.emit.loss("malformed_line", 1, report.path, [report.line])


_BROKEN = object()
