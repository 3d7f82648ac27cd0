"""Written archives: the same bytes for the same members, and every reader reads them."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from archive_bytes import tree_of
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError

from traceflow.archive import NewMember, Written, file_chunks, read_members, safe_name, scan, unpack, write_tar_gz
from traceflow.archive.write import PIECE, tar_header

CASE_84 = Path(__file__).parents[2] / "fixtures" / "cases" / "84-deterministic-archive-export"


def of_folder(root: Path) -> list[NewMember]:
    """The members of a folder, as an export would give them."""
    found = []
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file():
            stat = path.stat()
            found.append(NewMember(name, stat.st_size, bool(stat.st_mode & 0o100), file_chunks(path)))
        elif not any(path.iterdir()):
            found.append(NewMember(name, directory=True))
    return sorted(found, key=lambda member: member.path.encode())


def of_bytes(files: dict[str, bytes]) -> list[NewMember]:
    names = sorted(files, key=str.encode)
    return [NewMember(name, len(files[name]), False, lambda data=files[name]: [data]) for name in names]


def written(members: list[NewMember], workers: int | None = None) -> tuple[bytes, Written]:
    out = io.BytesIO()
    result = write_tar_gz(members, out, workers=workers)
    return out.getvalue(), result


# -- bytes -----------------------------------------------------------------------------------------------------


def test_case_84_order_and_headers() -> None:
    data, result = written(of_folder(CASE_84))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = [info.name for info in tar if info.name.startswith("j/")]
        infos = tar.getmembers()
    assert names == [
        "j/B.txt",
        "j/a-b.txt",
        "j/a.txt",
        "j/ab.txt",
        "j/config.json",
        "j/result.json",
        "j/run.sh",
        "j/t1__aaaaaaa/config.json",
        "j/t1__aaaaaaa/result.json",
        "j/á.txt",
    ]
    assert {(i.mtime, i.uid, i.gid, i.uname, i.gname) for i in infos} == {(0, 0, 0, "", "")}
    assert {i.mode for i in infos} <= {0o644, 0o755}
    assert data[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    assert result.archive_sha256 == hashlib.sha256(data).hexdigest()
    assert result.tar_sha256 == hashlib.sha256(gzip.decompress(data)).hexdigest()
    assert (result.archive_bytes, result.tar_bytes) == (len(data), len(gzip.decompress(data)))
    assert result.members == len(infos)


SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[3])
os.umask(int(sys.argv[4], 8))
from pathlib import Path
from test_archive_write import of_folder
from traceflow.archive import write_tar_gz
print(write_tar_gz(of_folder(Path(sys.argv[1])), Path(sys.argv[2])).archive_sha256)
"""


def test_case_84_two_machines_one_archive(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(CASE_84 / "j", tmp_path / "job" / "j")
    bodies = []
    for number, (zone, language, umask) in enumerate(
        [("Asia/Tokyo", "C", "077"), ("America/New_York", "C.UTF-8", "022"), ("UTC", "cs_CZ.UTF-8", "000")]
    ):
        for path in tmp_path.joinpath("job").rglob("*"):
            os.utime(path, (number, time.time()))
        out = tmp_path / f"{number}.tar.gz"
        command = [sys.executable, "-c", SCRIPT, tmp_path / "job", out, Path(__file__).parent, umask]
        environ = {**os.environ, "TZ": zone, "LC_ALL": language, "PYTHONHASHSEED": str(number)}
        printed = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
        bodies.append(out.read_bytes())
        assert printed.strip() == hashlib.sha256(bodies[-1]).hexdigest()
    assert len(set(bodies)) == 1


def test_the_bytes_depend_on_neither_workers_nor_chunks() -> None:
    data = bytes(range(256)) * 40_000
    members = [
        NewMember("a", len(data), False, lambda: [data]),
        NewMember("b", len(data), False, lambda: [data[i : i + 7001] for i in range(0, len(data), 7001)]),
    ]
    one, two = NewMember("a", len(data), False, members[1].chunks), NewMember("b", len(data), False, members[0].chunks)
    assert written(members, workers=1)[0] == written([one, two], workers=3)[0]


def test_the_archive_is_gzip_members_of_fixed_pieces() -> None:
    data = os.urandom(1 << 16) * 100
    packed, _ = written(of_bytes({"a": data}))
    sizes = []
    while packed:
        import zlib

        stream = zlib.decompressobj(31)
        sizes.append(len(stream.decompress(packed)))
        assert packed[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
        packed = stream.unused_data
    assert sizes == [PIECE, 512 + len(data) + 1024 - PIECE]


def test_the_tar_is_byte_for_byte_what_gnu_tar_writes(tmp_path: Path) -> None:
    """For names that USTAR holds: sorted, without times and owners, and no padding to a tape record."""
    members = [member for member in of_folder(CASE_84) if member.path.isascii() and member.path.startswith("j/")]
    data, _ = written(members)
    command = ["tar", "--format=ustar", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner", "--mode=u=rwX,go=rX"]
    paths = [member.path for member in members]
    subprocess.run([*command, "-b1", "-cf", tmp_path / "gnu.tar", "-C", CASE_84, *paths], check=True)
    assert gzip.decompress(data) == (tmp_path / "gnu.tar").read_bytes()


def test_the_tar_of_given_members_never_changes() -> None:
    """The digest names an export for good: whoever changes it breaks every comparison with an older one."""
    _, result = written(of_bytes({"j/a.txt": b"hello\n", "j/á.txt": b""}))
    assert result.tar_sha256 == "0f2d447639f1a6c6bc074848617f9a35a84149b0945a24c96ca97744c5db0fff"
    assert result.encoder.startswith("deflate-")


# -- headers ---------------------------------------------------------------------------------------------------


def test_headers_are_what_python_writes_too() -> None:
    for length in range(90, 256):
        name = ("a" * 30 + "/") * 8 + "x" * 40
        name = name[:length].rstrip("/")
        ours = tar_header(NewMember(name, 77, executable=True))
        info = tarfile.TarInfo(name)
        info.size, info.mode = 77, 0o755
        try:
            theirs = info.tobuf(tarfile.USTAR_FORMAT)
        except ValueError:  # too long for USTAR
            assert len(ours) > 512
            continue
        assert ours[:148] + ours[156:329] + ours[345:] == theirs[:148] + theirs[156:329] + theirs[345:]


@pytest.mark.parametrize(
    ("member", "path", "size"),
    [
        (NewMember("j/á.txt", 5), "j/á.txt", 5),
        (NewMember("j/" + "n" * 120, 5), "j/" + "n" * 120, 5),
        (NewMember("d/" * 60 + "é"), "d/" * 60 + "é", 0),
        (NewMember("x" * 99 + "/y" * 90), "x" * 99 + "/y" * 90, 0),
        (NewMember("j/big", (8 << 30) - 1), "j/big", (8 << 30) - 1),
        (NewMember("j/bigger", 8 << 30), "j/bigger", 8 << 30),
        (NewMember("j/é", 99 << 40), "j/é", 99 << 40),
        (NewMember("j/" + "é" * 100, directory=True), "j/" + "é" * 100, 0),
        (NewMember("d" * 100, directory=True), "d" * 100, 0),
    ],
)
def test_names_and_sizes_that_ustar_cannot_hold(member: NewMember, path: str, size: int) -> None:
    data = tar_header(member)
    assert len(data) % 512 == 0
    info = tarfile.open(fileobj=io.BytesIO(data + bytes(1024))).next()  # noqa: SIM115
    assert info is not None
    assert (info.name, info.size, info.isdir()) == (path, size, member.directory)


# -- readers ---------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "in"
    files = {
        "j/result.json": b"{}",
        "j/empty": b"",
        "j/" + "long/" * 30 + "n" * 120: b"1",
        "j/ünï/日本": b"2" * 513,
        "j/big": os.urandom(1000) * 9000,
        "j/a\nb\\c": b"odd",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "j/run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "j/run.sh").chmod(0o755)
    (root / "j/nothing/inside").mkdir(parents=True)
    return root


def test_round_trip(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    write_tar_gz(of_folder(folder), archive)
    found = scan(archive)
    unpack(archive, tmp_path / "out", found)
    assert found.root == "j"
    assert tree_of(tmp_path / "out") == tree_of(folder)
    write_tar_gz(of_folder(tmp_path / "out"), tmp_path / "b.tar.gz")
    assert (tmp_path / "b.tar.gz").read_bytes() == archive.read_bytes()


def test_gnu_tar_and_python_read_it(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    write_tar_gz(of_folder(folder), archive)
    (tmp_path / "gnu").mkdir()
    result = subprocess.run(["tar", "-xzf", archive, "-C", tmp_path / "gnu"], check=True, capture_output=True)
    assert result.stderr == b""
    assert tree_of(tmp_path / "gnu") == tree_of(folder)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "python", filter="data")
    assert tree_of(tmp_path / "python") == tree_of(folder)
    subprocess.run(["gzip", "-t", archive], check=True)


NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=60), min_size=1, max_size=4).map("/".join)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(NAMES, st.binary(max_size=2000), max_size=8))
def test_any_files_come_back(files: dict[str, bytes]) -> None:
    kept: dict[str, bytes] = {}
    for name, content in files.items():
        try:
            safe = safe_name(name)
        except TraceflowError:
            continue
        if not any(a == safe or a.startswith(safe + "/") or safe.startswith(a + "/") for a in kept):
            kept[safe] = content
    data, _ = written(of_bytes(kept))
    found = scan(io.BytesIO(data))
    assert {m.name: b"".join(c) for m, c in read_members(io.BytesIO(data), found)} == kept


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_gives_an_error_or_an_archive(data: st.DataObject) -> None:
    plain = b"".join([*map(tar_header, of_bytes({"j/a": b"", "j/é": b"", "j/" + "n" * 150: b""})), bytes(1024)])
    damaged = bytearray(plain)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(plain) - 1))
        damaged[at : at + 1] = data.draw(st.binary(max_size=3))
    try:
        scan(io.BytesIO(bytes(damaged)))
    except TraceflowError as error:
        code = error.code
    else:
        code = None
    assert code in (None, "invalid_archive", "upload_too_large")


# -- refusals and failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "paths",
    [
        ["b", "a"],
        ["a", "a"],
        ["a/b", "a-b"],
        ["é", "z"],
        ["a", "a/b"],
        ["/a"],
        ["../a"],
        ["a/"],
        ["./a"],
        ["a//b"],
        [""],
    ],
)
def test_members_out_of_order_or_unsafe(paths: list[str]) -> None:
    with pytest.raises((ValueError, TraceflowError)):
        written([NewMember(path) for path in paths])


def test_the_order_is_that_of_bytes() -> None:
    data, _ = written([NewMember(path) for path in ["B", "a-b", "a/b", "aB", "ab", "é", "日", "\U0001f600"]])
    assert scan(io.BytesIO(data)).files == 8


@pytest.mark.parametrize("content", [[b"12"], [b"1234"], [b"1", b"2", b"34"], []])
def test_content_of_another_size_is_refused_and_leaves_nothing(content: list[bytes], tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as refused:
        write_tar_gz([NewMember("j/a", 3, chunks=lambda: content)], tmp_path / "a.tar.gz")
    assert refused.value.code == "io_error"
    assert "'j/a' was to have 3 bytes" in refused.value.message
    assert list(tmp_path.iterdir()) == []


def interrupted() -> Iterator[bytes]:
    yield bytes(5 << 20)
    raise KeyboardInterrupt


def test_an_interrupt_leaves_the_old_archive(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    archive.write_bytes(b"the old one")
    with pytest.raises(KeyboardInterrupt):
        write_tar_gz([NewMember("j/a", 9 << 20, chunks=interrupted)], archive)
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar.gz"]
    assert archive.read_bytes() == b"the old one"


def test_an_unreadable_source_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(__file__)
    for name in ("absent", "link"):
        with pytest.raises(TraceflowError, match="reading 'j/a' failed") as refused:
            write_tar_gz([NewMember("j/a", 3, chunks=file_chunks(tmp_path / name))], tmp_path / "a.tar.gz")
        assert refused.value.code == "io_error"
    assert [p.name for p in tmp_path.iterdir()] == ["link"]


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as refused:
        write_tar_gz([], tmp_path)
    assert refused.value.code == "invalid_input"
    with pytest.raises(TraceflowError) as refused:
        write_tar_gz([], tmp_path / "no" / "folder.tar.gz")
    assert refused.value.code == "io_error"


def test_a_full_disk_is_an_error() -> None:
    with pytest.raises(TraceflowError) as refused:
        write_tar_gz(of_bytes({"a": os.urandom(1 << 20)}), Path("/dev/full"))
    assert refused.value.code == "io_error"
    assert Path("/dev/full").is_char_device()


def test_an_archive_of_nothing() -> None:
    data, result = written([])
    assert (result.members, result.tar_bytes) == (0, 1024)
    assert scan(io.BytesIO(data)).files == 0


def test_a_pipe_is_enough(folder: Path) -> None:
    class Pipe(io.RawIOBase):
        data = b""

        def writable(self) -> bool:
            return True

        def write(self, piece: object) -> int:
            part = bytes(piece)[:50_000]  # type: ignore[call-overload]
            self.data += part
            return len(part)

    pipe = Pipe()
    write_tar_gz(of_folder(folder), pipe)  # type: ignore[arg-type]
    assert pipe.data == written(of_folder(folder))[0]


def test_progress_counts_the_tar(folder: Path) -> None:
    seen: list[int] = []
    result = write_tar_gz(of_folder(folder), io.BytesIO(), progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == result.tar_bytes
