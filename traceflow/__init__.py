"""traceflow: bring agent runs that were made anywhere into one store, and get them out again unchanged."""

from __future__ import annotations

from .lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from .api import Store, TraceflowError, convert, parse
    from .api import open_store as open

__all__ = ["Store", "TraceflowError", "__version__", "convert", "open", "parse"]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The interface is loaded when it is first used: the command line starts without it."""
    if name in __all__:
        from . import api

        return getattr(api, "open_store" if name == "open" else name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
