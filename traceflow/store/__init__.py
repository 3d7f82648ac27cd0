"""The store: jobs as immutable folders of Parquet tables and packs, on any file system."""

from .datasets import Dataset, DatasetFile
from .encoder import EventEncoder
from .filetable import FileTable
from .manifest import Manifest, StoredObject
from .packs import Packed, PackReader
from .reading import FileRow
from .schema import SCHEMA_VERSION
from .store import GcReport, Problem, Store, StoreInfo, VerifyReport
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
