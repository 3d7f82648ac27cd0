"""Facts of the format that the builder needs, apart from the models: making those costs more than a conversion."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

__all__ = ["END", "IMAGE_TYPES", "MAX_DEPTH", "WRITTEN_VERSION", "ImageType", "valid_time"]

WRITTEN_VERSION = "ATIF-v1.7"
MAX_DEPTH = 32  # subagents within subagents
END = "traceflow.end"  # in `extra`, for writers of other formats: when it ended; never in a document

ImageType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
IMAGE_TYPES: frozenset[str] = frozenset(get_args(ImageType))


def valid_time(text: str) -> bool:
    """Whether Harbor takes the text as a timestamp: a capital Z may end it, Python reads the rest."""
    try:
        datetime.fromisoformat(text.removesuffix("Z") + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return False
    return not text.endswith("z")
