"""The contract suite: every parser runs it on its own inputs. Subclass, give `make` and `inputs`, done.

class TestClaudeSession(ParserContract):
    make = staticmethod(ClaudeSession)
    inputs = staticmethod(lambda: [path.read_bytes() for path in sorted(RECORDINGS.glob("*/main.jsonl"))])
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from traceflow_formats import jsontext
from traceflow_formats.trace import KINDS, STATUSES, TYPES, Event

from .contract import Parser, Part
from .lines import iter_lines

__all__ = ["ParserContract", "check_events", "run"]


def run(parser: Parser, data: bytes, part: Part | None = None) -> list[Event]:
    """All events of one file."""
    parser.begin(part or Part("input.jsonl"))
    events: list[Event] = []
    for line in iter_lines(io.BytesIO(data)):
        events.extend(parser.feed(line))
    events.extend(parser.finish())
    return events


def check_events(events: Iterable[Event]) -> None:
    """The laws that hold for the events of any input: vocabulary, valid text, no result before its call."""
    known: set[tuple[str | None, str]] = set()
    waiting: list[tuple[str | None, str]] = []
    run_usages = 0
    for event in events:
        assert event.type in TYPES, event
        jsontext.dumps(event.data)  # valid Unicode, plain JSON values
        extra = event.data.get("extra") or {}
        assert isinstance(extra, dict)
        agent = extra.get("agentId")
        if event.type == "prompt":
            assert isinstance(event.data["_prompt"]["text"], str)
            continue
        update = event.data["update"]
        assert update["sessionUpdate"] == event.type, event
        assert all(value is not None for value in event.data.values())
        if event.type == "tool_call":
            assert update["kind"] in KINDS, update
            assert update["status"] in STATUSES, update
            assert isinstance(update["toolName"], str)
            assert isinstance(update["title"], str)
            assert (agent, update["toolCallId"]) not in waiting, "a result stands before its call"
            known.add((agent, update["toolCallId"]))
        elif event.type == "tool_call_update":
            assert update["status"] in STATUSES, update
            if (agent, update["toolCallId"]) not in known:
                waiting.append((agent, update["toolCallId"]))
        elif event.type == "usage":
            for key in ("promptTokens", "completionTokens", "cachedTokens"):
                assert isinstance(update["usage"].get(key, 0), int), update
            run_usages += update["scope"] == "run"
        elif event.type == "error":
            assert update["message"].strip(), "an error without words"
    assert run_usages <= 1, "more than one total"


class ParserContract:
    """Laws of every parser. `make` gives a fresh parser, `inputs` whole files of its kind."""

    make: ClassVar[Callable[[], Parser]]
    inputs: ClassVar[Callable[[], list[bytes]]]
    prefixes: ClassVar[int] = 40

    def _report(self, parser: Parser) -> dict[str, Any]:
        report = parser.report.as_dict()
        lines = report["lines"]
        assert lines["read"] == lines["parsed"] + lines["unknown"] + lines["malformed"] + lines["duplicate"], lines
        assert sum(report["unknown_types"].values()) == lines["unknown"], report
        return report

    def test_lines_add_up_and_events_obey_the_laws(self) -> None:
        inputs = type(self).inputs()
        assert inputs, "no inputs"
        for data in inputs:
            parser = type(self).make()
            check_events(run(parser, data))
            report = self._report(parser)
            assert report["lines"]["read"] == sum(1 for line in data.split(b"\n") if line.strip())

    def test_same_input_same_output(self) -> None:
        for data in type(self).inputs():
            first, second = type(self).make(), type(self).make()
            assert run(first, data) == run(second, data)
            assert first.report.as_dict() == second.report.as_dict()

    def test_events_are_handed_over_once_and_do_not_change_later(self) -> None:
        """A live tail may write each event as it comes: later lines must not alter it."""
        for data in type(self).inputs():
            parser = type(self).make()
            parser.begin(Part("input.jsonl"))
            events, written = [], []
            for line in iter_lines(io.BytesIO(data)):
                for event in parser.feed(line):
                    events.append(event)
                    written.append(jsontext.dumps(event.data))
            for event in parser.finish():
                events.append(event)
                written.append(jsontext.dumps(event.data))
            assert written == [jsontext.dumps(event.data) for event in events]

    def test_any_prefix_parses(self) -> None:
        for data in type(self).inputs():
            step = max(1, len(data) // self.prefixes)
            for end in range(0, min(len(data), step * self.prefixes), step):
                parser = type(self).make()
                check_events(run(parser, data[:end]))
                self._report(parser)

    def test_any_line_dropped_doubled_or_swapped_parses(self) -> None:
        for data in type(self).inputs():
            lines = data.split(b"\n")[:60]
            for at in range(0, len(lines), max(1, len(lines) // 12)):
                for changed in (
                    lines[:at] + lines[at + 1 :],
                    lines[: at + 1] + lines[at:],
                    lines[:at] + lines[at + 1 : at + 2] + lines[at : at + 1] + lines[at + 2 :],
                ):
                    parser = type(self).make()
                    check_events(run(parser, b"\n".join(changed)))
                    self._report(parser)

    def test_hostile_lines_are_survived(self) -> None:
        hostile = [
            b"null", b"[]", b"0", b'""', b"{}", b"\xff\xfe\x00", b"{" * 3000, b"[" * 100_000, b'{"type":null}',
            b'{"type":{}}', b'{"type":"assistant","message":null}', b'{"type":"assistant","message":[]}',
            b'{"type":"user","message":{"content":7}}', b'{"type":"response_item","payload":3}',
        ]  # fmt: skip
        for data in type(self).inputs()[:3]:
            first = data.split(b"\n")[0]
            parser = type(self).make()
            check_events(run(parser, b"\n".join([first, *hostile, data])))
            self._report(parser)
