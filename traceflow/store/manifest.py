"""The manifest of a job: the one object whose presence makes the job exist, and that names all its others.

What a search needs stands at its beginning. The record of the job and the report of its import, most of the bytes, are
read when they are asked for.
"""

from __future__ import annotations

import json

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple

from .layout import SCHEMA_VERSION, STORE_VERSION, TABLE_NAMES, check_job_id, revision_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

__all__ = ["FORMAT", "Manifest", "StoredObject"]

FORMAT = "traceflow-job"
_RECORD = b',\n  "job": {'  # as `to_bytes` has it: no string of JSON holds a line feed, so it stands nowhere else
_NOTHING: Mapping[str, Any] = {}


class StoredObject(NamedTuple):
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


class Manifest:
    """What a job is made of; it is not changed. `job` is its record as the importer keeps it, `report` what the import
    said.

    The keys of `job` that the `jobs` view shows are in docs/store.md; others are kept.
    """

    __slots__ = (
        *("_job", "_report", "_unread", "counts", "job_id", "objects"),
        *("parsers", "previous", "revision", "schema_version", "store_version"),
    )

    def __init__(
        self,
        job_id: str,
        revision: str,
        objects: tuple[StoredObject, ...],
        counts: Mapping[str, int] = _NOTHING,  # trials by status
        job: Mapping[str, Any] = _NOTHING,
        report: Mapping[str, Any] = _NOTHING,
        parsers: Mapping[str, str] = _NOTHING,
        store_version: int = STORE_VERSION,
        schema_version: int = SCHEMA_VERSION,
        previous: tuple[str, ...] = (),  # revisions that this one took the place of; gc removes them
    ) -> None:
        self.job_id = job_id
        self.revision = revision
        self.objects = objects
        self.counts = counts
        self._job = job
        self._report = report
        self.parsers = parsers
        self.store_version = store_version
        self.schema_version = schema_version
        self.previous = previous
        self._unread: bytes | None = None

    def changed(self, *, schema_version: int, previous: tuple[str, ...] = ()) -> Self:
        """The same with these."""
        facts = (self.job_id, self.revision, self.objects, self.counts, self.job, self.report, self.parsers)
        return type(self)(*facts, self.store_version, schema_version, previous)

    @property
    def job(self) -> Mapping[str, Any]:
        """The record of the job."""
        self._read()
        return self._job

    @property
    def report(self) -> Mapping[str, Any]:
        """What the import said."""
        self._read()
        return self._report

    def _read(self) -> None:
        if self._unread is not None:
            try:
                value = json.loads(self._unread)
                self._job, self._report = dict(value["job"]), dict(value["report"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise _corrupt(self.job_id, error) from None
            self._unread = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Manifest) or hash(self) != hash(other):
            return False
        return self is other or self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash((self.job_id, self.revision))

    def __repr__(self) -> str:
        return f"<Manifest of {self.job_id}, revision {self.revision}>"

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
        from .seal import sealed

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
    def from_bytes(cls, data: bytes, job_id: str) -> Self:
        """Read a manifest; raises TraceflowError store_corrupt, or store_version for one of a later version."""
        record = data.find(_RECORD)
        later = record >= 0 and data.endswith(b"}\n")
        try:
            value = json.loads(data[:record] + b"\n}" if later else data)
            manifest = cls._from(value, job_id)
            manifest._unread = data
            if not later:
                manifest._read()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise _corrupt(job_id, error) from None
        return manifest

    @classmethod
    def from_value(cls, value: Any, job_id: str) -> Self:
        """The same of what was parsed already."""
        try:
            manifest = cls._from(value, job_id)
            manifest._job, manifest._report = dict(value["job"]), dict(value["report"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _corrupt(job_id, error) from None
        return manifest

    @classmethod
    def _from(cls, value: Any, job_id: str) -> Self:
        """All but the record of the job and the report."""
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
        return manifest


def _corrupt(job_id: str, error: Exception) -> TraceflowError:
    message = f"the manifest of job {job_id} cannot be read: {error}"
    return TraceflowError("store_corrupt", message, job_id=job_id)


def _object_name(name: object) -> str:
    if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"it names the object {name!r}")
    return name
