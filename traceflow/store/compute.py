"""Arrow's compute functions by their names. `pyarrow.compute` has a wrapper with its own text of help for each of
some three hundred, which takes a sixth of the start of an import."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.compute import InversePermutationOptions
    from pyarrow.compute import call_function as call
else:
    try:
        from pyarrow._compute import InversePermutationOptions
        from pyarrow._compute import call_function as call
    except ImportError:  # it is where pyarrow keeps them, not where it offers them
        from pyarrow.compute import InversePermutationOptions
        from pyarrow.compute import call_function as call

__all__ = ["InversePermutationOptions", "call"]
