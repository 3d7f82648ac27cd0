"""ATIF, the Agent Trajectory Interchange Format: read v1.0 to v1.8, write v1.7.

`read_trajectory` takes a document as leniently as Harbor does, `events_of` makes a parsed trace of it, and
`AtifBuilder` makes the document of a trace. `problems` and `strict_problems` list what is wrong with one.
"""

from .build import AtifBuilder, trajectory
from .check import Problem, problems, strict_problems
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
]
