"""What reviewers and collectors leave beside a trial: analyses, task checks, the list of artifacts.

`harbor analyze` writes `{"results": [...]}` for its job and one object into each trial it looked at; `harbor check`
writes check_report.json and, per task, a flat artifacts/check-result.json. artifacts/manifest.json is a list. None of
these files is needed: one that is no JSON is a TraceflowError("invalid_input") that an importer turns into a warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Generic, NamedTuple, TypeVar

from ..errors import TraceflowError
from .document import Fields, Notes, RecordWarning, read_json, read_object

__all__ = [
    "Analysis",
    "Artifact",
    "Check",
    "Reading",
    "read_analysis",
    "read_check_report",
    "read_check_result",
    "read_manifest",
]

T = TypeVar("T")


class Check(NamedTuple):
    """One criterion: the outcome as written (pass, fail, not_applicable, unknown) and why."""

    outcome: str | None
    explanation: str | None
    raw: Mapping[str, Any]


class Analysis(NamedTuple):
    """A review of one trial (`trial_name`, `summary`) or of one task (`task_name`).

    `cost_usd` is what the review cost: `cost_usd` in a job's file, `estimated_cost_usd` in a trial's.
    """

    trial_name: str | None
    task_name: str | None
    summary: str | None
    checks: Mapping[str, Check]
    cost_usd: float | None
    error: str | None
    raw: Mapping[str, Any]


class Artifact(NamedTuple):
    """One entry of a manifest. `destination` is a claim of the record: it is not safe to open without a check.

    `type` is file or directory (unreliable where `status` is failed), `status` ok, failed, empty or skipped.
    """

    source: str | None
    destination: str | None
    type: str | None
    status: str | None
    service: str | None
    exclude: tuple[str, ...]
    raw: Mapping[str, Any]


class Reading(NamedTuple, Generic[T]):
    """What a file held, in its order, and what was odd about it."""

    items: tuple[T, ...]
    warnings: tuple[RecordWarning, ...]


def read_analysis(data: bytes, path: str = "analysis.json") -> Reading[Analysis]:
    """The analyses of an analysis.json, of a job (`{"results": [...]}`) or of a trial (one object).

    Raises TraceflowError("invalid_input") for what is no JSON object.
    """
    notes = Notes(path)
    fields = Fields(read_object(data, notes, "invalid_input"), notes)
    found = tuple(map(_analysis, fields.each("results"))) if "results" in fields.raw else (_analysis(fields),)
    return Reading(found, tuple(notes.kept))


def read_check_report(data: bytes, path: str = "check_report.json") -> Reading[Analysis]:
    """The checks of a check_report.json, one per task. Raises TraceflowError("invalid_input") for no JSON object."""
    notes = Notes(path)
    fields = Fields(read_object(data, notes, "invalid_input"), notes)
    return Reading(tuple(map(_analysis, fields.each("results"))), tuple(notes.kept))


def read_check_result(data: bytes, path: str = "artifacts/check-result.json") -> Mapping[str, Check]:
    """The criteria of a check-result.json by name. Raises TraceflowError("invalid_input") for no JSON object."""
    notes = Notes(path)
    return _checks(Fields(read_object(data, notes, "invalid_input"), notes))


def read_manifest(data: bytes, path: str = "artifacts/manifest.json") -> Reading[Artifact]:
    """The entries of an artifact manifest. A destination outside `artifacts/` is noted (unsafe_path).

    Raises TraceflowError("invalid_input") for what is no JSON list.
    """
    notes = Notes(path)
    value = read_json(data, notes, "invalid_input")
    if not isinstance(value, list):
        raise TraceflowError("invalid_input", f"{path} is no list of artifacts", path=path)
    entries = Fields({"entries": value}, notes).each("entries")
    return Reading(tuple(map(_artifact, entries)), tuple(notes.kept))


def _analysis(fields: Fields) -> Analysis:
    cost = fields.money("cost_usd")
    return Analysis(
        trial_name=fields.filled("trial_name"),
        task_name=fields.filled("task_name"),
        summary=fields.text("summary"),
        checks=_checks(fields.inside("checks")),
        cost_usd=fields.money("estimated_cost_usd") if cost is None else cost,
        error=fields.filled("error"),
        raw=fields.raw,
    )


def _checks(fields: Fields) -> dict[str, Check]:
    found = {name: item for name in fields.raw if (item := fields.nested(name)) is not None}
    return {name: Check(item.filled("outcome"), item.text("explanation"), item.raw) for name, item in found.items()}


def _artifact(fields: Fields) -> Artifact:
    destination = fields.filled("destination")
    if destination is not None and not _inside_artifacts(destination):
        fields.notes.warn("unsafe_path", f"{fields.name('destination')} leads outside: {destination[:80]!r}")
    exclude = fields.raw.get("exclude")
    return Artifact(
        source=fields.filled("source"),
        destination=destination,
        type=fields.filled("type"),
        status=fields.filled("status"),
        service=fields.filled("service"),
        exclude=tuple(item for item in exclude if isinstance(item, str)) if isinstance(exclude, list) else (),
        raw=fields.raw,
    )


def _inside_artifacts(destination: str) -> bool:
    parts = PurePosixPath(destination).parts
    return parts[:1] == ("artifacts",) and ".." not in parts and "\\" not in destination
