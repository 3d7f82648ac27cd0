"""`validate` over good and bad of each kind: what it is taken for, and every fault with its file and line."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from task_folders import FIXTURES, harbor_tasks, make_task
from traceflow_formats.errors import TraceflowError

from traceflow.limits import Limits
from traceflow.validate import Validation, validate

DEMO = FIXTURES / "jobs" / "demo"
CASES = FIXTURES / "cases"
TRAJECTORY = FIXTURES / "harbor" / "examples" / "trajectory.json"


def told(report: Validation) -> list[tuple[str, int | None, str | None]]:
    return [(p.path, p.line, p.code) for p in report.problems]


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """A copy of the demo job, to break."""
    return Path(shutil.copytree(DEMO, tmp_path / "demo"))


# -- what is right -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "kind", "checked"),
    [
        ("jobs/demo", "job", {"files": 76, "trials": 7}),
        ("jobs/demo/result.json", "job", {"files": 76, "trials": 7}),
        ("jobs/demo/tour__rS2tU4v", "trial", {"files": 13, "trials": 1}),
        ("harbor/jobs/smoke", "job", {"files": 13, "trials": 1}),
        ("harbor/jobs/big", "job", {"files": 30, "trials": 14}),
        ("tasks", "dataset", {"tasks": 5, "files": 27}),
        ("tasks/tour", "task", {"tasks": 1, "files": 5}),
        ("tasks/tour/task.toml", "task", {"tasks": 1, "files": 5}),
        ("harbor/examples/trajectory.json", "trajectory", {"trajectories": 1}),
        ("harbor/examples/trajectory.minimal.json", "trajectory", {"trajectories": 1}),
        ("recordings/codex-0.171.0/basic/stdout.jsonl", "trace", {"sessions": 1}),
        ("recordings/codex-0.171.0/basic/home", "sessions", {"sessions": 1}),
    ],
)
def test_good_ones_are_what_they_are_and_have_no_problem(path: str, kind: str, checked: dict[str, int]) -> None:
    report = validate(FIXTURES / path)
    report.checked.pop("events", None)  # as many as the parsers give
    assert (report.kind, report.checked) == (kind, checked)
    assert (report.ok, report.problems, report.warnings) == (True, [], [])


def test_harbors_own_tasks_have_no_problem(tmp_path: Path) -> None:
    report = validate(harbor_tasks(tmp_path) / "ds")
    assert (report.kind, report.checked["tasks"], report.problems) == ("dataset", 12, [])


@pytest.mark.parametrize("root", ["", "job-1"])
def test_an_archive_is_checked_as_its_folder_is(tmp_path: Path, demo: Path, root: str) -> None:
    (demo / "tour__kM7nP9q" / "result.json").write_text("{}")
    archive = tmp_path / "x.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(demo, root or ".")
    report, by_folder = validate(archive), validate(demo)
    assert (report.kind, report.checked) == ("job", by_folder.checked)
    assert told(report) == told(by_folder) == [("tour__kM7nP9q/result.json", None, "invalid_trial")]


# -- jobs and trials -----------------------------------------------------------------------------------------


def test_every_fault_of_a_job_is_listed(demo: Path) -> None:
    (demo / "config.json").write_text('{"job_name": "x",\n "n_attempts": }')
    (demo / "result.json").unlink()
    (demo / "delegate__aB3dE5f" / "result.json").write_text('{\n\n"task_name": [REDACTED]}')
    (demo / "relay__bC4dE6g" / "lock.json").write_text("[]")
    (demo / "toolbox__hJ5kL7m" / "config.json").write_text("")
    (demo / "fragile__wX6yZ8A" / "result.json").unlink()
    record = json.loads((demo / "tour__kM7nP9q" / "result.json").read_text())
    del record["task_id"], record["config"]
    (demo / "tour__kM7nP9q" / "result.json").write_text(json.dumps(record))
    (demo / "tour__nQ8rS3t" / "agent").mkdir(exist_ok=True)
    trajectory = json.loads(TRAJECTORY.read_text())
    trajectory["steps"][0]["step_id"] = 7
    trajectory["steps"][1]["colour"] = "red"
    (demo / "tour__nQ8rS3t" / "agent" / "trajectory.json").write_text(json.dumps(trajectory))
    report = validate(demo)
    assert report.kind == "job"
    assert told(report) == [
        ("result.json", None, "not_a_job_dir"),
        ("config.json", 2, "invalid_job"),
        ("delegate__aB3dE5f/result.json", 3, "invalid_trial"),
        ("relay__bC4dE6g/lock.json", None, "invalid_trial"),
        ("toolbox__hJ5kL7m/config.json", 1, "invalid_trial"),
        ("tour__kM7nP9q/result.json", None, "invalid_trial"),
        ("tour__nQ8rS3t/agent/trajectory.json", None, "invalid_trajectory"),
        ("tour__nQ8rS3t/agent/trajectory.json", None, "invalid_trajectory"),
    ]
    messages = {p.path: p.message for p in report.problems}
    assert "task_id, config missing" in messages["tour__kM7nP9q/result.json"]
    assert "trajectory.steps.1.colour: is no key of ATIF" in [p.message for p in report.problems]
    assert [(w.path, w.code) for w in report.warnings] == [("fragile__wX6yZ8A/", "trial_incomplete")]


@pytest.mark.parametrize(
    ("case", "problems", "warnings"),
    [
        (
            "59-harbor-missing-partial-results/j",
            [
                ("t3__ccccccc/result.json", 9, "invalid_trial"),
                ("t4__ddddddd/result.json", 1, "invalid_trial"),
                ("t5__eeeeeee/result.json", None, "invalid_trial"),
            ],
            {"trial_incomplete"},
        ),
        ("59-harbor-missing-partial-results/empty-job", [("result.json", None, "not_a_job_dir")], {"nothing_scored"}),
        ("60-harbor-exception-with-reward/j", [], set()),
        ("62-harbor-reward-shapes/j", [], {"reward_coerced", "bad_reward", "duplicate_json_key"}),
        ("69-harbor-trial-name-collisions/j", [], {"trial_name_mismatch"}),
    ],
)
def test_jobs_of_the_cases(case: str, problems: list[Any], warnings: set[str]) -> None:
    report = validate(CASES / case)
    assert (report.kind, told(report)) == ("job", problems)
    assert {w.code for w in report.warnings} == warnings


def test_a_trial_alone_has_its_own_paths(demo: Path) -> None:
    trial = demo / "tour__rS2tU4v"
    session = next(trial.glob("agent/**/*.jsonl"))
    session.write_bytes(b"{broken\n" + session.read_bytes())
    (trial / "lock.json").write_text('{"task": {"digest": "md5:1"}}')
    report = validate(trial)
    assert (report.kind, report.problems) == ("trial", [])
    assert ("lock.json", "bad_digest") in [(w.path, w.code) for w in report.warnings]
    malformed = next(w for w in report.warnings if w.code == "malformed_line")
    assert malformed.line == 1
    (trial / "result.json").write_text("x")
    assert told(validate(trial)) == [("result.json", 1, "invalid_trial")]
    (trial / "result.json").unlink()
    assert told(validate(trial)) == [("result.json", None, "trial_incomplete")]


def test_files_over_the_bounds_and_what_an_import_passes_over(demo: Path) -> None:
    (demo / "link").symlink_to("/etc/passwd")
    os.mkfifo(demo / "pipe")
    (demo / "tour__kM7nP9q" / "artifacts").mkdir(exist_ok=True)
    (demo / "tour__kM7nP9q" / "artifacts" / "core").write_bytes(b"x" * 300_000)
    report = validate(demo, Limits(file_bytes=250_000))
    assert told(report) == [("tour__kM7nP9q/artifacts/core", None, "trial_too_large")]
    assert {(w.path, w.code) for w in report.warnings} == {("link", "file_passed_over"), ("pipe", "file_passed_over")}
    assert told(validate(demo, Limits(members=10))) == [(".", None, "upload_too_large")]


def test_hostile_archives_are_one_problem_each() -> None:
    for case in sorted((CASES / "71-archive-path-traversal-links-devices").glob("*.tar.gz")):
        report = validate(case)
        if case.name == "setuid.tar.gz":
            assert (report.kind, report.problems) == ("job", [])
            assert [w.code for w in report.warnings] == ["mode_dropped"]
            continue
        assert (report.kind, [p.code for p in report.problems]) == ("archive", ["invalid_archive"])


# -- tasks ---------------------------------------------------------------------------------------------------


def test_every_fault_of_a_task_is_listed(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    (task / "task.toml").write_text('schema_version = 4\n[task]\nname = "no slash"\n[agent]\ntimeout_sec = "soon"\n')
    (task / "tests" / "test.sh").unlink()
    (task / "instruction.md").write_bytes(b"caf\xe9")
    report = validate(task)
    assert report.kind == "task"
    assert [p.path for p in report.problems] == [
        "task.toml",
        "task.toml",
        "task.toml",
        "environment",
        "instruction.md",
        "tests/test.sh",
    ]
    (task / "task.toml").write_text("a = 1\nb = = 2\n")
    (broken,) = [p for p in validate(task).problems if p.path == "task.toml"]
    assert broken.line == 2


@pytest.mark.parametrize(
    ("folder", "hint"),
    [
        ("clean", None),
        ("junk", None),
        ("crlf", "matches after CRLF->LF"),
        ("gitignore", "extra file tests/__pycache__/x.pyc"),
    ],
)
def test_case_74_a_task_of_another_digest_says_why(tmp_path: Path, folder: str, hint: str | None) -> None:
    case = Path(shutil.copytree(CASES / "74-task-content-hash-mismatch", tmp_path / "case"))
    for name in ("junk", "gitignore"):  # git keeps no caches
        (case / name / "tests" / "__pycache__").mkdir()
        (case / name / "tests" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    digest = json.loads((case / "lock.json").read_text())["task"]["digest"]
    report = validate(case / folder, digest=digest)
    if hint is None:
        assert report.problems == []
        return
    (problem,) = report.problems
    assert (problem.code, problem.message.endswith(f"({hint})")) == ("hash_mismatch", True)


def test_a_digest_is_asked_of_one_task_only() -> None:
    for path, digest in ((FIXTURES / "tasks", "sha256:" + "0" * 64), (FIXTURES / "tasks" / "tour", "md5:1")):
        with pytest.raises(TraceflowError) as caught:
            validate(path, digest=digest)
        assert caught.value.code == "invalid_input"


def test_a_folder_without_task_toml_is_a_task_that_lacks_it(tmp_path: Path) -> None:
    task = make_task(tmp_path / "t")
    (task / "task.toml").unlink()
    report = validate(task)
    assert report.kind == "task"
    assert ("task.toml", "missing") in [(p.path, p.message) for p in report.problems]


def test_every_task_of_a_dataset_is_checked(tmp_path: Path) -> None:
    make_task(tmp_path / "a", name="org/same")
    make_task(tmp_path / "b", name="org/same")
    (make_task(tmp_path / "c") / "task.toml").unlink()
    (make_task(tmp_path / "d") / "tests" / "test.sh").unlink()
    (tmp_path / "docs").mkdir()
    report = validate(tmp_path)
    assert report.kind == "dataset"
    assert [p.path for p in report.problems] == ["c/task.toml", "b/task.toml", "d/tests/test.sh"]
    assert report.checked["tasks"] == 3


# -- trajectories and traces ---------------------------------------------------------------------------------


def no_steps(document: dict[str, Any]) -> None:
    document["steps"] = []


def strange_keys(document: dict[str, Any]) -> None:
    document["steps"][0]["mood"] = document["mood"] = "good"


def dangling(document: dict[str, Any]) -> None:
    document["steps"][1]["observation"] = {"results": [{"source_call_id": "nowhere", "content": "x"}]}


def lost_image(document: dict[str, Any]) -> None:
    image = {"type": "image", "source": {"media_type": "image/png", "path": "images/lost.png"}}
    document["steps"][0]["message"] = [image]


@pytest.mark.parametrize(
    ("change", "messages"),
    [
        (no_steps, ["trajectory.steps: there is no step"]),
        (strange_keys, ["trajectory.mood: is no key of ATIF", "trajectory.steps.0.mood: is no key of ATIF"]),
        (lost_image, ["trajectory.steps.0: shows 'images/lost.png', which is missing"]),
    ],
)
def test_bad_trajectories(tmp_path: Path, change: Callable[[dict[str, Any]], None], messages: list[str]) -> None:
    document = json.loads(TRAJECTORY.read_text())
    change(document)
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps(document))
    report = validate(path)
    assert report.kind == "trajectory"
    assert [p.message for p in report.problems] == messages
    packed = tmp_path / "trajectory.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert [p.message for p in validate(packed).problems] == messages


def test_a_reference_to_no_call_is_a_problem(tmp_path: Path) -> None:
    document = json.loads(TRAJECTORY.read_text())
    dangling(document)
    path = tmp_path / "any name.json"
    path.write_text(json.dumps(document))
    report = validate(path)
    assert (report.kind, len(report.problems)) == ("trajectory", 1)
    assert "nowhere" in report.problems[0].message


def test_a_trajectory_that_is_no_json_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_text(TRAJECTORY.read_text().replace('"steps": [', '"steps": [,', 1))
    (problem,) = validate(path).problems
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if '"steps": [,' in text)
    assert (problem.path, problem.line, problem.code) == ("trajectory.json", line, "invalid_trajectory")
    for data in (b"", b"\x00\xff\xfe", b"[1,2", b"null", b"{}", b'"x"', b"[" * 5000):
        path.write_bytes(data)
        report = validate(path)
        assert (report.kind, report.ok) == ("trajectory", False)


def test_a_folder_of_trajectories_is_checked_as_a_whole() -> None:
    report = validate(CASES / "65-atif-session-id-not-unique" / "a")
    assert (report.checked, report.problems) == ({"trajectories": 1}, [])
    (problem,) = validate(CASES / "65-atif-session-id-not-unique" / "bad-subagents.json").problems
    assert problem.code == "invalid_trajectory"


def test_the_broken_lines_of_a_trace_are_problems_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "stdout.jsonl"
    lines = (FIXTURES / "recordings" / "codex-0.171.0" / "basic" / "stdout.jsonl").read_bytes().splitlines(True)
    path.write_bytes(b"".join([*lines[:3], b'{"type": "item.comp\n', *lines[3:]]))
    report = validate(path)
    assert (report.kind, told(report)) == ("trace", [("stdout.jsonl", 4, "malformed_line")])


def test_what_is_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as caught:
        validate(tmp_path / "none")
    assert caught.value.code == "not_found"
    (tmp_path / "notes.md").write_text("words")
    for path in (tmp_path / "notes.md", tmp_path):
        with pytest.raises(TraceflowError) as caught:
            validate(path)
        assert caught.value.code == "unrecognized_trace"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceflowError) as caught:
        validate(tmp_path / "pipe")
    assert caught.value.code == "invalid_input"
