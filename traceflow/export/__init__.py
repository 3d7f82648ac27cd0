"""Jobs out of the store again: archives that are the same bytes every time and that Harbor reads."""

from .archive import Exported, export_job

__all__ = ["Exported", "export_job"]
