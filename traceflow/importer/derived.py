"""What an export added: `traceflow.json` says it, and an import takes those files for what they are.

A derived file is kept like every other, but it is never read as a trace and no export takes it for an original:
it is made anew. The claim counts only for names that an export adds, and only while the content is the one
that was added; anything else is an original, whatever `traceflow.json` says.
"""

from __future__ import annotations

from typing import Any

from traceflow_formats import jsontext

from ..mark import EXPORT_FORMAT, EXPORT_VERSION, MARK, is_derived_name
from .tree import Tree, sha256_of

__all__ = ["EXPORT_FORMAT", "EXPORT_VERSION", "MARK", "derived_files", "is_derived_name", "redaction_of"]

_LIMIT = 64 << 20


def derived_files(tree: Tree) -> frozenset[str]:
    """The paths of a job's files that an export of ours added to it; empty where the job is no export."""
    entry = tree.find(MARK)
    if entry is None or entry.size > _LIMIT:
        return frozenset()
    with tree.open(entry) as stream:
        claims = _claims(stream.read())
    if claims is None:
        return frozenset()
    return frozenset({MARK} | {path for path, digest in claims.items() if _holds(tree, path, digest)})


def redaction_of(tree: Tree) -> dict[str, Any] | None:
    """What a redacted export of ours says of itself; None for anything else."""
    entry = tree.find(MARK)
    if entry is None or entry.size > _LIMIT:
        return None
    with tree.open(entry) as stream:
        value = _record(stream.read())
    redacted = value.get("redacted") if value is not None else None
    return redacted if isinstance(redacted, dict) else None


def _record(data: bytes) -> dict[str, Any] | None:
    """The record of an export of ours, or None for a file that is not ours."""
    try:
        value: Any = jsontext.loads(data)
    except ValueError:
        return None
    if not isinstance(value, dict) or value.get("format") != EXPORT_FORMAT or value.get("version") != EXPORT_VERSION:
        return None
    return value


def _claims(data: bytes) -> dict[str, str] | None:
    """Path to sha256 of the files that were added, or None for a file that is not ours."""
    value = _record(data)
    if value is None:
        return None
    added = value.get("derived")
    if not isinstance(added, list):
        return None
    pairs = [(item.get("path"), item.get("sha256")) for item in added if isinstance(item, dict)]
    return {path: digest for path, digest in pairs if isinstance(path, str) and isinstance(digest, str)}


def _holds(tree: Tree, path: str, digest: str) -> bool:
    entry = tree.find(path) if is_derived_name(path) else None
    if entry is None:
        return False
    with tree.open(entry) as stream:
        return sha256_of(stream) == digest
