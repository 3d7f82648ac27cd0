"""A store: jobs by id, their trials, traces and files, and the care of the whole.

Reading never locks and never writes. A job that was committed does not change, so what a manifest names can be
read for as long as the job is not deleted.
"""

from __future__ import annotations

import json

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING

from .layout import JOBS, LATEST, STORE, STORE_VERSION, is_job_id, manifest_name, revision_folder
from .manifest import Manifest
from .open import backend_for

if TYPE_CHECKING:  # a search that the index answers needs none of these, nor the Parquet engine that they need
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, BinaryIO, Self

    from traceflow_formats.trace import TraceLine

    from .backend import Backend
    from .care import GcReport, StoreInfo, VerifyReport
    from .catalog import Listing
    from .compact import Compacted
    from .dataset_writer import DatasetWriter
    from .datasets import Dataset, DatasetFile
    from .filetable import FileTable
    from .packs import Packed, PackReader
    from .reading import FileRow, Matches
    from .swap import JobRewriter
    from .tracereader import TraceReader
    from .writer import JobWriter

__all__ = ["Store"]

_FORMAT = "traceflow-store"
_PREFIX = 8  # characters of an id that are enough to name a job or trial


class Store:
    """An open store. `Store.open` makes one."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.url = backend.url
        self._listing: Listing | None = None  # the last that had a catalog: it need not be read again

    @classmethod
    def open(cls, url: str, create: bool = False) -> Self:
        """The store in a folder, or at a URL that fsspec knows. With `create` one is made where there is none.

        Raises TraceflowError store_not_found, store_version (a later format), store_corrupt, or invalid_input when
        a store should be made in a folder that holds other things.
        """
        backend = backend_for(url)
        store = cls(backend)
        try:
            data = backend.read_bytes(STORE)
        except (FileNotFoundError, NotADirectoryError):
            if not create:
                raise TraceflowError(
                    "store_not_found",
                    f"there is no store at {backend.url}; the first import makes one",
                    url=backend.url,
                ) from None
            store._create()
            data = backend.read_bytes(STORE)
        except OSError as error:
            raise TraceflowError("io_error", f"the store at {backend.url} cannot be read: {error}") from error
        store._check(data)
        return store

    def _create(self) -> None:
        from traceflow_formats import jsontext

        data = jsontext.pretty({"format": _FORMAT, "version": STORE_VERSION})
        try:
            if not self.backend.is_empty() and not self.backend.exists(STORE):
                raise TraceflowError(
                    "invalid_input",
                    f"{self.url} holds other things and no store; name an empty folder or one that does not exist",
                )
            self.backend.put_if_absent(STORE, data)  # another one may be faster: then the store is there as well
        except OSError as error:
            raise TraceflowError("io_error", f"no store can be made at {self.url}: {error}") from error

    def _check(self, data: bytes) -> None:
        try:
            value = json.loads(data)
            version = value["version"]
            if value["format"] != _FORMAT or not isinstance(version, int) or version < 1:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise TraceflowError("store_corrupt", f"{STORE} of {self.url} is not what a store has") from None
        if version > STORE_VERSION:
            raise TraceflowError(
                "store_version",
                f"the store at {self.url} has version {version}, this program reads up to {STORE_VERSION}: "
                "use a newer traceflow",
            )

    # -- jobs --------------------------------------------------------------------------------------------

    def job_ids(self) -> list[str]:
        """The ids of all jobs, sorted."""
        if self.backend.stamped:
            return [name for name in self.backend.stamps(JOBS, "manifest.json") if is_job_id(name)]
        return [name for name in self.backend.folders(JOBS) if self._has(name)]

    def has_job(self, job_id: str) -> bool:
        """Whether the job with exactly this id is in the store. Raises invalid_job for what is no id."""
        return self.backend.exists(manifest_name(job_id))

    def _has(self, job_id: str) -> bool:
        try:
            return self.backend.exists(manifest_name(job_id))
        except TraceflowError:  # a folder that is no job's
            return False

    def jobs(self) -> list[Manifest]:
        """The manifests of all jobs, sorted by id."""
        if self.backend.parallel == 1 and not self.backend.exists(LATEST):
            # a small store: its manifests are read one by one, and a search is done before the catalog's code is here
            found = (self._manifest_in(name) for name in self.backend.folders(JOBS))
            return [manifest for manifest in found if manifest is not None]
        return list(self.listing().jobs.values())

    def listing(self) -> Listing:
        """The jobs that are in the store now, and what the catalog knows of them."""
        from .catalog import take_stock

        found = take_stock(self.backend, self._listing)
        if found.pointer is not None:
            self._listing = found
        return found

    def _manifest_in(self, folder: str) -> Manifest | None:
        try:
            return self.manifest(folder)
        except TraceflowError as error:
            if error.code == "invalid_job":  # a folder that is no job's
                return None
            raise

    def job(self, name: str) -> Manifest:
        """The job with this id, with an id that begins so (8 characters or more), or with this name.

        Raises TraceflowError job_not_found; invalid_input when several fit.
        """
        try:
            exact = self.manifest(name)
        except TraceflowError as error:
            if error.code != "invalid_job":
                raise
            exact = None
        if exact is not None:
            return exact
        jobs = self.jobs()
        fits = [m for m in jobs if name in (m.job.get("original_job_name"), m.job.get("name"))]
        fits = fits or [m for m in jobs if m.job.get("original_job_id") == name]
        if not fits and len(name) >= _PREFIX:
            fits = [m for m in jobs if m.job_id.startswith(name)]
        found: Manifest = _only(fits, "job", name, [m.job_id for m in fits], self.url)
        return found

    def manifest(self, job_id: str) -> Manifest | None:
        """The manifest of the job with exactly this id; None where there is none."""
        try:
            return Manifest.from_bytes(self.backend.read_bytes(manifest_name(job_id)), job_id)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def writer(self, job_id: str) -> JobWriter:
        """A writer of a new job; see JobWriter."""
        from .writer import JobWriter

        return JobWriter(self.backend, job_id)

    def rewriter(self, job: Manifest, keep: Iterable[str] = ()) -> JobRewriter:
        """A writer of another revision of a job that takes its place; `keep` names tables that stay as they are.

        See JobRewriter. Readers of the old revision can go on; `gc` removes it later.
        """
        from .swap import JobRewriter

        return JobRewriter(self.backend, job, keep)

    def delete_job(self, job: Manifest) -> None:
        """Remove a job. It is gone at once; readers that are in the middle of it may fail."""
        from .catalog import mark_gone

        mark_gone(self.backend, job)
        self.backend.delete(manifest_name(job.job_id))
        for revision in (*job.previous, job.revision):
            self.backend.delete_prefix(revision_folder(job.job_id, revision))

    # -- trials, traces, files ---------------------------------------------------------------------------

    def trials(self, job: Manifest) -> list[dict[str, Any]]:
        """The trials of a job as rows of its table (`schema.TRIALS`), in the order they were written."""
        from . import reading

        return reading.trial_rows(self.backend, job)

    def all_trials(
        self, jobs: Iterable[Manifest] | None = None, columns: list[str] | None = None
    ) -> Iterator[tuple[Manifest, list[dict[str, Any]]]]:
        """The trials of every job, or of these, job by job, with all columns or with these; through the catalog."""
        from .compact import trials_of

        listing = self.listing()
        for job, table in trials_of(self.backend, listing, listing.jobs.values() if jobs is None else jobs, columns):
            yield job, table.to_pylist()

    def trial(self, name: str, job: Manifest | None = None) -> dict[str, Any]:
        """The trial with this id, an id that begins so (8 characters or more), or this name, of one job or all.

        Raises TraceflowError trial_not_found; invalid_input when several fit.
        """
        from . import reading

        names = ["trial_id", "trial_name"]
        rows = [(m, row) for m, some in self.all_trials([job] if job else None, names) for row in some]
        fits = [(m, row) for m, row in rows if name in (row["trial_id"], row["trial_name"])]
        if not fits and len(name) >= _PREFIX:
            fits = [(m, row) for m, row in rows if row["trial_id"].startswith(name)]
        labels = [f"{row['trial_id']} in job {m.job_id}" for m, row in fits]
        found, row = _only(fits, "trial", name, labels, self.url)
        return reading.trial_row(self.backend, found, row["trial_id"])

    def trace(
        self,
        trial: dict[str, Any],
        *,
        types: Iterable[str] | None = None,
        after: int | None = None,
        tail: int | None = None,
        limit: int | None = None,
        matches: Matches | None = None,
    ) -> Iterator[TraceLine]:
        """The events of a trial (a row of `trials`), exactly as they were stored, oldest first.

        `types` keeps these types, `after` what comes after a position, `matches` what it is true for (see
        `query.grep.trace_matcher`); of those `tail` gives the last, `limit` the first so many.
        """
        from . import reading

        job = self.job(trial["job_id"])
        return reading.trace(
            self.backend, job, trial, frozenset(types) if types is not None else None, after, tail, limit, matches
        )

    def files(self, job: Manifest, trial_id: str | None = None) -> list[FileRow]:
        """The files of a job, or of one of its trials, sorted by path."""
        from . import reading

        return reading.file_rows(self.backend, job, trial_id)

    def file(self, job: Manifest, path: str) -> FileRow:
        """One file by its path. Raises TraceflowError not_found."""
        from . import reading

        return reading.file_row(self.backend, job, path)

    def file_table(self, job: Manifest) -> FileTable:
        """The files of a job in the order of their paths, as a context; for jobs of very many files."""
        from .filetable import FileTable

        return FileTable(self.backend, job)

    def trace_reader(self, job: Manifest) -> TraceReader:
        """A reader of the traces of many trials of a job, as a context."""
        from .tracereader import TraceReader

        return TraceReader(self.backend, job)

    def open_file(self, job: Manifest, file: FileRow | str) -> BinaryIO:
        """The content of a file as a stream; at its end its digest is checked (store_corrupt)."""
        return self.contents(job).open(self._packed(job, file))

    def read_range(self, job: Manifest, file: FileRow | str, start: int, length: int) -> bytes:
        """Part of a file's content."""
        return self.contents(job).read_range(self._packed(job, file), start, length)

    def contents(self, job: Manifest) -> PackReader:
        """The reader of a job's packs, for many files."""
        from .packs import PackReader

        return PackReader(self.backend, job.folder)

    def _packed(self, job: Manifest, file: FileRow | str) -> Packed:
        row = self.file(job, file) if isinstance(file, str) else file
        if row.packed is None:
            raise TraceflowError("invalid_input", f"{row.path} is a {row.kind} and has no content")
        return row.packed

    # -- datasets ----------------------------------------------------------------------------------------

    def datasets(self) -> list[Dataset]:
        """Every version of every dataset, sorted by name and version."""
        from . import datasets

        return datasets.all_datasets(self.backend)

    def dataset(self, name: str) -> Dataset:
        """The dataset `name@version`, or `name` where there is one version of it.

        Raises TraceflowError dataset_not_found, dataset_version_not_found; invalid_input for several versions.
        """
        from . import datasets

        return datasets.find_dataset(self.backend, name)

    def dataset_writer(self, name: str, version: str) -> DatasetWriter:
        """A writer of a new version of a dataset; see DatasetWriter."""
        from .dataset_writer import DatasetWriter

        return DatasetWriter(self.backend, name, version)

    def delete_dataset(self, dataset: Dataset) -> None:
        """Remove a version of a dataset. Trials that were linked to it keep its name until their job is relinked."""
        from . import datasets

        datasets.delete_dataset(self.backend, dataset)

    def tasks(self, dataset: Dataset, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The tasks of a dataset as rows of its table (`dataset_schema.TASKS`), by name."""
        from . import datasets

        return datasets.task_rows(self.backend, dataset, columns)

    def task(self, dataset: Dataset, name: str) -> dict[str, Any]:
        """One task, by its name or that of its folder. Raises TraceflowError task_not_found."""
        from . import datasets

        return datasets.task_row(self.backend, dataset, name)

    def open_task_file(self, dataset: Dataset, file: DatasetFile) -> BinaryIO:
        """The content of a file of a task (`DatasetFile.from_dict` of an item of its `files`) as a stream."""
        from . import datasets

        return datasets.open_task_file(self.backend, dataset, file)

    # -- care --------------------------------------------------------------------------------------------

    def info(self) -> StoreInfo:
        """Counts and bytes, from the manifests alone."""
        from . import care

        return care.info(self)

    def verify(self, job: Manifest | None = None, contents: bool = False) -> VerifyReport:
        """Compare every object of the jobs and datasets with its manifest; with `contents` unpack every file too."""
        from . import care

        return care.verify(self, job, contents)

    def compact(self, progress: Callable[[int], None] = lambda jobs: None) -> Compacted:
        """Write the catalog anew: what lists and trials of many small jobs are read from. No answer depends on it."""
        from .compact import compact

        return compact(self.backend, progress)

    def compact_if_due(self) -> bool:
        """Do so when many jobs have come since the last time; whether it was done. It never raises for the store."""
        from .catalog import is_due

        try:
            if due := is_due(self.backend):
                self.compact()
        except (OSError, TraceflowError):
            return False
        return due

    def gc(self, minutes: float = 60, dry_run: bool = False) -> GcReport:
        """Remove what killed writers left: revision folders that no manifest names, and unfinished objects.

        What was written to within the last `minutes` stays, since its writer may be alive.
        """
        from . import care

        return care.gc(self, minutes, dry_run)


def _only(fits: list[Any], what: str, name: str, labels: list[str], url: str) -> Any:
    """The one that fits."""
    if not fits:
        raise TraceflowError(f"{what}_not_found", f"no {what} {name!r} in {url}", name=name)
    if len(fits) > 1:
        shown = ", ".join(labels[:5]) + (f" and {len(fits) - 5} more" if len(fits) > 5 else "")
        raise TraceflowError("invalid_input", f"{name!r} fits {len(fits)} {what}s: {shown}", candidates=labels[:100])
    return fits[0]
