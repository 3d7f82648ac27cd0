"""Questions to a store: SQL over views, grep, and ranked search. Names are imported when they are asked for."""

from __future__ import annotations

from traceflow.lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .connection import connect, explain_error, sql
    from .hits import Hit, TrialCount, TrialHits
    from .matching import grep, grep_counts, job_grep, trace_matcher
    from .ranked import Found, index_jobs, search, snippet
    from .views import VIEWS

__all__ = [
    "VIEWS",
    "Found",
    "Hit",
    "TrialCount",
    "TrialHits",
    "connect",
    "explain_error",
    "grep",
    "grep_counts",
    "index_jobs",
    "job_grep",
    "search",
    "snippet",
    "sql",
    "trace_matcher",
]

_PLACES = {
    "VIEWS": "views",
    "Found": "ranked",
    "Hit": "hits",
    "TrialCount": "hits",
    "TrialHits": "hits",
    "connect": "connection",
    "explain_error": "connection",
    "grep": "matching",
    "grep_counts": "matching",
    "index_jobs": "ranked",
    "job_grep": "matching",
    "search": "ranked",
    "snippet": "ranked",
    "sql": "connection",
    "trace_matcher": "matching",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f".{_PLACES[name]}", __name__), name)
    globals()[name] = found
    return found
