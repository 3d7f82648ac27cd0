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

from typing import TYPE_CHECKING, Any

from .build import AtifBuilder, trajectory
from .document import Built, Summary, Trajectory
from .images import ImageSink

if TYPE_CHECKING:
    from .check import Problem, problems, strict_problems, validate_strict
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
    "Trajectory",
    "Warned",
    "events_of",
    "problems",
    "read_trajectory",
    "strict_problems",
    "trajectory",
    "validate_strict",
]


_LATER = {
    "check": ("Problem", "problems", "strict_problems", "validate_strict"),
    "read": ("Reading", "Totals", "Warned", "read_trajectory"),
    "to_trace": ("Describe", "events_of"),
}


def __getattr__(name: str) -> Any:
    """What reads documents is loaded when it is asked for: its models take longer to make than most conversions."""
    from importlib import import_module

    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
