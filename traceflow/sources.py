"""Any path to its traces: a session, a stream, a document, a folder of sessions, or a trial of a job."""

from __future__ import annotations

from pathlib import Path

from traceflow_parsers.detect import open_path
from traceflow_parsers.source import Source

__all__ = ["open_any"]


def open_any(path: Path, harness: str | None = None) -> list[Source]:
    """The traces at a path; raises TraceflowError when there is none."""
    return open_path(path, harness)
