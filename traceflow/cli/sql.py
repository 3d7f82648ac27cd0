"""`traceflow sql`: questions over the views of a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .options import StoreOption, open_store

_BATCH = 10_000  # rows


class Format(StrEnum):
    """How an answer is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    parquet = "parquet"
    arrow = "arrow"


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT over the views; - reads it from stdin. See docs/sql.md.")],
    format_: Annotated[
        Format | None,
        typer.Option("--format", "-f", metavar="|".join(Format), help="Default: by the ending of -o, else a table."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to a file, whole or not at all.")
    ] = None,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json: one object a line.")] = False,
) -> None:
    """Ask the store in SQL: jobs, trials, rewards, events, steps, tool_calls, usage, errors, files, datasets, tasks.

    It reads and nothing else: no other file, no extension, no setting.
    """
    import duckdb

    from traceflow.files import atomic_file
    from traceflow.query import explain_error
    from traceflow.query import sql as ask

    chosen = Format.json if as_json else format_ or _by_ending(out)
    binary = chosen in (Format.parquet, Format.arrow)
    if binary and out is None and sys.stdout.isatty():
        raise TraceflowError("invalid_input", f"{chosen.value} is binary; say where it goes with -o, or pipe it")
    text = sys.stdin.read() if query == "-" else query
    relation = ask(open_store(store), text)
    try:
        if out is None and chosen is Format.table:
            output.print_table(relation.columns, _rows(relation))
        elif out is None:
            sys.stdout.flush()
            _write(relation, chosen, sys.stdout.buffer)
        else:
            with atomic_file(out) as file:
                _write(relation, chosen, file)
    except duckdb.InterruptException:
        raise KeyboardInterrupt from None
    except duckdb.Error as error:
        raise explain_error(error) from None


def _by_ending(out: Path | None) -> Format:
    endings = {
        ".json": Format.json,
        ".jsonl": Format.json,
        ".ndjson": Format.json,
        ".csv": Format.csv,
        ".parquet": Format.parquet,
        ".arrow": Format.arrow,
    }
    return endings.get(out.suffix.lower(), Format.table) if out is not None else Format.table


def _rows(relation: Any) -> Iterator[list[Any]]:
    from traceflow_formats import jsontext

    from traceflow.query.engine import arrow_reader

    for batch in arrow_reader(relation, _BATCH):
        for row in _values(batch):
            yield [jsontext.dumps(v).decode() if isinstance(v, list | dict) else v for v in row]


def _values(batch: Any) -> Iterator[list[Any]]:
    """The rows of a batch by position: two columns may have one name."""
    columns = [column.to_pylist() for column in batch.columns]
    return ([_plain(value) for value in row] for row in zip(*columns, strict=True))


def _write(relation: Any, chosen: Format, file: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from traceflow.query.engine import arrow_reader

    reader = arrow_reader(relation, _BATCH)
    if chosen is Format.parquet:
        with pq.ParquetWriter(file, reader.schema, compression="zstd") as parquet:
            for batch in reader:
                parquet.write_batch(batch)
    elif chosen is Format.arrow:
        with pa.ipc.new_stream(file, reader.schema) as stream:
            for batch in reader:
                stream.write_batch(batch)
    else:
        _write_rows(reader, chosen, file)


def _write_rows(reader: Any, chosen: Format, file: Any) -> None:
    """Rows as JSON lines, as tab-separated text, or as CSV whose nested values are JSON."""
    import csv
    import io

    from traceflow_formats import jsontext

    names = reader.schema.names
    if chosen is not Format.json:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        table = csv.writer(text, dialect="excel" if chosen is Format.csv else "excel-tab", lineterminator="\n")
        table.writerow(names)
    for batch in reader:
        for row in _values(batch):
            if chosen is Format.json:
                file.write(jsontext.dumps(dict(zip(names, row, strict=True))) + b"\n")
            else:
                table.writerow(
                    jsontext.dumps(v).decode() if isinstance(v, list | dict) else "" if v is None else v for v in row
                )
    if chosen is not Format.json:
        text.detach()


def _plain(value: Any) -> Any:
    """A value as JSON has it: times as ISO text, bytes as hex."""
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)
