"""Names inside a store. Nothing else joins paths, so nothing that is read from a job can lead out of the store."""

from __future__ import annotations

import re

from traceflow_formats.errors import TraceflowError

__all__ = [
    "CATALOG",
    "DATASETS",
    "JOBS",
    "LATEST",
    "SCHEMA_VERSION",
    "STORE",
    "STORE_VERSION",
    "TABLE_NAMES",
    "check_dataset",
    "check_job_id",
    "dataset_folder",
    "dataset_manifest_name",
    "is_job_id",
    "job_folder",
    "manifest_name",
    "new_revision",
    "pack_name",
    "revision_folder",
    "staging_folder",
]

STORE = "store.json"
STORE_VERSION = 1
SCHEMA_VERSION = 1  # of the tables, see schema.py
TABLE_NAMES = ("trials", "events", "files")
JOBS = "jobs"
DATASETS = "datasets"
CATALOG = "catalog"
LATEST = f"{CATALOG}/latest.json"  # which objects the catalog is

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_DATASET = r"([A-Za-z0-9][A-Za-z0-9._-]{0,99}/)?[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_VERSION = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}"


def check_job_id(job_id: str) -> str:
    """The id itself, when it can name a folder: a UUID, or letters, digits, dots, dashes and underscores.

    Raises TraceflowError invalid_job for anything else.
    """
    if not isinstance(job_id, str) or not re.fullmatch(_NAME, job_id):
        raise TraceflowError(
            "invalid_job",
            f"the job id {str(job_id)[:80]!r} is no UUID and no plain name "
            "(letters, digits, '.', '_' and '-', at most 128 characters)",
        )
    return job_id


def is_job_id(name: str) -> bool:
    """Whether a folder of this name can be a job's."""
    return re.fullmatch(_NAME, name) is not None


def job_folder(job_id: str) -> str:
    """`jobs/<job_id>`"""
    return f"{JOBS}/{check_job_id(job_id)}"


def manifest_name(job_id: str) -> str:
    """`jobs/<job_id>/manifest.json`: when it is there, the job is."""
    return f"{job_folder(job_id)}/manifest.json"


def revision_folder(job_id: str, revision: str) -> str:
    """`jobs/<job_id>/<revision>`: one attempt to write the job."""
    if not re.fullmatch(_NAME, revision):
        raise TraceflowError("store_corrupt", f"the manifest of job {job_id} names the revision {revision[:80]!r}")
    return f"{job_folder(job_id)}/{revision}"


def check_dataset(name: str, version: str) -> None:
    """Raise TraceflowError invalid_input for what is no name or no version of a dataset."""
    if not re.fullmatch(_DATASET, name):
        raise TraceflowError(
            "invalid_input",
            f"{name[:80]!r} is no name of a dataset: letters, digits, '.', '_' and '-', after an org/ if you like",
        )
    if not re.fullmatch(_VERSION, version):
        raise TraceflowError(
            "invalid_input", f"{version[:80]!r} is no version of a dataset: letters, digits, '.', '_', '+' and '-'"
        )


def dataset_folder(name: str, version: str) -> str:
    """`datasets/<name>/<version>`; the slash of an `org/name` is written `%2F`, so that the levels stay the same."""
    check_dataset(name, version)
    return f"{DATASETS}/{name.replace('/', '%2F')}/{version}"


def dataset_manifest_name(name: str, version: str) -> str:
    """`datasets/<name>/<version>/manifest.json`: when it is there, the version is."""
    return f"{dataset_folder(name, version)}/manifest.json"


def staging_folder(name: str, version: str, revision: str) -> str:
    """`datasets/<name>/.<revision>`: where a version is made, before it has its place. No version begins with a dot."""
    if not re.fullmatch(_NAME, revision):
        raise TraceflowError("store_corrupt", f"the manifest of {name}@{version} names the revision {revision[:80]!r}")
    return f"{dataset_folder(name, version).rpartition('/')[0]}/.{revision}"


def new_revision() -> str:
    """A name for a new attempt. It is random, and no output of ours holds it, so that two importers never meet."""
    import uuid

    return "r" + uuid.uuid4().hex[:16]


def pack_name(number: int) -> str:
    """`pack-0000.bin`, ..."""
    return f"pack-{number:04d}.bin"
