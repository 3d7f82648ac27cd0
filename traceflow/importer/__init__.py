"""Harbor jobs into the store: checked, linked, parsed, and committed in one step."""

from .job import import_job
from .report import ImportReport

__all__ = ["ImportReport", "import_job"]
