"""Questions to a store: SQL over views, and grep."""

from .connection import connect, explain_error, sql
from .grep import Hit, TrialCount, TrialHits, grep, grep_counts, job_grep, trace_matcher
from .views import VIEWS

__all__ = [
    "VIEWS",
    "Hit",
    "TrialCount",
    "TrialHits",
    "connect",
    "explain_error",
    "grep",
    "grep_counts",
    "job_grep",
    "sql",
    "trace_matcher",
]
