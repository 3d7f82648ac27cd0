"""URLs: telling them from paths, and showing them without their secrets."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

__all__ = ["has_folders", "is_url", "scheme_of", "shown_url"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://").match


def scheme_of(source: str) -> str | None:
    """The scheme of a URL in lower case; None for a path."""
    match = _SCHEME(source)
    return match[1].lower() if match else None


def is_url(source: str) -> bool:
    """Whether a source is a URL and not a path: it begins with a scheme and "://"."""
    return scheme_of(source) is not None


def shown_url(url: str) -> str:
    """A URL for messages: without user, password, query and fragment, which may hold secrets."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "(the URL)"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"


_FLAT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})


def has_folders(fs: Any) -> bool:
    """Whether a file system has folders of its own. Object stores have none, and whoever asks them for one may make a
    bucket that was misspelt."""
    return _FLAT.isdisjoint((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)
