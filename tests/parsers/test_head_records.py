"""The first records of a file, by which it is recognised: lines, or one document over many lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats import jsontext
from traceflow_parsers.source import head_records

DOCUMENT = {"a": 1, "b": {"c": [1, 2]}, "list": [{"n": 1}, {"n": 2}], "last": "x"}


@pytest.mark.parametrize(
    ("text", "records"),
    [
        (json.dumps(DOCUMENT, indent=2), [DOCUMENT]),
        (json.dumps(DOCUMENT, indent=2).replace("\n", "\r\n"), [DOCUMENT]),
        ("\ufeff" + json.dumps(DOCUMENT, indent=2), [DOCUMENT]),
        (json.dumps(DOCUMENT), [DOCUMENT]),
        (
            json.dumps(DOCUMENT, indent=2).partition('"n": 2')[0],
            [{k: DOCUMENT[k] for k in "ab"} | {"list": [{"n": 1}]}],
        ),
        ('{"torn": "li\n{"whole": 1}\n', [{"whole": 1}]),
        ("{\n", []),
        ("{" * 5000, []),
        ('{\n"deep": ' + "[" * 5000, [{"deep": []}]),
        ("noise\n", []),
    ],
)
def test_head_records(tmp_path: Path, text: str, records: list[Any]) -> None:
    path = tmp_path / "file"
    path.write_bytes(text.encode())
    assert head_records(path) == records


def test_a_document_on_one_long_line_is_known_by_its_first_members(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(json.dumps({"kind": "k", "items": ["x" * 1000] * 6000}))
    [found] = head_records(path)
    assert found["kind"] == "k"
    assert 500 < len(found["items"]) < 6000


def test_values_nested_deeper_than_python_recurses_are_searched_for_rounded_integers() -> None:
    value: Any = 2.0**70
    for _ in range(5000):
        value = [value]
    assert jsontext.rounded(value)
    assert not jsontext.rounded([1.5, {"a": 2**62}])
