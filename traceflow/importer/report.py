"""What an import came to, in the shape that `import --json` prints and that the manifest keeps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["ImportReport", "Warnings"]


class Warnings:
    """Warnings by code, each with how often it was said and the first message."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, Any]] = {}

    def warn(self, code: str, message: str, count: int = 1, path: str | None = None) -> None:
        found = self._found.get(code)
        if found is not None:
            found["count"] += count
            return
        self._found[code] = {"code": code, "count": count, "message": message}
        if path is not None:
            self._found[code]["path"] = path

    def take(self, warnings: Iterable[Mapping[str, Any]], where: str | None = None) -> None:
        """Count the warnings of another report in; `where` names what they are about."""
        for warning in warnings:
            message = warning["message"] if where is None else f"{where}: {warning['message']}"
            self.warn(warning["code"], message, warning.get("count", 1), warning.get("path"))

    def __contains__(self, code: str) -> bool:
        return code in self._found

    def as_list(self) -> list[dict[str, Any]]:
        return [self._found[code] for code in sorted(self._found)]


@dataclass
class ImportReport:
    """One job's import. `skipped` are trials that are not in the tables, each with its code and why."""

    job_id: str
    original_job_id: str | None
    original_job_name: str | None
    trials: int = 0
    scored: int = 0
    skipped: list[dict[str, str]] = field(default_factory=list)
    task_links: dict[str, int] = field(default_factory=dict)  # reason or "linked" -> trials
    dataset_flags: list[str] = field(default_factory=list)
    reported_totals: dict[str, Any] = field(default_factory=dict)
    warnings: list[dict[str, Any]] = field(default_factory=list)
    dry_run: bool = False
    replaced: bool = False
    redacted: dict[str, Any] | None = None  # what a redacted export says of itself

    def as_dict(self) -> dict[str, Any]:
        out = {
            "job_id": self.job_id,
            "original_job_id": self.original_job_id,
            "original_job_name": self.original_job_name,
            "trials": self.trials,
            "scored": self.scored,
            "skipped": self.skipped,
            "task_links": dict(sorted(self.task_links.items())),
            "reported_totals": self.reported_totals,
            "warnings": self.warnings,
        }
        if self.dry_run:
            out["dry_run"] = True
        if self.replaced:
            out["replaced"] = True
        if self.redacted is not None:
            out["redacted"] = {name: self.redacted.get(name) for name in ("secrets", "replaced")}
        return out
