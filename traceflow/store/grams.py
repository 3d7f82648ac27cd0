"""What the grep index is made of: hashed 4-grams of folded bytes. Indexing and asking use these same functions.

Folding makes equal what RE2 takes for equal when it ignores case: ASCII letters become small, and the two signs
outside ASCII that fold to one (U+212A to k, U+017F to s) become it. Other letters stay as they are; a pattern that
needs them in any case is not answered by the index.
"""

from __future__ import annotations

__all__ = [
    "BUCKETS",
    "BUCKET_BITS",
    "FACTOR",
    "GRAM",
    "MIX",
    "MIX_SHIFT",
    "bucket",
    "buckets",
    "fold",
    "folds_odd",
    "lower",
]

GRAM = 4  # bytes
BUCKET_BITS = 18
BUCKETS = 1 << BUCKET_BITS
FACTOR = 0x9E3779B1  # multiplicative hashing: the high bits of the product
MIX_SHIFT, MIX = 15, 0x85EBCA77  # once more, since the last byte of a gram reaches the high bits of one product only

_KELVIN, _LONG_S = "\u212a".encode(), "\u017f".encode()


def lower(data: bytes) -> bytes:
    """UTF-8 with the ASCII letters small; places stay what they are."""
    return data.lower()


def folds_odd(data: bytes) -> bool:
    """Whether folding shortens the text, so that places in it move."""
    return (_LONG_S[0] in data and _LONG_S in data) or (
        _KELVIN[2] in data and _KELVIN in data
    )  # one byte is found fast


def fold(data: bytes) -> bytes:
    """UTF-8 as the index has it."""
    out = data.lower()
    return out.replace(_LONG_S, b"s").replace(_KELVIN, b"k") if folds_odd(out) else out


def bucket(gram: bytes, mixed: bool = True) -> int:
    """The bucket of four bytes; not `mixed` in the first version of the index."""
    found = int.from_bytes(gram, "little") * FACTOR & 0xFFFFFFFF
    if mixed:
        found = (found ^ found >> MIX_SHIFT) * MIX & 0xFFFFFFFF
    return found >> (32 - BUCKET_BITS)


def buckets(literal: bytes, mixed: bool = True) -> list[int]:
    """The buckets of a folded literal, each once, in the order they come."""
    return list(dict.fromkeys(bucket(literal[at : at + GRAM], mixed) for at in range(len(literal) - GRAM + 1)))
