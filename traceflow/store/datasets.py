"""Datasets in a store: `datasets/<name>/<version>/`, found by name, read, and removed.

A version is immutable, as a job is: its manifest names every object, and without it there is no version. Where the
file system can give a folder another name, the whole version appears in that step; elsewhere its objects stay in the
folder where they were written, and the manifest, put if absent, says so.
"""

from __future__ import annotations

import contextlib
import difflib
import io
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .dataset_schema import tasks_schema
from .layout import (
    DATASETS,
    STORE_VERSION,
    check_dataset,
    dataset_folder,
    dataset_manifest_name,
    new_revision,
    staging_folder,
)
from .manifest import StoredObject
from .packs import Packed, PackReader
from .schema import SCHEMA_VERSION
from .seal import sealed

__all__ = [
    "Dataset",
    "DatasetFile",
    "all_datasets",
    "delete_dataset",
    "find_dataset",
    "names",
    "open_task_file",
    "read_all",
    "task_row",
    "task_rows",
    "unfinished",
    "versions",
]

FORMAT = "traceflow-dataset"
UNSEALED = (  # members of a manifest that is older than seals
    *("format", "store_version", "schema_version", "name", "version", "revision", "digest", "n_tasks", "n_files"),
    *("size", "objects", "files", "added_at", "added_as"),
)


class DatasetFile(NamedTuple):
    """A file of a task or of the dataset: `kind` is file, directory (an empty one) or link; `counted` says whether
    the task's digest covers it."""

    path: str
    kind: str
    size: int
    mode: int
    sha256: str | None = None
    target: str | None = None
    counted: bool = False
    packed: Packed | None = None

    def as_dict(self) -> dict[str, Any]:
        packed = self.packed
        return {
            "path": self.path,
            "kind": self.kind,
            "size": self.size,
            "mode": self.mode,
            "sha256": self.sha256,
            "target": self.target,
            "counted": self.counted,
            "pack": packed.pack if packed else None,
            "offset": packed.offset if packed else None,
            "length": packed.length if packed else None,
            "frames": list(packed.frames) if packed and packed.frames else None,
        }

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> DatasetFile:
        packed = None
        if row["kind"] == "file":
            frames = row["frames"]
            place = row["pack"], row["offset"], row["length"]
            packed = Packed(row["sha256"], row["size"], *place, tuple(frames) if frames else None)
        return cls(
            row["path"],
            row["kind"],
            row["size"],
            row["mode"],
            row["sha256"],
            row["target"],
            row["counted"],
            packed,
        )


class Dataset(NamedTuple):
    """The manifest of one version. `size` is bytes of its files, `files` those that belong to no task.

    `digest` is over the tasks' names and digests: equal for versions that hold the same tasks.
    """

    name: str
    version: str
    objects: tuple[StoredObject, ...]
    n_tasks: int
    n_files: int
    size: int
    digest: str
    files: tuple[DatasetFile, ...] = ()
    facts: Mapping[str, Any] = MappingProxyType({})
    revision: str = ""  # the folder of its objects, where that is not the version's own
    store_version: int = STORE_VERSION
    schema_version: int = SCHEMA_VERSION

    @property
    def label(self) -> str:
        """name@version"""
        return f"{self.name}@{self.version}"

    @property
    def folder(self) -> str:
        """The folder of its objects, from the store's root."""
        if self.revision:
            return staging_folder(self.name, self.version, self.revision)
        return dataset_folder(self.name, self.version)

    def to_bytes(self) -> bytes:
        return sealed(
            {
                "format": FORMAT,
                "store_version": self.store_version,
                "schema_version": self.schema_version,
                "name": self.name,
                "version": self.version,
                **({"revision": self.revision} if self.revision else {}),
                "digest": self.digest,
                "n_tasks": self.n_tasks,
                "n_files": self.n_files,
                "size": self.size,
                "objects": [o.as_dict() for o in self.objects],
                "files": [f.as_dict() for f in self.files],
                **self.facts,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, name: str, version: str) -> Dataset:
        """Read a manifest; raises TraceflowError store_corrupt, or store_version for one of a later version."""
        try:
            value = jsontext.loads(data)
            if value["format"] != FORMAT or (value["name"], value["version"]) != (name, version):
                raise ValueError("it is not the manifest of this dataset")
            for what, ours in (("store_version", STORE_VERSION), ("schema_version", SCHEMA_VERSION)):
                if value[what] > ours:
                    raise TraceflowError(
                        "store_version", f"{name}@{version} was written by a later version: use a newer traceflow"
                    )
            found = cls(
                name,
                version,
                tuple(
                    StoredObject(o["name"], int(o["size"]), str(o["sha256"]), o.get("rows")) for o in value["objects"]
                ),
                int(value["n_tasks"]),
                int(value["n_files"]),
                int(value["size"]),
                str(value["digest"]),
                tuple(map(DatasetFile.from_dict, value["files"])),
                {key: value[key] for key in ("added_at", "added_as") if key in value},
                value.get("revision", ""),
                value["store_version"],
                value["schema_version"],
            )
            _ = found.folder  # refuses a revision that leads elsewhere
            if any("/" in o.name or o.name.startswith(".") for o in found.objects):
                raise ValueError("it names objects elsewhere")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TraceflowError(
                "store_corrupt", f"the manifest of dataset {name}@{version} cannot be read: {error}"
            ) from None
        return found


# -- finding -----------------------------------------------------------------------------------------------


def all_datasets(backend: Backend) -> list[Dataset]:
    """Every version of every dataset, sorted by name and version."""
    found = (_read(backend, name, version) for name in names(backend) for version in versions(backend, name))
    return [dataset for dataset in found if dataset is not None]


def find_dataset(backend: Backend, wanted: str) -> Dataset:
    """The dataset that `name@version` names, or `name` where there is one version of it.

    Raises TraceflowError dataset_not_found, dataset_version_not_found, and invalid_input for a name with several
    versions, or what is no name.
    """
    name, at, version = wanted.rpartition("@") if "@" in wanted else (wanted, "", "")
    check_dataset(name, version if at else "0")
    if at and (found := _read(backend, name, version)) is not None:
        return found
    known = [v for v in versions(backend, name) if backend.exists(dataset_manifest_name(name, v))]
    if not known:
        others = names(backend)
        close = difflib.get_close_matches(name, others, 1) or others[:5]
        hint = f"; there is {', '.join(close)}" if close else "; `traceflow dataset add` registers one"
        raise TraceflowError("dataset_not_found", f"no dataset {name!r} in {backend.url}{hint}", name=name)
    listed = ", ".join(known[:20])
    if at:
        raise TraceflowError(
            "dataset_version_not_found",
            f"dataset {name} has no version {version!r}; it has {listed}",
            name=name,
            versions=known,
        )
    if len(known) > 1:
        raise TraceflowError(
            "invalid_input",
            f"dataset {name} has {len(known)} versions, {listed}: say which, as in {name}@{known[-1]}",
            name=name,
            versions=known,
        )
    found = _read(backend, name, known[0])
    if found is None:
        raise TraceflowError("dataset_not_found", f"dataset {name} was deleted meanwhile", name=name)
    return found


def names(backend: Backend) -> list[str]:
    """The names of all datasets, sorted; some may have no finished version."""
    return [folder.replace("%2F", "/") for folder in backend.folders(DATASETS) if not folder.startswith(".")]


def versions(backend: Backend, name: str) -> list[str]:
    """The folders of a dataset's versions, sorted."""
    folder = f"{DATASETS}/{name.replace('/', '%2F')}"
    return [version for version in backend.folders(folder) if not version.startswith(".")]


def _read(backend: Backend, name: str, version: str) -> Dataset | None:
    try:
        return Dataset.from_bytes(backend.read_bytes(dataset_manifest_name(name, version)), name, version)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except TraceflowError as error:
        if error.code == "invalid_input":  # a folder that is no dataset's
            return None
        raise


# -- reading -----------------------------------------------------------------------------------------------


def task_rows(backend: Backend, dataset: Dataset, columns: Iterable[str] | None = None) -> list[dict[str, Any]]:
    """The tasks of a dataset in the order of their names, each with all columns or with these."""
    schema = tasks_schema()
    wanted = list(columns) if columns is not None else schema.names
    try:
        with backend.open_read(f"{dataset.folder}/tasks.parquet") as stream, pq.ParquetFile(stream) as file:
            present = set(file.schema_arrow.names)
            table = file.read(columns=[name for name in wanted if name in present])
    except FileNotFoundError:
        raise TraceflowError("store_corrupt", f"tasks.parquet of {dataset.label} is missing") from None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        raise TraceflowError("store_corrupt", f"tasks.parquet of {dataset.label} cannot be read: {error}") from None
    rows: list[dict[str, Any]] = table.to_pylist()
    return [{name: row.get(name) for name in wanted} for row in rows]


def task_row(backend: Backend, dataset: Dataset, task: str) -> dict[str, Any]:
    """One task by its name or its folder's. Raises TraceflowError task_not_found."""
    rows = task_rows(backend, dataset)
    for key in ("task_name", "path"):
        for row in rows:
            if row[key] == task:
                return row
    close = difflib.get_close_matches(task, [row["task_name"] for row in rows], 2)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise TraceflowError("task_not_found", f"{dataset.label} has no task {task!r}{hint}", name=task)


def open_task_file(backend: Backend, dataset: Dataset, file: DatasetFile) -> BinaryIO:
    """The content of a file as a stream; at its end its digest is checked (store_corrupt)."""
    if file.packed is None:
        return io.BytesIO()
    return PackReader(backend, dataset.folder).open(file.packed)


# -- removing ----------------------------------------------------------------------------------------------


def delete_dataset(backend: Backend, dataset: Dataset) -> None:
    """Remove a version. Trials that were linked to it keep the link's name; `job relink` looks again."""
    if not dataset.revision and backend.moves_folders:
        gone = staging_folder(dataset.name, dataset.version, new_revision())
        with contextlib.suppress(FileNotFoundError):  # another one was faster
            backend.move_folder(dataset.folder, gone)
        backend.delete_prefix(gone)
        return
    backend.delete(dataset_manifest_name(dataset.name, dataset.version))
    backend.delete_prefix(dataset.folder)


def read_all(backend: Backend, dataset: Dataset) -> int:
    """Unpack every file of a dataset and compare its digest; how many. Raises TraceflowError store_corrupt."""
    files = [*dataset.files]
    for row in task_rows(backend, dataset, ["files"]):
        files += map(DatasetFile.from_dict, row["files"])
    packed = {file.packed for file in files if file.packed is not None}
    reader = PackReader(backend, dataset.folder)
    for content in packed:
        with reader.open(content) as stream:
            while stream.read(1 << 20):
                pass
    return len(packed)


def unfinished(backend: Backend) -> list[str]:
    """Folders of versions that were never finished, or whose removal was."""
    found = []
    for name in names(backend):
        try:
            here = [_read(backend, name, version) for version in versions(backend, name)]
        except TraceflowError:  # of what a manifest that cannot be read names nothing is removed
            continue
        named = {f".{dataset.revision}" for dataset in here if dataset is not None and dataset.revision}
        folder = f"{DATASETS}/{name.replace('/', '%2F')}"
        inside = backend.folders(folder)
        found += [f"{folder}/{one}" for one in inside if one.startswith(".") and one not in named]
    return found
