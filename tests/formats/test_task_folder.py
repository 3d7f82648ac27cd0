"""Reading a task folder: what it says, and every fault in it at once. The verdicts are Harbor 0.26's own."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.tasks import Task, content_digest, read_task
from traceflow_formats.tasks.config import step_name_fault

FIXTURES = Path(__file__).parents[2] / "fixtures"
PLAIN = {"instruction.md": "Do it.", "environment/Dockerfile": "FROM scratch", "tests/test.sh": "exit 0"}
STEPS = {
    "environment/Dockerfile": "FROM scratch",
    "steps/one/instruction.md": "First.",
    "steps/one/tests/test.sh": "exit 0",
    "steps/two/instruction.md": "Second.",
    "tests/test.sh": "exit 0",
}


def build(root: Path, toml: str | None, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if toml is not None:
        root.mkdir(exist_ok=True)
        (root / "task.toml").write_text(toml)
    return root


def problems(task: Task) -> list[str]:
    return [f"{problem.path}: {problem.message}" for problem in task.problems]


def test_a_task_with_a_name_and_a_version(tmp_path: Path) -> None:
    toml = """
schema_version = "1.4"
[task]
name = "demo-org/named-task"
version = "1.2.3"
description = "A task."
keywords = ["files", "shell"]
authors = [{ name = "A", email = "a@example.com" }]
[metadata]
level = 3
"""
    task = read_task(build(tmp_path / "named", toml, PLAIN))
    assert task.problems == ()
    assert (task.name, task.folder_name, task.version) == ("demo-org/named-task", "named", "1.2.3")
    assert (task.description, task.keywords, task.schema_version) == ("A task.", ("files", "shell"), "1.4")
    assert (task.instruction, task.steps) == ("Do it.", ())
    assert task.config["metadata"] == {"level": 3}
    assert task.digest == content_digest(tmp_path / "named")
    assert [file.path for file in task.files] == [
        "environment/Dockerfile",
        "instruction.md",
        "task.toml",
        "tests/test.sh",
    ]


def test_a_task_without_a_name_is_named_as_its_folder(tmp_path: Path) -> None:
    task = read_task(build(tmp_path / "hello", 'version = "1.0"', PLAIN))
    assert (task.name, task.version, task.schema_version, task.problems) == ("hello", None, "1.0", ())


def test_a_multi_step_task(tmp_path: Path) -> None:
    task = read_task(build(tmp_path / "multi", '[[steps]]\nname = "one"\n[[steps]]\nname = "two"', STEPS))
    assert task.problems == ()
    assert [(step.name, step.instruction) for step in task.steps] == [("one", "First."), ("two", "Second.")]
    assert task.instruction is None


def test_the_tasks_of_the_vectors_are_valid(tmp_path: Path) -> None:
    with tarfile.open(FIXTURES / "harbor" / "task-vectors.tgz") as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                (tmp_path / member.name).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / member.name).write_bytes(stream.read())
    found = {folder.name: read_task(folder) for folder in sorted(tmp_path.iterdir())}
    assert {name: task.problems for name, task in found.items()} == dict.fromkeys(found, ())
    assert [step.name for step in found["multi"].steps] == ["first", "second"]
    assert found["hello"].instruction == 'Create /app/hello.txt containing the single line "Hello, world!".\n'


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    toml = """
source = 1
[task]
name = "no-org"
version = ""
keywords = "x"
[environment]
os = "mac"
memory_mb = 1.5
[agent]
timeout_sec = "soon"
[[steps]]
name = "one"
[[steps]]
name = "ONE"
[[steps]]
name = "a/b"
[[steps]]
title = "x"
"""
    task = read_task(build(tmp_path / "t", toml, {"tests/Dockerfile": ""}))
    assert problems(task) == [
        "task.toml: source must be a string",
        "task.toml: task.name must be org/name in letters, digits, dots, dashes: 'no-org'",
        "task.toml: task.version must be a string that is not empty",
        "task.toml: task.keywords must be a list of strings",
        "task.toml: agent.timeout_sec must be a number",
        "task.toml: environment.os must be linux or windows",
        "task.toml: environment.memory_mb must be a whole number",
        "task.toml: steps[1].name 'ONE' falls together with 'one'",
        "task.toml: steps[2].name holds a character that file systems refuse: 'a/b'",
        "task.toml: steps[3] must be a table with a name",
        "environment: no folder, and task.toml names no docker_image",
        "steps/one: no such folder, task.toml names the step",
    ]
    assert (task.name, task.version) == ("no-org", "")


NO_SCRIPT = "missing: a task for linux needs a test script"
NO_TESTS = {"instruction.md": "", "environment/Dockerfile": ""}
HOSTS = "allowed_hosts needs network_mode allowlist"
SEPARATE = '[verifier]\nenvironment_mode = "separate"\n'


@pytest.mark.parametrize(
    ("toml", "files", "faults"),
    [
        (None, PLAIN, ["task.toml: missing"]),
        ("x = ", PLAIN, ["task.toml: no TOML: Invalid value (at end of document)"]),
        (
            "",
            {},
            [
                "environment: no folder, and task.toml names no docker_image",
                "instruction.md: missing",
                f"tests/test.sh: {NO_SCRIPT}",
            ],
        ),
        ('[environment]\ndocker_image = "x"', {"instruction.md": "", "tests/test.sh": ""}, []),
        ('[environment]\nos = "Windows"', {**PLAIN, "tests/test.bat": ""}, []),
        ('[environment]\nos = "windows"', PLAIN, ["tests/test.bat: missing: a task for windows needs a test script"]),
        ("", {**PLAIN, "tests/.harborignore": "*.sh"}, ["tests/test.sh: excluded by .harborignore, but needed"]),
        # A verifier with an image of its own brings its tests along.
        (SEPARATE, {**NO_TESTS, "tests/Dockerfile": ""}, []),
        (SEPARATE + '[verifier.environment]\ndocker_image = "x"', NO_TESTS, []),
        (SEPARATE, NO_TESTS, [f"tests/test.sh: {NO_SCRIPT}"]),
        ("", {**NO_TESTS, "tests/Dockerfile": ""}, [f"tests/test.sh: {NO_SCRIPT}"]),
        ('[[steps]]\nname = "one"', STEPS, []),
        ('[[steps]]\nname = "two"', {**STEPS, "tests/test.sh": ""}, []),
        ('[[steps]]\nname = "three"', STEPS, ["steps/three: no such folder, task.toml names the step"]),
        (
            '[[steps]]\nname = "one"',
            {"environment/Dockerfile": "", "steps/one/x": ""},
            ["steps/one/instruction.md: missing", f"steps/one/tests/test.sh: {NO_SCRIPT}"],
        ),
        ("steps = []", PLAIN, []),
        ("unknown = 1", PLAIN, []),
        ("metadata = 1", PLAIN, ["task.toml: metadata must be a table"]),
        ('[task]\nversion = "1"', PLAIN, ["task.toml: task.name is missing"]),
        (
            '[task]\nname = "a/..b"',
            PLAIN,
            ["task.toml: task.name must be org/name in letters, digits, dots, dashes: 'a/..b'"],
        ),
        ('multi_step_reward_strategy = "sum"', PLAIN, ["task.toml: multi_step_reward_strategy must be mean or final"]),
        ('[verifier]\ntimeout_sec = "60"', PLAIN, []),
        ('[environment]\nallowed_hosts = ["a"]', PLAIN, [f"task.toml: environment.{HOSTS}"]),
        ("[environment]\nallowed_hosts = []", PLAIN, []),
        ("[agent]\nallowed_hosts = []", PLAIN, [f"task.toml: agent.{HOSTS}"]),
        ('[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["a.com"]', PLAIN, []),
        ('[environment]\nmemory = "2G"', PLAIN, []),
        ('[environment]\nmemory = "x"', PLAIN, ["task.toml: environment.memory must be a size like 512M or 2G"]),
        ('artifacts = ["/a", { source = "/b", destination = "c" }]', PLAIN, []),
        (
            'artifacts = [{ source = "/a/../b" }]',
            PLAIN,
            ["task.toml: artifacts must be a list of paths and tables with a source, none with .."],
        ),
        (
            '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\ndocker_image = "x"',
            PLAIN,
            ["task.toml: verifier.environment needs environment_mode separate"],
        ),
    ],
)
def test_what_makes_a_task_unusable(tmp_path: Path, toml: str | None, files: dict[str, str], faults: list[str]) -> None:
    assert problems(read_task(build(tmp_path / "t", toml, files))) == faults


@pytest.mark.parametrize(
    ("link", "target", "path", "fault"),
    [
        ("tests/out", "/etc/hostname", "tests/out", "a link that leads out of the task folder"),
        ("tests/up", "..", "tests/up/tests", "links to folders form a cycle"),
        ("solution", "/etc", "solution", "a link that leads out of the task folder"),
        ("environment/out", "/etc/hostname", "environment/out", "a link that leads out of the task folder"),
        ("task.toml", "/etc/hostname", "task.toml", "a link that leads out of the task folder"),
    ],
)
def test_links_that_lead_out_or_around(tmp_path: Path, link: str, target: str, path: str, fault: str) -> None:
    folder = build(tmp_path / "t", "" if link != "task.toml" else None, PLAIN)
    (folder / link).symlink_to(target)
    assert f"{path}: {fault}" in problems(read_task(folder))


def test_links_within_the_task_are_fine(tmp_path: Path) -> None:
    folder = build(tmp_path / "t", "", PLAIN)
    (folder / "solution").mkdir()
    (folder / "solution" / "tests").symlink_to("../tests")
    (folder / "solution" / "solve.sh").symlink_to("../tests/test.sh")
    assert read_task(folder).problems == ()


def test_files_that_cannot_be_read_as_text(tmp_path: Path) -> None:
    folder = build(tmp_path / "t", None, PLAIN)
    (folder / "task.toml").write_bytes(b"a = '\xff'")
    (folder / "instruction.md").write_bytes(b"\xff")
    assert problems(read_task(folder)) == ["task.toml: no UTF-8 at byte 5", "instruction.md: no UTF-8 at byte 0"]


@pytest.mark.parametrize("toml", ["a = " + "[" * 50_000, "a = " + "9" * 5_000, "a = 1\n" * 300_000])
def test_a_hostile_task_toml_is_a_problem(tmp_path: Path, toml: str) -> None:
    (problem,) = read_task(build(tmp_path / "t", toml, PLAIN)).problems
    assert problem.path == "task.toml"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError, match="is no folder") as caught:
        read_task(tmp_path / "missing")
    assert caught.value.code == "invalid_input"


@pytest.mark.parametrize("name", ["first", "a b", "été", "con1", "x.con", ".hidden"])
def test_step_names_that_are_fine(name: str) -> None:
    assert step_name_fault(name) is None


@pytest.mark.parametrize(
    "name", ["", " ", ".", "..", "a.", "a ", "a/b", "a\\b", "a:b", "a\x00", "con", "NUL.txt", "é" * 128]
)
def test_step_names_that_are_not(name: str) -> None:
    assert step_name_fault(name) is not None
