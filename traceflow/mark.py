"""The file that says which files of a job an export added, and their names."""

from __future__ import annotations

import re
import uuid

__all__ = ["EXPORT_FORMAT", "EXPORT_VERSION", "MARK", "is_derived_name", "redacted_id"]

MARK = "traceflow.json"
EXPORT_FORMAT = "traceflow-export"
EXPORT_VERSION = 1

_AGENT_FILES = r"agent/(?:trajectory\.json|trace-parsed\.jsonl|agent-home\.json|images/[0-9A-Za-z._-]+)"
_NAMES = re.compile(rf"[^/]+/(?:steps/[^/]+/)?{_AGENT_FILES}|[^/]+/traceflow\.json|traceflow\.json").fullmatch


def is_derived_name(path: str) -> bool:
    """Whether an export may add a file of this name."""
    return _NAMES(path) is not None


def redacted_id(job_id: str) -> str:
    """The id in a store of a job that comes redacted: never that of the original, which may be there as well."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"traceflow:redacted:{job_id}"))
