"""Harbor jobs and datasets into the store: checked, linked, parsed, and committed in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazily import from_modules

if TYPE_CHECKING:
    from .datasets import Added, add_dataset
    from .job import import_job
    from .relink import Relinked, relink_job
    from .report import ImportReport

__all__ = ["Added", "ImportReport", "Relinked", "add_dataset", "import_job", "relink_job"]

__getattr__ = from_modules(
    __name__,
    {
        "Added": "datasets",
        "add_dataset": "datasets",
        "import_job": "job",
        "Relinked": "relink",
        "relink_job": "relink",
        "ImportReport": "report",
    },
)
