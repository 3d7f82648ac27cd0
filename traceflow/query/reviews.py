"""Reviews that came with a job: analyses of trials and checks of tasks, by whoever wrote them.

Harbor leaves them as files: analysis.json in a job and in each trial that was looked at, check_report.json in a job
of checks, and artifacts/analysis.json or artifacts/check-result.json in the trial of the reviewer itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import Analysis, read_analysis, read_check_report, read_check_result

from ..store import Manifest, Store

__all__ = ["job_reviews", "review_line", "trial_reviews"]

_LIMIT = 64 << 20
_JOB_FILES = ("analysis.json", "check_report.json")
_TRIAL_FILES = ("analysis.json", "artifacts/analysis.json", "artifacts/check-result.json")


def job_reviews(store: Store, job: Manifest) -> list[dict[str, Any]]:
    """The reviews in the job's own files: `{"path", "kind", "trial_name"?, "task_name"?, "summary"?, "checks",
    "cost_usd"?, "error"?}`, kind analysis or check. One that cannot be read has `error` and nothing else."""
    return [review for path in _JOB_FILES for review in _read(store, job, path)]


def trial_reviews(store: Store, job: Manifest, trial: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The reviews in a trial's folder, in the same shape."""
    name = trial["trial_name"]
    return [review for path in _TRIAL_FILES for review in _read(store, job, f"{name}/{path}")]


def review_line(review: Mapping[str, Any]) -> str:
    """A review in one line: what was looked at, the outcomes, the summary."""
    what = review.get("trial_name") or review.get("task_name") or review["path"]
    outcomes = ", ".join(f"{name} {check['outcome']}" for name, check in review.get("checks", {}).items())
    words = [f"{review['kind']} of {what}", outcomes, review.get("summary"), review.get("error")]
    return ": ".join(word for word in words if word)


def _read(store: Store, job: Manifest, path: str) -> Iterator[dict[str, Any]]:
    kind = "check" if "check" in path.rpartition("/")[2] else "analysis"
    with store.file_table(job) as table:
        row = table.find(path)
    if row is None or row.packed is None or row.size > _LIMIT:
        return
    data = store.contents(job).read(row.packed)
    head = {"path": path, "kind": kind}
    try:
        if path.endswith("check-result.json"):
            checks = read_check_result(data, path)
            yield {**head, "checks": {name: _check(check) for name, check in checks.items()}}
            return
        items = (read_check_report if kind == "check" else read_analysis)(data, path).items
    except TraceflowError as error:
        yield {**head, "error": error.message}
        return
    for item in items:
        yield {**head, **_analysis(item)}


def _analysis(item: Analysis) -> dict[str, Any]:
    facts = {
        "trial_name": item.trial_name,
        "task_name": item.task_name,
        "summary": item.summary,
        "checks": {name: _check(check) for name, check in item.checks.items()},
        "cost_usd": item.cost_usd,
        "error": item.error,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _check(check: Any) -> dict[str, Any]:
    return {"outcome": check.outcome, "explanation": check.explanation}
