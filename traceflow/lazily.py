"""Packages whose names are imported when they are asked for: nobody waits for what is not used."""

from __future__ import annotations

from .lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["from_modules"]


def from_modules(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `names` says in which of its modules each name is."""

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(f".{names[name]}", package), name)

    return find
