"""The index of ranked search: which words stand in which events, as two Parquet tables beside a job's objects.

    search/words.parquet    job_id, term, event, tf    sorted by term and event
    search/docs.parquet     job_id, event, length, trial_id, type

A term is a run of 2 to 40 letters, digits and underscores, in small letters; `event` is the row in
events.parquet, `length` the number of its terms. They are derived: made on first use, and again when missing.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
from traceflow_formats.errors import TraceflowError

from traceflow.store.backend import Backend
from traceflow.store.manifest import Manifest
from traceflow.store.store import Store

from .connection import explain_error
from .engine import engine_settings, quote

__all__ = ["DOCS", "WORDS", "build_words", "has_words"]

WORDS, DOCS = "search/words.parquet", "search/docs.parquet"
_TERM = r"[\pL\pN_]+"  # with {2,40} RE2 would be twenty times as slow: lengths are looked at after it
_GROUP_ROWS = 40_960


def has_words(backend: Backend, job: Manifest) -> bool:
    """Whether the job's words are indexed. The words are written last."""
    return backend.exists(job.path(WORDS))


def build_words(store: Store, job: Manifest) -> None:
    """Index the words of a job. Two that do it at once write the same. Raises TraceflowError io_error."""
    with tempfile.TemporaryDirectory(prefix="traceflow-") as scratch, _connection(scratch) as connection:
        root = store.backend.duckdb_root(connection)
        events = quote(root + job.path("events.parquet"))
        words, docs = Path(scratch, "words"), Path(scratch, "docs")
        try:
            connection.execute(
                "CREATE TABLE found AS SELECT file_row_number::INTEGER AS event, trial_id, type, list_filter("
                f"regexp_extract_all(lower(\"text\"), '{_TERM}'), lambda t: length(t) BETWEEN 2 AND 40) AS terms "
                f"FROM read_parquet({events}, file_row_number = true) WHERE \"text\" <> ''"
            )
            _copy(
                connection,
                f"SELECT {quote(job.job_id)} AS job_id, event, len(terms)::INTEGER AS length, trial_id, type "
                "FROM found WHERE len(terms) > 0 ORDER BY event",
                docs,
            )
            _copy(
                connection,
                f"SELECT {quote(job.job_id)} AS job_id, term, event, count(*)::INTEGER AS tf "
                "FROM (SELECT event, unnest(terms) AS term FROM found) GROUP BY term, event ORDER BY term, event",
                words,
            )
        except duckdb.Error as error:
            raise explain_error(error) from None
        try:
            for name, made in ((DOCS, docs), (WORDS, words)):
                with store.backend.create(job.path(name)) as stream, made.open("rb") as source:
                    shutil.copyfileobj(source, stream, 1 << 20)
        except OSError as error:
            raise TraceflowError(
                "io_error",
                f"the search index of job {job.job_id} cannot be written to {store.url}: {error.strerror or error}; "
                "grep needs none",
            ) from None


def _copy(connection: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    options = f"FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE {_GROUP_ROWS}"
    connection.execute(f"COPY ({query}) TO {quote(str(path))} ({options})")


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
