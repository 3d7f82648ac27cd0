"""Converting sessions without a store: trajectories, traces, documents for other tools, and a report that adds up."""

from __future__ import annotations

from .sessions import Conversion, build, convert_all, convert_one, each_source, folder_name, refuse_empty

__all__ = ["Conversion", "build", "convert_all", "convert_one", "each_source", "folder_name", "refuse_empty"]
