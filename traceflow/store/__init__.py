"""The store: jobs as immutable folders of Parquet tables and packs, on any file system."""

from .encoder import EventEncoder
from .filetable import FileTable
from .manifest import Manifest, StoredObject
from .packs import Packed, PackReader
from .reading import FileRow
from .schema import SCHEMA_VERSION
from .store import GcReport, Problem, Store, StoreInfo, VerifyReport
from .totals import Totals
from .tracereader import TraceReader
from .writer import JobWriter

__all__ = [
    "SCHEMA_VERSION",
    "EventEncoder",
    "FileRow",
    "FileTable",
    "GcReport",
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
]
