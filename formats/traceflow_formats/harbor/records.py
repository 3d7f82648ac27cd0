"""What an importer needs of a trial's records: result.json, config.json, lock.json, each read leniently.

Reading is not done with Harbor's strict models: unknown keys are kept in `raw`, a field of another type is None and
a warning, and only what makes a record useless is refused. The bytes themselves are kept by whoever imports them.
Harbor 0.26 writes the records; older ones and those of platforms differ in what is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import TraceflowError
from .document import Fields, Notes, RecordWarning, read_object
from .policy import PolicyOverride, reward_valid
from .rewards import NO_REWARDS, Rewards, rewards_of

__all__ = [
    "NO_TIMING",
    "NO_USAGE",
    "PHASES",
    "AgentResult",
    "Failure",
    "StepRecord",
    "Timing",
    "TrialConfig",
    "TrialLock",
    "TrialRecord",
    "Usage",
    "identity_of",
    "read_trial",
    "read_trial_config",
    "read_trial_lock",
    "trial_lock_of",
    "usage_of",
]

PHASES = ("environment_setup", "agent_setup", "agent_execution", "verifier")

_NEEDED: Mapping[str, type] = {
    "task_name": str,
    "trial_name": str,
    "trial_uri": str,
    "task_id": dict,
    "task_checksum": str,
    "config": dict,
    "agent_info": dict,
}
_DIGEST = re.compile("sha256:[0-9a-f]{64}")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class Usage(NamedTuple):
    """Tokens and money as a record states them. Input includes cached tokens; None is unknown, never 0."""

    n_input_tokens: int | None = None
    n_cache_tokens: int | None = None
    n_output_tokens: int | None = None
    cost_usd: float | None = None

    @property
    def stated(self) -> bool:
        """Whether any of the four numbers is known."""
        return self != NO_USAGE


NO_USAGE = Usage()


class Timing(NamedTuple):
    """Begin and end of a phase, ISO 8601 in UTC."""

    started_at: str | None = None
    finished_at: str | None = None


NO_TIMING = Timing()


class AgentResult(NamedTuple):
    """What the agent reported: its totals, and the same per model where the record has them."""

    usage: Usage
    models: Mapping[str, Usage]


class Failure(NamedTuple):
    """An exception as recorded. `type` is the name of its class, "" where the record has none."""

    type: str
    message: str
    traceback: str
    occurred_at: str | None = None
    override: PolicyOverride | None = None


class StepRecord(NamedTuple):
    """One step of a multi-step trial, in the order they ran."""

    name: str
    agent_result: AgentResult | None
    has_verifier_result: bool
    rewards: Rewards
    exception: Failure | None
    agent_execution: Timing
    verifier: Timing

    @property
    def ran(self) -> bool:
        """Whether the agent was started in this step."""
        return self.agent_result is not None or self.agent_execution != NO_TIMING


class TrialRecord(NamedTuple):
    """One trial as its result.json tells it. Texts are verbatim; empty ids and names are None where they may be.

    `usage` is the agent's own total, else the sum over the steps: None where a step that ran does not state it.
    `phases` has begin and end of each of PHASES that the record has. `raw` is the whole record.
    """

    id: str | None
    task_name: str
    trial_name: str
    trial_uri: str
    task_id: Mapping[str, Any]
    task_checksum: str
    source: str | None
    job_id: str | None
    agent_name: str | None
    agent_version: str | None
    model_name: str | None
    model_provider: str | None
    agent_result: AgentResult | None
    usage: Usage
    has_verifier_result: bool
    rewards: Rewards
    verifier_environment_mode: str | None
    exception: Failure | None
    started_at: str | None
    finished_at: str | None
    phases: Mapping[str, Timing]
    steps: tuple[StepRecord, ...]
    config: Mapping[str, Any]
    x_evolve: Mapping[str, Any] | None
    raw: Mapping[str, Any]
    warnings: tuple[RecordWarning, ...]

    @property
    def exceptions(self) -> tuple[Failure, ...]:
        """Every exception recorded: the trial's first, then those of the steps in their order."""
        own = () if self.exception is None else (self.exception,)
        return own + tuple(step.exception for step in self.steps if step.exception is not None)

    @property
    def reward_valid(self) -> bool:
        """Whether the reward counts under Harbor's error policy."""
        return reward_valid(bool(self.rewards), ((e.type, e.override) for e in self.exceptions))


class TrialConfig(NamedTuple):
    """The config.json of a trial: all there is to know of one that never finished."""

    trial_name: str | None
    task: Mapping[str, Any]
    agent_name: str | None
    model_name: str | None
    job_id: str | None
    raw: Mapping[str, Any]
    warnings: tuple[RecordWarning, ...]


class TrialLock(NamedTuple):
    """The lock.json of a trial. `digest` is the task's content digest, "sha256:" and 64 hex digits, or None."""

    task_name: str | None
    task_version: str | None
    task_type: str | None
    digest: str | None
    source: str | None
    path: str | None
    git_url: str | None
    git_commit_id: str | None
    raw: Mapping[str, Any]
    warnings: tuple[RecordWarning, ...]


def read_trial(data: bytes, path: str = "result.json") -> TrialRecord:
    """Read a trial's result.json. `path` is where it stands in the job folder, `TRIAL/result.json`.

    Raises TraceflowError("invalid_trial") for what is no JSON object (with byte, line and column) and for one
    that lacks a needed key or has another type there (all of them are named). Empty texts and objects are fine.
    """
    notes = Notes(path)
    raw = read_object(data, notes, "invalid_trial")
    _require(raw, path)
    fields = Fields(raw, notes)
    config, info = fields.inside("config"), fields.inside("agent_info")
    agent, model = config.inside("agent"), info.inside("model_info")
    _check_folder(raw["trial_name"], path, notes)

    agent_result = _agent_result(fields)
    steps = tuple(_step(item) for item in fields.each("step_results"))
    stated = agent_result.usage if agent_result is not None else NO_USAGE
    has_result, rewards = _verifier(fields)
    evolve = fields.nested("x_evolve")
    return TrialRecord(
        id=identity_of(fields, "id"),
        task_name=raw["task_name"],
        trial_name=raw["trial_name"],
        trial_uri=raw["trial_uri"],
        task_id=raw["task_id"],
        task_checksum=raw["task_checksum"],
        source=fields.filled("source"),
        job_id=config.filled("job_id"),
        agent_name=info.filled("name") or agent.filled("name"),
        agent_version=info.filled("version"),
        model_name=model.filled("name") or agent.filled("model_name"),
        model_provider=model.filled("provider"),
        agent_result=agent_result,
        usage=stated if stated.stated or not steps else _sum_of_steps(steps, notes),
        has_verifier_result=has_result,
        rewards=rewards,
        verifier_environment_mode=fields.filled("verifier_environment_mode"),
        exception=_failure(fields),
        started_at=fields.time("started_at"),
        finished_at=fields.time("finished_at"),
        phases={name: _timing(fields, name) for name in PHASES if isinstance(raw.get(name), dict)},
        steps=steps,
        config=config.raw,
        x_evolve=None if evolve is None else evolve.raw,
        raw=raw,
        warnings=tuple(notes.kept),
    )


def read_trial_config(data: bytes, path: str = "config.json") -> TrialConfig:
    """Read a trial's config.json. Raises TraceflowError("invalid_trial") for what is no JSON object."""
    notes = Notes(path)
    fields = Fields(read_object(data, notes, "invalid_trial"), notes)
    agent = fields.inside("agent")
    return TrialConfig(
        trial_name=fields.filled("trial_name"),
        task=fields.inside("task").raw,
        agent_name=agent.filled("name"),
        model_name=agent.filled("model_name"),
        job_id=fields.filled("job_id"),
        raw=fields.raw,
        warnings=tuple(notes.kept),
    )


def read_trial_lock(data: bytes, path: str = "lock.json") -> TrialLock:
    """Read a trial's lock.json. Raises TraceflowError("invalid_trial") for what is no JSON object.

    A digest of another form than "sha256:" and 64 lower-case hex digits is None and noted (bad_digest).
    """
    notes = Notes(path)
    return trial_lock_of(read_object(data, notes, "invalid_trial"), notes)


def trial_lock_of(raw: dict[str, Any], notes: Notes) -> TrialLock:
    """The trial lock that an object holds: a lock.json, or one entry of a job's lock."""
    task = Fields(raw, notes).inside("task")
    digest = task.filled("digest")
    if digest is not None and not _DIGEST.fullmatch(digest):
        notes.warn("bad_digest", f"{task.name('digest')} is no sha256 digest: {digest[:80]!r}")
        digest = None
    return TrialLock(
        task_name=task.filled("name"),
        task_version=task.filled("version"),
        task_type=task.filled("type"),
        digest=digest,
        source=task.filled("source"),
        path=task.filled("path"),
        git_url=task.filled("git_url"),
        git_commit_id=task.filled("git_commit_id"),
        raw=raw,
        warnings=tuple(notes.kept),
    )


def _require(raw: Mapping[str, Any], path: str) -> None:
    missing = [key for key in _NEEDED if key not in raw]
    wrong = [key for key, kind in _NEEDED.items() if key in raw and not isinstance(raw[key], kind)]
    if not missing and not wrong:
        return
    said = [f"{', '.join(missing)} missing"] if missing else []
    said += [f"{key} must be {'a string' if _NEEDED[key] is str else 'an object'}" for key in wrong]
    raise TraceflowError(
        "invalid_trial",
        f"{path} is no trial result: {'; '.join(said)}",
        path=path,
        missing=missing or None,
        wrong_type=wrong or None,
    )


def _check_folder(name: str, path: str, notes: Notes) -> None:
    folder = path.rpartition("/")[0].rpartition("/")[2]
    if folder and name and folder != name:
        notes.warn("trial_name_mismatch", f"the folder is {folder!r}, the record says {name[:80]!r}")


def identity_of(fields: Fields, key: str) -> str | None:
    """An id that can stand in a path; anything else is no id."""
    text = fields.filled(key)
    if text is not None and not _ID.fullmatch(text):
        fields.notes.warn("bad_id", f"{fields.name(key)} is no id: {text[:80]!r}")
        return None
    return text


def usage_of(fields: Fields) -> Usage:
    return Usage(
        n_input_tokens=fields.count("n_input_tokens"),
        n_cache_tokens=fields.count("n_cache_tokens"),
        n_output_tokens=fields.count("n_output_tokens"),
        cost_usd=fields.money("cost_usd"),
    )


def _agent_result(fields: Fields) -> AgentResult | None:
    found = fields.nested("agent_result")
    if found is None:
        return None
    models = found.inside("model_usage")
    per_model = {name: usage_of(item) for name in models.raw if (item := models.nested(name)) is not None}
    return AgentResult(usage_of(found), per_model)


def _sum_of_steps(steps: Iterable[StepRecord], notes: Notes) -> Usage:
    """The sum over the steps that ran; a number that one of them does not state is unknown for the trial."""
    ran = [step.agent_result.usage if step.agent_result else NO_USAGE for step in steps if step.ran]
    totals: dict[str, Any] = {}
    for name in ("n_input_tokens", "n_cache_tokens", "n_output_tokens", "cost_usd"):
        values = [getattr(usage, name) for usage in ran]
        known = [value for value in values if value is not None]
        totals[name] = sum(known) if known and len(known) == len(values) else None
        if known and len(known) < len(values):
            notes.warn(
                "partial_usage", f"{name} is known for {len(known)} of {len(values)} steps, so not for the trial"
            )
    return Usage(**totals)


def _verifier(fields: Fields) -> tuple[bool, Rewards]:
    found = fields.nested("verifier_result")
    if found is None:
        return False, NO_REWARDS
    return True, rewards_of(found.raw.get("rewards"), found.notes, found.name("rewards"))


def _failure(fields: Fields) -> Failure | None:
    if fields.raw.get("exception_info") is None:
        return None
    found = fields.inside("exception_info")  # of another type: still an exception, of no known name
    override = found.nested("policy_override")
    return Failure(
        type=found.text("exception_type") or "",
        message=found.text("exception_message") or "",
        traceback=found.text("exception_traceback") or "",
        occurred_at=found.time("occurred_at"),
        override=None
        if override is None
        else PolicyOverride(
            should_retry=override.flag("should_retry"),
            should_grade=override.flag("should_grade"),
            has_valid_reward=override.flag("has_valid_reward"),
        ),
    )


def _timing(fields: Fields, key: str) -> Timing:
    found = fields.inside(key)
    return Timing(found.time("started_at"), found.time("finished_at"))


def _step(fields: Fields) -> StepRecord:
    has_result, rewards = _verifier(fields)
    return StepRecord(
        name=fields.text("step_name") or "",
        agent_result=_agent_result(fields),
        has_verifier_result=has_result,
        rewards=rewards,
        exception=_failure(fields),
        agent_execution=_timing(fields, "agent_execution"),
        verifier=_timing(fields, "verifier"),
    )
