"""Unpacking zstd frames, by the C module of zstandard alone where there is one.

The package around it imports `platform`, and `typing` before Python 3.12: a tenth of the time of a rare search.
"""

from __future__ import annotations

import sys

from traceflow.lean_typing import TYPE_CHECKING

__all__ = ["ZstdDecompressor", "ZstdError", "frame_content_size"]

_NAME = "zstandard.backend_c"

if TYPE_CHECKING:
    from zstandard import ZstdDecompressor, ZstdError, frame_content_size
else:

    def _spec(name, path=None):
        found = (finder.find_spec(name, path) for finder in sys.meta_path)  # as the import system asks them
        return next((spec for spec in found if spec is not None), None)

    def _module():
        if "zstandard" not in sys.modules and (package := _spec("zstandard")) is not None:
            spec = _spec(_NAME, package.submodule_search_locations)
            if spec is not None:
                module = sys.modules[_NAME] = spec.loader.create_module(spec)  # the package finds it there
                spec.loader.exec_module(module)
                return module
        import zstandard

        return zstandard

    _found = _module()
    ZstdDecompressor, ZstdError = _found.ZstdDecompressor, _found.ZstdError
    frame_content_size = _found.frame_content_size
