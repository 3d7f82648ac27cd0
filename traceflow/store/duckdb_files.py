"""A store's objects as DuckDB reads them, where it has no reader of its own for the URL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fsspec.spec import AbstractFileSystem

if TYPE_CHECKING:
    from .remote import FsspecBackend

__all__ = ["StoreFiles"]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


class StoreFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The objects of one backend, for reading. The names are those of the file system behind it."""

    cachable = False

    def __init__(self, backend: FsspecBackend, fs: Any, root: str) -> None:
        super().__init__()
        self.protocol = fs.protocol
        self._backend, self._behind, self._root = backend, fs, root.rstrip("/")

    def _name(self, path: str) -> str:
        """The name from the store's root. DuckDB has checked that the path lies below it."""
        stripped = str(self._behind._strip_protocol(path))
        return stripped.removeprefix(self._root).lstrip("/")

    def glob(self, path: str, **_: Any) -> list[str]:
        if any(sign in path for sign in "*?["):
            return [str(found) for found in self._behind.glob(path)]
        return [str(self._behind._strip_protocol(path))]  # a manifest names it: asking once more would cost a request

    def unstrip_protocol(self, name: str) -> str:
        return str(self._behind.unstrip_protocol(name))

    def open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        if mode != "rb":
            raise PermissionError(f"{path} is opened for reading alone")
        return self._backend.open_kept(self._name(path))

    def exists(self, path: str, **_: Any) -> bool:
        return self._backend.exists(self._name(path))

    def isfile(self, path: str) -> bool:
        return self.exists(path)

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": self._backend.size(self._name(path)), "type": "file"}

    def modified(self, path: str) -> datetime:
        return _LONG_AGO  # an object never changes
