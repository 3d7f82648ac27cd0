"""Archives, in and out: reading what strangers packed, safely; writing what we pack, the same bytes every time."""

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
