"""Making the index of ranked search: which words stand in which events, as two Parquet tables beside a job's objects.

    search/words.parquet    term, event, tf    sorted by term and event
    search/docs.parquet     event, length, trial_id, type    every event in its order
    search/words.pages      where the pages of both lie, see `postings`; written last

A term is a run of 2 to 40 letters, digits and underscores, in small letters; `event` is the row in
events.parquet, `length` the number of its terms. They are derived: made on first use, and again when missing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from traceflow_formats.errors import TraceflowError

from traceflow.store.manifest import Manifest
from traceflow.store.reading import read_table
from traceflow.store.store import Store

from .connection import explain_error
from .engine import arrow_reader, engine_settings, quote
from .postings import DOCS, PAGES, VERSION, WORDS, JobWords, pack_pages

__all__ = ["build_words"]

_TERM = r"[\pL\pN_]+"  # with {2,40} RE2 would be twenty times as slow: lengths are looked at after it
_WORDS_SCHEMA = pa.schema(
    [pa.field("term", pa.string(), False), pa.field("event", pa.int32(), False), pa.field("tf", pa.int32(), False)]
)
_DOCS_SCHEMA = pa.schema(
    [
        pa.field("event", pa.int32(), False),
        pa.field("length", pa.int32(), False),
        pa.field("trial_id", pa.string(), False),
        pa.field("type", pa.string(), False),
    ]
)
_WORDS_ROWS = 16_384  # of a row group: a rare term costs the reading of one
_DOCS_ROWS = 131_072
_SELECT_WORDS = (
    "SELECT term, event, count(*)::INTEGER AS tf FROM (SELECT event, unnest(terms) AS term FROM found) "
    "GROUP BY term, event ORDER BY term, event"
)
_SELECT_DOCS = "SELECT event, len(terms)::INTEGER AS length, trial_id, type FROM found ORDER BY event"


def build_words(store: Store, job: Manifest) -> JobWords:
    """Index the words of a job, and open them. Two that do it at once write the same. Raises io_error."""
    with tempfile.TemporaryDirectory(prefix="traceflow-") as scratch, _connection(scratch) as connection:
        root = store.backend.duckdb_root(connection)
        events = quote(root + job.path("events.parquet"))
        words, docs = Path(scratch, "words"), Path(scratch, "docs")
        try:
            connection.execute(
                "CREATE TABLE found AS SELECT file_row_number::INTEGER AS event, trial_id, type, list_filter("
                f"regexp_extract_all(lower(\"text\"), '{_TERM}'), lambda t: length(t) BETWEEN 2 AND 40) AS terms "
                f"FROM read_parquet({events}, file_row_number = true)"
            )
            made = [_write(connection.sql(_SELECT_DOCS), docs, _DOCS_SCHEMA, _DOCS_ROWS)]
            made.append(_write(connection.sql(_SELECT_WORDS), words, _WORDS_SCHEMA, _WORDS_ROWS))
            counted = connection.execute(
                "SELECT count(*) FILTER (len(terms) > 0), coalesce(sum(len(terms)), 0)::BIGINT FROM found"
            ).fetchall()
        except duckdb.Error as error:
            raise explain_error(error) from None
        pages = _pages(store, job, *made, *counted[0])
        try:
            for name, path in ((DOCS, docs), (WORDS, words)):
                with store.backend.create(job.path(name)) as stream, path.open("rb") as source:
                    shutil.copyfileobj(source, stream, 1 << 20)
            with store.backend.create(job.path(PAGES)) as stream:
                stream.write(pages)
        except OSError as error:
            raise TraceflowError(
                "io_error",
                f"the search index of job {job.job_id} cannot be written to {store.url}: {error.strerror or error}; "
                "grep needs none",
            ) from None
    return JobWords(store.backend, job, pages)


def _write(relation: Any, path: Path, schema: pa.Schema, rows: int) -> pq.FileMetaData:
    """Write a table in row groups of so many rows, with one page for each column."""
    collected: list[pq.FileMetaData] = []
    names = set(schema.names)
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=3,
        version="2.6",
        data_page_version="1.0",
        data_page_size=1 << 30,
        write_batch_size=rows,
        use_dictionary=sorted(names & {"trial_id", "type"}),
        # the bytes of numbers that ascend pack better by their place: 20% of the whole index
        column_encoding={"event": "BYTE_STREAM_SPLIT", **dict.fromkeys(names & {"term", "tf", "length"}, "PLAIN")},
        write_statistics=sorted(names & {"term", "event"}),
        store_schema=False,
        metadata_collector=collected,
    ) as writer:
        waiting: list[pa.RecordBatch] = []
        held = 0
        for batch in arrow_reader(relation, rows):
            waiting.append(batch.cast(schema))
            held += batch.num_rows
            if held >= rows:
                table = pa.Table.from_batches(waiting)
                writer.write_table(table.slice(0, held // rows * rows), row_group_size=rows)
                waiting = table.slice(held // rows * rows).to_batches()
                held %= rows
        if held:
            writer.write_table(pa.Table.from_batches(waiting), row_group_size=rows)
    return collected[-1]


def _pages(
    store: Store, job: Manifest, docs: pq.FileMetaData, words: pq.FileMetaData, count: int, length: int
) -> bytes:
    """What `postings` reads."""
    columns = ["trial_id", "trial_name", "agent", "model", "event_offset", "n_events"]
    trials = [row for row in read_table(store.backend, job, "trials", columns).to_pylist() if row["n_events"]]
    numbers: list[int] = []
    terms: list[str] = []
    for group in map(words.row_group, range(words.num_row_groups)):
        numbers += _places(group, (0, 1, 2))
        terms.append(group.column(0).statistics.min)
    for group in map(docs.row_group, range(docs.num_row_groups)):
        numbers += _places(group, (1, 3))
    stored = job.object("events.parquet")
    head = {
        "version": VERSION,
        "events": stored.size if stored is not None else 0,
        "docs": count,
        "length": length,
        "trials": sorted((list(row.values()) for row in trials), key=lambda trial: trial[4]),
        "terms": terms,
        "groups": docs.num_row_groups,
    }
    return pack_pages(head, numbers)


def _places(group: pq.RowGroupMetaData, columns: tuple[int, ...]) -> list[int]:
    out = [group.num_rows]
    for chunk in map(group.column, columns):
        first = chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset
        out += (first, chunk.total_compressed_size)
    return out


@contextmanager
def _connection(scratch: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that may write to a folder of its own; nothing but our own statements run on it."""
    connection = duckdb.connect(str(Path(scratch, "work.db")), config={"python_enable_replacements": False})
    try:
        for name, value in engine_settings().items():
            connection.execute(f"SET {name} = {value}")
        yield connection
    finally:
        connection.close()
