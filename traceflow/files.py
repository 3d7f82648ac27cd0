"""Writing files so that an interruption leaves nothing under the final name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file"]


@contextmanager
def atomic_file(target: Path) -> Iterator[BinaryIO]:
    """A binary file that appears under `target` when the block ends, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)  # noqa: PTH101
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)  # noqa: PTH108
        raise
