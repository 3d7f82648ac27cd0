"""Takes inline images out of a trace: into files named by their content, or into a few words where none are wanted."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .facts import IMAGE_TYPES

__all__ = ["ImageSink", "Images"]

ImageSink = Callable[[str, bytes], None]
"""Takes an image's path, relative to the trajectory (`images/<sha256>.<ext>`), and its bytes; once per image."""

_EXTENSIONS = {"image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp"}
_BY_ENDING = {"jpg": "image/jpeg", "jpeg": "image/jpeg", "png": "image/png", "gif": "image/gif", "webp": "image/webp"}


class Images:
    """Turns image blocks into ATIF content parts, handing each picture to the sink once."""

    def __init__(self, sink: ImageSink | Path | None) -> None:
        self._sink = _folder_sink(sink) if isinstance(sink, Path) else sink
        self._written: set[str] = set()
        self.in_words = 0  # images for which a few words stand

    def part(self, block: dict[str, Any]) -> dict[str, Any] | str:
        """The content part of an image block; text where it cannot be one: no place for files, a kind that ATIF
        does not know, data that is no base64."""
        part = self._part(block)
        self.in_words += part.__class__ is str
        return part

    def _part(self, block: dict[str, Any]) -> dict[str, Any] | str:
        data, mime, uri = block.get("data"), block.get("mimeType"), block.get("uri")
        mime = mime.strip().lower() if isinstance(mime, str) else ""
        if isinstance(data, str) and data:
            return self._inline(data, mime)
        if isinstance(uri, str) and uri and not uri.startswith("data:"):
            known = mime if mime in IMAGE_TYPES else _BY_ENDING.get(uri.split("?")[0].rpartition(".")[2].lower(), "")
            if known:
                return {"type": "image", "source": {"media_type": known, "path": uri}}
            return f"[image: {uri}]"
        return f"[image: {mime or 'unknown type'}, no data]"

    def _inline(self, data: str, mime: str) -> dict[str, Any] | str:
        try:
            raw = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            return f"[image: {mime or 'unknown type'}, data that is no base64]"
        if self._sink is None or mime not in IMAGE_TYPES:
            return f"[image: {mime or 'unknown type'}, {len(raw)} bytes]"
        name = f"images/{hashlib.sha256(raw).hexdigest()[:32]}.{_EXTENSIONS[mime]}"
        if name not in self._written:
            self._written.add(name)
            self._sink(name, raw)
        return {"type": "image", "source": {"media_type": mime, "path": name}}


def _folder_sink(folder: Path) -> ImageSink:
    def write(name: str, data: bytes) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    return write
