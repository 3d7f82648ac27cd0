"""The files of a trial: browsed, read, searched and packed, from the store or from a capture of its file system.

Names are imported when they are asked for: a listing needs nothing of what reads logs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .browse import ByteRange, TrialFiles, parse_range
    from .logs import STREAMS, trial_logs
    from .model import Entry

__all__ = ["STREAMS", "ByteRange", "Entry", "TrialFiles", "parse_range", "trial_logs"]

_PLACES = {"STREAMS": "logs", "trial_logs": "logs", "Entry": "model"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES.get(name, 'browse')}", __name__), name)
