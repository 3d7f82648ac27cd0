"""The views that questions are asked of, as SQL over the tables of a store.

Columns are listed one by one, with their types, so that the views are the same whatever the jobs hold, also when
there is none. Times are UTC without a zone: what is printed does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from traceflow_formats import jsontext

from traceflow.store.catalog import Listing
from traceflow.store.dataset_schema import TASKS
from traceflow.store.datasets import Dataset
from traceflow.store.manifest import Manifest
from traceflow.store.schema import SCHEMA_VERSION, TABLES, Column
from traceflow.store.tables import fit_value

from .engine import quote

__all__ = ["VIEWS", "dataset_rows", "job_rows", "quote", "statements", "table_source"]

VIEWS = ("jobs", "trials", "rewards", "events", "steps", "tool_calls", "usage", "errors", "files", "datasets", "tasks")

_TIME = pa.timestamp("us")
_JOBS: dict[str, pa.DataType] = {
    "job_id": pa.string(),
    "name": pa.string(),
    "original_job_id": pa.string(),
    "original_job_name": pa.string(),
    "imported_at": _TIME,
    "started_at": _TIME,
    "finished_at": _TIME,
    "n_trials": pa.int64(),
    "n_scored": pa.int64(),
    "n_skipped": pa.int64(),
    "n_events": pa.int64(),
    "n_files": pa.int64(),
    "size": pa.int64(),
    "reported_n_trials": pa.int64(),
    "reported_cost_usd": pa.float64(),
    "reported_prompt_tokens": pa.int64(),
    "reported_completion_tokens": pa.int64(),
    "reported_cached_tokens": pa.int64(),
    "record": pa.string(),
}

_DATASETS: dict[str, pa.DataType] = {
    "dataset": pa.string(),
    "name": pa.string(),
    "version": pa.string(),
    "digest": pa.string(),
    "n_tasks": pa.int64(),
    "n_files": pa.int64(),
    "size": pa.int64(),
    "added_at": _TIME,
}

_SQL_TYPES = {
    pa.string(): "VARCHAR",
    pa.int64(): "BIGINT",
    pa.int32(): "INTEGER",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    _TIME: "TIMESTAMP",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP WITH TIME ZONE",
}
_JSON = frozenset({"unknown_types", "warnings", "step_results", "extra"})
_FLAGS = frozenset({"delta", "compaction", "abandoned", "copied", "retried"})


def sql_type(kind: pa.DataType) -> str:
    """DuckDB's name of an Arrow type."""
    if pa.types.is_list(kind):
        return sql_type(kind.value_type) + "[]"
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f'"{f.name}" {sql_type(f.type)}' for f in kind) + ")"
    return _SQL_TYPES[kind]


def _trials_source(jobs: Sequence[Manifest], root: str, listing: Listing | None) -> str:
    """A query for the trials of all jobs: one object for those that the catalog knows."""
    if listing is None:
        return table_source("trials", jobs, root)
    source = (
        f"SELECT {_columns(TABLES['trials'], SCHEMA_VERSION)} FROM read_parquet({quote(root + listing.trials_name)})"
    )
    if stale := listing.stale:
        source += f" WHERE job_id NOT IN ({', '.join(map(quote, stale))})"
    apart = listing.apart()
    return f"{source} UNION ALL {table_source('trials', apart, root)}" if apart else source


def table_source(table: str, jobs: Sequence[Manifest], root: str, more: str = "") -> str:
    """A query for the stored rows of a table, of all these jobs. `root` is the store as DuckDB names it.

    `more` are further options of read_parquet.
    """
    columns = TABLES[table]
    by_version: dict[int, list[str]] = {}
    for job in jobs:
        by_version.setdefault(job.schema_version, []).append(root + job.path(f"{table}.parquet"))
    if not by_version:
        return f"SELECT {_columns(columns, 0)} WHERE false"
    return " UNION ALL ".join(
        f"SELECT {_columns(columns, version)} FROM read_parquet([{', '.join(map(quote, paths))}]{more})"
        for version, paths in sorted(by_version.items())
    )


def _columns(columns: Iterable[Column], version: int) -> str:
    """The columns as a job of that version has them; later ones are null."""
    return ", ".join(
        f'"{c.name}"' if c.since <= version else f'NULL::{sql_type(c.type)} AS "{c.name}"' for c in columns
    )


def _task_source(datasets: Sequence[Dataset], root: str) -> str:
    """A query for the tasks of these datasets."""
    by_version: dict[int, list[str]] = {}
    for dataset in datasets:
        by_version.setdefault(dataset.schema_version, []).append(f"{root}{dataset.folder}/tasks.parquet")
    columns = [column for column in TASKS if column.name != "files"]
    if not by_version:
        return f"SELECT {_columns(columns, 0)} WHERE false"
    return " UNION ALL ".join(
        f"SELECT {_columns(columns, version)} FROM read_parquet([{', '.join(map(quote, paths))}])"
        for version, paths in sorted(by_version.items())
    )


def _shown(column: Column, table: str) -> str:
    """A stored column as a view shows it."""
    name = f'"{column.name}"'
    if pa.types.is_timestamp(column.type):
        return f"make_timestamp(epoch_us({name})) AS {name}"
    if table == "trials" and column.name in _JSON:
        return f"{name}::JSON AS {name}"
    if column.name in _FLAGS:
        return f"coalesce({name}, false) AS {name}"
    return name


def _base(table: str, without: frozenset[str] = frozenset()) -> str:
    return ", ".join(_shown(c, table) for c in TABLES[table] if c.name not in without)


# U+0001 in an input stands for the next piece of the text; pieces are joined by a line feed, parts are their starts
_MACROS = (
    # the blocks of a message are set apart by an empty line, as in the trajectory; a delta continues its block
    "CREATE MACRO raw.block(txt, delta) AS CASE WHEN txt = '' OR delta THEN txt ELSE chr(10) || chr(10) || txt END",
    "CREATE MACRO raw.blocks(txt, delta_first) AS CASE WHEN delta_first THEN txt ELSE substring(txt, 3) END",
    """CREATE MACRO raw.pieces(txt, parts) AS
        CASE WHEN parts IS NULL THEN [txt]
        ELSE list_transform(list_prepend(0, parts), lambda start, n:
            substring(txt, start + 1, coalesce(parts[n] - 1, length(txt)) - start)) END""",
    """CREATE MACRO raw.filled(template, pieces) AS
        array_to_string(list_transform(string_split(template, chr(1)), lambda part, n:
            CASE WHEN n = 1 THEN part ELSE to_json(pieces[n - 1])::VARCHAR || part END), '')::JSON""",
    r"""CREATE MACRO raw.cleared(rest) AS
        regexp_replace(regexp_replace(rest, '\x1e[0-9]+\x1e', '', 'g'),
            '\x1d[0-9]+\x1d|[\x01-\x08\x0e-\x18]', 'null', 'g')::JSON""",
)

_EVENTS = f"""
SELECT {_base("events", frozenset({"text_parts", "raw_input", "rest", "text"}))}, "text",
    CASE WHEN raw_input IS NOT NULL THEN raw.filled(raw_input, raw.pieces("text", text_parts)) END AS input,
    raw.cleared(rest) AS rest
FROM raw.events"""

_STEPS = """
SELECT job_id, trial_id, agent_id, step_id,
    CASE arg_min(CASE
            WHEN type = 'prompt' THEN CASE WHEN rest ->> '$._prompt.role' = 'system' THEN 2 ELSE 1 END
            WHEN type = 'user_message_chunk' THEN CASE WHEN injected IS NOT NULL OR compaction THEN 2 ELSE 1 END
            WHEN type = 'tool_call_update' THEN 2
            ELSE 3 END, seq)
        WHEN 1 THEN 'user' WHEN 2 THEN 'system' ELSE 'agent' END AS source,
    coalesce(raw.blocks(string_agg(raw.block("text", delta), '' ORDER BY seq) FILTER (said),
        arg_min(delta, seq) FILTER (said AND "text" <> '')), '') AS message,
    raw.blocks(string_agg(raw.block("text", delta), '' ORDER BY seq) FILTER (type = 'agent_thought_chunk'),
        arg_min(delta, seq) FILTER (type = 'agent_thought_chunk' AND "text" <> '')) AS reasoning,
    string_agg("text", chr(10) ORDER BY seq) FILTER (type = 'error') AS error,
    max(model) AS model,
    max(message_id) AS message_id,
    count(*) FILTER (type = 'tool_call') AS n_tool_calls,
    count(*) FILTER (type = 'tool_call_update' AND status = 'failed') AS n_failed,
    arg_max_null(prompt_tokens, seq) FILTER (type = 'usage') AS prompt_tokens,
    arg_max_null(completion_tokens, seq) FILTER (type = 'usage') AS completion_tokens,
    arg_max_null(cached_tokens, seq) FILTER (type = 'usage') AS cached_tokens,
    arg_max_null(cost_usd, seq) FILTER (type = 'usage') AS cost_usd,
    min(timestamp) AS started_at,
    max(timestamp) AS ended_at,
    min(seq) AS first_seq,
    max(seq) AS last_seq,
    bool_or(copied) AS copied,
    max(step_name) AS step_name
FROM (
    SELECT *, type IN ('prompt', 'user_message_chunk', 'agent_message_chunk') AS said FROM events
) WHERE step_id IS NOT NULL
GROUP BY job_id, trial_id, agent_id, step_id"""

_TOOL_CALLS = """
SELECT c.job_id, c.trial_id, c.agent_id, c.step_id, c.seq, c.tool_call_id, c.tool_name AS name, c.kind, c.title,
    c.input, r.output, coalesce(r.status, c.status) AS status,
    coalesce(r.exit_code, c.exit_code) AS exit_code, coalesce(r.duration_ms, c.duration_ms) AS duration_ms,
    c.timestamp AS started_at, r.ended_at, r.result_seq, c.message_id, c.model, c.copied, c.abandoned
FROM events c LEFT JOIN (
    SELECT job_id, trial_id, call_seq,
        arg_max("text", seq) AS output,
        arg_max(status, seq) AS status,
        arg_max(exit_code, seq) AS exit_code,
        arg_max(duration_ms, seq) AS duration_ms,
        max(timestamp) AS ended_at,
        max(seq) AS result_seq
    FROM events WHERE type = 'tool_call_update' AND call_seq IS NOT NULL
    GROUP BY job_id, trial_id, call_seq
) r ON r.job_id = c.job_id AND r.trial_id = c.trial_id AND r.call_seq = c.call_seq
WHERE c.type = 'tool_call'"""

# a source may state the usage of a call several times: its last word counts. Where a gateway measured the calls
# of a trial its lines are the usage, and the harness's own are another reading of the same calls.
_USAGE = """
SELECT u.job_id, u.trial_id, u.agent_id, u.step_id, u.seq, u.message_id, coalesce(u.model, t.model) AS model,
    u.prompt_tokens, u.completion_tokens, u.cached_tokens, u.cost_usd, u.source, u.timestamp,
    u.compaction, u.copied, u.abandoned
FROM (
    SELECT *, coalesce(usage_source, 'harness') AS source,
        bool_or(coalesce(usage_source, '') = 'gateway') OVER (PARTITION BY job_id, trial_id) AS gateway,
        row_number() OVER (
            PARTITION BY job_id, trial_id, session_id, step_name, agent_id, usage_source, message_id,
                CASE WHEN message_id IS NULL THEN seq END ORDER BY seq DESC) AS word
    FROM events WHERE type = 'usage' AND "scope" = 'call'
) u LEFT JOIN trials t ON t.job_id = u.job_id AND t.trial_id = u.trial_id
WHERE word = 1 AND (u.source = 'gateway') = gateway"""

_ERRORS = """
SELECT job_id, trial_id, 'trace' AS source, seq, agent_id, step_id, NULL::VARCHAR AS name, "text" AS message,
    coalesce(fatal, false) AS fatal, retried, abandoned, timestamp, model
FROM events WHERE type = 'error'
UNION ALL
SELECT job_id, trial_id, 'trial', NULL, NULL, NULL, exception_type, exception_message, true, false, false,
    finished_at, model
FROM trials WHERE exception_type IS NOT NULL"""

_REWARDS = """
SELECT job_id, trial_id, trial_name, task_name, r.name AS name, r.value AS value, r.text AS "text",
    reward_valid AS valid
FROM trials, unnest(rewards) AS u(r)"""


def statements(
    jobs: Sequence[Manifest], root: str, datasets: Sequence[Dataset] = (), listing: Listing | None = None
) -> list[str]:
    """What makes the views over these jobs and datasets. The relations `given_jobs` and `given_datasets` must be
    there: `job_rows` and `dataset_rows` as Arrow tables."""
    made = ["CREATE SCHEMA raw", *_MACROS]
    made += [f"CREATE TABLE raw.{table} AS FROM given_{table}" for table in ("jobs", "datasets")]
    made.append(f"CREATE VIEW raw.tasks AS {_task_source(datasets, root)}")
    sources = {table: table_source(table, jobs, root) for table in TABLES if table != "trials"}
    sources["trials"] = _trials_source(jobs, root, listing)
    made += [f"CREATE VIEW raw.{table} AS {sources[table]}" for table in TABLES]
    views: Mapping[str, str] = {
        "jobs": "SELECT * REPLACE (record::JSON AS record) FROM raw.jobs ORDER BY job_id",
        "trials": f"SELECT {_base('trials', frozenset({'event_offset'}))}, "
        "epoch_us(finished_at - started_at) / 1e6 AS duration_s FROM raw.trials",
        "rewards": _REWARDS,
        "events": _EVENTS,
        "steps": _STEPS,
        "tool_calls": _TOOL_CALLS,
        "usage": _USAGE,
        "errors": _ERRORS,
        "files": f"SELECT {_base('files', frozenset({'pack', 'offset', 'length', 'frames'}))} FROM raw.files",
        "datasets": "SELECT * FROM raw.datasets ORDER BY name, version",
        "tasks": "SELECT * REPLACE (config::JSON AS config) FROM raw.tasks",
    }
    return made + [f"CREATE VIEW main.{name} AS {views[name]}" for name in VIEWS]


# -- jobs --------------------------------------------------------------------------------------------------


def job_rows(jobs: Iterable[Manifest]) -> pa.Table:
    """The rows of `raw.jobs`, from the manifests."""
    return _table(_job_values(jobs), _JOBS)


def _job_values(jobs: Iterable[Manifest]) -> Iterator[dict[str, Any]]:
    for manifest in jobs:
        record = manifest.job
        reported = record.get("reported_totals")
        reported = reported if isinstance(reported, Mapping) else {}
        values = {
            "job_id": manifest.job_id,
            "name": record.get("name") or record.get("original_job_name"),
            "n_trials": sum(manifest.counts.values()),
            "n_scored": manifest.counts.get("SCORED", 0),
            "n_skipped": manifest.counts.get("SKIPPED", 0),
            "n_events": manifest.rows("events"),
            "n_files": manifest.rows("files"),
            "size": manifest.size,
            "reported_n_trials": reported.get("n_trials_reporting"),
            "reported_cost_usd": reported.get("cost_usd"),
            "reported_prompt_tokens": reported.get("n_input_tokens"),
            "reported_completion_tokens": reported.get("n_output_tokens"),
            "reported_cached_tokens": reported.get("n_cache_tokens"),
            "record": jsontext.canonical(dict(record)).decode(),
        }
        for name in ("original_job_id", "original_job_name", "imported_at", "started_at", "finished_at"):
            values[name] = record.get(name)
        yield values


def dataset_rows(datasets: Iterable[Dataset]) -> pa.Table:
    """The rows of `raw.datasets`, from the manifests."""
    return _table(_dataset_values(datasets), _DATASETS)


def _dataset_values(datasets: Iterable[Dataset]) -> Iterator[dict[str, Any]]:
    for dataset in datasets:
        values = {name: getattr(dataset, name) for name in ("name", "version", "digest", "n_tasks", "n_files", "size")}
        values |= {"dataset": dataset.label, "added_at": dataset.facts.get("added_at")}
        yield values


def _table(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, pa.DataType]) -> pa.Table:
    found = list(rows)
    arrays = [pa.array([fit_value(kind, row[name]) for row in found], kind) for name, kind in kinds.items()]
    return pa.Table.from_arrays(arrays, names=list(kinds))
