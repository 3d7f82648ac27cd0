"""ATIF, the Agent Trajectory Interchange Format: read v1.0 to v1.8, write v1.7.

`read_trajectory` takes a document as leniently as Harbor does, `events_of` makes a parsed trace of it, and
`AtifBuilder` makes the document of a trace. `problems` and `strict_problems` list what is wrong with one.

Besides the names that the trace itself defines, the builder reads these in an event's `extra`:

`harness`, `harnessVersion`   who wrote the trace: on its first event, or on a subagent's first
`delta`                       this chunk continues the text before it; other blocks of a message stand apart
`reasoningEffort`             the effort that a model call was asked for
`errorKind` (or `error`), `isApiError` (or `isApiErrorMessage`)   the kind of an error, and that it is the provider's
`llmCallCount`                how many model calls a step stands for, where that is not one
`subagentRefs`                references of a result to trajectories in files
`atif`, `trajectory`          what a document that was read said and no field holds, verbatim

Every other fact in `extra` stands in the `extra` of the step, call or result: stopReason, requestId, exitCode and
durationMs as stop_reason, request_id, exit_code and duration_ms, the rest under its own name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .build import AtifBuilder, trajectory
    from .check import Problem, problems, strict_problems, validate_strict
    from .document import Built, Summary
    from .images import ImageSink
    from .read import Reading, Totals, Warned, read_trajectory
    from .to_trace import Describe, events_of

__all__ = [
    "AtifBuilder",
    "Built",
    "Describe",
    "ImageSink",
    "Problem",
    "Reading",
    "Summary",
    "Totals",
    "Warned",
    "events_of",
    "problems",
    "read_trajectory",
    "strict_problems",
    "trajectory",
    "validate_strict",
]

_WHERE = {
    "AtifBuilder": "build",
    "trajectory": "build",
    "Problem": "check",
    "problems": "check",
    "strict_problems": "check",
    "validate_strict": "check",
    "Built": "document",
    "Summary": "document",
    "ImageSink": "images",
    "Reading": "read",
    "Totals": "read",
    "Warned": "read",
    "read_trajectory": "read",
    "Describe": "to_trace",
    "events_of": "to_trace",
}


def __getattr__(name: str) -> Any:
    """A name is imported when it is asked for: a writer does without the models, which take long to import."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{_WHERE[name]}", __name__), name)
    return value
