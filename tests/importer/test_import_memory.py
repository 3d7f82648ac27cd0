"""Memory of an import: it does not grow with the trials, and an archive that means harm gets little of it.

TRACEFLOW_TEST_TRIALS is the number of trials of the larger job; benchmarks/README.md has figures of 10000.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from job_builder import tar_gz, write_job_folder, zip_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak of a process in /proc"),
]

MANY = int(os.environ.get("TRACEFLOW_TEST_TRIALS", "2000"))
FEW = 500
MEMBERS = 100_000
SCRIPT = """
import sys
from pathlib import Path
from traceflow.importer import import_job
from traceflow.limits import load_limits
from traceflow.store import Store
from traceflow_formats.errors import TraceflowError
try:
    print(import_job(Store.open(sys.argv[2], create=True), Path(sys.argv[1]), limits=load_limits()).trials)
except TraceflowError as error:
    print(error.code)
status = Path("/proc/self/status").read_text()  # ru_maxrss begins with the peak of the parent
print(int(status.split("VmHWM:")[1].split()[0]))
"""


def imported(source: Path, tmp_path: Path) -> tuple[str, int]:
    """The trials of an import or the code of its refusal, and the peak of its process in KiB."""
    command = [sys.executable, "-c", SCRIPT, str(source), str(tmp_path / f"store-{source.name}")]
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "TRACEFLOW_LIMIT_MEMBERS": str(MEMBERS)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    told, peak = done.stdout.split()
    return told, int(peak)


@pytest.mark.parametrize("pack", [lambda job, target: job, tar_gz, zip_of], ids=["folder", "tar.gz", "zip"])
def test_memory_grows_little_with_the_trials(pack: Callable[[Path, Path], Path], tmp_path: Path) -> None:
    """Before trials and files were kept packed each trial took 7 to 10 KiB. 3 are allowed, and 6 MiB for what all large
    jobs need alike: row groups that are gathered, a segment of the index."""
    peaks = []
    for count in (FEW, MANY):
        job = write_job_folder(tmp_path / f"run-{count}", count)
        told, peak = imported(pack(job, tmp_path / f"job-{count}"), tmp_path)
        assert told == str(count)
        peaks.append(peak)
    assert peaks[1] - peaks[0] < 6 * 1024 + 3 * (MANY - FEW), f"KiB: {peaks}"
    assert peaks[1] < 150 * 1024


def test_many_empty_folders_and_long_names_need_little(tmp_path: Path) -> None:
    """Both in one archive; its files and folders are listed, kept, and removed from where they were unpacked."""
    archive = tmp_path / "job.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for name in ("config.json", "result.json"):
            info = tarfile.TarInfo(name)
            info.size = 2
            tar.addfile(info, io.BytesIO(b"{}"))
        for number in range(5000):
            info = tarfile.TarInfo(f"{number:05d}")
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        for number in range(300):
            tar.addfile(tarfile.TarInfo("/".join(f"{number}{'n' * 200}" for _ in range(9))))
    told, peak = imported(archive, tmp_path)
    assert told == "0"
    assert peak < 150 * 1024


def test_too_many_members_are_refused_before_they_need_memory(tmp_path: Path) -> None:
    archive = tmp_path / "job.tar"
    with archive.open("wb") as out:
        for number in range(MEMBERS + 2):
            out.write(_header(f"{number:07d}"))
    told, peak = imported(archive, tmp_path)
    assert told == "upload_too_large"
    assert peak < 150 * 1024


PLAIN = tarfile.TarInfo("0000000").tobuf(tarfile.USTAR_FORMAT)


def _header(name: str) -> bytes:
    """The header of an empty file: the same with another name and its checksum set anew, since many are made."""
    data = name.encode() + PLAIN[7:148] + b" " * 8 + PLAIN[156:]
    return data[:148] + b"%06o\0 " % sum(data) + data[156:]
