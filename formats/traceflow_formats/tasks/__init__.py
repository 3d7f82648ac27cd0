"""Task folders: their content digest (a task's identity), the older checksums, and what makes one unusable."""

from .config import Problem
from .digest import FileDigest, content_digest, digest_files, digest_of, environment_id, task_checksum
from .mismatch import Mismatch, explain_mismatch
from .task import Task, TaskStep, read_task

__all__ = [
    "FileDigest",
    "Mismatch",
    "Problem",
    "Task",
    "TaskStep",
    "content_digest",
    "digest_files",
    "digest_of",
    "environment_id",
    "explain_mismatch",
    "read_task",
    "task_checksum",
]
