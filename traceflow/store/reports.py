"""What the care of a store says: its counts, what a verification found, what was removed."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["GcReport", "Problem", "StoreInfo", "VerifyReport"]


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What a store holds; `size` is bytes of the objects of jobs and datasets."""

    url: str
    version: int
    jobs: int
    trials: int
    events: int
    files: int
    datasets: int
    size: int


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with an object of a job, or of a dataset: then `job_id` is its name@version."""

    job_id: str
    name: str
    message: str


@dataclass(slots=True)
class VerifyReport:
    """What a verification read, and what it found wrong."""

    jobs: int = 0
    datasets: int = 0
    objects: int = 0
    size: int = 0
    contents: int = 0
    problems: list[Problem] = field(default_factory=list)


@dataclass(slots=True)
class GcReport:
    """What was removed (or would be): folders and unfinished objects, and their bytes."""

    removed: list[str] = field(default_factory=list)
    size: int = 0
