"""The digests of a task folder: Harbor's own values, its rules for ignoring, and links that must not be followed."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from pathlib import Path

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.tasks import (
    content_digest,
    digest_files,
    digest_of,
    environment_id,
    explain_mismatch,
    task_checksum,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASE = FIXTURES / "cases" / "74-task-content-hash-mismatch"
LOCKED = "sha256:b8d8a818ef088f429a9a6bbbfc5499f0c2cfd2ff1e4d18e70127cd71408f2970"

# task, content digest, task checksum, environment id: computed by Harbor 0.26.0
VECTORS = [
    (
        "hello",
        "0e08489ae09009c47609927c6bbfe1478e07e1eec8f11e07e73e1ed4cf31f84a",
        "dddebc48c11f044bf0361f83bc911814d0897f1aef60fd0dd3980722f856907c",
        "1404f8d6b8841377976c7a3addabc877",
    ),
    (
        "ignores",
        "cca121e6683af96042553481357ca9da49e923399aee459be49ff775622b90ea",
        "d3ad41c6b119dd7b676cc25b5eb450921ec7d641ad79b9a5f9480a9c23719cf2",
        "f14dcd9861a6bd421097ccf822b8de4c",
    ),
    (
        "multi",
        "6542fd36a558f247f840d91dc401686e835ebd8f64e15a508d6843b5d0fea021",
        "0e0304771daeaf4678bf4874c6cb98c04cd415c1260312644c1961f22cd22662",
        "1404f8d6b8841377976c7a3addabc877",
    ),
    (
        "gitignored",
        "ca54b82974148656abf929bff23c9f09072d5b1c21e1ec746e5b2aca8e214b24",
        "f0b1e096b0bcfc32c550e07f0c6c01a8b890ca16a4c73a8c03c5f3682b11e9f4",
        "f14dcd9861a6bd421097ccf822b8de4c",
    ),
]
COUNTED = {
    "hello": ["environment/Dockerfile", "instruction.md", "solution/solve.sh", "task.toml", "tests/test.sh"],
    "ignores": [
        "README.md",
        "environment/Dockerfile",
        "environment/build.log",
        "instruction.md",
        "solution/keep/café.txt",
        "solution/link.sh",
        "solution/solve.sh",
        "task.toml",
        "tests/data/keep.bin",
        "tests/test.sh",
    ],
    "multi": [
        "environment/Dockerfile",
        "steps/first/instruction.md",
        "steps/first/solution/solve.sh",
        "steps/first/tests/test.sh",
        "steps/first/workdir/setup.sh",
        "steps/second/instruction.md",
        "steps/second/solution/solve.sh",
        "steps/second/tests/test.sh",
        "task.toml",
    ],
    "gitignored": [
        "environment/Dockerfile",
        "instruction.md",
        "solution/keep/café.txt",
        "solution/link.sh",
        "solution/solve.sh",
        "task.toml",
        "tests/.test.sh.swp",
        "tests/__pycache__/a.pyc",
        "tests/old~",
        "tests/test.sh",
    ],
}


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive with its links, unpacked."""
    root = tmp_path_factory.mktemp("vectors")
    with tarfile.open(FIXTURES / "harbor" / "task-vectors.tgz") as archive:
        for member in archive:
            target = root / member.name
            if member.isdir():
                target.mkdir(parents=True, exist_ok=True)
            elif member.issym():
                target.symlink_to(member.linkname)
            else:
                stream = archive.extractfile(member)
                assert stream is not None
                target.write_bytes(stream.read())
    return root


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A small task that tests may change."""
    return build(
        tmp_path / "task", {"task.toml": "", "instruction.md": "x", "tests/test.sh": "t", "environment/a": "a"}
    )


def build(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def counted(folder: Path) -> list[str]:
    return [file.path for file in digest_files(folder)]


# -- Harbor's values -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "digest", "checksum", "environment"), VECTORS, ids=[v[0] for v in VECTORS])
def test_the_digests_are_those_of_harbor(
    vectors: Path, name: str, digest: str, checksum: str, environment: str
) -> None:
    folder = vectors / name
    assert counted(folder) == COUNTED[name]
    assert content_digest(folder) == f"sha256:{digest}"
    assert task_checksum(folder) == checksum
    assert environment_id(folder) == environment


def test_the_files_of_hello_one_by_one(vectors: Path) -> None:
    assert {file.path: (file.size, file.sha256[:16]) for file in digest_files(vectors / "hello")} == {
        "environment/Dockerfile": (33, "e2c09a2ae031f139"),
        "instruction.md": (66, "b4b3ab9a77565b5a"),
        "solution/solve.sh": (113, "f6802d47d36d3028"),
        "task.toml": (114, "d01eeeae69a144bd"),
        "tests/test.sh": (184, "7459a16aeec2dd20"),
    }


@pytest.mark.parametrize(
    ("name", "digest", "checksum"),
    [
        ("hello", VECTORS[0][1], VECTORS[0][2]),
        ("multi", VECTORS[2][1], VECTORS[2][2]),
        ("ignores", VECTORS[1][1], "cbd1871d7455"),
        ("gitignored", "2d9f44325470", "cddc189ae800"),
    ],
)
def test_a_package_of_a_registry_holds_the_counted_files_alone(
    vectors: Path, tmp_path: Path, name: str, digest: str, checksum: str
) -> None:
    for path in counted(vectors / name):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(vectors / name / path, tmp_path / path)
    assert content_digest(tmp_path).startswith(f"sha256:{digest}")
    assert task_checksum(tmp_path).startswith(checksum)


def test_a_package_whose_author_had_a_gitignore_matches_with_what_is_ignored_now(vectors: Path, tmp_path: Path) -> None:
    for path in counted(vectors / "gitignored"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(vectors / "gitignored" / path, tmp_path / path)
    assert explain_mismatch(tmp_path, f"sha256:{VECTORS[3][1]}").hints == (
        "matches with tests/.test.sh.swp",
        "matches with tests/__pycache__/a.pyc",
        "matches with tests/old~",
    )


def test_modes_and_times_do_not_count(vectors: Path, tmp_path: Path) -> None:
    copy = tmp_path / "hello"
    shutil.copytree(vectors / "hello", copy)
    (copy / "tests" / "test.sh").chmod(0o700)
    os.utime(copy / "task.toml", (0, 0))
    assert content_digest(copy) == f"sha256:{VECTORS[0][1]}"
    assert task_checksum(copy) == VECTORS[0][2]


# -- case 74 ---------------------------------------------------------------------------------------------


def case(tmp_path: Path, name: str) -> Path:
    """A folder of the case with the cache file that a repository cannot keep."""
    copy = tmp_path / name
    shutil.copytree(CASE / name, copy)
    if name in ("junk", "gitignore"):
        (copy / "tests" / "__pycache__").mkdir()
        (copy / "tests" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    return copy


@pytest.mark.parametrize(
    ("name", "digest", "hints"),
    [
        ("clean", "b8d8a818ef088f429a9a6bbbfc5499f0c2cfd2ff1e4d18e70127cd71408f2970", ()),
        ("junk", "b8d8a818ef088f429a9a6bbbfc5499f0c2cfd2ff1e4d18e70127cd71408f2970", ()),
        ("crlf", "a875d19a5b0fac390d7251d0865464ddbac21433fd32cfd4257575ab27075000", ("matches after CRLF->LF",)),
        (
            "gitignore",
            "0ff83fa1529eb2fbbab23eb64093a760fcedca71fc6b90591448ccfbdbc80f36",
            ("extra file tests/__pycache__/x.pyc",),
        ),
    ],
)
def test_case_74_digests_and_why_they_differ(tmp_path: Path, name: str, digest: str, hints: tuple[str, ...]) -> None:
    folder = case(tmp_path, name)
    found = explain_mismatch(folder, LOCKED)
    assert found.found == content_digest(folder) == f"sha256:{digest}"
    assert found.hints == hints
    assert found.matches is (not hints)


def test_hints_come_together_and_only_where_they_hold(tmp_path: Path) -> None:
    folder = case(tmp_path, "crlf")
    (folder / "tests" / "notes.txt").write_text("x")
    assert explain_mismatch(folder, LOCKED).hints == ("matches after CRLF->LF", "extra file tests/notes.txt")
    unix = case(tmp_path, "clean")
    assert explain_mismatch(unix, content_digest(case(tmp_path / "again", "crlf"))).hints == ("matches after LF->CRLF",)
    (unix / "instruction.md").write_text("Do something else.")
    assert explain_mismatch(unix, LOCKED).hints == ()


# -- what counts -----------------------------------------------------------------------------------------

RULES: list[tuple[dict[str, str], list[str]]] = [
    # the second filter: defaults, or the root's .gitignore in their place
    ({"tests/a.pyc": "", "tests/b~": "", "environment/.DS_Store": ""}, []),
    ({".gitignore": "", "tests/a.pyc": "", "environment/.DS_Store": ""}, ["environment/.DS_Store", "tests/a.pyc"]),
    ({".gitignore": "*.log\n!keep.log", "tests/a.log": "", "tests/keep.log": ""}, ["tests/keep.log"]),
    ({"environment/.gitignore": "*", "environment/x": ""}, ["environment/.gitignore", "environment/x"]),
    # .harborignore: in tests/ and solution/, of the task and of each step, and nowhere else
    ({"tests/.harborignore": "*.bin", "tests/a.bin": "", "tests/sub/b.bin": "", "tests/c": ""}, ["tests/c"]),
    ({"environment/.harborignore": "*", "environment/x": ""}, ["environment/x"]),
    ({".harborignore": "*", "tests/x": ""}, ["tests/x"]),
    ({"steps/one/.harborignore": "*", "steps/one/x": ""}, ["steps/one/x"]),
    ({"steps/one/tests/.harborignore": "x", "steps/one/tests/x": "", "steps/one/tests/y": ""}, ["steps/one/tests/y"]),
    ({"steps/one/workdir/tests/.harborignore": "*", "steps/one/workdir/tests/x": ""}, ["steps/one/workdir/tests/x"]),
    ({"solution/.harborignore": "/a", "solution/a": "", "solution/b/a": ""}, ["solution/b/a"]),
    # the innermost rule wins, but nothing comes back from an excluded folder
    ({"tests/.harborignore": "*.bin", "tests/d/.harborignore": "!k.bin", "tests/d/k.bin": ""}, ["tests/d/k.bin"]),
    ({"tests/.harborignore": "d/", "tests/d/.harborignore": "!k.bin", "tests/d/k.bin": ""}, []),
    ({"tests/.harborignore": "*.bin\n!k.bin", "tests/k.bin": "", "tests/l.bin": ""}, ["tests/k.bin"]),
    ({"tests/.harborignore": "# a\n\\#b\n", "tests/# a": "", "tests/#b": ""}, ["tests/# a"]),
    # the root: four files and four folders
    ({"LICENSE": "", "extra/x": "", "README.md": "", "trajectory.json": ""}, ["README.md", "trajectory.json"]),
    ({"solution/.hidden": ""}, ["solution/.hidden"]),
]


@pytest.mark.parametrize(("files", "more"), RULES)
def test_which_files_count(task: Path, files: dict[str, str], more: list[str]) -> None:
    build(task, files)
    assert counted(task) == sorted(["environment/a", "instruction.md", "task.toml", "tests/test.sh", *more])


def test_the_digest_is_over_paths_and_file_hashes(task: Path) -> None:
    outer = hashlib.sha256()
    for name in ("environment/a", "instruction.md", "task.toml", "tests/test.sh"):
        outer.update(name.encode() + b"\0" + hashlib.sha256((task / name).read_bytes()).hexdigest().encode() + b"\n")
    assert content_digest(task) == "sha256:" + outer.hexdigest()
    assert digest_of(digest_files(task)) == content_digest(task)


def test_paths_are_sorted_by_code_point(task: Path) -> None:
    build(task, {"tests/a b": "", "tests/a/b": "", "tests/a-b": "", "tests/é": "", "tests/z": "", "tests/Z": ""})
    names = [name for name in counted(task) if name.startswith("tests/")]
    assert names == ["tests/Z", "tests/a b", "tests/a-b", "tests/a/b", "tests/test.sh", "tests/z", "tests/é"]


def test_without_an_environment_the_image_names_it(tmp_path: Path) -> None:
    build(tmp_path, {"task.toml": '[environment]\ndocker_image = "python:3.13"'})
    assert environment_id(tmp_path) == hashlib.sha256(b"python:3.13").hexdigest()[:32]
    (tmp_path / "task.toml").write_text("no toml")
    assert environment_id(tmp_path) == hashlib.sha256(b"environment").hexdigest()[:32]


# -- links and other traps -------------------------------------------------------------------------------


def refused(folder: Path) -> str:
    with pytest.raises(TraceflowError) as caught:
        content_digest(folder)
    assert caught.value.code == "invalid_input"
    return caught.value.message


def test_links_inside_the_folder(task: Path) -> None:
    (task / "tests" / "file").symlink_to("test.sh")
    (task / "tests" / "folder").symlink_to("../environment")
    (task / "tests" / "nowhere").symlink_to("missing")
    (task / "tests" / "itself").symlink_to("itself")
    (task / "tests" / "loop").symlink_to("..")
    assert counted(task) == ["environment/a", "instruction.md", "task.toml", "tests/file", "tests/test.sh"]


def test_a_link_is_ignored_with_its_target(task: Path) -> None:
    build(task, {"tests/.harborignore": "secret", "tests/secret": "s"})
    (task / "tests" / "alias").symlink_to("secret")
    assert counted(task) == ["environment/a", "instruction.md", "task.toml", "tests/test.sh"]


@pytest.mark.parametrize("name", ["tests/out", "environment/out", "README.md", "environment/deep/out"])
def test_a_link_to_a_file_outside_is_refused(task: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("s")
    (task / name).parent.mkdir(exist_ok=True)
    (task / name).symlink_to(tmp_path / "secret")
    assert refused(task) == f"{name}: a link that leads out of the task folder"
    with pytest.raises(TraceflowError, match="leads out of the task folder"):
        task_checksum(task)


@pytest.mark.parametrize("name", ["tests/.harborignore", ".gitignore"])
def test_rules_from_outside_are_refused(task: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "rules").write_text("*")
    (task / name).symlink_to(tmp_path / "rules")
    assert refused(task) == f"{name}: a link that leads out of the task folder"


def test_a_folder_link_outside_is_never_entered(task: Path, tmp_path: Path) -> None:
    build(tmp_path, {"other/secret": "s"})
    (task / "tests" / "out").symlink_to(tmp_path / "other")
    assert "tests/out/secret" not in counted(task)
    (task / "solution").symlink_to(tmp_path / "other")
    assert refused(task) == "solution: a link that leads out of the task folder"


def test_a_sibling_folder_with_the_same_beginning_is_outside(task: Path, tmp_path: Path) -> None:
    build(tmp_path, {"task-2/secret": "s"})
    (task / "tests" / "out").symlink_to(tmp_path / "task-2" / "secret")
    assert "leads out" in refused(task)


def test_links_that_form_a_cycle_end(task: Path) -> None:
    (task / "tests" / "up").symlink_to("../environment")
    (task / "environment" / "down").symlink_to("../tests")
    assert counted(task) == ["environment/a", "instruction.md", "task.toml", "tests/test.sh"]
    with pytest.raises(TraceflowError, match="form a cycle"):
        task_checksum(task)


def test_links_that_fan_out_end(task: Path) -> None:
    """Each level links twice to the next: 2**40 ways, no cycle."""
    for level in range(40):
        (task / "extra" / str(level)).mkdir(parents=True)
        if level:
            for side in "ab":
                (task / "extra" / str(level - 1) / side).symlink_to(f"../{level}")
    (task / "extra" / "39" / "x").write_text("")
    assert content_digest(task)
    with pytest.raises(TraceflowError, match="entries below links to folders"):
        task_checksum(task)


def test_special_files_are_not_opened(task: Path) -> None:
    os.mkfifo(task / "tests" / "pipe")
    assert "tests/pipe" not in counted(task)
    with pytest.raises(TraceflowError, match="neither a file nor a folder"):
        task_checksum(task)


def test_a_name_that_is_no_utf8_is_refused(task: Path) -> None:
    (Path(os.fsdecode(bytes(task / "tests") + b"/\xff"))).write_text("")
    assert "no UTF-8" in refused(task)


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (b"\xff\xfe", "no UTF-8 at byte 0"),
        (b"a\n" * 200_000, "ignore rules of more than"),
        (b"!", "ignore rules that cannot be used"),
    ],
)
def test_rules_that_cannot_be_used_are_refused(task: Path, rules: bytes, reason: str) -> None:
    (task / "tests" / ".harborignore").write_bytes(rules)
    assert reason in refused(task)


def test_no_rule_takes_long(task: Path) -> None:
    """A pattern that a backtracking matcher would try for hours."""
    (task / "tests" / ".harborignore").write_text("*a" * 30 + "*b")
    (task / "tests" / ("a" * 200)).write_text("")
    assert f"tests/{'a' * 200}" in counted(task)


@pytest.mark.parametrize("name", ["tests", "environment"])
def test_a_file_in_place_of_a_folder_is_refused(task: Path, name: str) -> None:
    shutil.rmtree(task / name)
    (task / name).write_text("")
    assert refused(task) == f"{name}: must be a folder"


def test_a_folder_that_is_not_there() -> None:
    assert refused(Path("does-not-exist")) == "does-not-exist: is no folder"


def test_an_empty_folder(tmp_path: Path) -> None:
    assert digest_files(tmp_path) == []
    assert content_digest(tmp_path) == "sha256:" + hashlib.sha256(b"").hexdigest()
    with pytest.raises(TraceflowError, match="holds no file"):
        task_checksum(tmp_path)


@pytest.mark.parametrize("top", ["tests", "environment"])
def test_a_tree_may_be_deep_but_not_without_end(tmp_path: Path, top: str) -> None:
    deep = tmp_path / top
    for _ in range(190):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "x").write_text("")
    assert len(digest_files(tmp_path)) == 1
    assert task_checksum(tmp_path)
    for _ in range(20):
        deep = deep / "d"
    deep.mkdir(parents=True)
    assert "folders deep" in refused(tmp_path)
    with pytest.raises(TraceflowError, match="folders deep"):
        task_checksum(tmp_path)
