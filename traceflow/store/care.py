"""The care of a store: what it holds, whether every object is as it was written, and what can go."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from traceflow_formats.errors import TraceflowError

from . import datasets
from .backend import PARTIAL
from .cache import CacheInfo
from .catalog import LATEST, Pointer
from .layout import CATALOG, DATASETS, JOBS, STORE_VERSION, dataset_manifest_name, job_folder, manifest_name
from .manifest import Manifest, StoredObject
from .seal import UNSEALED, seal_is_broken

_MEND = "`traceflow store compact` writes it anew"

if TYPE_CHECKING:
    from .store import Store

__all__ = ["GcReport", "Problem", "StoreInfo", "VerifyReport", "gc", "info", "verify"]


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store holds; `size` is bytes of the objects of jobs and datasets, `commit` how two writers are told
    apart, `cache` what is kept of stores elsewhere, where this is one."""

    url: str
    version: int
    jobs: int
    trials: int
    events: int
    files: int
    datasets: int
    size: int
    commit: str
    cache: CacheInfo | None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with an object of a job, or of a dataset: then `job_id` is its name@version."""

    job_id: str
    name: str
    message: str


@dataclass(slots=True)
class VerifyReport:
    """What a verification read, and what it found wrong."""

    jobs: int = 0
    datasets: int = 0
    objects: int = 0
    size: int = 0
    contents: int = 0
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class GcReport:
    """What was removed (or would be): folders and unfinished objects, and their bytes."""

    removed: list[str] = field(default_factory=list)
    size: int = 0


def info(store: Store) -> StoreInfo:
    """See `Store.info`."""
    jobs = store.jobs()
    trials, events, files = (sum(m.rows(t) for m in jobs) for t in ("trials", "events", "files"))
    known = store.datasets()
    size = sum(m.size for m in jobs) + sum(o.size for d in known for o in d.objects)
    backend = store.backend
    cache = backend.cache.info() if backend.cache is not None else None
    return StoreInfo(
        store.url, STORE_VERSION, len(jobs), trials, events, files, len(known), size, backend.commit, cache
    )


# -- verify ------------------------------------------------------------------------------------------------


def verify(store: Store, job: Manifest | None = None, contents: bool = False) -> VerifyReport:
    """See `Store.verify`."""
    report = VerifyReport()
    for job_id in [job.job_id] if job is not None else store.job_ids():
        report.jobs += 1
        try:
            manifest = store.manifest(job_id)
        except TraceflowError as error:
            report.problems.append(Problem(job_id, "manifest.json", error.message))
            continue
        if manifest is None:
            continue
        before = len(report.problems)
        _verify_seal(store, job_id, manifest_name(job_id), UNSEALED, report)
        _verify_objects(store, manifest, report)
        if contents and len(report.problems) == before:
            _verify_contents(store, manifest, report)
    if job is None:
        _verify_datasets(store, report, contents)
        _verify_catalog(store, report)
    return report


def _verify_seal(store: Store, owner: str, name: str, unsealed: Iterable[str], report: VerifyReport) -> None:
    """A manifest is what was written. One that was deleted or replaced meanwhile is read again."""
    (data,) = store.backend.read_many([name])
    if data is not None and seal_is_broken(data, unsealed):
        report.problems.append(Problem(owner, "manifest.json", "its digest is not the one that it states"))


def _verify_objects(store: Store, job: Manifest, report: VerifyReport) -> None:
    named = {job.path(o.name) for o in job.objects}
    for found in store.backend.objects(job.folder):
        if found.name.endswith(PARTIAL):  # of a writer that was killed: nobody reads it, and gc removes it
            continue
        if found.name not in named and not found.name.startswith(job.path("search/")):
            report.problems.append(Problem(job.job_id, found.name, "the manifest does not name it"))
    _compare(store, job.job_id, job.folder, job.objects, report)


def _verify_datasets(store: Store, report: VerifyReport, contents: bool) -> None:
    for name in datasets.names(store.backend):
        for version in datasets.versions(store.backend, name):
            before, label = len(report.problems), f"{name}@{version}"
            try:
                found = store.dataset(label)
                _verify_seal(store, label, dataset_manifest_name(name, version), datasets.UNSEALED, report)
                _compare(store, label, found.folder, found.objects, report)
                report.datasets += 1
                if contents and len(report.problems) == before:
                    report.contents += datasets.read_all(store.backend, found)
            except TraceflowError as error:
                report.problems.append(Problem(label, str(error.details.get("path", "manifest.json")), error.message))


def _verify_catalog(store: Store, report: VerifyReport) -> None:
    """The catalog is what was written, and says what the jobs say."""
    pointer = Pointer.read(store.backend)
    if pointer is None:
        if store.backend.exists(LATEST):
            report.problems.append(Problem(CATALOG, "latest.json", f"it cannot be read; {_MEND}"))
        return
    before = len(report.problems)
    _compare(store, CATALOG, CATALOG, (pointer.jobs, pointer.trials), report)
    if len(report.problems) == before:
        from .compact import differences

        report.problems += (Problem(CATALOG, name, f"{why}; {_MEND}") for name, why in differences(store.backend))


def _compare(store: Store, owner: str, folder: str, objects: Iterable[StoredObject], report: VerifyReport) -> None:
    for stored in objects:
        report.objects += 1
        try:
            size, digest = digest_of(store, f"{folder}/{stored.name}")
        except FileNotFoundError:
            report.problems.append(Problem(owner, stored.name, "it is missing"))
            continue
        report.size += size
        if size != stored.size:
            message = f"it has {size} bytes, the manifest says {stored.size}"
            report.problems.append(Problem(owner, stored.name, message))
        elif digest != stored.sha256:
            report.problems.append(Problem(owner, stored.name, "its digest is not the manifest's"))


def digest_of(store: Store, name: str) -> tuple[int, str]:
    """Bytes and sha256 of an object."""
    digest = hashlib.sha256()
    size = 0
    with store.backend.open_read(name) as stream:
        while data := stream.read(1 << 20):
            digest.update(data)
            size += len(data)
    return size, digest.hexdigest()


def _verify_contents(store: Store, job: Manifest, report: VerifyReport) -> None:
    reader = store.contents(job)
    for packed, path in {f.packed: f.path for f in store.files(job) if f.packed is not None}.items():
        report.contents += 1
        try:
            with reader.open(packed) as stream:
                while stream.read(1 << 20):
                    pass
        except TraceflowError as error:
            report.problems.append(Problem(job.job_id, path, error.message))


# -- gc ----------------------------------------------------------------------------------------------------


def gc(store: Store, minutes: float = 60, dry_run: bool = False) -> GcReport:
    """See `Store.gc`."""
    from .compact import old_objects

    sweep = _Sweep(store, minutes, dry_run)
    for name in store.backend.folders(JOBS):
        try:
            manifest = store.manifest(name)
            folder = job_folder(name)
        except TraceflowError:  # of a manifest that cannot be read nothing is removed
            continue
        for revision in store.backend.folders(folder):
            if manifest is not None and revision == manifest.revision:
                sweep.partial(manifest.folder)
            elif not _became(store, name, revision):
                sweep.folder(f"{folder}/{revision}")
        sweep.partial(folder, deep=False)
    for folder in datasets.unfinished(store.backend):
        sweep.folder(folder)
    sweep.partial(DATASETS)
    sweep.each(old_objects(store.backend))
    return sweep.report


class _Sweep:
    """Removes what is old enough, or says what it would remove."""

    def __init__(self, store: Store, minutes: float, dry_run: bool) -> None:
        self._backend, self._seconds, self._dry_run = store.backend, minutes * 60, dry_run
        self.report = GcReport()

    def folder(self, folder: str) -> None:
        """A whole folder that nobody writes to."""
        objects = list(self._backend.objects(folder))
        if any(o.age < self._seconds for o in objects):
            return
        self.report.removed.append(folder)
        self.report.size += sum(o.size for o in objects)
        if not self._dry_run:
            self._backend.delete_prefix(folder)

    def each(self, objects: Iterable[tuple[str, int, float]]) -> None:
        """Objects that nobody needs: name, bytes, age."""
        for name, size, age in objects:
            if age < self._seconds:
                continue
            self.report.removed.append(name)
            self.report.size += size
            if not self._dry_run:
                self._backend.delete(name)

    def partial(self, prefix: str, deep: bool = True) -> None:
        """Unfinished objects below a prefix, or directly below it."""
        for found in list(self._backend.objects(prefix)):
            if not found.name.endswith(PARTIAL) or found.age < self._seconds:
                continue
            if not deep and found.name.count("/") != prefix.count("/") + 1:
                continue
            if not found.name.startswith(tuple(f"{folder}/" for folder in self.report.removed)):
                self.each([(found.name, found.size, found.age)])


def _became(store: Store, job_id: str, revision: str) -> bool:
    """Whether a writer made this revision the job's while its folders were looked through."""
    manifest = store.manifest(job_id)
    return manifest is not None and manifest.revision == revision
