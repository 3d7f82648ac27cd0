"""The jobs that exports are tested with, and how they come into a store."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

from traceflow.conversion import Conversion
from traceflow.importer import import_job
from traceflow.pack import PackOptions, pack_job
from traceflow.sources import open_any
from traceflow.store import Manifest, Store

FIXTURES = Path(__file__).parents[2] / "fixtures"
# more jobs than the fixtures: a folder of job folders
MORE = os.environ.get("TRACEFLOW_HARBOR_JOBS")
JOBS = sorted(
    path
    for path in [
        FIXTURES / "jobs" / "demo",
        *(FIXTURES / "harbor" / "jobs").iterdir(),
        *(Path(MORE).iterdir() if MORE else ()),
        FIXTURES / "cases" / "84-deterministic-archive-export" / "j",
        FIXTURES / "cases" / "62-harbor-reward-shapes" / "j",
    ]
    if path.is_dir()
)


RECORDINGS = sorted(path for path in (FIXTURES / "recordings").iterdir() if path.is_dir())


def packed(recording: Path, folder: Path) -> Path:
    """All runs of a recording as one job."""
    pack_job(open_any(recording), folder, PackOptions(), Conversion(), root=recording)
    return folder


def imported(source: Path, folder: Path) -> tuple[Store, Manifest]:
    """The job in a new store."""
    store = Store.open(str(folder), create=True)
    report = import_job(store, source, skip_invalid=True)
    return store, store.job(report.job_id)


def tree_of(root: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a folder: path -> permission bits and content."""
    return {
        path.relative_to(root).as_posix(): (stat.S_IMODE(path.stat().st_mode), path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def members_of(archive: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of an archive below its one top folder."""
    found = {}
    with tarfile.open(archive) as tar:
        for info in tar:
            stream = tar.extractfile(info)
            if stream is not None:
                found[info.name.partition("/")[2]] = (info.mode, stream.read())
    return found
