"""Archives, in and out: reading what strangers packed, safely; writing what we pack, the same bytes every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazily import from_modules

if TYPE_CHECKING:
    from .members import Member, MemberTable, Notes, Scan
    from .names import name_warnings, safe_name, windows_problem
    from .read import read_members, scan, unpack
    from .write import ENCODER, NewMember, Written, file_chunks, tar_digest, write_tar_gz

__all__ = [
    "ENCODER",
    "Member",
    "MemberTable",
    "NewMember",
    "Notes",
    "Scan",
    "Written",
    "file_chunks",
    "name_warnings",
    "read_members",
    "safe_name",
    "scan",
    "tar_digest",
    "unpack",
    "windows_problem",
    "write_tar_gz",
]

__getattr__ = from_modules(
    __name__,
    {
        "Member": "members",
        "MemberTable": "members",
        "Notes": "members",
        "Scan": "members",
        "name_warnings": "names",
        "safe_name": "names",
        "windows_problem": "names",
        "read_members": "read",
        "scan": "read",
        "unpack": "read",
        "ENCODER": "write",
        "NewMember": "write",
        "Written": "write",
        "file_chunks": "write",
        "tar_digest": "write",
        "write_tar_gz": "write",
    },
)
