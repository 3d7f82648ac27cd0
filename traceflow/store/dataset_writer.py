"""Writing one version of a dataset: the files of its tasks into packs, the tasks into a table, then one atomic step."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from traceflow_formats.errors import TraceflowError

from .backend import Backend
from .dataset_schema import TASKS, fit_task, tasks_schema
from .datasets import Dataset, DatasetFile
from .layout import dataset_folder, dataset_manifest_name, new_revision, staging_folder
from .manifest import StoredObject
from .packs import Packed, PackWriter, Readable
from .tables import Hashing

__all__ = ["DatasetWriter"]

_GROUP = 256  # tasks of a row group


class DatasetWriter:
    """One attempt to add a version. Use it as a context: what is not committed at the end is removed.

    Raises TraceflowError dataset_exists when the version is there: at the start, and at the commit when another
    writer was faster.
    """

    def __init__(self, backend: Backend, name: str, version: str) -> None:
        self.name, self.version = name, version
        self._revision = new_revision()
        self._backend = backend
        self._staging = staging_folder(name, version, self._revision)
        self._packs = PackWriter(self._create)
        self._rows: list[dict[str, Any]] = []
        self._files: list[DatasetFile] = []
        self._count = self._size = 0
        self._open = True
        if backend.exists(dataset_manifest_name(name, version)):
            raise self._taken()

    def add_content(self, stream: Readable) -> Packed:
        """Store a file's content, equal content once, and return its size, digest and place."""
        return self._packs.add(stream)

    def add_task(self, row: Mapping[str, Any], files: list[DatasetFile]) -> None:
        """Store a task: columns of `dataset_schema.TASKS` by name, and its files with their contents in place."""
        sizes = [f.size for f in files if f.kind == "file"]
        self._count += len(sizes)
        self._size += sum(sizes)
        known = {"dataset": f"{self.name}@{self.version}", "name": self.name, "version": self.version}
        counted = {"n_files": len(sizes), "size": sum(sizes), "files": [f.as_dict() for f in files]}
        self._rows.append(fit_task({**row, **known, **counted}))

    def add_files(self, files: list[DatasetFile]) -> None:
        """Remember files that belong to no task."""
        self._files += files
        self._count += len(files)
        self._size += sum(f.size for f in files)

    def commit(self, facts: Mapping[str, Any]) -> Dataset:
        """Make the version exist."""
        self._rows.sort(key=lambda row: (row["task_name"], row["path"]))
        tasks = self._write_tasks()
        digest = hashlib.sha256("".join(f"{r['task_name']}\0{r['digest']}\n" for r in self._rows).encode())
        dataset = Dataset(
            self.name,
            self.version,
            (tasks, *self._packs.finish()),
            len(self._rows),
            self._count,
            self._size,
            f"sha256:{digest.hexdigest()}",
            tuple(self._files),
            facts,
        )
        if not self._publish(dataset):
            raise self._taken()
        self._open = False
        return dataset if self._backend.moves_folders else dataset._replace(revision=self._revision)

    def _publish(self, dataset: Dataset) -> bool:
        target = dataset_folder(self.name, self.version)
        if not self._backend.moves_folders:
            data = dataset._replace(revision=self._revision).to_bytes()
            return self._backend.put_if_absent(f"{target}/manifest.json", data, self._staging)
        with self._create("manifest.json") as stream:
            stream.write(dataset.to_bytes())
        return self._backend.move_folder(self._staging, target)

    def _write_tasks(self) -> StoredObject:
        schema = tasks_schema()
        with self._create("tasks.parquet") as stream:
            out = Hashing(stream)
            writer = pq.ParquetWriter(
                out,
                schema,
                compression="zstd",
                use_dictionary=[c.name for c in TASKS if c.dictionary],
                write_page_checksum=True,
                store_schema=False,
            )
            for start in range(0, len(self._rows), _GROUP):
                rows = self._rows[start : start + _GROUP]
                writer.write_table(
                    pa.Table.from_arrays(
                        [pa.array([row[f.name] for row in rows], f.type) for f in schema], schema=schema
                    )
                )
            writer.close()
        return StoredObject("tasks.parquet", out.size, out.digest.hexdigest(), len(self._rows))

    def _create(self, name: str) -> contextlib.AbstractContextManager[BinaryIO]:
        return self._backend.create(f"{self._staging}/{name}")

    def abort(self) -> None:
        """Remove what was written; after a commit it does nothing."""
        if not self._open:
            return
        self._open = False
        self._packs.abort()
        with contextlib.suppress(OSError, TraceflowError):
            if not self._committed():
                self._backend.delete_prefix(self._staging)

    def _committed(self) -> bool:
        """Whether the version is this attempt's: an interrupt or a lost answer may hit right after the commit."""
        try:
            data = self._backend.read_bytes(dataset_manifest_name(self.name, self.version))
        except FileNotFoundError:
            return False
        return Dataset.from_bytes(data, self.name, self.version).revision == self._revision

    def __enter__(self) -> DatasetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def _taken(self) -> TraceflowError:
        label = f"{self.name}@{self.version}"
        return TraceflowError(
            "dataset_exists",
            f"dataset {label} is in the store already and does not change: choose another version, "
            f"or `traceflow dataset delete {label}` first",
            name=self.name,
            version=self.version,
        )
