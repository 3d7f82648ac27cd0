"""The report of a conversion, as `convert` and `trial convert` print it."""

from __future__ import annotations

from typing import Any

from . import output
from .redaction import redaction_line

__all__ = ["print_report"]


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """The report of a conversion: on stdout as JSON, else for people on stderr."""
    if as_json:
        output.print_json(report, indent=True)
    else:
        _say(report)


def _say(report: dict[str, Any]) -> None:
    tokens, lines = report["tokens"], report["lines"]
    version = f" {report['version']}" if report["version"] else ""
    counts = f"{report['sessions']} session(s)"
    if report["steps"] is not None:
        counts += f", {report['steps']} steps, {report['model_calls']} model calls, {report['tool_calls']} tool calls"
    output.note(f"{report['harness']}{version} {report['source']}: {counts}")
    known = {name: value for name, value in tokens.items() if value is not None}
    if known:
        cost = "" if report["cost_usd"] is None else f", cost ${report['cost_usd']:.6g}"
        output.note("tokens: " + ", ".join(f"{value} {name}" for name, value in known.items()) + cost)
    output.note(
        f"lines: {lines['read']} read = {lines['parsed']} parsed + {lines['unknown']} unknown"
        f" + {lines['malformed']} malformed + {lines['duplicate']} duplicate"
    )
    if report["unknown_types"]:
        output.note("unknown types: " + ", ".join(f"{name} ({n})" for name, n in report["unknown_types"].items()))
    for warning in report["warnings"]:
        place = "".join(
            f" {word} {warning[key]}"
            for key, word in (("path", "in"), ("line", "line"), ("byte", "byte"))
            if key in warning
        )
        output.note(
            f"warning[{warning['code']}]: {warning['message']} ({warning['count']}x{',' if place else ''}{place})"
        )
    if losses := report.get("losses"):
        output.note("not in it: " + ", ".join(f"{name} ({count})" for name, count in losses.items()))
    if redacted := report.get("redacted"):
        output.note(redaction_line(redacted))
        for entry in redacted["left_out"]:
            output.note(f"warning[redacted_left_out]: {entry['path']}: {entry['reason']}; it is left out")
    for path in report["outputs"]:
        output.note(f"wrote {path}")
