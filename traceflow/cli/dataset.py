"""`traceflow dataset`: the datasets of a store, which trials are linked to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from traceflow_formats import jsontext

from . import output
from .help import group
from .options import AsJson, StoreOption, open_store

if TYPE_CHECKING:
    from traceflow.store import Dataset

app = group("Add, list, show and delete datasets.")

DatasetArgument = Annotated[
    str, typer.Argument(metavar="NAME[@VERSION]", help="The dataset; the version where it has several.")
]


@app.command()
def add(
    path: Annotated[Path, typer.Argument(help="A folder of task folders, one task folder, or an archive of either.")],
    name: Annotated[str, typer.Option("--name", help="The dataset's name, or org/name.")],
    version: Annotated[str, typer.Option("--version", help="The version; it never changes afterwards.")],
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Check every task as Harbor would, compute the digests, and keep the package. It lands whole or not at all."""
    from traceflow.importer import add_dataset
    from traceflow.limits import load_limits

    from .import_ import warning_line

    opened = open_store(store, create=True)
    with output.progress(f"adding {path.name}") as advance:
        added = add_dataset(opened, path, name, version, limits=load_limits(), progress=advance)
    if as_json:
        output.print_json({**_summary(added.dataset), "warnings": added.warnings}, indent=True)
        return
    dataset = added.dataset
    output.write(output.cell(f"added {dataset.label}: {dataset.n_tasks} task(s), {dataset.n_files} file(s)") + "\n")
    for warning in added.warnings:
        output.note(warning_line(warning))


@app.command("list")
def list_(store: StoreOption = None, as_json: AsJson = False) -> None:
    """List the datasets, by name and version."""
    opened = open_store(store)
    found = [_summary(dataset) for dataset in opened.datasets()]
    if as_json:
        for row in found:
            output.print_json(row)
        return
    columns = ("name", "version", "n_tasks", "n_files", "size", "added_at")
    rows = (tuple(row[column] for column in columns) for row in found)
    heads = ("dataset", "version", "tasks", "files", "bytes", "added")
    if not output.print_table(heads, rows, flexible="dataset"):
        output.note(f"no datasets in {opened.url}; `traceflow dataset add DIR --name N --version V` adds one")


@app.command()
def show(
    dataset: DatasetArgument,
    task: Annotated[
        str | None, typer.Option("--task", "-t", help="Show this task: its instruction, its configuration, its files.")
    ] = None,
    store: StoreOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a dataset and its tasks, or one task of it."""
    opened = open_store(store)
    found = opened.dataset(dataset)
    if task is not None:
        _show_task(opened.task(found, task), as_json)
        return
    columns = ("task_name", "digest", "n_steps", "n_files", "size", "path", "task_version", "description")
    tasks = opened.tasks(found, columns)
    if as_json:
        output.print_json({**_summary(found), "tasks": tasks}, indent=True)
        return
    for key, value in _summary(found).items():
        output.write(f"{key:<10}{output.cell(value)}\n")
    shown = columns[:5]
    output.print_table(
        ("task", "digest", "steps", "files", "bytes"), ([t[c] for c in shown] for t in tasks), flexible="task"
    )


def _show_task(row: dict[str, Any], as_json: bool) -> None:
    document = {**row, "config": jsontext.loads(row["config"]) if row["config"] else None}
    if as_json:
        output.print_json(document, indent=True)
        return
    for key, value in document.items():
        if value in (None, [], {}) or key == "files":
            continue
        text = jsontext.dumps(value).decode() if isinstance(value, dict | list) else value
        for n, line in enumerate(str(text).splitlines()):  # an instruction has lines
            output.write(f"{'' if n else key:<16}{output.cell(line)}".rstrip() + "\n")
    for file in row["files"]:
        mark = "digest" if file["counted"] else ""
        target = f" -> {file['target']}" if file["target"] is not None else ""
        output.write(output.cell(f"{file['size']:>12} {mark:<7}{file['path']}{target}") + "\n")


@app.command()
def delete(
    dataset: DatasetArgument,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete a version of a dataset. Trials keep the link they have until `traceflow job relink`."""
    opened = open_store(store)
    found = opened.dataset(dataset)
    if not yes:
        typer.confirm(f"Delete {output.cell(found.label)} ({found.n_tasks} tasks)?", abort=True)
    opened.delete_dataset(found)
    if as_json:
        output.print_json({"deleted": found.label})
    else:
        output.note(f"deleted {found.label}")


def _summary(dataset: Dataset) -> dict[str, Any]:
    return {
        "dataset": dataset.label,
        "name": dataset.name,
        "version": dataset.version,
        "n_tasks": dataset.n_tasks,
        "n_files": dataset.n_files,
        "size": dataset.size,
        "digest": dataset.digest,
        "added_at": dataset.facts.get("added_at"),
    }
