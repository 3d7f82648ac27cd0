"""Odd inputs: whatever a log holds, it is packed or refused, and a name never leads out of the job."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pack_inputs import AGENTS, RECORDINGS, only_trial, pack, sdk_log, stdout, tree, trials
from traceflow_formats.errors import TraceflowError

LINES = sdk_log("claude", stdout(AGENTS["claude"])).splitlines(keepends=True)
ODD = (
    b"{\n", b"\x00\xff\n", b"[]\n", b"null\n", b'{"_meta":[]}\n', b'{"_meta":{"tag":5,"agent":{}}}\n',
    b'{"_prompt":7}\n', b'{"_sessionEnd":null}\n', b'{"type":"result"}\n',
    b'{"type":"system","subtype":"init","session_id":[]}\n', b"\n",
)  # fmt: skip


@settings(max_examples=60, deadline=None, database=None)
@given(st.lists(st.one_of(st.sampled_from(LINES), st.sampled_from(ODD), st.binary(max_size=20)), max_size=25))
def test_any_lines_are_packed_or_refused(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.write_bytes(LINES[0] + b"".join(lines))
        try:
            pack(log, Path(folder) / "job")
        except TraceflowError:
            assert [path.name for path in Path(folder).iterdir()] == ["log.jsonl"]
        else:
            assert trials(Path(folder) / "job")


@pytest.mark.parametrize(
    "meta",
    [{"tag": None}, {"tag": 7, "agent": ["x"]}, {"model": {}, "timestamp": "soon"}, {"tag": "../../out", "model": ""}],
)
def test_a_header_with_values_of_the_wrong_sort(meta: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(sdk_log("claude", stdout(AGENTS["claude"]), **meta))
    pack(log, tmp_path / "job")
    _, result = only_trial(tmp_path / "job")
    assert isinstance(result["agent_info"]["name"], str)
    assert {path.name for path in tmp_path.iterdir()} == {"log.jsonl", "job"}


def test_a_task_never_leads_out_of_the_job(tmp_path: Path) -> None:
    for number, task in enumerate(("../../etc", "..", ".", "a/b/../c", "x" * 500, "\ud83d", "tab\there")):
        pack(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / f"job{number}", task=task)
        trial, _ = only_trial(tmp_path / f"job{number}")
        assert trial.parent == tmp_path / f"job{number}"
        assert len(trial.name) < 64


def test_a_path_with_dots_in_it_is_packed_at_its_own_place(tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(RECORDINGS / "codex-0.171.0/basic/home", home)
    (session,) = home.rglob("rollout-*.jsonl")
    winding = session.parent / ".." / session.parent.name / session.name
    pack(winding, tmp_path / "job")
    trial, _ = only_trial(tmp_path / "job")
    assert f"agent/{session.relative_to(home).as_posix()}" in tree(trial)


def test_a_file_name_that_is_no_utf8(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    data = {"seq": 0, "type": "prompt", "data": {"_prompt": {"text": "Hello."}}}
    (tmp_path / name).write_text(json.dumps(data) + "\n")
    pack(tmp_path / name, tmp_path / "job")
    assert only_trial(tmp_path / "job")[1]["task_name"] == "caf\ufffd"
