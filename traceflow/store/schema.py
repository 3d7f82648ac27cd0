"""The columns of a job's three tables, each with its meaning, and the Arrow schemas made from them.

Every type is written down: nothing is inferred from data, so a job without rewards and a job with sixty have the
same tables. A column that a later version adds carries that version in `since`; readers fill it with null for
jobs that were written before. Columns are never renamed, retyped or removed.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
from traceflow_formats.times import epoch_us

from .layout import SCHEMA_VERSION

__all__ = [
    "EVENTS",
    "FILES",
    "SCHEMA_VERSION",
    "TABLES",
    "TRIALS",
    "Column",
    "arrow_schema",
    "microseconds",
]

_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # what readers can show


class Column(NamedTuple):
    """One column: its Arrow type, what it means, whether it may be null, and the version that brought it.

    `dictionary` is for columns with few values, `statistics` for those that a scan can skip row groups by. A column
    that is not `packed` is so small, as it is written, that compressing it takes more time than it saves room. What
    `pages` reads without an engine, the columns of the grep index, is always packed.
    """

    name: str
    type: pa.DataType
    doc: str
    null: bool = True
    since: int = 1
    dictionary: bool = False
    statistics: bool = False
    packed: bool = True


_STR = pa.string()
_INT = pa.int64()
_NUM = pa.float64()
_BOOL = pa.bool_()
_TIME = pa.timestamp("us", tz="UTC")
_STRINGS = pa.list_(pa.field("element", _STR, nullable=False))
_INTS = pa.list_(pa.field("element", _INT, nullable=False))
_REWARD = pa.struct([pa.field("name", _STR, nullable=False), pa.field("value", _NUM), pa.field("text", _STR)])


def _key(name: str, doc: str) -> Column:
    return Column(name, _STR, doc, null=False, dictionary=True, statistics=True)


def _few(name: str, doc: str, null: bool = True, packed: bool = True) -> Column:
    return Column(name, _STR, doc, null=null, dictionary=True, statistics=True, packed=packed)


TRIALS = (
    _key("job_id", "the job, as in its folder's name"),
    Column("trial_id", _STR, "unique within the job", null=False, statistics=True),
    Column("trial_name", _STR, "the trial's folder name", null=False, statistics=True),
    Column("task_name", _STR, "the task's name, as the record has it"),
    Column("task_digest", _STR, "content digest of the task (`sha256:...`), from the trial's lock"),
    Column("source", _STR, "the dataset that the record names, null for ad hoc tasks"),
    _few("agent", "the agent's name"),
    _few("agent_version", "the agent's version"),
    _few("model", "the model's name"),
    _few("provider", "the model's provider"),
    _few(
        "status", "SCORED, UNSCORED, SCORING_ERROR, INFRASTRUCTURE_ERROR, BUDGET, CANCELLED, INDETERMINATE, or SKIPPED"
    ),
    Column("reward", _NUM, "the primary reward: `reward`, else the only one; null where there is none"),
    Column("reward_valid", _BOOL, "whether the reward counts, by the error policy of the job"),
    Column(
        "rewards",
        pa.list_(pa.field("element", _REWARD, nullable=False)),
        "every reward under its exact name; `text` is what was written where it is no finite number",
    ),
    Column("exception_type", _STR, "name of the exception that the record holds"),
    Column("exception_message", _STR, "its message"),
    Column("started_at", _TIME, "start of the trial"),
    Column("finished_at", _TIME, "end of the trial"),
    Column("environment_setup_s", _NUM, "seconds of the environment's set-up"),
    Column("agent_setup_s", _NUM, "seconds of the agent's set-up"),
    Column("agent_s", _NUM, "seconds of the agent's run"),
    Column("verifier_s", _NUM, "seconds of the verifier"),
    Column("n_events", _INT, "events of the trial in `events`"),
    Column("event_offset", _INT, "row of the trial's first event in events.parquet; its events are contiguous"),
    Column("n_steps", _INT, "steps of the trajectory, of all agents"),
    Column("n_model_calls", _INT, "model calls, of all agents; copied and withdrawn ones are not counted"),
    Column("n_tool_calls", _INT, "tool calls, of all agents; copied and withdrawn ones are not counted"),
    Column("prompt_tokens", _INT, "prompt tokens with cache reads and writes, subagents included; null when unknown"),
    Column("completion_tokens", _INT, "completion tokens with reasoning, subagents included; null when unknown"),
    Column("cached_tokens", _INT, "prompt tokens read from cache; null when unknown"),
    Column("cost_usd", _NUM, "what the trial cost by its records or its gateway; null when unknown, never 0 for that"),
    Column("spend_source", _STR, "where the cost comes from: measured, measured_provisional, ..."),
    Column("reported_prompt_tokens", _INT, "n_input_tokens that the record states"),
    Column("reported_completion_tokens", _INT, "n_output_tokens that the record states"),
    Column("reported_cached_tokens", _INT, "n_cache_tokens that the record states"),
    Column("reported_cost_usd", _NUM, "cost_usd that the record states"),
    _few("trace_source", "what the trace was read from: session, stdout, trace, atif, sdk; null without a trace"),
    _few("trace_harness", "the harness whose parser read it"),
    _few("trace_version", "version of the harness, as the trace has it"),
    Column("trace_session_id", _STR, "the session's id"),
    Column("lines_read", _INT, "lines read; the sum of the next four"),
    Column("lines_parsed", _INT, "lines that gave events or were understood"),
    Column("lines_unknown", _INT, "lines of a type that the parser does not know"),
    Column("lines_malformed", _INT, "lines that are no JSON"),
    Column("lines_duplicate", _INT, "lines that repeat another one"),
    Column("unknown_types", _STR, "JSON object: unknown type -> lines"),
    Column("warnings", _STR, "JSON list of the parse report's warnings: code, count, message, place"),
    Column("incomplete", _BOOL, "whether the trace was cut short"),
    _few("linked_by", "how the trial was linked to a task: dataset_flag, job_dataset_record, task_hash, none"),
    Column("dataset", _STR, "the dataset that the task was found in (`name@version`)"),
    _few("link_reason", "why there is no link"),
    Column(
        "candidates",
        pa.list_(pa.field("element", _STR, nullable=False)),
        "datasets that hold the digest, where it is ambiguous",
    ),
    Column("step_results", _STR, "JSON: results of the steps of a multi-step trial"),
    Column("extra", _STR, "JSON: facts of the record that have no column"),
    _few("skipped_code", "why the trial was not taken in: trial_incomplete, trial_too_large, invalid_trial"),
    Column("skipped_message", _STR, "the same in words"),
)

EVENTS = (
    Column("job_id", _STR, "the job", null=False, dictionary=True, statistics=True, packed=False),
    Column("trial_id", _STR, "the trial", null=False, dictionary=True, statistics=True, packed=False),
    Column("seq", _INT, "position in the trace, from 0; gateway usage from 1,000,000,000", null=False, statistics=True),
    _few("type", "prompt, user_message_chunk, ...: a type of the parsed trace", null=False),
    Column("timestamp", _TIME, "the source's clock", statistics=True),
    _few("session_id", "the session, as the event names it", packed=False),
    _few("agent_id", "the subagent whose event it is; null for the main agent"),
    _few("parent_tool_call_id", "the call that spawned the subagent", packed=False),
    Column("step_id", _INT, "the step of the agent's trajectory, from 1; null for what is in no step"),
    _few("step_name", "the step of a multi-step trial", packed=False),
    Column("message_id", _STR, "the model call, unique within session and agent", dictionary=True),
    _few("model", "the model that the event names", packed=False),
    Column("tool_call_id", _STR, "the tool call, unique within the agent in most traces", dictionary=True),
    Column("call_seq", _INT, "the same for a call and its results: the position of the first of them"),
    _few("tool_name", "the harness's own name of the tool"),
    _few("kind", "read, edit, delete, move, search, execute, think, fetch, switch_mode, other", packed=False),
    _few("status", "pending, in_progress, completed, failed", packed=False),
    Column("title", _STR, "what a viewer shows for the call, cut to 256 characters"),
    Column(
        "text",
        _STR,
        "words, the strings of a call's input, a result, an error: pieces joined by a line feed",
        null=False,
    ),
    Column("text_parts", _INTS, "where each further piece begins in `text`, in characters; null for one piece"),
    Column(
        "raw_input", _STR, "a call's input as JSON, each string replaced by U+0001: they begin `text`", dictionary=True
    ),
    Column("exit_code", _INT, "exit code of a command"),
    Column("duration_ms", _NUM, "milliseconds that the source states"),
    Column("scope", _STR, "usage: call or run", dictionary=True, packed=False),
    Column("usage_source", _STR, "usage: gateway where it was measured there", dictionary=True, packed=False),
    Column("prompt_tokens", _INT, "usage: prompt tokens with cache reads and writes"),
    Column("completion_tokens", _INT, "usage: completion tokens with reasoning"),
    Column("cached_tokens", _INT, "usage: prompt tokens read from cache"),
    Column("cost_usd", _NUM, "usage: what the source states"),
    Column("fatal", _BOOL, "error: whether it ended the run", packed=False),
    Column("delta", _BOOL, "true for a chunk that continues the text before it; others stand apart", packed=False),
    Column("injected", _STR, "kind of a text that the harness put in, not a person", dictionary=True, packed=False),
    Column(
        "compaction",
        _BOOL,
        "true for a summary that replaces the history, and for the call that wrote it",
        packed=False,
    ),
    Column("abandoned", _BOOL, "true for what was withdrawn from the history", packed=False),
    Column("copied", _BOOL, "true for a copy of another session's history", packed=False),
    Column("retried", _BOOL, "true for a failed attempt that was tried again", packed=False),
    Column(
        "rest",
        _STR,
        "data as JSON, with what stands in other columns cut out (docs/store.md)",
        null=False,
        dictionary=True,
    ),
)

FILES = (
    _key("job_id", "the job"),
    Column("path", _STR, "path below the job's folder, POSIX", null=False, statistics=True),
    Column("trial_id", _STR, "its trial; null for the job's own files", dictionary=True, statistics=True),
    Column("kind", _STR, "file, directory (an empty one) or link", null=False, dictionary=True),
    Column("size", _INT, "bytes of the content", null=False),
    Column("mode", pa.int32(), "permission bits", null=False),
    Column("sha256", _STR, "hex digest of the content; null for directories and links"),
    Column("target", _STR, "what a link points to, verbatim"),
    Column("derived", _BOOL, "true for what was made by an export and is not an original", null=False),
    Column("pack", pa.int32(), "number of the pack that holds it"),
    Column("offset", _INT, "first byte of its frames in the pack"),
    Column("length", _INT, "bytes of its frames"),
    Column("frames", _INTS, "bytes of each frame, where there are several"),
)

TABLES = {"trials": TRIALS, "events": EVENTS, "files": FILES}


_made: dict[str, tuple[tuple[Column, ...], pa.Schema]] = {}  # with the columns that each was made of


def arrow_schema(table: str) -> pa.Schema:
    """The schema of a table as it is written today."""
    columns = TABLES[table]
    made = _made.get(table)
    if made is None or made[0] is not columns:
        made = _made[table] = columns, pa.schema([pa.field(c.name, c.type, nullable=c.null) for c in columns])
    return made[1]


def microseconds(text: str) -> int | None:
    """Microseconds since 1970 of an ISO 8601 time; None where it is none, or not of the years 1 to 9999 in UTC."""
    try:
        found = epoch_us(text)
    except OverflowError:
        return None
    return found if found is not None and _FIRST <= found <= _LAST else None
