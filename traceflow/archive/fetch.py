"""From a path or a URL to a local file or folder that can be read more than once.

Local paths stay where they are. http(s) goes through the standard library, everything else through fsspec
(`s3://`, `gs://`, `memory://`, ... as far as their packages are installed). What is fetched lies in a spool folder
of the caller's, bounded by the same limits as an upload.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from traceflow_formats.errors import TraceflowError

from ..limits import Limits, format_size
from .members import Member
from .names import NameTree, safe_name, shown
from .urls import scheme_of, shown_url

__all__ = ["FetchProgress", "Fetched", "fetch"]

FetchProgress = Callable[[int, int | None], None]  # bytes so far, and in all where that is known

_CHUNK = 1 << 20


class Fetched(NamedTuple):
    """Where the input lies now. `temporary`: it is a copy in the spool and the caller's to remove.

    `left_out` are files of a remote folder over `file_bytes`: they were not fetched.
    """

    path: Path
    temporary: bool = False
    left_out: tuple[Member, ...] = ()


def fetch(
    source: str | os.PathLike[str],
    spool: Path,
    limits: Limits | None = None,
    *,
    progress: FetchProgress | None = None,
    storage_options: Mapping[str, Any] | None = None,
    retries: int = 5,
    wait: float = 0.5,
    timeout: float = 60.0,
) -> Fetched:
    """Bring an archive, or a folder (not over HTTP), to this machine; what lies here already stays.

    `spool` is an existing folder. A broken connection is resumed or tried again `retries` times, `wait` seconds
    apart at first. Raises `not_found`, `upload_too_large`, `invalid_input` (no such kind of URL), `io_error`;
    nothing is left in the spool then.
    """
    text = os.fspath(source)
    bounds = limits or Limits()
    scheme = scheme_of(text)
    if scheme in (None, "file"):
        path = Path(_path_of_file_url(text) if scheme else text)
        if not path.exists():
            raise TraceflowError("not_found", f"{path}: no such file or folder", path=str(path))
        return Fetched(path)
    if scheme in ("http", "https"):
        from .http_source import download

        with _spooled(spool, text, bounds, progress) as sink:
            download(text, sink, retries=retries, wait=wait, timeout=timeout)
        return Fetched(sink.path, temporary=True)
    return _from_fsspec(text, spool, bounds, progress, storage_options or {}, retries, wait)


def _path_of_file_url(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        raise TraceflowError("invalid_input", f"{shown_url(url)}: a file URL of another machine", url=shown_url(url))
    from urllib.request import url2pathname

    return url2pathname(parts.path)


# -- the spool -------------------------------------------------------------------------------------------------


class _SpoolFile:
    """A file in the spool that grows as bytes come, up to a bound."""

    def __init__(self, path: Path, file: BinaryIO, name: str, most: int, progress: FetchProgress | None) -> None:
        self.path = path
        self.size = 0
        self._file = file
        self._name = name
        self._most = most
        self._progress = progress
        self._total: int | None = None

    def expect(self, total: int | None) -> None:
        """So many bytes will come in all, if that is known."""
        self._total = total
        if total is not None and total > self._most:
            raise self._too_large(f"has {total} bytes")

    def write(self, chunk: bytes) -> None:
        if self.size + len(chunk) > self._most:
            raise self._too_large(f"has over {self._most} bytes")
        try:
            self._file.write(chunk)
        except OSError as error:  # the disk, not the network: trying again is no use
            raise TraceflowError("io_error", f"{self.path}: {error.strerror}", path=str(self.path)) from error
        self.size += len(chunk)
        if self._progress is not None:
            self._progress(self.size, self._total)

    def restart(self) -> None:
        """Forget what came."""
        self._file.seek(0)
        self._file.truncate()
        self.size = 0

    def _too_large(self, problem: str) -> TraceflowError:
        return TraceflowError(
            "upload_too_large",
            f"{self._name} {problem}, the limit `archive_bytes` is {format_size(self._most)}: split the job, or raise"
            " the limit",
            limit="archive_bytes",
            value=self._most,
        )


@contextmanager
def _spooled(spool: Path, url: str, limits: Limits, progress: FetchProgress | None) -> Iterator[_SpoolFile]:
    try:
        descriptor, name = tempfile.mkstemp(prefix="fetched-", dir=spool)
    except OSError as error:
        raise TraceflowError("io_error", f"{spool}: {error.strerror}", path=str(spool)) from None
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield _SpoolFile(path, file, shown_url(url), limits.archive_bytes, progress)
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise TraceflowError("io_error", f"{shown_url(url)}: {error.strerror or error}") from error
        raise


# -- fsspec ----------------------------------------------------------------------------------------------------


def _from_fsspec(
    url: str,
    spool: Path,
    limits: Limits,
    progress: FetchProgress | None,
    options: Mapping[str, Any],
    retries: int,
    wait: float,
) -> Fetched:
    system, path = _file_system(url, options)
    where = shown_url(url)
    with _remote_errors(where):
        info = system.info(path)
    if info["type"] == "directory":
        return _folder(system, path, where, spool, limits, progress)
    with _spooled(spool, url, limits, progress) as sink, _remote_errors(where):
        sink.expect(info.get("size"))
        failures, furthest = 0, 0
        while True:
            try:
                _copy(system, path, info, sink)
                break
            except OSError as error:
                failures = 1 if sink.size > furthest else failures + 1
                furthest = max(furthest, sink.size)
                if failures > retries or isinstance(error, FileNotFoundError | PermissionError):
                    raise
                time.sleep(min(wait * 2 ** (failures - 1), 30.0))
    return Fetched(sink.path, temporary=True)


def _copy(system: Any, path: str, info: Mapping[str, Any], sink: _SpoolFile) -> None:
    """The rest of a file. When the file is no longer the one it was, it starts again."""
    if sink.size and _version(system.info(path)) != _version(info):
        sink.restart()
    with system.open(path, "rb") as file:
        if sink.size:
            file.seek(sink.size)
        while chunk := file.read(_CHUNK):
            sink.write(bytes(chunk))
    expected = info.get("size")
    if expected is not None and sink.size != expected:
        raise OSError(f"{sink.size} of {expected} bytes came")


def _version(info: Mapping[str, Any]) -> tuple[object, ...]:
    return tuple(str(info.get(key)) for key in ("size", "ETag", "etag", "LastModified", "mtime", "updated", "created"))


def _folder(system: Any, root: str, where: str, spool: Path, limits: Limits, progress: FetchProgress | None) -> Fetched:
    """Copy the files below a remote folder. Names, number and sizes are bounded as in an archive."""
    target = Path(tempfile.mkdtemp(prefix="fetched-", dir=spool))
    tree = NameTree(limits)
    base = root.rstrip("/")
    total = done = 0
    left_out: list[Member] = []
    try:
        for name, info in _walk(system, base, where):
            safe = safe_name(name, limits)
            directory = info["type"] == "directory"
            tree.add(safe, directory)
            if directory:
                (target / safe).mkdir(parents=True, exist_ok=True)
                continue
            size = info.get("size") or 0
            if size > limits.file_bytes:
                left_out.append(Member(safe, size))
                continue
            total += size
            if total > limits.unpacked_bytes:
                raise TraceflowError(
                    "upload_too_large",
                    f"{where}: its files have over {format_size(limits.unpacked_bytes)}: split the job, or raise the"
                    " limit `unpacked_bytes`",
                    limit="unpacked_bytes",
                    value=limits.unpacked_bytes,
                )
            (target / safe).parent.mkdir(parents=True, exist_ok=True)
            with _remote_errors(f"{where}/{safe}"), (target / safe).open("xb") as out:
                with system.open(info["name"], "rb") as file:
                    while chunk := file.read(_CHUNK):
                        done += len(chunk)
                        if out.tell() + len(chunk) > size:
                            break
                        out.write(chunk)
                        if progress is not None:
                            progress(done, None)
                if out.tell() != size or chunk:
                    raise OSError(f"it was to have {size} bytes; it changed meanwhile")
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return Fetched(target, temporary=True, left_out=tuple(left_out))


def _walk(system: Any, base: str, where: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(path below the base, info) of everything in a remote folder, folders before what they hold."""
    waiting = [base]
    while waiting:
        folder = waiting.pop()
        with _remote_errors(where):
            entries = sorted(system.ls(folder, detail=True), key=lambda entry: str(entry["name"]))
        for entry in entries:
            name = str(entry["name"]).rstrip("/")
            if name == folder and entry["type"] != "directory" and not entry.get("size"):
                continue  # an object store's own mark for the folder
            if not name.startswith(base + "/") or name == folder:  # such as the key "job//a"
                raise TraceflowError("io_error", f"{where} holds {shown(str(entry['name']))}, which is no path in it")
            yield name[len(base) + 1 :], entry
            if entry["type"] == "directory":
                waiting.append(name)


def _file_system(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    if "::" in url:
        raise TraceflowError("invalid_input", "chained URLs are not read; name the archive itself")
    import fsspec.core

    where = shown_url(url)
    with _remote_errors(where):
        try:
            return fsspec.core.url_to_fs(url, **options)  # type: ignore[no-any-return]
        except (ImportError, ValueError) as error:
            raise TraceflowError("invalid_input", f"{where}: {error}", url=where) from None


@contextmanager
def _remote_errors(where: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise TraceflowError("not_found", f"{where}: there is no such file or folder", url=where) from None
    except TraceflowError:
        raise
    except Exception as error:  # each file system has its own kinds, such as those of botocore
        problem = str(error) or type(error).__name__
        raise TraceflowError("io_error", f"{where}: {problem}", url=where) from error
