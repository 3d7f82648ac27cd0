"""Member names: normalised, refused or only remarked on."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError

from traceflow.archive import name_warnings, safe_name, windows_problem
from traceflow.archive.names import NameTree, shown
from traceflow.limits import Limits


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        (b"j/a.txt", "j/a.txt"),
        ("j/a.txt", "j/a.txt"),
        (b"./j//a/./b/", "j/a/b"),
        (b"j/.claude/x", "j/.claude/x"),
        (b"j/..a/b..", "j/..a/b.."),
        (b"j/...", "j/..."),
        ("j/é日本".encode(), "j/é日本"),
        ("e\u0301", "e\u0301"),
        (b"j/C:", "j/C:"),
        (b"j/a\\b", "j/a\\b"),
        (b"j/a b\tc", "j/a b\tc"),
        (b" ", " "),
        ("n" * 255, "n" * 255),
    ],
)
def test_safe_names(name: bytes | str, safe: str) -> None:
    assert safe_name(name) == safe


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("/a", "path_traversal"),
        ("//host/share", "path_traversal"),
        ("\\a", "path_traversal"),
        ("\\\\host\\share", "path_traversal"),
        ("C:/a", "path_traversal"),
        ("z:a", "path_traversal"),
        ("..", "path_traversal"),
        ("../a", "path_traversal"),
        ("a/..", "path_traversal"),
        ("a/../b", "path_traversal"),
        ("a\\..\\b", "path_traversal"),
        ("a/b\\..", "path_traversal"),
        ("", "bad_name"),
        (".", "bad_name"),
        ("././", "bad_name"),
        ("a\0b", "bad_name"),
        (b"\xff", "bad_name"),
        ("a\udcff", "bad_name"),
        ("n" * 256, "bad_name"),
        ("é" * 128, "bad_name"),
        ("a/" * 129, "bad_name"),
        ("aaaaaaaaaaaaaaaaaaaa/" * 100, "bad_name"),
    ],
)
def test_unsafe_names(name: bytes | str, reason: str) -> None:
    with pytest.raises(TraceflowError) as refused:
        safe_name(name)
    assert (refused.value.code, refused.value.details["reason"]) == ("invalid_archive", reason)


@given(st.one_of(st.text(max_size=40), st.text("a./\\:C~ ", max_size=12), st.binary(max_size=20)))
def test_a_safe_name_stays_below_and_is_its_own_safe_name(name: str | bytes) -> None:
    safe, refused = "", None
    try:
        safe = safe_name(name)
    except TraceflowError as error:
        refused = error
    if refused is not None:
        assert refused.code == "invalid_archive"
        assert refused.message.isprintable()
        return
    assert safe_name(safe) == safe
    assert not safe.startswith("/")
    assert not {"", ".", ".."} & set(safe.split("/"))


def test_messages_show_names_without_their_control_characters() -> None:
    assert shown("a\x1b[31m\n\u202e") == r"'a\x1b[31m\n\u202e'"
    assert len(shown("x" * 5000)) < 130


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("j/é", []),
        ("j\\a", ["backslash_in_name"]),
        ("j/a\x07", ["control_character_in_name"]),
        ("j\\\x85", ["backslash_in_name", "control_character_in_name"]),
    ],
)
def test_odd_names(name: str, codes: list[str]) -> None:
    assert [code for code, _ in name_warnings(name)] == codes


@pytest.mark.parametrize(
    "name", ["con", "j/NUL.txt", "aux.tar.gz", "Com1", "lpt9.x", "j./a", "j/a ", "a:b", "a?", 'a"']
)
def test_names_that_windows_cannot_hold(name: str) -> None:
    assert windows_problem(name)


@pytest.mark.parametrize("name", ["console", "j/nulls.txt", ".con", "com10", "a.b", "é", "lpt"])
def test_names_that_windows_can_hold(name: str) -> None:
    assert windows_problem(name) is None


def test_many_names_are_told_apart_like_a_set_would() -> None:
    rng = random.Random(7)
    tree, files = NameTree(), set[str]()
    for _ in range(30_000):
        name = f"j/{rng.randrange(20_000)}"
        try:
            tree.add(name, directory=False)
            assert name not in files
        except TraceflowError:
            assert name in files
        files.add(name)
    assert len(tree) == len(files) + 1
    assert tree.twins == 0


def test_folders_that_a_path_implies_count_as_members() -> None:
    tree = NameTree(Limits(members=4))
    tree.add("a/b/c/d", directory=False)
    with pytest.raises(TraceflowError, match="over 4 files and folders"):
        tree.add("a/b/c/e", directory=False)
