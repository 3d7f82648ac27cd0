"""The columns of a dataset's table: its tasks, each with what its folder says and where its files lie."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from traceflow_formats import jsontext
from traceflow_formats.text import clean_value

from .schema import Column
from .tables import fit_value

__all__ = ["TASKS", "fit_task", "tasks_schema"]

_STR = pa.string()
_INT = pa.int64()


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


_STEP = pa.struct([pa.field("name", _STR, nullable=False), pa.field("instruction", _STR)])
_FILE = pa.struct(
    [
        pa.field("path", _STR, nullable=False),
        pa.field("kind", _STR, nullable=False),
        pa.field("size", _INT, nullable=False),
        pa.field("mode", pa.int32(), nullable=False),
        pa.field("sha256", _STR),
        pa.field("target", _STR),
        pa.field("counted", pa.bool_(), nullable=False),
        pa.field("pack", pa.int32()),
        pa.field("offset", _INT),
        pa.field("length", _INT),
        pa.field("frames", _list(_INT)),
    ]
)

TASKS = (
    Column("dataset", _STR, "the dataset as `trials.dataset` names it: name@version", null=False, dictionary=True),
    Column("name", _STR, "the dataset's name", null=False, dictionary=True),
    Column("version", _STR, "the dataset's version", null=False, dictionary=True),
    Column("task_name", _STR, "the task's name: that of its task.toml, else that of its folder", null=False),
    Column("digest", _STR, "content digest of the task (`sha256:...`), as in a trial's lock", null=False),
    Column("task_checksum", _STR, "checksum over the whole folder, as older result.json files have it"),
    Column("environment_id", _STR, "id that names the images of the task's environment"),
    Column("path", _STR, "the task's folder", null=False),
    Column("task_version", _STR, "version that task.toml states"),
    Column("description", _STR, "description that task.toml states"),
    Column("keywords", _list(_STR), "keywords that task.toml states"),
    Column("instruction", _STR, "text of instruction.md; null for a task of steps"),
    Column("n_steps", _INT, "steps of a multi-step task, else 0", null=False),
    Column("steps", _list(_STEP), "the steps with their instructions"),
    Column("n_files", _INT, "files of the task's folder", null=False),
    Column("size", _INT, "bytes of these files", null=False),
    Column("config", _STR, "JSON: task.toml"),
    Column("files", _list(_FILE), "path, bytes, digest and place of every file; `counted` ones enter the digest"),
)


def tasks_schema() -> pa.Schema:
    """The schema of `tasks.parquet` as it is written today."""
    return pa.schema([pa.field(c.name, c.type, nullable=c.null) for c in TASKS])


def fit_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with every column, each value as its column takes it; `config` takes an object."""
    out: dict[str, Any] = {}
    for column in TASKS:
        value = row.get(column.name)
        if column.name == "config" and value is not None:
            value = jsontext.canonical(clean_value(_plain(value))[0]).decode()
        elif not (pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type)):
            value = fit_value(column.type, value)
        out[column.name] = value
    return out


def _plain(value: Any) -> Any:
    """What TOML has and JSON has not, as text: dates and times."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value
