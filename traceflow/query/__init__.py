"""Questions to a store: SQL over views, grep, and ranked search. Names are imported when they are asked for."""

from __future__ import annotations

from traceflow.lean_typing import TYPE_CHECKING

from ..lazily import from_modules

if TYPE_CHECKING:
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

__getattr__ = from_modules(__name__, _PLACES)
