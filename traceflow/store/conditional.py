"""Writes that happen only under a condition, on file systems that fsspec knows.

What a job rests on are two steps: to write an object where there is none, and to replace one that is still the same.
S3 has both (`If-None-Match`, `If-Match`), some file systems the first alone, most none, and a server that calls itself
compatible with S3 may pass over a condition in silence. So nothing is taken for granted: `Conditions` asks the server
once, on an object that the answer cannot harm.
"""

from __future__ import annotations

import inspect
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.spec import AbstractFileSystem

__all__ = ["Conditions"]

# these look first and write then, and the asynchronous one hands on to `_pipe_file`
_GENERIC = (AbstractFileSystem.pipe_file, AsyncFileSystem._pipe_file)
_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict")  # 412, and 409: another writer is in the middle of it
_NO_ETAG = '"00000000000000000000000000000000"'


class Conditions:
    """What one file system, and the server behind it, can do. `known` is the path of an object that is never changed;
    as long as there is none the word of the file system is taken."""

    def __init__(self, fs: Any, known: str) -> None:
        self._fs = fs
        self._known = known
        self._creates: bool | None = None if _takes_mode(fs) else False
        self._replaces: bool | None = None if _is_s3(fs) else False

    @property
    def creates(self) -> bool:
        """Whether an object can be written where there is none, as far as is known."""
        return self._creates is not False

    @property
    def replaces(self) -> bool:
        """Whether an object can be replaced if it is still the same, as far as is known."""
        return self._replaces is not False

    def can_create(self) -> bool:
        """Whether `create` keeps its word; asks the server the first time."""
        if self._creates is None and (data := self._object()) is not None:
            try:
                self._creates = not self.create(self._known, data)
            except OSError as error:
                if not _not_known(error):
                    raise
                self._creates = False
        return self._creates is not False

    def can_replace(self) -> bool:
        """Whether `replace` keeps its word; asks the server the first time."""
        if self._replaces is None and (data := self._object()) is not None:
            try:
                self._replaces = not self._put_if_match(self._known, _NO_ETAG, data)
            except OSError as error:
                if not _not_known(error):
                    raise
                self._replaces = False
        return self._replaces is not False

    def create(self, path: str, data: bytes) -> bool:
        """Write an object where there is none; False where there is one."""
        try:
            self._fs.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        except OSError as error:
            if _code(error) in _REFUSED:
                return False
            raise
        return True

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """Put `new` in the place of `old`; False when another object is there by now, or none."""
        self._fs.invalidate_cache(path)
        try:
            etag = self._fs.info(path)["ETag"]  # asked for before the bytes: whoever is faster changes it
            if bytes(self._fs.cat_file(path)) != old:
                return False
        except FileNotFoundError:
            return False
        return self._put_if_match(path, etag, new)

    def _put_if_match(self, path: str, etag: str, data: bytes) -> bool:
        bucket, key, _ = self._fs.split_path(path)
        try:
            self._fs.call_s3("put_object", Bucket=bucket, Key=key, Body=data, IfMatch=etag)
        except FileNotFoundError:
            return False
        except OSError as error:
            if _code(error) in _REFUSED:
                return False
            raise
        finally:
            self._fs.invalidate_cache(path)
        return True

    def _object(self) -> bytes | None:
        try:
            return bytes(self._fs.cat_file(self._known))
        except FileNotFoundError:
            return None


def _takes_mode(fs: Any) -> bool:
    """Whether the file system's own way to write an object has an exclusive mode."""
    return any(
        "mode" in inspect.signature(method).parameters
        for name in ("pipe_file", "_pipe_file")
        if (method := getattr(type(fs), name, None)) not in (None, *_GENERIC)
    )


def _is_s3(fs: Any) -> bool:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
    return "s3" in protocols and hasattr(fs, "call_s3")


def _code(error: OSError) -> str | None:
    """The server's own name of an error."""
    response = getattr(error.__cause__, "response", None)
    return response.get("Error", {}).get("Code") if isinstance(response, dict) else None


def _not_known(error: OSError) -> bool:
    return _code(error) in ("NotImplemented", "InvalidArgument", "InvalidRequest")
