"""Writing files so that an interruption leaves nothing under the final name, and removing folders of any size."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_file", "remove_tree"]

_AT_ONCE = 4096


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


def remove_tree(folder: Path | str) -> None:
    """Remove a folder and what is in it, as far as that can be done. A few thousand names are held at a time:
    `shutil.rmtree` holds all of a folder, 160 MB where there are 200,000."""
    removed = True
    while removed:
        removed = False
        with suppress(OSError), os.scandir(folder) as found:
            for path, inside in [(e.path, e.is_dir(follow_symlinks=False)) for e in islice(found, _AT_ONCE)]:
                if inside:
                    remove_tree(path)
                else:
                    with suppress(OSError):
                        os.unlink(path)  # noqa: PTH108
                removed = removed or not os.path.lexists(path)
    with suppress(OSError):
        os.rmdir(folder)  # noqa: PTH106
