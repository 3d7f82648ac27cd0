"""The file that says which files of a job an export added, and their names."""

from __future__ import annotations

import re

__all__ = ["EXPORT_FORMAT", "EXPORT_VERSION", "MARK", "is_derived_name"]

MARK = "traceflow.json"
EXPORT_FORMAT = "traceflow-export"
EXPORT_VERSION = 1

_AGENT_FILES = r"agent/(?:trajectory\.json|trace-parsed\.jsonl|agent-home\.json|images/[0-9A-Za-z._-]+)"
_NAMES = re.compile(rf"[^/]+/(?:steps/[^/]+/)?{_AGENT_FILES}|[^/]+/traceflow\.json|traceflow\.json").fullmatch


def is_derived_name(path: str) -> bool:
    """Whether an export may add a file of this name."""
    return _NAMES(path) is not None
