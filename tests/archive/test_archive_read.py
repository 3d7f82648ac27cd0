"""Archives of honest packers are read, whatever their dialect; what is odd about them is a warning."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from archive_bytes import END, Zipped, extended, file, gz, header, record, tree_of, zipped
from traceflow_formats.errors import TraceflowError

from traceflow.archive import Member, read_members, scan, unpack
from traceflow.limits import Limits

LONG = "a-folder-with-quite-a-long-name/" * 9
FILES = {
    "j/result.json": b"{}",
    "j/t1/agent/trajectory.json": b'{"steps": []}' * 900,
    "j/empty.txt": b"",
    f"j/{LONG}end.txt": b"deep",
    "j/" + "n" * 200: b"long",
    "j/á/日本.txt": "é".encode(),
    "j/run.sh": b"#!/bin/sh\n",
    "j/513": b"x" * 513,
    "j/512": b"x" * 512,
}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job folder with the names that make dialects differ."""
    root = tmp_path / "in"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / "j/run.sh").chmod(0o755)
    (root / "j/empty folder").mkdir()
    return root


def contents(root: Path) -> dict[str, tuple[str, int, bytes]]:
    return tree_of(root)


def check(archive: Path, job: Path, target: Path, kind: str) -> None:
    found = scan(archive)
    assert (found.format, found.files, found.root) == (kind, len(FILES), "j")
    assert found.unpacked_bytes == sum(map(len, FILES.values()))
    assert found.archive_bytes == archive.stat().st_size
    assert unpack(archive, target, found) == len(FILES)
    assert contents(target) == contents(job)


@pytest.mark.parametrize("dialect", ["gnu", "oldgnu", "pax", "posix"])
@pytest.mark.parametrize("blocking", ["1", "20"])
def test_gnu_tar(job: Path, tmp_path: Path, dialect: str, blocking: str) -> None:
    archive = tmp_path / "a.tar.gz"
    subprocess.run(["tar", f"--format={dialect}", "-b", blocking, "-czf", archive, "-C", job, "j"], check=True)
    check(archive, job, tmp_path / "out", "tar.gz")


@pytest.mark.parametrize("dialect", ["ustar", "v7"])
def test_gnu_tar_without_long_names(job: Path, tmp_path: Path, dialect: str) -> None:
    archive = tmp_path / "a.tar"
    subprocess.run(["tar", f"--format={dialect}", "-cf", archive, "-C", job, "./j/t1", "j/run.sh"], check=True)
    found = scan(archive)
    assert [m.name for m in found.members if not m.directory] == ["j/t1/agent/trajectory.json", "j/run.sh"]
    assert [m.executable for m in found.members if not m.directory] == [False, True]


@pytest.mark.parametrize("dialect", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_python_tarfile(job: Path, tmp_path: Path, dialect: int, mode: str) -> None:
    archive = tmp_path / "a.bin"
    with tarfile.open(archive, mode, format=dialect) as tar:  # type: ignore[call-overload]
        tar.add(job / "j", "j")
    check(archive, job, tmp_path / "out", "tar.gz" if mode.endswith("gz") else "tar")


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("checksum", [True, False])
def test_zstd(job: Path, tmp_path: Path, frames: int, checksum: bool) -> None:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        tar.add(job / "j", "j")
    data = plain.getvalue()
    step = len(data) // frames + 1
    skippable = b"\x50\x2a\x4d\x18\3\0\0\0abc"
    pieces = [
        skippable
        + zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=False).compress(data[i : i + step])
        for i in range(0, len(data), step)
    ]
    (tmp_path / "a.tar.zst").write_bytes(b"".join(pieces))
    check(tmp_path / "a.tar.zst", job, tmp_path / "out", "tar.zst")


def test_a_zstd_window_over_64_mib_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(file(b"j/a") + END) + stream.flush()
    with pytest.raises(TraceflowError, match="window of over 64 MiB"):
        scan(io.BytesIO(data))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_python_zipfile(job: Path, tmp_path: Path, method: int) -> None:
    archive = tmp_path / "a.zip"
    with zipfile.ZipFile(archive, "w", method) as out:
        for path in sorted((job / "j").rglob("*")):
            out.write(path, path.relative_to(job))
    check(archive, job, tmp_path / "out", "zip")


def test_zip_written_to_a_pipe_with_zip64_headers(job: Path, tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = bytearray()

        def writable(self) -> bool:
            return True

        def write(self, piece: object) -> int:
            self.data += bytes(piece)  # type: ignore[call-overload]
            return len(bytes(piece))  # type: ignore[call-overload]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as out:  # type: ignore[call-overload]
        for path in sorted((job / "j").rglob("*")):
            if path.is_dir():
                out.write(path, path.relative_to(job))
            else:
                info = zipfile.ZipInfo(path.relative_to(job).as_posix())
                info.external_attr = path.stat().st_mode << 16
                with out.open(info, "w", force_zip64=True) as member:
                    member.write(path.read_bytes())
    archive = tmp_path / "a.zip"
    archive.write_bytes(pipe.data)
    check(archive, job, tmp_path / "out", "zip")


def test_zip_with_a_zip64_end_record() -> None:
    data = zipped([Zipped(b"j/a"), Zipped(b"j/b", b"yy")])
    at = data.rfind(b"PK\5\6")
    start, length = int.from_bytes(data[at + 16 : at + 20], "little"), int.from_bytes(data[at + 12 : at + 16], "little")
    record64 = b"PK\6\6" + (44).to_bytes(8, "little") + bytes(12) + (2).to_bytes(8, "little") * 2
    record64 += length.to_bytes(8, "little") + start.to_bytes(8, "little")
    locator = b"PK\6\7" + bytes(4) + at.to_bytes(8, "little") + (1).to_bytes(4, "little")
    end = b"PK\5\6" + bytes(4) + b"\xff" * 12 + bytes(2)
    found = scan(io.BytesIO(data[:at] + record64 + locator + end))
    assert [(m.name, m.size) for m in found.members] == [("j/a", 1), ("j/b", 2)]


def test_a_zip_comment_and_members_in_another_order() -> None:
    later = zipped([Zipped(b"j/first"), Zipped(b"j/second")])
    at = later.rfind(b"PK\5\6")
    start = int.from_bytes(later[at + 16 : at + 20], "little")
    one, two = later[start : start + 46 + 7], later[start + 46 + 7 : at]
    comment = b"made by hand, PK\5\6 and all"
    swapped = later[:start] + two + one + later[at : at + 20] + len(comment).to_bytes(2, "little") + comment
    found = scan(io.BytesIO(swapped))
    assert [m.name for m in found.members] == ["j/second", "j/first"]
    assert [b"".join(c) for _, c in read_members(io.BytesIO(swapped), found)] == [b"x", b"x"]


def test_zip_names_that_are_utf8_without_saying_so() -> None:
    found = scan(io.BytesIO(zipped([Zipped("j/é".encode(), flags=0)])))
    assert [m.name for m in found.members] == ["j/é"]
    assert [w["code"] for w in found.warnings] == ["unmarked_utf8"]


def test_gzip_members_and_zero_padding(tmp_path: Path) -> None:
    data = gz(file(b"j/a", b"1" * 700)) + gz(b"") + gz(file(b"j/b")) + gz(END) + bytes(700)
    found = scan(io.BytesIO(data))
    assert (found.files, found.warnings) == (2, [])


SMALL = file(b"j/a", b"abc")
TOLERATED = {
    "two_archives": (gz(SMALL + END) * 2, ["j/a"], ["trailing_data"]),
    "two_plain_archives": ((SMALL + END) * 2, ["j/a"], ["trailing_data"]),
    "text_behind_gzip": (gz(SMALL + END) + b"\n-- \nsent by mail", ["j/a"], ["trailing_data"]),
    "one_zero_block": (SMALL + bytes(512), ["j/a"], []),
    "padded": (SMALL + bytes(10240), ["j/a"], []),
    "no_end_mark": (gz(SMALL), ["j/a"], ["no_end_mark"]),
    "dot_names": (gz(header(b"./", kind=b"5") + file(b"./j/./a") + END), ["j/a"], []),
    "folder_twice": (gz(header(b"j/", kind=b"5") * 2 + SMALL + END), ["j", "j", "j/a"], []),
    "old_folder": (gz(header(b"j/", kind=b"\0", magic=b"") + SMALL + END), ["j", "j/a"], []),
    "contiguous_file": (gz(file(b"j/a", kind=b"7") + END), ["j/a"], []),
    "signed_checksum": (gz(file("j/é".encode(), signed=True) + END), ["j/é"], []),
    "blank_mode": (gz(file(b"j/a", mode=b"       \0") + END), ["j/a"], []),
    "volume_label": (gz(header(b"backup", kind=b"V") + SMALL + END), ["j/a"], []),
    "global_comment": (gz(extended(record("comment", "1234"), b"g") + SMALL + END), ["j/a"], []),
    "pax_size": (gz(extended(record("size", "3")) + header(b"j/a", 0) + b"abc".ljust(512, b"\0") + END), ["j/a"], []),
    "backslash": (gz(file(b"j/C:\\tmp\\x") + END), ["j/C:\\tmp\\x"], ["backslash_in_name"]),
    "newline": (gz(file(b"j/a\nb") + END), ["j/a\nb"], ["control_character_in_name"]),
    "case_twin": (gz(file(b"j/A") + file(b"j/a") + END), ["j/A", "j/a"], ["name_twin"]),
    "unicode_twin": (gz(file("j/e\u0301".encode()) + file("j/é".encode()) + END), ["j/e\u0301", "j/é"], ["name_twin"]),
    "set_group_id": (gz(file(b"j/a", mode=b"0002755\0") + END), ["j/a"], ["mode_dropped"]),
    "windows_name": (gz(file(b"j/con.txt") + END), ["j/con.txt"], []),
    "three_dots": (gz(file(b"j/.../...") + END), ["j/.../..."], []),
}


@pytest.mark.parametrize("name", TOLERATED)
def test_odd_but_read(name: str) -> None:
    data, names, codes = TOLERATED[name]
    found = scan(io.BytesIO(data))
    assert [m.name for m in found.members] == names
    assert [w["code"] for w in found.warnings] == codes


def test_a_warning_counts_and_names_its_first_member() -> None:
    found = scan(io.BytesIO(gz(file(b"j/x\\1") + file(b"j/x\\2") + END)))
    (warning,) = found.warnings
    assert (warning["code"], warning["count"], warning["path"]) == ("backslash_in_name", 2, "j/x\\1")


@pytest.mark.parametrize(
    ("names", "root", "codes"),
    [
        ([b"j/a", b"j/b/c"], "j", []),
        ([b"j/a", b"k/a"], None, []),
        ([b"j/a", b"readme"], None, []),
        ([b"config.json"], None, []),
        ([b"./j/a"], "j", []),
        ([b"j/a", b"__MACOSX/j/._a", b".DS_Store"], "j", ["outside_root"]),
        ([b"./._j", b"j/a", b"j/._a"], "j", ["outside_root"]),
        ([b"a.json", b"__MACOSX/._a.json"], None, []),
    ],
)
def test_the_one_top_folder(names: list[bytes], root: str | None, codes: list[str]) -> None:
    found = scan(io.BytesIO(gz(b"".join(map(file, names)) + END)))
    assert found.root == root
    assert [w["code"] for w in found.warnings] == codes


def test_a_file_over_the_bound_is_listed_and_not_written(tmp_path: Path) -> None:
    limits = Limits(file_bytes=10)
    data = io.BytesIO(gz(file(b"j/big", b"x" * 11) + file(b"j/fits", b"x" * 10) + END))
    found = scan(data, limits)
    assert [m for m in found.members if m.size > limits.file_bytes] == [Member("j/big", 11)]
    assert unpack(data, tmp_path / "out", found, limits) == 1
    assert list(tree_of(tmp_path / "out")) == ["j", "j/fits"]


def test_only_some_members(tmp_path: Path) -> None:
    data = io.BytesIO(gz(file(b"j/t1/a") + file(b"j/t2/a") + END))
    unpack(data, tmp_path / "out", scan(data), only=lambda member: "/t2/" in member.name)
    assert list(tree_of(tmp_path / "out")) == ["j", "j/t2", "j/t2/a"]


def test_members_can_be_read_without_unpacking(tmp_path: Path) -> None:
    data = io.BytesIO(gz(file(b"j/a", b"one") + file(b"j/skipped", b"x" * 2000) + file(b"j/b", b"two" * 999) + END))
    got = {m.name: b"".join(c) for m, c in read_members(data, scan(data)) if m.name != "j/skipped"}
    assert got == {"j/a": b"one", "j/b": b"two" * 999}


def test_content_cannot_be_read_once_the_next_member_came() -> None:
    data = io.BytesIO(gz(file(b"j/a", b"one") + file(b"j/b", b"two") + END))
    members = read_members(data, scan(data))
    _, stale = next(members)
    next(stale)
    members = read_members(data, scan(data))
    _, stale = next(members)
    next(members)
    with pytest.raises(ValueError, match="gone on"):
        next(stale)


def test_modes_do_not_depend_on_the_umask(job: Path, tmp_path: Path) -> None:
    subprocess.run(["tar", "-cf", tmp_path / "a.tar", "-C", job, "j"], check=True)
    script = (
        "import os, sys; from pathlib import Path; from traceflow.archive import scan, unpack; os.umask(0o277);"
        "unpack(sys.argv[1], Path(sys.argv[2]), scan(sys.argv[1]))"
    )
    subprocess.run([sys.executable, "-c", script, tmp_path / "a.tar", tmp_path / "out"], check=True)
    assert contents(tmp_path / "out") == contents(job)
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0


def test_an_empty_folder_may_be_the_target(tmp_path: Path) -> None:
    data = io.BytesIO(SMALL + END)
    (tmp_path / "out").mkdir()
    assert unpack(data, tmp_path / "out", scan(data)) == 1
    (tmp_path / "next").mkdir()
    broken = io.BytesIO(zipped([Zipped(b"j/a"), Zipped(b"j/b", stated_crc=1)]))
    with pytest.raises(TraceflowError):
        unpack(broken, tmp_path / "next", scan(broken))
    assert tree_of(tmp_path / "next") == {}


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    data = io.BytesIO(gz(file(b"j/a") + file(b"j/b") + END))

    def interrupt(member: Member) -> bool:
        if member.name == "j/b":
            raise KeyboardInterrupt
        return True

    with pytest.raises(KeyboardInterrupt):
        unpack(data, tmp_path / "out", scan(data), only=interrupt)
    assert list(tmp_path.iterdir()) == []


def test_progress_ends_at_the_archive_size(tmp_path: Path) -> None:
    for name, data in (("a.tgz", gz(SMALL + END)), ("a.zip", zipped([Zipped(b"j/a")])), ("a.tar", SMALL + END)):
        seen: list[tuple[int, int]] = []
        (tmp_path / name).write_bytes(data)
        scan(tmp_path / name, progress=lambda *step, seen=seen: seen.append(step))
        assert {total for _, total in seen} == {len(data)}
        assert max(done for done, _ in seen) <= len(data)


def test_what_is_not_there() -> None:
    for path in ("/no/such/file", __file__ + "/x"):
        with pytest.raises(TraceflowError) as refused:
            scan(path)
        assert refused.value.code == "not_found"


def test_an_archive_over_the_bound_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100))
    with pytest.raises(TraceflowError) as refused:
        scan(tmp_path / "a", Limits(archive_bytes=99))
    assert (refused.value.code, refused.value.details["limit"]) == ("upload_too_large", "archive_bytes")


def test_the_member_list_is_the_same_each_time() -> None:
    data = io.BytesIO(gzip.compress(b"".join(header(b"j/%d" % i) for i in range(5000)) + END))
    found = scan(data)
    assert len(found.members) == 5000
    assert [m.name for m in found.members] == [m.name for m in found.members] == [f"j/{i}" for i in range(5000)]
