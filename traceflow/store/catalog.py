"""The catalog: the manifests and trials of many jobs in two objects, so that a store of 10,000 jobs opens quickly.

    catalog/latest.json              which objects are the catalog: names, bytes, digests
    catalog/jobs-<digest>.zst        lines of JSON: a job's stamp and its manifest, by job id
    catalog/trials-<digest>.parquet  the rows of their trials.parquet, one job after the other in the same order
    catalog/gone/<job>.<revision>    a revision that may no longer stand; on object stores alone

It is a cache and never more. What jobs there are is what the store lists now, and an entry counts only when it is still
true: on a local disk by the time and size of the job's manifest, elsewhere unless its revision is among those that a
writer has marked, before it replaced or deleted the job, as gone. Every other job is read from its own objects. So a
catalog that is old, damaged or deleted costs time and changes no answer. Two that make one at the same time each write
objects named by their digests; whichever `latest.json` stands, it names a whole catalog.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import zstandard
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .layout import CATALOG, JOBS, LATEST, SCHEMA_VERSION, manifest_name
from .manifest import Manifest, StoredObject
from .seal import seal_is_broken, sealed

__all__ = ["GONE", "LATEST", "Entry", "Listing", "Pointer", "is_due", "mark_gone", "read_entries", "take_stock"]

FORMAT = "traceflow-catalog"
VERSION = 1
GONE = f"{CATALOG}/gone"
_APART = 100  # jobs that are read one by one before a catalog is made
_MAX_BYTES = 8 << 30  # of the manifests of all jobs, unpacked


@dataclass(frozen=True, slots=True)
class Pointer:
    """`latest.json`: the two objects of a catalog."""

    jobs: StoredObject
    trials: StoredObject

    def to_bytes(self) -> bytes:
        return sealed(
            {
                "format": FORMAT,
                "version": VERSION,
                "schema_version": SCHEMA_VERSION,
                "jobs": self.jobs.as_dict(),
                "trials": self.trials.as_dict(),
            }
        )

    @classmethod
    def read(cls, backend: Backend) -> Pointer | None:
        """The catalog that stands; None where there is none, or one of another version."""
        try:
            data = backend.read_bytes(LATEST)
            value = jsontext.loads(data)
            if seal_is_broken(data, ()):
                return None
            found = value["format"], value["version"], value["schema_version"]
            if found != (FORMAT, VERSION, SCHEMA_VERSION):
                return None
            return cls(*(_stored(value[name]) for name in ("jobs", "trials")))
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None


def _stored(value: Any) -> StoredObject:
    name = str(value["name"])
    if "/" in name:
        raise ValueError("it names an object elsewhere")
    return StoredObject(name, int(value["size"]), str(value["sha256"]), int(value["rows"]))


@dataclass(frozen=True, slots=True)
class Entry:
    """A job in the catalog: the stamp of its manifest when it was read, and where its trials begin."""

    stamp: str
    manifest: Manifest
    first: int


@dataclass(frozen=True, slots=True)
class Listing:
    """The jobs that are in a store: manifests by id, and which of them the catalog knows.

    `entries` are all that the catalog has, `known` those that count.
    """

    jobs: dict[str, Manifest]
    stamps: Mapping[str, str]
    pointer: Pointer | None
    entries: Mapping[str, Entry]
    known: Mapping[str, Entry]

    @property
    def trials_name(self) -> str:
        """The object with the trials of all jobs of the catalog."""
        return f"{CATALOG}/{self.pointer.trials.name}" if self.pointer is not None else ""

    def has_trials(self, backend: Backend) -> bool:
        """Whether that object is there, and whole."""
        try:
            return self.pointer is not None and backend.size(self.trials_name) == self.pointer.trials.size
        except FileNotFoundError:
            return False

    @property
    def stale(self) -> list[str]:
        """Jobs of which the catalog has trials that do not count."""
        return [job_id for job_id in self.entries if job_id not in self.known]

    def apart(self) -> list[Manifest]:
        """The jobs that are read from their own objects."""
        return [job for job_id, job in self.jobs.items() if job_id not in self.known]


def read_entries(backend: Backend, pointer: Pointer) -> dict[str, Entry]:
    """The entries of a catalog; none when it is damaged."""
    name = f"{CATALOG}/{pointer.jobs.name}"
    try:
        data = backend.read_range(name, 0, pointer.jobs.size)
        if hashlib.sha256(data).hexdigest() != pointer.jobs.sha256:  # a copy on this machine may be damaged
            (data,) = backend.read_ranges([(name, 0, pointer.jobs.size)])
            if hashlib.sha256(data).hexdigest() != pointer.jobs.sha256:
                return {}
        if not 0 <= zstandard.frame_content_size(data) <= _MAX_BYTES:
            return {}
        lines = zstandard.ZstdDecompressor().decompress(data).splitlines()
        found: dict[str, Entry] = {}
        first = 0
        for line in lines:
            stamp, value = jsontext.loads(line)
            manifest = Manifest.from_value(value, value["job_id"])
            found[manifest.job_id] = Entry(stamp, manifest, first)
            first += manifest.rows("trials")
    except (FileNotFoundError, zstandard.ZstdError, ValueError, KeyError, TypeError, TraceflowError):
        return {}
    return found if first == pointer.trials.rows else {}


def take_stock(backend: Backend, before: Listing | None = None, *, lenient: bool = False) -> Listing:
    """The jobs that are in the store now. `before`, an earlier answer, spares reading the same catalog again.

    Raises TraceflowError for a manifest that cannot be read, unless `lenient`, which leaves its job out.
    """
    pointer = Pointer.read(backend)
    if pointer is None:
        entries: Mapping[str, Entry] = {}
    elif before is not None and before.pointer == pointer:
        entries = before.entries
    else:
        entries = read_entries(backend, pointer)
    gone = _gone(backend) if entries else frozenset()
    stamps = backend.stamps(JOBS, "manifest.json") if backend.stamped else dict.fromkeys(backend.folders(JOBS), "")
    known: dict[str, Entry] = {}
    for job_id, stamp in stamps.items():
        entry = entries.get(job_id)
        if entry is not None and entry.stamp == stamp and (job_id, entry.manifest.revision) not in gone:
            known[job_id] = entry
    others = dict(_read(backend, [job_id for job_id in stamps if job_id not in known], lenient))
    jobs = {
        job_id: known[job_id].manifest if job_id in known else others[job_id]
        for job_id in stamps
        if job_id in known or job_id in others
    }
    return Listing(jobs, stamps, pointer if known else None, entries, known)


def _read(backend: Backend, ids: list[str], lenient: bool) -> Iterator[tuple[str, Manifest]]:
    """The manifests of jobs that the catalog does not know. A folder without one is no job."""
    names = {}
    for job_id in ids:
        try:
            names[job_id] = manifest_name(job_id)
        except TraceflowError:  # a folder that is no job's
            continue
    for job_id, data in zip(names, backend.read_many(names.values()), strict=True):
        if data is None:
            continue
        try:
            yield job_id, Manifest.from_bytes(data, job_id)
        except TraceflowError:
            if not lenient:
                raise


def is_due(backend: Backend) -> bool:
    """Whether so many jobs are not in the catalog that making one is worth it: a hundred, and a fiftieth of all."""
    jobs = len(backend.stamps(JOBS, "manifest.json") if backend.stamped else backend.folders(JOBS))
    if jobs <= _APART:
        return False
    pointer = Pointer.read(backend)
    known = (pointer.jobs.rows or 0) if pointer is not None else 0
    return jobs - known > _APART + jobs // 50


# -- what is gone ------------------------------------------------------------------------------------------


def mark_gone(backend: Backend, job: Manifest) -> None:
    """Say that a revision may no longer stand, before it is replaced or deleted. Where the store's own listing tells
    nothing is written."""
    if backend.stamped:
        return
    with backend.create(f"{GONE}/{job.job_id}.{job.revision}") as stream:
        stream.write(b"\n")


def _gone(backend: Backend) -> frozenset[tuple[str, str]]:
    """Job and revision of all that is marked."""
    if backend.stamped:
        return frozenset()
    names = (found.name.rpartition("/")[2].rpartition(".") for found in backend.objects(GONE))
    return frozenset((job_id, revision) for job_id, _, revision in names)


def marks(backend: Backend) -> Iterable[tuple[str, str, str, float]]:
    """Job, revision, object and age of every mark."""
    for found in list(backend.objects(GONE)):
        job_id, _, revision = found.name.rpartition("/")[2].rpartition(".")
        yield job_id, revision, found.name, found.age
