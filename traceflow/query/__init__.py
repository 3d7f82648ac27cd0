"""Questions to a store: SQL over views, and grep."""

from .connection import connect, explain_error, sql
from .views import VIEWS

__all__ = ["VIEWS", "connect", "explain_error", "sql"]
