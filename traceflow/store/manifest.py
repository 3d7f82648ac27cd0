"""The manifest of a job: the one object whose presence makes the job exist, and that names all its others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .layout import SCHEMA_VERSION, STORE_VERSION, TABLE_NAMES, check_job_id, revision_folder

__all__ = ["FORMAT", "UNSEALED", "Manifest", "StoredObject", "seal_is_broken", "sealed"]

FORMAT = "traceflow-job"
UNSEALED = (  # members of a manifest that is older than seals
    *("format", "store_version", "schema_version", "parsers", "job_id", "revision", "previous", "objects"),
    *("counts", "job", "report"),
)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object of the job: its name below the revision's folder, its bytes and their digest."""

    name: str
    size: int
    sha256: str
    rows: int | None = None  # of a table

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"name": self.name, "size": self.size, "sha256": self.sha256}
        if self.rows is not None:
            out["rows"] = self.rows
        return out


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a job is made of. `job` is its record as the importer keeps it, `report` what the import said.

    The keys of `job` that the `jobs` view shows are in docs/store.md; others are kept.
    """

    job_id: str
    revision: str
    objects: tuple[StoredObject, ...]
    counts: Mapping[str, int] = field(default_factory=dict)  # trials by status
    job: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    parsers: Mapping[str, str] = field(default_factory=dict)
    store_version: int = STORE_VERSION
    schema_version: int = SCHEMA_VERSION
    previous: tuple[str, ...] = ()  # revisions that this one took the place of; gc removes them

    @property
    def folder(self) -> str:
        """The folder of its objects, from the store's root."""
        return revision_folder(self.job_id, self.revision)

    def path(self, name: str) -> str:
        """The name from the store's root of one of its objects, `trials.parquet` for instance."""
        return f"{self.folder}/{name}"

    def object(self, name: str) -> StoredObject | None:
        return next((o for o in self.objects if o.name == name), None)

    def rows(self, table: str) -> int:
        """How many trials, events or files the job has."""
        found = self.object(f"{table}.parquet")
        return (found.rows or 0) if found else 0

    @property
    def size(self) -> int:
        """Bytes of all objects."""
        return sum(o.size for o in self.objects)

    def to_bytes(self) -> bytes:
        return sealed(self.as_value())

    def as_value(self) -> dict[str, Any]:
        """The manifest as JSON has it; `from_value` reads it."""
        previous = {"previous": list(self.previous)} if self.previous else {}
        return {
            "format": FORMAT,
            "store_version": self.store_version,
            "schema_version": self.schema_version,
            "parsers": dict(self.parsers),
            "job_id": self.job_id,
            "revision": self.revision,
            **previous,
            "objects": [o.as_dict() for o in self.objects],
            "counts": dict(sorted(self.counts.items())),
            "job": dict(self.job),
            "report": dict(self.report),
        }

    @classmethod
    def from_bytes(cls, data: bytes, job_id: str) -> Manifest:
        """Read a manifest; raises TraceflowError store_corrupt, or store_version for one of a later version."""
        try:
            value = jsontext.loads(data)
        except ValueError as error:
            raise _unreadable(job_id, error) from None
        return cls.from_value(value, job_id)

    @classmethod
    def from_value(cls, value: Any, job_id: str) -> Manifest:
        """The same of what was parsed already."""
        try:
            if value["format"] != FORMAT or value["job_id"] != job_id:
                raise ValueError("it is not the manifest of this job")
            for what, ours in (("store_version", STORE_VERSION), ("schema_version", SCHEMA_VERSION)):
                if not isinstance(value[what], int) or value[what] < 1:
                    raise ValueError(f"{what} is {value[what]!r}")
                if value[what] > ours:
                    raise TraceflowError(
                        "store_version",
                        f"job {job_id} was written with {what.replace('_', ' ')} {value[what]}, this program reads "
                        f"up to {ours}: use a newer traceflow",
                        job_id=job_id,
                    )
            manifest = cls(
                job_id=check_job_id(job_id),
                revision=value["revision"],
                objects=tuple(
                    StoredObject(_object_name(o["name"]), int(o["size"]), str(o["sha256"]), o.get("rows"))
                    for o in value["objects"]
                ),
                counts={str(name): int(count) for name, count in value["counts"].items()},
                job=dict(value["job"]),
                report=dict(value["report"]),
                parsers=dict(value["parsers"]),
                store_version=value["store_version"],
                schema_version=value["schema_version"],
                previous=tuple(value.get("previous", ())),
            )
            for revision in (manifest.revision, *manifest.previous):
                revision_folder(job_id, revision)  # refuses one that leads elsewhere
            for table in TABLE_NAMES:
                if manifest.object(f"{table}.parquet") is None:
                    raise ValueError(f"it names no {table}.parquet")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(job_id, error) from None
        return manifest


# -- seals -------------------------------------------------------------------------------------------------

_SEAL = b',\n  "sha256": "%s"\n}\n'


def sealed(value: Mapping[str, Any]) -> bytes:
    """A manifest as it is stored: the last member is the digest of all that stands before it."""
    body = jsontext.pretty(value).removesuffix(b"\n}\n")
    return body + _SEAL % hashlib.sha256(body).hexdigest().encode()


def seal_is_broken(data: bytes, unsealed: Iterable[str]) -> bool:
    """Whether a stored manifest is not what was written.

    Those of the first version have no seal. What has none and other members than theirs, `unsealed`, has lost it.
    """
    body, comma, _ = data.rpartition(_SEAL.partition(b"%s")[0])
    if comma:
        return data != body + _SEAL % hashlib.sha256(body).hexdigest().encode()
    try:
        return not jsontext.loads(data).keys() <= set(unsealed)
    except (ValueError, AttributeError):
        return True


def _unreadable(job_id: str, error: Exception) -> TraceflowError:
    return TraceflowError("store_corrupt", f"the manifest of job {job_id} cannot be read: {error}", job_id=job_id)


def _object_name(name: object) -> str:
    if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"it names the object {name!r}")
    return name
