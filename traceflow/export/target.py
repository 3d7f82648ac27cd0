"""Where an archive goes: a path, a stream, or straight to a URL that fsspec can write to.

Whatever it is, an interruption leaves no file under the final name: a local file is renamed when it is whole, and at
a URL the write is one transaction of the file system, as object stores have it (a multipart upload that is completed
at the end or given up).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from traceflow_formats.errors import TraceflowError

from ..archive import NewMember, Written, write_tar_gz
from ..archive.urls import has_folders, is_url, shown_url

__all__ = ["is_folder_url", "join_url", "write_archive", "write_whole"]


def write_archive(
    members: Iterable[NewMember], output: Path | str | BinaryIO, progress: Callable[[int], None] | None = None
) -> Written:
    """Write an archive to a path, a URL or a binary stream; see `write_tar_gz`."""
    if isinstance(output, str):
        if not is_url(output):
            output = Path(output)
        elif output.startswith("file://"):
            output = Path(output.removeprefix("file://"))
        else:
            with _at_url(output) as stream:
                return write_tar_gz(members, stream, progress=progress)
    if isinstance(output, Path):
        output.parent.mkdir(parents=True, exist_ok=True)
    return write_tar_gz(members, output, progress=progress)


def is_folder_url(url: str) -> bool:
    """Whether a URL names a folder: it ends in a slash, or there is a folder of that name."""
    if url.endswith("/"):
        return True
    fs, path = _open(url)
    try:
        return bool(fs.isdir(path))
    except (OSError, NotImplementedError):
        return False


def join_url(url: str, name: str) -> str:
    """A name in a folder at a URL; a query stays behind it."""
    base, mark, query = url.partition("?")
    return f"{base.rstrip('/')}/{name}{mark}{query}"


def write_whole(url: str, content: bytes) -> None:
    """A small file at a URL."""
    with _at_url(url) as stream:
        stream.write(content)


def _open(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ValueError, ImportError, OSError) as error:
        raise TraceflowError("invalid_input", f"{shown_url(url)} cannot be written to: {error}") from None
    return fs, str(path)


@contextlib.contextmanager
def _at_url(url: str) -> Iterator[BinaryIO]:
    fs, path = _open(url)
    try:
        if has_folders(fs):
            with contextlib.suppress(NotImplementedError, FileExistsError, PermissionError):
                fs.makedirs(path.rpartition("/")[0], exist_ok=True)
        with fs.transaction:
            stream = fs.open(path, "wb")
            try:
                yield cast(BinaryIO, stream)
                stream.close()
            except BaseException:
                with contextlib.suppress(AttributeError):  # closing would send what there is
                    stream.closed = True
                raise
    except NotImplementedError:
        raise TraceflowError("invalid_input", f"{shown_url(url)}: this kind of URL can only be read") from None
    except OSError as error:
        raise TraceflowError("io_error", f"{shown_url(url)}: {error.strerror or error}") from error
