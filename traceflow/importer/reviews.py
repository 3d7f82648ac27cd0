"""What reviewers wrote beside trials: `harbor analyze` and `harbor check`, in their wrapper jobs and in the trials.

A trial's review is in its row (`extra.review`), a job's own file of reviews in the job's record (`reviews`). A file
that cannot be read is a warning: it is kept as a file in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import Analysis, Check, read_analysis, read_check_report, read_check_result

from .report import Warnings

__all__ = ["job_reviews", "trial_review"]

Read = Callable[[str], bytes | None]

# An analysed trial has its analysis beside it, a trial of a wrapper job the one that it wrote among its artifacts.
_OF_TRIAL = ("analysis.json", "artifacts/analysis.json", "artifacts/check-result.json")
_MOST = 1000  # reviews in a job's record; the file has all


def trial_review(read: Read, name: str, warnings: Warnings) -> dict[str, Any] | None:
    """The review of a trial: `file`, `summary`, `checks` (criterion to outcome and explanation), `cost_usd`."""
    for file in _OF_TRIAL:
        path = f"{name}/{file}"
        data = read(path)
        if data is None:
            continue
        try:
            if file.endswith("check-result.json"):
                return {"file": file, "checks": _checks(read_check_result(data, path))}
            found = read_analysis(data, path)
            warnings.take({"code": w.code, "message": w.message} for w in found.warnings)
            if found.items:
                return {"file": file, **_review(found.items[0])}
        except TraceflowError as error:
            warnings.warn("bad_review", error.message, path=path)
    return None


def job_reviews(read: Read, warnings: Warnings) -> list[dict[str, Any]]:
    """The reviews in the files of a wrapper job, each with the trial or task that it is about."""
    out: list[dict[str, Any]] = []
    for path, reader in (("analysis.json", read_analysis), ("check_report.json", read_check_report)):
        data = read(path)
        if data is None:
            continue
        try:
            found = reader(data, path)
        except TraceflowError as error:
            warnings.warn("bad_review", error.message, path=path)
            continue
        warnings.take({"code": w.code, "message": w.message} for w in found.warnings)
        for item in found.items:
            about = {"trial_name": item.trial_name, "task_name": item.task_name}
            out.append({"file": path, **{k: v for k, v in about.items() if v is not None}, **_review(item)})
    if len(out) > _MOST:
        warnings.warn("reviews_cut", f"the job's record keeps {_MOST} of {len(out)} reviews; the file has all")
    return out[:_MOST]


def _review(item: Analysis) -> dict[str, Any]:
    facts = {
        "summary": item.summary,
        "checks": _checks(item.checks),
        "cost_usd": item.cost_usd,
        "error": item.error,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _checks(checks: Any) -> dict[str, dict[str, str | None]]:
    found: dict[str, Check] = dict(checks)
    return {name: {"outcome": c.outcome, "explanation": c.explanation} for name, c in found.items()}
