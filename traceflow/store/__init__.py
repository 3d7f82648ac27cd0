"""The store: jobs as immutable folders of Parquet tables and packs, on any file system."""

from .datasets import Dataset, DatasetFile
from .encoder import EventEncoder
from .manifest import Manifest, StoredObject
from .packs import Packed
from .reading import FileRow
from .schema import SCHEMA_VERSION
from .store import GcReport, Problem, Store, StoreInfo, VerifyReport
from .swap import JobRewriter, stored_row
from .totals import Totals
from .writer import JobWriter

__all__ = [
    "SCHEMA_VERSION",
    "Dataset",
    "DatasetFile",
    "EventEncoder",
    "FileRow",
    "GcReport",
    "JobRewriter",
    "JobWriter",
    "Manifest",
    "Packed",
    "Problem",
    "Store",
    "StoreInfo",
    "StoredObject",
    "Totals",
    "VerifyReport",
    "stored_row",
]
