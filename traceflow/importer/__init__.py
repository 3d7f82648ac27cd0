"""Harbor jobs and datasets into the store: checked, linked, parsed, and committed in one step."""

from .datasets import Added, add_dataset
from .job import import_job
from .relink import Relinked, relink_job
from .report import ImportReport

__all__ = ["Added", "ImportReport", "Relinked", "add_dataset", "import_job", "relink_job"]
