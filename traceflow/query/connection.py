"""A DuckDB connection over a store, and questions in SQL.

The connection sees the store's folder and nothing else: no other file, no network, no extension, no variables of
the program, and its settings are locked. What is asked through `sql` can only read: DuckDB would let COPY write
inside the folder that it may see, so that statements are checked by their type before they run.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

import duckdb
from traceflow_formats.errors import TraceflowError

from traceflow.store import Store

from .engine import open_locked

__all__ = ["check_statement", "connect", "explain_error", "sql"]


def connect(store: Store) -> duckdb.DuckDBPyConnection:
    """A connection with the views jobs, trials, rewards, events, steps, tool_calls, usage, errors, files, datasets
    and tasks.

    They show what is in the store now. The connection itself does not check what it is given: for
    questions of others use `sql`. Close it when done.
    """
    from .views import dataset_rows, job_rows, statements

    listing, datasets = store.listing(), store.datasets()
    jobs = list(listing.jobs.values())
    connection, root = open_locked(store)
    try:
        given = {"given_jobs": job_rows(jobs), "given_datasets": dataset_rows(datasets)}
        for name, table in given.items():
            connection.register(name, table.to_reader())
        whole = listing if listing.has_trials(store.backend) else None
        for statement in statements(jobs, root, datasets, whole):
            connection.execute(statement)
        for name in given:
            connection.unregister(name)
    except duckdb.Error as error:
        connection.close()
        raise TraceflowError("store_corrupt", f"the tables of {store.url} cannot be read: {_first(error)}") from error
    except BaseException:
        connection.close()
        raise
    return connection


# -- questions ---------------------------------------------------------------------------------------------


def sql(store: Store, query: str) -> duckdb.DuckDBPyRelation:
    """The answer to one SELECT (or WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN) over the views.

    A DuckDB relation: `.fetchall()`, `.df()`, `.arrow()`, `.pl()`. It runs when its rows are fetched, and then
    may raise duckdb.Error, which `explain_error` puts into words. Raises TraceflowError invalid_input for a
    question that DuckDB does not understand or that does more than read.
    """
    connection = connect(store)
    try:
        statement = check_statement(connection, query)
        relation = connection.sql(statement)
        if relation is None:
            raise TraceflowError("invalid_input", "the statement gives no rows")
    except duckdb.Error as error:
        failure = explain_error(error, connection)
        connection.close()
        raise failure from None
    except BaseException:
        connection.close()
        raise
    return relation


def check_statement(connection: duckdb.DuckDBPyConnection, query: str) -> str:
    """The statement when it is one that only reads; else TraceflowError invalid_input."""
    try:
        found = connection.extract_statements(query)
    except duckdb.Error as error:
        raise explain_error(error, connection) from None
    if not found:
        raise TraceflowError("invalid_input", "the query is empty")
    if len(found) > 1:
        raise TraceflowError("invalid_input", f"one statement at a time; these are {len(found)}")
    kind = found[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        kind = _explained(connection, query)
    if kind == duckdb.StatementType.SELECT:
        return query
    name = str(kind).rsplit(".", 1)[-1]
    if name == "MULTI":
        raise TraceflowError("invalid_input", "give PIVOT its values: PIVOT ... ON column IN (value, ...) USING ...")
    raise TraceflowError(
        "invalid_input", f"{name} is refused: a query only reads (SELECT, WITH, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN)"
    )


_BLANK = re.compile(r"(?:\s+|--[^\n]*(?:\n|\Z)|/\*.*?\*/)*", re.DOTALL)
_EXPLAIN = re.compile(r"explain\b", re.IGNORECASE)
_ANALYZE = re.compile(r"analy[sz]e\b", re.IGNORECASE)


def _explained(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.StatementType:
    """The type of the statement that EXPLAIN explains: with ANALYZE it is run, be it a COPY.

    What stands before it is taken off word by word. A text that this does not understand is taken for EXPLAIN,
    which is refused.
    """
    at = _after(_EXPLAIN, query, 0)
    if at is None:
        return duckdb.StatementType.EXPLAIN
    at = _after(_ANALYZE, query, at) or at
    starts = [at]
    at = _BLANK.match(query, at).end()  # type: ignore[union-attr]
    if query.startswith("(", at) and (end := query.find(")", at)) > 0:
        starts.append(end + 1)  # options; or the statement itself is in parentheses
    for start in starts:
        try:
            found = connection.extract_statements(query[start:])
        except duckdb.Error:
            continue
        return found[0].type if len(found) == 1 else duckdb.StatementType.EXPLAIN
    return duckdb.StatementType.EXPLAIN


def _after(word: re.Pattern[str], query: str, at: int) -> int | None:
    match = word.match(query, _BLANK.match(query, at).end())  # type: ignore[union-attr]
    return match.end() if match else None


# -- failures ----------------------------------------------------------------------------------------------

_NO_COLUMN = re.compile(r'column (?:named )?"(?:\w+\.)?([^"]+)"', re.IGNORECASE)
_NO_TABLE = re.compile(r"Table with name \"?([^\s\"!]+)\"? does not exist")


def explain_error(error: duckdb.Error, connection: duckdb.DuckDBPyConnection | None = None) -> TraceflowError:
    """What DuckDB says, with the columns or views whose names are close to one that does not exist."""
    message = str(error).strip()
    if isinstance(error, duckdb.PermissionException):
        return TraceflowError("invalid_input", f"a query sees the views of the store and nothing else: {_first(error)}")
    if isinstance(error, duckdb.OutOfMemoryException):
        return TraceflowError("io_error", f"the query needs more memory than it may use: {_first(error)}")
    if isinstance(error, duckdb.IOException):
        return TraceflowError("io_error", f"the tables of the store could not be read: {_first(error)}")
    hint = ""
    if match := _NO_TABLE.search(message):
        from .views import VIEWS

        close = difflib.get_close_matches(match[1].lower(), VIEWS, 2, 0.65)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        hint += f"{' The' if close else '; the'} views are {', '.join(VIEWS)}"
        return TraceflowError("invalid_input", f"there is no view {match[1]}{hint}", close=close)
    if isinstance(error, duckdb.BinderException) and connection is not None and (match := _NO_COLUMN.search(message)):
        close = _close_columns(connection, match[1])
        if close:
            hint = f"; did you mean {' or '.join(close)}?"
        return TraceflowError("invalid_input", f"{_first(error).rstrip('!')}{hint}", close=close)
    return TraceflowError("invalid_input", _tidy(message))


def _close_columns(connection: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    try:
        rows = connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'main' AND NOT internal"
        ).fetchall()
    except duckdb.Error:
        return []
    tables: dict[str, list[str]] = {}
    for table, column in rows:
        tables.setdefault(column, []).append(table)
    close = difflib.get_close_matches(name.lower(), list(tables), 3, 0.6)
    return [f"{sorted(tables[column])[0]}.{column}" if len(tables[column]) == 1 else column for column in close]


def _first(error: Any) -> str:
    """The first line of an error, without the name of its class."""
    line = str(error).strip().splitlines()[0]
    return re.sub(r"^[A-Za-z ]+ Error: ", "", line)


def _tidy(message: str) -> str:
    """One line, with the place in the query that DuckDB points to."""
    lines = [line for line in message.splitlines() if line.strip()]
    text = re.sub(r"^[A-Za-z ]+ Error: ", "", lines[0])
    pointed = next((line for line in lines[1:] if line.startswith("LINE ")), None)
    return f"{text} ({pointed.strip()})" if pointed else text
