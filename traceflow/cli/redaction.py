"""What a redaction did, for people."""

from __future__ import annotations

from typing import Any

__all__ = ["redaction_line"]


def redaction_line(record: dict[str, Any]) -> str:
    """What a redaction replaced, in a line."""
    secrets = ", ".join(f"{kind} ({count})" for kind, count in record["secrets"].items()) or "none"
    places, files = sum(record["replaced"].values()), len(record["files"])
    return f"redacted: {places} place(s) in {files} file(s); secrets: {secrets}"
