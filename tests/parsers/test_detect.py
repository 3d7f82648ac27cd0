"""What an input is, by its content alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_parsers.detect import open_file, open_path
from traceflow_parsers.registry import HARNESSES
from traceflow_parsers.source import head_records

FIXTURES = Path(__file__).parents[2] / "fixtures"
NAMES = {
    "claude": "claude-code",
    "codex": "codex",
    "codex-gpt6": "codex",
    "gemini": "gemini-cli",
    "qwen": "qwen-code",
    "opencode": "opencode",
    "opencode-compat": "opencode",
    "droid": "droid",
    "kimi-code": "kimi-code",
    "kimi-cli": "kimi-cli",
}
STDOUTS = sorted(p for p in (FIXTURES / "recordings").glob("*/*/stdout*.jsonl") if p.stat().st_size)


@pytest.mark.parametrize("path", STDOUTS, ids=lambda p: f"{p.parent.parent.name}/{p.parent.name}/{p.name}")
def test_exactly_one_harness_claims_a_stdout(path: Path) -> None:
    records = head_records(path)
    claims = [h.name for h in HARNESSES if h.is_stdout(records) or h.is_session(records)]
    assert claims == [NAMES[path.parent.parent.name.rsplit("-", 1)[0]]]


@pytest.mark.parametrize("path", STDOUTS, ids=lambda p: f"{p.parent.parent.name}/{p.parent.name}/{p.name}")
def test_the_name_of_a_file_does_not_matter(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "anything.bin"
    copy.write_bytes(path.read_bytes())
    source = open_file(copy)
    assert (source.harness, source.kind) == (NAMES[path.parent.parent.name.rsplit("-", 1)[0]], "stdout")


def test_the_init_line_of_three_harnesses_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "init.jsonl"
    path.write_text('{"type":"system","subtype":"init","session_id":"s","cwd":"/w","tools":[]}\n')
    with pytest.raises(TraceflowError) as caught:
        open_path(path)
    assert caught.value.code == "unrecognized_trace"


def test_a_link_in_a_folder_is_not_followed(tmp_path: Path) -> None:
    home = FIXTURES / "recordings" / "claude-2.1.197" / "basic" / "home"
    (tmp_path / "link").symlink_to(home)
    with pytest.raises(TraceflowError, match="no session of"):
        open_path(tmp_path)


def test_a_trajectory_of_ours_is_read_again(tmp_path: Path) -> None:
    """Its steps have a line each, and the last line of a list is an object of its own."""
    file = tmp_path / "trajectory.json"
    steps = '{"step_id":1,"source":"user","message":"x"},\n{"step_id":2,"source":"agent","message":"y"}'
    file.write_text('{"schema_version":"ATIF-v1.7","agent":{"name":"a","version":"1"},"steps":[\n' + steps + "\n]}\n")
    (source,) = open_path(file)
    assert (source.kind, len(list(source.parse()))) == ("atif", 2)
