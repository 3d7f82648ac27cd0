"""What a writer of ATIF needs to know of it, without the models: importing those takes a third of a second."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

__all__ = ["IMAGE_TYPES", "MAX_DEPTH", "WRITTEN_VERSION", "ImageType", "Version", "valid_time"]

Version = Literal[
    "ATIF-v1.0",
    "ATIF-v1.1",
    "ATIF-v1.2",
    "ATIF-v1.3",
    "ATIF-v1.4",
    "ATIF-v1.5",
    "ATIF-v1.6",
    "ATIF-v1.7",
    "ATIF-v1.8",
]
WRITTEN_VERSION: Version = "ATIF-v1.7"

ImageType = Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
IMAGE_TYPES: frozenset[str] = frozenset(get_args(ImageType))

MAX_DEPTH = 32  # subagents within subagents


def valid_time(text: str) -> bool:
    """Whether Harbor takes the text as a timestamp: a capital Z may end it, Python reads the rest."""
    try:
        datetime.fromisoformat(text.removesuffix("Z") + "+00:00" if text.endswith("Z") else text)
    except ValueError:
        return False
    return not text.endswith("z")
