"""What modules of `grep` and `search` need of `typing`, without its import.

Importing `typing`, and the classes that its NamedTuple makes, would take a sixth of the time of a rare search. Type
checkers see the real ones: they know `TYPE_CHECKING` by its name, and other names of `typing` are imported under it.
"""

from __future__ import annotations

from operator import itemgetter

__all__ = ["TYPE_CHECKING", "NamedTuple"]

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class NamedTuple(tuple):
        """A tuple whose fields have names: the annotations of the class, with their defaults."""

        def __init_subclass__(cls):
            cls._fields = tuple(cls.__annotations__)
            cls._defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}
            for at, name in enumerate(cls._fields):
                setattr(cls, name, property(itemgetter(at)))

        def __new__(cls, *values, **named):
            if named or len(values) != len(cls._fields):
                rest = cls._fields[len(values) :]
                given = cls._defaults | named
                if len(values) > len(cls._fields) or not named.keys() <= set(rest) or not set(rest) <= given.keys():
                    raise TypeError(f"{cls.__name__} takes {', '.join(cls._fields)}")
                values += tuple([given[name] for name in rest])
            return tuple.__new__(cls, values)

        def __getnewargs__(self):
            return tuple(self)

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in zip(self._fields, self, strict=True))})"
