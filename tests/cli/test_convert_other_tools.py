"""`convert --to chat` and `--to otlp-json`: every input becomes them, and both are what their readers take."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from running import FIXTURES, traceflow

import traceflow as library

sys.path.append(str(Path(__file__).parents[1] / "formats"))
from chat_api import check_record
from otlp_proto import checked_spans

RECORDINGS = FIXTURES / "recordings"
RUNS = sorted(path.parent for path in RECORDINGS.glob("*/*/truth.jsonl"))
CASES = sorted(path for path in (FIXTURES / "cases").glob("*/*.jsonl") if "expected" not in path.name)
CODEX = RECORDINGS / "codex-0.171.0" / "basic"


@pytest.mark.parametrize("folder", RUNS, ids=lambda p: f"{p.parent.name}-{p.name}")
def test_every_recording_becomes_chat_records_and_spans(folder: Path) -> None:
    for source in (path for path in (folder / "home", folder / "stdout.jsonl") if path.exists()):
        records = library.convert(source, to="chat")
        for record in records:
            check_record(record)
        spans = checked_spans(library.convert(source, to="otlp-json", at="2026-01-01T00:00:00Z"))
        agents = [span for span in spans if span.said["gen_ai.operation.name"] == "invoke_agent"]
        assert len(agents) >= len(records)
        calls = sum(len(m.get("tool_calls", ())) for record in records for m in record["messages"])
        assert sum(span.said["gen_ai.operation.name"] == "execute_tool" for span in spans) == calls


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name[:2]}-{p.stem}")
def test_every_case_that_is_a_trajectory_becomes_both(path: Path) -> None:
    try:
        library.convert(path)
    except library.TraceflowError:
        return
    for record in library.convert(path, to="chat"):
        check_record(record)
    assert checked_spans(library.convert(path, to="otlp-json", at="2026-01-01T00:00:00Z"))


def test_a_trajectory_and_a_trace_give_the_records_of_their_session(tmp_path: Path) -> None:
    session = library.convert(CODEX / "home", to="chat")
    for to in ("atif", "trace"):
        file = tmp_path / f"{to}.json"
        assert traceflow("convert", CODEX / "home", "--to", to, "-o", file).code == 0
        (record,) = library.convert(file, to="chat")
        assert record["messages"] == session[0]["messages"]
        assert record["metadata"]["source"]["kind"] == to


def test_one_file_takes_all_sessions_of_a_folder_and_a_folder_has_one_for_each(tmp_path: Path) -> None:
    homes = RECORDINGS / "claude-2.1.197" / "resume" / "home"
    ran = traceflow("convert", homes, "--to", "chat", "-o", tmp_path / "set.jsonl", "--json")
    assert ran.code == 0, ran.err
    lines = (tmp_path / "set.jsonl").read_text().splitlines()
    assert len(lines) >= ran.json()["sessions"]
    assert ran.json()["losses"]["timestamp"] > 0
    ran = traceflow("convert", homes, "--to", "otlp-json", "-o", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "not in it: " in ran.err
    for file in (tmp_path / "out").glob("*/otlp.json"):
        checked_spans(json.loads(file.read_text()))


def test_the_document_is_the_same_each_time_on_stdout_and_in_a_file(tmp_path: Path) -> None:
    for to, name in (("chat", "a.jsonl"), ("otlp-json", "a.json")):
        printed = traceflow("convert", CODEX / "home", "--to", to)
        assert printed.code == 0
        assert traceflow("convert", CODEX / "home", "--to", to, "-o", tmp_path / name).code == 0
        assert (tmp_path / name).read_text() == printed.out


def test_otlp_lines_are_a_document_each(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    assert traceflow("convert", CODEX / "home", "--to", "otlp-json", "-o", file).code == 0
    (line,) = file.read_text().splitlines()
    assert checked_spans(json.loads(line))


def test_pictures_lie_beside_the_file(tmp_path: Path) -> None:
    case = FIXTURES / "cases" / "26-tool-result-list-with-image"
    (source,) = case.glob("*.jsonl")
    ran = traceflow("convert", source, "--to", "chat", "-o", tmp_path / "set.jsonl")
    assert ran.code == 0, ran.err
    messages = json.loads((tmp_path / "set.jsonl").read_text())["messages"]
    urls = [
        part["image_url"]["url"]
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image_url"
    ]
    assert urls
    assert all((tmp_path / url).is_file() for url in urls)
    printed = traceflow("convert", source, "--to", "chat")
    assert "image (" in printed.err


def test_a_session_without_times_is_no_trace_unless_one_is_given(tmp_path: Path) -> None:
    document = {"agent": {"name": "a", "version": "1"}, "schema_version": "ATIF-v1.7", "session_id": "s"}
    document["steps"] = [{"step_id": 1, "source": "user", "message": "x"}]  # type: ignore[assignment]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    ran = traceflow("convert", path, "--to", "otlp-json", "-o", tmp_path / "o.json", "--json")
    assert (ran.code, ran.json()["error"]["code"]) == (1, "invalid_trajectory")
    assert not (tmp_path / "o.json").exists()
    ran = traceflow("convert", path, "--to", "otlp-json", "--at", "2026-01-01T00:00:00Z")
    assert ran.code == 0, ran.err
    (span,) = checked_spans(json.loads(ran.out))
    assert span.name == "invoke_agent a"
    assert traceflow("convert", path, "--to", "otlp-json", "--at", "yesterday").code == 1
    assert traceflow("convert", path, "--at", "2026-01-01T00:00:00Z").code == 2
