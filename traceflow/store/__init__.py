"""The store: jobs as immutable folders of Parquet tables and packs, on any file system.

Names are imported when they are asked for: a search that the index answers needs no Parquet engine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .encoder import EventEncoder
    from .manifest import Manifest, StoredObject
    from .packs import Packed
    from .reading import FileRow
    from .schema import SCHEMA_VERSION
    from .store import GcReport, Problem, Store, StoreInfo, VerifyReport
    from .totals import Totals
    from .writer import JobWriter

__all__ = [
    "SCHEMA_VERSION",
    "EventEncoder",
    "FileRow",
    "GcReport",
    "JobWriter",
    "Manifest",
    "Packed",
    "Problem",
    "Store",
    "StoreInfo",
    "StoredObject",
    "Totals",
    "VerifyReport",
]

_PLACES = {
    "SCHEMA_VERSION": "layout",
    "EventEncoder": "encoder",
    "FileRow": "reading",
    "GcReport": "store",
    "JobWriter": "writer",
    "Manifest": "manifest",
    "Packed": "packs",
    "Problem": "store",
    "Store": "store",
    "StoreInfo": "store",
    "StoredObject": "manifest",
    "Totals": "totals",
    "VerifyReport": "store",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)
