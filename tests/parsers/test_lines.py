"""Lines of files, days of records, and the blocks of a content: what all parsers share."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from traceflow_parsers.content import content_blocks
from traceflow_parsers.droid import DroidStdout
from traceflow_parsers.lines import LongLine, file_lines, iter_lines

TEXTS = [
    b"",
    b"\n",
    b"one",
    b"one\n",
    b"one\ntwo\r\nthree",
    "a\u2028b\u0085c\n\u2029\n".encode(),
    b"\n\n\xff\xfe\n",
    '{"wide": 1}\n{"lines": 2}\n'.encode("utf-16"),
    b"\xff\xfe",
    b"x",
]


@pytest.mark.parametrize("data", TEXTS)
def test_a_file_has_the_lines_of_its_bytes(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    assert list(file_lines(path)) == list(iter_lines(io.BytesIO(data)))


def test_a_line_over_the_bound_does_not_cost_its_neighbours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first\n" + b"y" * 5000 + b"\nlast\n")
    first, long, last = file_lines(path, 1000)
    assert (first, last) == (b"first\n", b"last\n")
    assert isinstance(long, LongLine)
    assert (long.length, len(long)) == (5001, 200)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_has_no_size_and_is_bounded_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"first\n" + b"y" * 5000 + b"\nlast\n",))
    writer.start()
    kinds = [type(line) for line in file_lines(path, 1000)]
    writer.join()
    assert kinds == [bytes, LongLine, bytes]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-11-30T12:10:38.117Z", "2026-11-30T12:10:38.117Z"),
        ("2028-02-29T00:00:00.000Z", "2028-02-29T00:00:00.000Z"),
        ("2026-12-31T23:59:59.999Z", "2026-12-31T23:59:59.999Z"),
        ("2027-02-29T00:00:00.000Z", None),
        ("2026-02-30T00:00:00.000Z", None),
        ("2026-11-31T00:00:00.000Z", None),
        ("2026-13-01T00:00:00.000Z", None),
        ("2026-00-10T00:00:00.000Z", None),
        ("2026-11-00T00:00:00.000Z", None),
        ("2026-11-30T24:00:00.000Z", None),
        ("2026-11-30T12:10:38.117+01:00", "2026-11-30T11:10:38.117Z"),
    ],
)
def test_days_that_the_calendar_does_not_have_are_no_time(text: str, told: str | None) -> None:
    parser = DroidStdout()
    assert parser.time(text) == told
    assert ("bad_time" in parser.report.warnings) == (told is None)


def picture(block: dict[str, Any]) -> list[dict[str, Any]] | None:
    return [{"type": "image"}] if block.get("type") == "image" else None


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (None, []),
        ("", []),
        ("words", ["words"]),
        ({"a": 1}, ['{"a":1}']),
        ([{"type": "text", "text": "one"}, "two", {"type": "odd"}, 3], ["one", "two", '{"type":"odd"}', "3"]),
        ([{"type": "text", "text": ""}, {"type": "image"}], [None]),
        ([], []),
    ],
)
def test_a_content_is_a_text_or_its_blocks(content: Any, texts: list[str | None]) -> None:
    assert [block.get("text") for block in content_blocks(content, picture)] == texts


def test_an_empty_text_is_kept_where_asked_for() -> None:
    assert content_blocks([{"type": "text", "text": ""}], picture, keep_empty=True) == [{"type": "text", "text": ""}]
