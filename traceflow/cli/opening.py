"""The store that a command asks: the one that is named, else the user's own. Imports nothing before it is known."""

from __future__ import annotations

import os

from traceflow.lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from traceflow.store import Store

__all__ = ["default_store", "open_store"]


def default_store() -> str:
    """The store that is used where none is named."""
    from platformdirs import user_data_path

    return str(user_data_path("traceflow", appauthor=False) / "store")


def open_store(url: str | None, *, create: bool = False) -> Store:
    """The store that the option, the environment or the default names."""
    from traceflow.store.store import Store

    return Store.open(url or os.environ.get("TRACEFLOW_STORE") or default_store(), create=create)
