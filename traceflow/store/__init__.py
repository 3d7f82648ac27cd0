"""The store: jobs as immutable folders of Parquet tables and packs, on any file system.

Names are imported when they are asked for: a search that the index answers needs no Parquet engine.
"""

from __future__ import annotations

from traceflow.lean_typing import TYPE_CHECKING

from ..lazily import from_modules

if TYPE_CHECKING:
    from .care import GcReport, Problem, StoreInfo, VerifyReport
    from .datasets import Dataset, DatasetFile
    from .encoder import EventEncoder
    from .filetable import FileTable
    from .manifest import Manifest, StoredObject
    from .packs import Packed, PackReader
    from .reading import FileRow
    from .schema import SCHEMA_VERSION
    from .store import Store
    from .swap import JobRewriter, stored_row
    from .totals import Totals
    from .tracereader import TraceReader
    from .writer import JobWriter

__all__ = [
    "SCHEMA_VERSION",
    "Dataset",
    "DatasetFile",
    "EventEncoder",
    "FileRow",
    "FileTable",
    "GcReport",
    "JobRewriter",
    "JobWriter",
    "Manifest",
    "PackReader",
    "Packed",
    "Problem",
    "Store",
    "StoreInfo",
    "StoredObject",
    "Totals",
    "TraceReader",
    "VerifyReport",
    "stored_row",
]

__getattr__ = from_modules(
    __name__,
    {
        "Dataset": "datasets",
        "DatasetFile": "datasets",
        "EventEncoder": "encoder",
        "FileTable": "filetable",
        "Manifest": "manifest",
        "StoredObject": "manifest",
        "Packed": "packs",
        "PackReader": "packs",
        "FileRow": "reading",
        "SCHEMA_VERSION": "layout",
        "GcReport": "care",
        "Problem": "care",
        "Store": "store",
        "StoreInfo": "care",
        "VerifyReport": "care",
        "JobRewriter": "swap",
        "stored_row": "swap",
        "Totals": "totals",
        "TraceReader": "tracereader",
        "JobWriter": "writer",
    },
)
