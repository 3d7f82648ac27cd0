"""The seal of a manifest: its last member is the digest of all that stands before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from traceflow_formats import jsontext

__all__ = ["UNSEALED", "seal_is_broken", "sealed"]

UNSEALED = (  # members of a job's manifest that is older than seals
    *("format", "store_version", "schema_version", "parsers", "job_id", "revision", "previous", "objects"),
    *("counts", "job", "report"),
)
_SEAL = b',\n  "sha256": "%s"\n}\n'


def sealed(value: Mapping[str, Any]) -> bytes:
    """A manifest as it is stored: the last member is the digest of all that stands before it."""
    body = jsontext.pretty(value).removesuffix(b"\n}\n")
    return body + _SEAL % hashlib.sha256(body).hexdigest().encode()


def seal_is_broken(data: bytes, unsealed: Iterable[str]) -> bool:
    """Whether a stored manifest is not what was written.

    Those of the first version have no seal. What has none and other members than theirs, `unsealed`, has lost it.
    """
    body, comma, _ = data.rpartition(_SEAL.partition(b"%s")[0])
    if comma:
        return data != body + _SEAL % hashlib.sha256(body).hexdigest().encode()
    try:
        return not jsontext.loads(data).keys() <= set(unsealed)
    except (ValueError, AttributeError):
        return True
