"""Names inside a store. Nothing else joins paths, so nothing that is read from a job can lead out of the store."""

from __future__ import annotations

import re
import uuid

from traceflow_formats.errors import TraceflowError

__all__ = [
    "JOBS",
    "SCHEMA_VERSION",
    "STORE",
    "STORE_VERSION",
    "TABLE_NAMES",
    "check_job_id",
    "job_folder",
    "manifest_name",
    "new_revision",
    "pack_name",
    "revision_folder",
]

STORE = "store.json"
STORE_VERSION = 1
SCHEMA_VERSION = 1  # of the tables, see schema.py
TABLE_NAMES = ("trials", "events", "files")
JOBS = "jobs"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_job_id(job_id: str) -> str:
    """The id itself, when it can name a folder: a UUID, or letters, digits, dots, dashes and underscores.

    Raises TraceflowError invalid_job for anything else.
    """
    if not isinstance(job_id, str) or not _NAME.fullmatch(job_id):
        raise TraceflowError(
            "invalid_job",
            f"the job id {str(job_id)[:80]!r} is no UUID and no plain name "
            "(letters, digits, '.', '_' and '-', at most 128 characters)",
        )
    return job_id


def job_folder(job_id: str) -> str:
    """`jobs/<job_id>`"""
    return f"{JOBS}/{check_job_id(job_id)}"


def manifest_name(job_id: str) -> str:
    """`jobs/<job_id>/manifest.json`: when it is there, the job is."""
    return f"{job_folder(job_id)}/manifest.json"


def revision_folder(job_id: str, revision: str) -> str:
    """`jobs/<job_id>/<revision>`: one attempt to write the job."""
    if not _NAME.fullmatch(revision):
        raise TraceflowError("store_corrupt", f"the manifest of job {job_id} names the revision {revision[:80]!r}")
    return f"{job_folder(job_id)}/{revision}"


def new_revision() -> str:
    """A name for a new attempt. It is random, and no output of ours holds it, so that two importers never meet."""
    return "r" + uuid.uuid4().hex[:16]


def pack_name(number: int) -> str:
    """`pack-0000.bin`, ..."""
    return f"pack-{number:04d}.bin"
