"""The listing of a folder: in the order of the bytes of its paths, found again by path, whatever the names are."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from traceflow.importer.packed import Packed
from traceflow.importer.tree import Tree, list_tree
from traceflow.limits import Limits

NAMES = st.text(st.sampled_from("ab-. 0é\U00010000"), min_size=1, max_size=3).filter(lambda name: name.strip(". "))
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=12)


@settings(max_examples=60, deadline=None)
@given(files=PATHS, folders=PATHS)
def test_a_listing_is_in_the_order_of_its_paths(files: list[list[str]], folders: list[list[str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for parts, is_file in [*((p, False) for p in folders), *((p, True) for p in files)]:
            path = root.joinpath(*parts)
            if any(parent.is_file() for parent in [path, *path.parents]) or (is_file and path.exists()):
                continue
            (path.parent if is_file else path).mkdir(parents=True, exist_ok=True)
            if is_file:
                path.write_text(path.name)
        _check(root, list_tree(root, Limits()))


def _check(root: Path, tree: Tree) -> None:
    there = [p for p in root.rglob("*") if p.is_file() or not any(p.iterdir())]
    expected = sorted((p.relative_to(root).as_posix() for p in there), key=str.encode)
    assert [entry.path for entry in tree.entries] == expected
    for entry in tree.entries:
        assert entry.directory == (root / entry.path).is_dir()
        assert tree.find(entry.path) == (None if entry.directory else entry)
    tops = {path.partition("/")[0] for path in (entry.path for entry in tree.files) if "/" in path}
    assert tree.folders() == sorted(tops)
    for top in tops:
        assert [entry.path for entry in tree.below(top)] == [p for p in expected if p.startswith(f"{top}/")]


def test_a_packed_list_is_what_was_put_in() -> None:
    for count in (0, 1, 255, 256, 257, 1500):
        packed = Packed()
        values = [(f"{number:05d}", number, ("a",), {"b": [None, 1.5]}) for number in range(count)]
        for value in values:
            packed.append(value)
        assert (len(packed), list(packed)) == (count, values)
        for number in range(0, count, 97):
            assert packed.find(f"{number:05d}") == values[number]
            assert list(packed.since(f"{number:05d}")) == values[number:]
            assert list(packed.since(f"{number:05d}!")) == values[number + 1 :]
        assert packed.find("x") is packed.find("00000!") is None
