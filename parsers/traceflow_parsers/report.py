"""The report of one parse: every line accounted for, every oddity counted with the place it was first seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["LineCounts", "Report", "Warned"]

_PLACES_KEPT = 100


@dataclass(slots=True)
class LineCounts:
    """Non-blank lines read, and what became of them; `read` is the sum of the other four."""

    read: int = 0
    parsed: int = 0
    unknown: int = 0
    malformed: int = 0
    duplicate: int = 0

    def add(self, other: LineCounts) -> None:
        self.read += other.read
        self.parsed += other.parsed
        self.unknown += other.unknown
        self.malformed += other.malformed
        self.duplicate += other.duplicate

    def as_dict(self) -> dict[str, int]:
        return {
            "read": self.read,
            "parsed": self.parsed,
            "unknown": self.unknown,
            "malformed": self.malformed,
            "duplicate": self.duplicate,
        }


@dataclass(slots=True)
class Warned:
    """One kind of warning: how often, and where first (file, line from 1, byte offset of the line's start)."""

    code: str
    count: int = 0
    message: str = ""
    path: str | None = None
    line: int | None = None
    byte: int | None = None

    def as_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"code": self.code, "count": self.count, "message": self.message}
        for key in ("path", "line", "byte"):
            if (value := getattr(self, key)) is not None:
                out[key] = value
        return out


@dataclass(slots=True)
class Report:
    """What one parse read and what it had to say. `where` is set by the reader before each line."""

    harness: str = ""
    source: str = ""
    version: str | None = None
    session_id: str | None = None
    lines: LineCounts = field(default_factory=LineCounts)
    unknown_types: dict[str, int] = field(default_factory=dict)
    warnings: dict[str, Warned] = field(default_factory=dict)
    malformed_at: list[tuple[str, int, int]] = field(default_factory=list)
    incomplete: bool = False  # the run was cut short: a torn tail, a call without a result, no end mark

    path: str = ""
    line: int = 0
    byte: int = 0

    def warn(self, code: str, message: str, count: int = 1) -> None:
        """Count a warning; the first one keeps its message and its place."""
        if count <= 0:
            return
        found = self.warnings.get(code)
        if found is None:
            place = (self.path or None, self.line or None, self.byte if self.line else None)
            found = self.warnings[code] = Warned(code, 0, message, *place)
        found.count += count

    def unknown(self, name: str) -> None:
        """Count a record whose type the parser does not know, by its name (bounded: 200 names)."""
        key = name[:80]
        if key not in self.unknown_types and len(self.unknown_types) >= 200:
            key = "(others)"
        self.unknown_types[key] = self.unknown_types.get(key, 0) + 1

    def malformed(self, line: int, byte: int) -> None:
        """Keep the place of a malformed line; the first hundred places are kept."""
        if len(self.malformed_at) < _PLACES_KEPT:
            self.malformed_at.append((self.path, line, byte))

    def warning_list(self) -> list[dict[str, Any]]:
        return [self.warnings[code].as_dict() for code in sorted(self.warnings)]

    def as_dict(self) -> dict[str, Any]:
        return {
            "harness": self.harness,
            "source": self.source,
            "version": self.version,
            "session_id": self.session_id,
            "lines": self.lines.as_dict(),
            "unknown_types": dict(sorted(self.unknown_types.items())),
            "malformed_at": [{"path": p, "line": n, "byte": b} for p, n, b in self.malformed_at],
            "incomplete": self.incomplete,
            "warnings": self.warning_list(),
        }
