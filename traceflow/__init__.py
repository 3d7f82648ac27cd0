"""traceflow: bring agent runs that were made anywhere into one store, and get them out again unchanged."""

from __future__ import annotations

__version__ = "0.1.0"
