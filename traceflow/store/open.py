"""From a URL to the backend that reads it."""

from __future__ import annotations

import os

from traceflow.lean_typing import TYPE_CHECKING

from .local import LocalBackend

if TYPE_CHECKING:
    from .backend import Backend

__all__ = ["backend_for"]


def backend_for(url: str) -> Backend:
    """A folder of the local file system for a path or a `file://` URL, else whatever fsspec knows.

    Raises TraceflowError invalid_input for a URL that fsspec cannot open.
    """
    if url.startswith("file://"):
        return LocalBackend(url.removeprefix("file://"))
    if "://" not in url:
        return LocalBackend(os.path.expanduser(url))  # noqa: PTH111
    from .remote import FsspecBackend

    return FsspecBackend.open(url)
