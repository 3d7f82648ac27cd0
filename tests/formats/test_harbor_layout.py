"""Where things stand in a job folder, and which files of a trial may hold its trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor.layout import (
    Place,
    TrialFolders,
    case_safe_names,
    in_upload,
    job_root,
    place_of,
    trace_files,
    trial_folders,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"


def names_below(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]


def test_trials_and_what_is_none() -> None:
    case = FIXTURES / "cases" / "59-harbor-missing-partial-results"
    assert trial_folders(names_below(case / "j")) == TrialFolders(
        ("t1__aaaaaaa", "t3__ccccccc", "t4__ddddddd", "t5__eeeeeee"), ("t2__bbbbbbb",), ("notes",)
    )
    assert trial_folders(names_below(FIXTURES / "harbor" / "jobs" / "aborted")) == TrialFolders(
        ("fails__dWeuojH", "gated__j3e4KgD"), ("hello__bkeWQk7",), ()
    )
    work = [".harbor-upload/result.json", ".sources/u/result.json", "_retries/t/retry-1/result.json", "job.log"]
    assert trial_folders(work) == TrialFolders((), (), (".harbor-upload", ".sources", "_retries"))


@pytest.mark.parametrize(
    ("paths", "root"),
    [
        (["config.json", "result.json", "t/result.json"], ""),
        (["job/config.json", "job/result.json", "job/t/result.json"], "job/"),
        (["config.json", "result.json", "job/config.json", "job/result.json"], ""),
    ],
)
def test_a_job_stands_at_the_root_or_in_one_folder(paths: list[str], root: str) -> None:
    assert job_root(paths) == root


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["config.json"],
        ["a/config.json", "a/result.json", "b/x"],
        ["a/b/config.json", "a/b/result.json"],
        ["t1__aaaaaaa/result.json"],
    ],
)
def test_what_is_no_job_is_refused_with_what_is_there(paths: list[str]) -> None:
    with pytest.raises(TraceflowError) as caught:
        job_root(paths)
    assert caught.value.code == "not_a_job_dir"
    assert caught.value.details["root"] == sorted({path.split("/")[0] for path in paths})


@pytest.mark.parametrize(
    ("path", "place", "uploaded"),
    [
        ("result.json", Place(None, None, "job", "result.json"), True),
        ("analysis.json", Place(None, None, "job", "analysis.json"), False),
        ("job.log", Place(None, None, "job", "job.log"), True),
        ("t/result.json", Place("t", None, "trial", "result.json"), True),
        ("t/analysis.json", Place("t", None, "trial", "analysis.json"), False),
        ("t/analysis.md", Place("t", None, "trial", "analysis.md"), True),
        ("t/evolve.json", Place("t", None, "trial", "evolve.json"), False),
        ("t/exception.txt", Place("t", None, "trial", "exception.txt"), True),
        ("t/agent/a/b.txt", Place("t", None, "agent", "a/b.txt"), True),
        ("t/agent", Place("t", None, "trial", "agent"), False),
        ("t/user-agent-inputs/x", Place("t", None, "user-agent-inputs", "x"), True),
        ("t/verifier/reward.json", Place("t", None, "verifier", "reward.json"), True),
        ("t/extra/x", Place("t", None, "trial", "extra/x"), False),
        ("t/steps/first/agent/x", Place("t", "first", "agent", "x"), True),
        ("t/steps/first/verifier/reward.json", Place("t", "first", "verifier", "reward.json"), True),
        ("t/steps/first/user-agent/x", Place("t", "first", "user-agent", "x"), False),
        ("t/steps/first/note.txt", Place("t", "first", "steps", "note.txt"), False),
        ("t/steps/note.txt", Place("t", None, "steps", "note.txt"), False),
    ],
)
def test_places_and_what_harbor_uploads(path: str, place: Place, uploaded: bool) -> None:
    assert place_of(path) == place
    assert in_upload(path) is uploaded


def test_the_order_in_which_a_trace_is_looked_for() -> None:
    found = trace_files(
        [
            "zz.log",
            "oracle.txt",
            "stdout.log",
            "stderr.log",
            "kimi-cli.stderr.log",
            "codex.txt",
            "claude-code.txt",
            "setup/stdout.txt",
            "trajectory.json.gz",
            "trajectory.json",
            "trace-parsed.jsonl",
            "source/old.txt",
            "source/.claude/projects/p/s.jsonl",
            "sessions/projects/p/s.jsonl",
            "sessions/settings.json",
            "sessions/2026/11/30/rollout-1.jsonl",
            ".claude/projects/p/s.jsonl",
            ".claude/settings.json",
        ]
    )
    assert [(s.path, s.harness, s.home) for s in found.sessions] == [
        (".claude/projects/p/s.jsonl", "claude-code", ".claude/projects/p/s.jsonl"),
        ("sessions/2026/11/30/rollout-1.jsonl", "codex", ".codex/sessions/2026/11/30/rollout-1.jsonl"),
        ("sessions/projects/p/s.jsonl", "claude-code", ".claude/projects/p/s.jsonl"),
    ]
    assert found.parsed == "trace-parsed.jsonl"
    assert found.trajectory == "trajectory.json"
    assert found.stdout == ("claude-code.txt", "codex.txt", "stdout.log", "oracle.txt", "zz.log")


def test_a_compressed_trajectory_counts_where_the_plain_one_is_absent() -> None:
    found = trace_files(["trajectory.json.gz"])
    assert (found.trajectory, found.parsed, found.sessions, found.stdout) == ("trajectory.json.gz", None, (), ())


@pytest.mark.parametrize(
    ("path", "harness", "home"),
    [
        ("qwen-sessions/-app/chats/a.jsonl", "qwen-code", ".qwen/projects/-app/chats/a.jsonl"),
        ("qwen-sessions/projects/-app/chats/a.jsonl", "qwen-code", ".qwen/projects/-app/chats/a.jsonl"),
        ("opencode/xdg-data/opencode/opencode.db", "opencode", ".local/share/opencode/opencode.db"),
        ("gemini-cli.trajectory.jsonl", "gemini-cli", ".gemini/tmp/harbor/chats/session-harbor.jsonl"),
        ("gemini-cli.trajectory.json", "gemini-cli", ".gemini/tmp/harbor/chats/session-harbor.json"),
        (".kimi-code/sessions/w/session_1/agents/main/wire.jsonl", "kimi-code", None),
        (".kimi/sessions/h/s/wire.jsonl", "kimi-cli", None),
        (".factory/sessions/-app/s.jsonl", "droid", None),
        (".codex/sessions/2026/01/01/rollout-x.jsonl", "codex", None),
        (".gemini/tmp/app/chats/session-1.jsonl", "gemini-cli", None),
        (".qwen/projects/-app/chats/a.jsonl", "qwen-code", None),
        (".local/share/opencode/storage/session/x.json", "opencode", None),
    ],
)
def test_where_each_harness_keeps_its_sessions(path: str, harness: str, home: str | None) -> None:
    (found,) = trace_files([path]).sessions
    assert (found.path, found.harness, found.home) == (path, harness, home or path)


@pytest.mark.parametrize("path", ["gemini-cli.trajectory.json.bak", "sessions/todos/x.json", "sessions/x.jsonl"])
def test_a_file_beside_a_session_is_none(path: str) -> None:
    assert trace_files([path]).sessions == ()


def test_case_69_names_that_a_case_insensitive_system_cannot_tell_apart() -> None:
    job = FIXTURES / "cases" / "69-harbor-trial-name-collisions" / "j"
    given = [path.name for path in job.iterdir() if path.is_dir()]
    chosen = case_safe_names(given)
    assert chosen["a-very-long-task-name-that-goes-__RVK8oHQ"] == "a-very-long-task-name-that-goes-__RVK8oHQ"
    assert chosen["a-very-long-task-name-that-goes-__rvK8oHQ"] == "a-very-long-task-name-that-goes-__rvK8oHQ-2"
    assert chosen["renamed"] == "renamed"
    assert case_safe_names(reversed(given)) == chosen
    assert case_safe_names(["A", "a", "a-2"]) == {"A": "A", "a": "a-3", "a-2": "a-2"}
    assert len({name.casefold() for name in case_safe_names(["A", "a", "ä", "Ä", "a\u0308"]).values()}) == 5
