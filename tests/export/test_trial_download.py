"""A trial as a folder: the platform's tree, made from what was imported, and single streams of it."""

from __future__ import annotations

import hashlib
import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.cli import run
from traceflow.export.download import download_trial, write_stream
from traceflow.store import Manifest, Store

_jobs = runpy.run_path(str(Path(__file__).with_name("export_jobs.py")))
FIXTURES: Path = _jobs["FIXTURES"]
DEMO = FIXTURES / "jobs" / "demo"
imported, tree_of = _jobs["imported"], _jobs["tree_of"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Manifest]:
    return imported(DEMO, tmp_path_factory.mktemp("demo") / "store")


def row_of(demo: tuple[Store, Manifest], name: str) -> dict[str, Any]:
    return demo[0].trial(name, demo[1])


@pytest.mark.parametrize("name", sorted(path.name for path in DEMO.iterdir() if path.is_dir()))
def test_every_original_is_in_the_download(demo: tuple[Store, Manifest], tmp_path: Path, name: str) -> None:
    done = download_trial(*demo, row_of(demo, name), tmp_path / name)
    written = {path: data for path, (_, data) in tree_of(tmp_path / name).items()}
    originals = {path: data for path, (_, data) in tree_of(DEMO / name).items()}
    assert {path: written.get(path) for path in originals} == originals
    assert (done.files, done.bytes) == (len(written), sum(map(len, written.values())))
    assert json.loads(written["traceflow.json"])["trial_name"] == name
    assert not [path for path, data in written.items() if not data and path not in originals]


@pytest.mark.parametrize(
    ("name", "slot", "home"),
    [
        ("tour__rS2tU4v", "agent/sessions/", "agent/.claude/"),
        ("toolbox__hJ5kL7m", "agent/sessions/", "agent/.codex/sessions/"),
    ],
)
def test_the_home_stands_at_its_real_names_too(
    demo: tuple[Store, Manifest], tmp_path: Path, name: str, slot: str, home: str
) -> None:
    download_trial(*demo, row_of(demo, name), tmp_path / name)
    written = tree_of(tmp_path / name)
    at_slot = {path.removeprefix(slot): data for path, (_, data) in written.items() if path.startswith(slot)}
    at_home = {path.removeprefix(home): data for path, (_, data) in written.items() if path.startswith(home)}
    assert at_slot
    assert at_slot == at_home
    listed = json.loads(written["agent/agent-home.json"][1])
    assert {f"agent/{item['path']}" for item in listed["files"]} == {home + path for path in at_home}
    for item in listed["files"]:
        data = written[f"agent/{item['path']}"][1]
        assert (item["size"], item["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def trial_with(tmp_path: Path, agent: str, files: dict[str, bytes], **record: Any) -> tuple[Store, Manifest]:
    root = tmp_path / "job"
    result = {
        "task_name": "t",
        "trial_name": "t__1",
        "trial_uri": "",
        "task_id": {},
        "task_checksum": "",
        "config": {},
        "agent_info": {"name": agent, "version": "1"},
        **record,
    }
    everything = {
        "config.json": b'{"job_name": "made"}',
        "result.json": b'{"n_total_trials": 1, "stats": {}}',
        "t__1/result.json": json.dumps(result).encode(),
        **{f"t__1/{name}": data for name, data in files.items()},
    }
    for name, data in everything.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return imported(root, tmp_path / "store")


def test_sessions_at_real_names_are_copied_to_where_other_tools_look(tmp_path: Path) -> None:
    session = next((DEMO / "tour__rS2tU4v").rglob("*.jsonl")).read_bytes()
    files = {"agent/.claude/projects/-srv-app/s.jsonl": session}
    store, job = trial_with(tmp_path, "claude-code", files)
    download_trial(store, job, store.trials(job)[0], tmp_path / "out")
    assert (tmp_path / "out/agent/sessions/projects/-srv-app/s.jsonl").read_bytes() == session


def test_a_home_file_that_is_no_text_is_only_named(tmp_path: Path) -> None:
    database = b"SQLite format 3\0" + bytes(100)
    store, job = trial_with(tmp_path, "opencode", {"agent/.local/share/opencode/opencode.db": database})
    done = download_trial(store, job, store.trials(job)[0], tmp_path / "out")
    assert not list((tmp_path / "out").rglob("opencode.db"))
    listed = json.loads((tmp_path / "out/agent/agent-home.json").read_bytes())
    assert listed["files"] == []
    (skipped,) = listed["skipped"]
    assert skipped["path"] == ".local/share/opencode/opencode.db"
    assert (skipped["size"], skipped["sha256"]) == (len(database), hashlib.sha256(database).hexdigest())
    assert len(done.left_out) == 1


def test_records_become_files_where_there_are_none(tmp_path: Path) -> None:
    exception = {
        "exception_type": "AgentTimeoutError",
        "exception_message": "took too long",
        "exception_traceback": "",
        "occurred_at": "2026-01-01T00:00:00Z",
    }
    store, job = trial_with(
        tmp_path, "nop", {}, exception_info=exception, verifier_result={"rewards": {"reward": 1, "Style": 0.5}}
    )
    download_trial(store, job, store.trials(job)[0], tmp_path / "out")
    assert (tmp_path / "out/exception.txt").read_text() == "AgentTimeoutError: took too long\n"
    assert (tmp_path / "out/verifier/reward.json").read_text() == '{\n  "reward": 1,\n  "Style": 0.5\n}\n'
    assert not (tmp_path / "out/agent").exists()


def test_nothing_is_replaced_unless_that_is_said(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    target = tmp_path / "t"
    target.mkdir()
    (target / "mine").write_text("mine")
    row = row_of(demo, "tour__rS2tU4v")
    with pytest.raises(TraceflowError) as caught:
        download_trial(*demo, row, target)
    assert caught.value.code == "invalid_input"
    assert [path.name for path in target.iterdir()] == ["mine"]
    download_trial(*demo, row, target, overwrite=True)
    assert not (target / "mine").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def stream(demo: tuple[Store, Manifest], name: str, which: str) -> bytes:
    out = io.BytesIO()
    assert write_stream(*demo, row_of(demo, name), which, out) == len(out.getvalue())
    return out.getvalue()


def test_streams(demo: tuple[Store, Manifest]) -> None:
    name = "toolbox__hJ5kL7m"
    assert stream(demo, name, "trace-stdout") == (DEMO / name / "agent/codex.txt").read_bytes()
    assert stream(demo, name, "trace-stderr") == (DEMO / name / "agent/stderr.log").read_bytes()
    seqs = [json.loads(line)["seq"] for line in stream(demo, name, "trace-parsed").splitlines()]
    assert seqs == list(range(len(seqs)))
    assert json.loads(stream(demo, name, "trace-atif"))["schema_version"] == "ATIF-v1.7"
    verified = DEMO / "tour__rS2tU4v" / "verifier/test-stdout.txt"
    assert stream(demo, "tour__rS2tU4v", "verifier") == verified.read_bytes()
    assert json.loads(stream(demo, name, "agent-home"))["files"]


@pytest.mark.parametrize(("which", "code"), [("verifier", "not_found"), ("trajectory", "invalid_input")])
def test_a_stream_that_is_not_there_is_said(demo: tuple[Store, Manifest], which: str, code: str) -> None:
    with pytest.raises(TraceflowError) as caught:
        stream(demo, "tour__nQ8rS3t", which)
    assert caught.value.code == code


def test_the_command(demo: tuple[Store, Manifest], tmp_path: Path, capfdbinary: Any) -> None:
    words = ["--store", demo[0].url]
    assert run(["trial", "download", "tour__rS2tU4v", "-o", str(tmp_path), "--json", *words]) == 0
    assert json.loads(capfdbinary.readouterr().out)["path"] == str(tmp_path / "tour__rS2tU4v")
    assert run(["trial", "download", "tour__rS2tU4v", "--stream", "verifier", *words]) == 0
    assert capfdbinary.readouterr().out == (DEMO / "tour__rS2tU4v" / "verifier/test-stdout.txt").read_bytes()
    assert run(["trial", "download", "tour__rS2tU4v", "-o", str(tmp_path), *words]) == 1


def test_reviews_are_read_and_exported_unchanged(tmp_path: Path, capfdbinary: Any) -> None:
    reviews = FIXTURES / "harbor" / "reviews"
    files = {
        "analysis.json": (reviews / "trial-analysis.json").read_bytes(),
        "artifacts/check-result.json": (reviews / "check-result.json").read_bytes(),
    }
    root = tmp_path / "job"
    root.mkdir()
    for name, source in {"analysis.json": "job-analysis.json", "check_report.json": "check_report.json"}.items():
        (root / name).write_bytes((reviews / source).read_bytes())
    store, job = trial_with(tmp_path, "nop", files)
    assert run(["trial", "show", "t__1", "--json", "--store", store.url]) == 0
    shown = json.loads(capfdbinary.readouterr().out)["extra"]["review"]
    assert shown["file"] == "analysis.json"
    assert all(check["outcome"] for check in shown["checks"].values())
    assert run(["job", "show", "made", "--json", "--store", store.url]) == 0
    files_read = {review["file"] for review in json.loads(capfdbinary.readouterr().out)["reviews"]}
    assert files_read == {"analysis.json", "check_report.json"}
    download_trial(store, job, store.trials(job)[0], tmp_path / "out")
    assert (tmp_path / "out/analysis.json").read_bytes() == files["analysis.json"]
