"""Bombs cost little memory and little time, whatever they claim."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import zstandard
from archive_bytes import END, Zipped, base256, extended, file, header, record, zipped

MEGABYTE = bytes(1 << 20)
SCRIPT = """
import json, re, sys, time
from pathlib import Path
from traceflow.archive import scan, unpack
from traceflow.limits import load_limits
from traceflow_formats.errors import TraceflowError
def peak():  # not ru_maxrss: that one starts from the peak of the process that started this one
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) // 1024
before = peak()
started = time.process_time()
code = None
try:
    limits = load_limits(json.loads(sys.argv[2]))
    unpack(sys.argv[1], Path(sys.argv[3]), scan(sys.argv[1], limits), limits)
except TraceflowError as error:
    code = error.code
seconds = time.process_time() - started
print(json.dumps({"code": code, "peak_mib": peak(), "grown_mib": peak() - before, "seconds": seconds}))
"""


def gzipped(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("wb") as out, gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0, filename="") as packed:
        for piece in pieces:
            packed.write(piece)


def one_huge_file(path: Path) -> None:
    gzipped(path, [header(b"j/x", 300 << 20), *[MEGABYTE] * 300, END])


def zeros_behind_the_end(path: Path) -> None:
    gzipped(path, [header(b"j/x"), END, *[MEGABYTE] * 300])


def many_members(path: Path) -> None:
    gzipped(path, (header(b"j/%d" % i) for i in range(40_000)))


def many_pax_headers(path: Path) -> None:
    big = extended(record("comment", "x" * 900_000))
    gzipped(path, (piece for i in range(200) for piece in (big, header(b"j/%d" % i))))


def tebibyte(path: Path) -> None:
    gzipped(path, [header(b"j/x", base256(1 << 40)), b"{}"])


def zstd_zeros(path: Path) -> None:
    with path.open("wb") as out, zstandard.ZstdCompressor().stream_writer(out) as packed:
        packed.write(header(b"j/x", 400 << 20))
        for _ in range(400):
            packed.write(MEGABYTE)


def zip_zeros(path: Path) -> None:
    path.write_bytes(zipped([Zipped(b"j/x", bytes(200 << 20))]))


def zip_that_lies(path: Path) -> None:
    path.write_bytes(zipped([Zipped(b"j/x", bytes(200 << 20), stated_size=10)]))


def tiny_gzip_members(path: Path) -> None:
    path.write_bytes(gzip.compress(header(b"j/x") + END) + gzip.compress(b"", mtime=0) * 100_000)


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (one_huge_file, "upload_too_large"),
        (zeros_behind_the_end, "upload_too_large"),
        (many_members, "upload_too_large"),
        (many_pax_headers, "upload_too_large"),
        (tebibyte, "upload_too_large"),
        (zstd_zeros, "upload_too_large"),
        (zip_zeros, "upload_too_large"),
        (zip_that_lies, "invalid_archive"),
        (tiny_gzip_members, None),
    ],
)
def test_a_bomb_is_refused_in_bounded_memory(make: Callable[[Path], None], code: str | None, tmp_path: Path) -> None:
    archive = tmp_path / "bomb"
    make(archive)
    limits = json.dumps({"unpacked_bytes": "32MiB", "members": 20_000, "ratio_free_bytes": "100MiB"})
    command = [sys.executable, "-c", SCRIPT, str(archive), limits, str(tmp_path / "out")]
    result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert result["code"] == code
    assert result["peak_mib"] < 100
    assert result["seconds"] < 10
    assert (tmp_path / "out").exists() == (code is None)


def test_a_large_archive_is_unpacked_in_bounded_memory(tmp_path: Path) -> None:
    archive = tmp_path / "large.tar.gz"
    gzipped(archive, [file(b"j/result.json", b"{}"), header(b"j/x", 150 << 20), *[MEGABYTE] * 150, END])
    command = [sys.executable, "-c", SCRIPT, str(archive), "{}", str(tmp_path / "out")]
    result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert result["code"] is None
    assert result["grown_mib"] < 30
    assert (tmp_path / "out/j/x").stat().st_size == 150 << 20


def test_the_member_list_of_a_large_archive_is_small(tmp_path: Path) -> None:
    archive = tmp_path / "many.tar.gz"
    names = (b"j/task-%d__abcdefg/agent/sessions/projects/session-%d.jsonl" % (i // 30, i) for i in range(100_000))
    gzipped(archive, [*(header(name) for name in names), END])
    script = SCRIPT.replace(
        "unpack(sys.argv[1], Path(sys.argv[3]), scan(sys.argv[1], limits), limits)", "scan(sys.argv[1])"
    )
    command = [sys.executable, "-c", script, str(archive), "{}", ""]
    result = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert result["code"] is None
    assert result["grown_mib"] < 20
