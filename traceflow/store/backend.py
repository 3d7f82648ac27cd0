"""Where a store's objects lie: a small contract. `local` keeps it for the local file system, `remote` for others.

An object is written once and never changed. It is invisible until it is complete. Everything else rests on two
atomic steps: `put_if_absent`, which makes a job, and `swap`, which puts another revision in its place; of two writers
exactly one is told True.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

if TYPE_CHECKING:
    from .cache import Cache

__all__ = ["PARTIAL", "Backend", "ObjectInfo"]

PARTIAL = ".partial"  # how the names of unfinished objects end


class ObjectInfo:
    """An object below a prefix: its name from the store's root, its bytes, seconds since it was written or carried."""

    __slots__ = ("age", "name", "size")

    def __init__(self, name: str, size: int, age: float) -> None:
        self.name = name
        self.size = size
        self.age = age


class Backend(Protocol):
    """Objects by name. Names are relative to the store's root, with slashes.

    Reading what is not there raises FileNotFoundError; everything else that fails is an OSError.
    """

    url: str
    moves_folders: bool  # whether `move_folder` works
    stamped: bool  # whether `stamps` works
    parallel: int  # reads that are worth making at once, where they wait for a network; else 1

    @property
    def commit(self) -> str:
        """How `put_if_absent` and `swap` tell two writers apart, in words."""

    def read_bytes(self, name: str) -> bytes:
        """The whole object."""

    def read_many(self, names: Iterable[str]) -> list[bytes | None]:
        """Whole objects in their order, None for one that is not there; at once where reads wait."""

    def read_range(self, name: str, offset: int, length: int) -> bytes:
        """That part of it; shorter where the object ends."""

    def read_ranges(self, ranges: Iterable[tuple[str, int, int]]) -> list[bytes]:
        """Parts of objects, each as name, offset and length, in their order; at once where reads wait, and never from
        a copy."""

    def prefetch(self, objects: Iterable[tuple[str, int]]) -> None:
        """Bring objects that will be asked for, each with its bytes, to this machine, where copies are kept of them."""

    @property
    def cache(self) -> Cache | None:
        """Where copies of objects are kept, if they are."""

    def open_read(self, name: str) -> BinaryIO:
        """The object as a seekable stream."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """A seekable stream to write the object to. It appears, whole and on disk, when the block ends well;
        when the block raises nothing is left."""

    def put_if_absent(self, name: str, data: bytes, scratch: str = "") -> bool:
        """Write the object unless there is one: True when it was written. `scratch` is a folder for what has
        to lie somewhere meanwhile."""

    def swap(self, name: str, old: bytes, new: bytes, scratch: str = "") -> bool:
        """Put `new` in the place of an object that is `old`, byte for byte: False when it is not, or not there."""

    def carry(self, source: str, target: str) -> None:
        """Make an object appear under a second name, without another copy of its bytes where that is possible."""

    def move_folder(self, source: str, target: str) -> bool:
        """Give a folder another name in one step: False when there is one of that name."""

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int: ...

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below a prefix, sorted; empty where there is no such prefix."""

    def stamps(self, prefix: str, name: str) -> dict[str, str]:
        """The folders directly below a prefix that hold an object of this name, sorted, each with a word that is
        another one when the object is."""

    def objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Every object below a prefix, unfinished ones of other writers included."""

    def delete(self, name: str) -> None:
        """Remove one object; one that is not there is no error."""

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below a prefix, and the prefix."""

    def is_empty(self) -> bool:
        """Whether nothing at all lies at the root."""

    def duckdb_root(self, connection: Any) -> str:
        """The root as DuckDB names it, made readable on the connection; object names are appended to it."""
