"""The steps of a redaction for one file at a time, and the record of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from traceflow_formats import jsontext

from .content import Chunks, is_text, unpacked
from .detector import Detector
from .names import stated
from .rewrite import rewritten
from .secrets import Matcher, Secrets

__all__ = ["RECORD_LIMIT", "collect", "collect_stated", "examine", "redaction_record"]

RECORD_LIMIT = 64 << 20  # bytes of a record that is read as a whole


def collect_stated(record: bytes, secrets: Secrets) -> None:
    """Collect the secrets that a record of Harbor states."""
    try:
        value = jsontext.loads(record)
    except ValueError:
        return
    for name, secret in stated(value):
        secrets.state(name, secret)


def collect(chunks: Chunks, detector: Detector, secrets: Secrets) -> None:
    """Collect the secrets of a content, and of what is compressed in it."""
    for found in detector.find(chunks()):
        secrets.add(found)
    for found in detector.find(unpacked(chunks)):
        secrets.add(found)


def examine(path: str, chunks: Chunks | None, matcher: Matcher) -> tuple[dict[str, int], str]:
    """The kinds of secrets that a file holds, and why it cannot be rewritten; empty where it can, or need not."""
    named = matcher.hits((path.encode("utf-8", "surrogateescape"),))
    if named:
        return dict(named), "its name holds a secret"
    if chunks is None:
        return {}, ""
    text = is_text(chunks)
    counts = matcher.hits(chunks(), wide=not text)
    if not text:
        counts += matcher.hits(unpacked(chunks), wide=True)
    return dict(counts), "it is no text: a marker in it would break it" if counts and not text else ""


def redaction_record(
    detector: Detector,
    secrets: Secrets,
    matcher: Matcher | None,
    files: Iterable[tuple[str, str, Mapping[str, int]]],
    left_out: Iterable[tuple[str, str, Mapping[str, int]]],
) -> dict[str, Any]:
    """What a redaction did. `files` are (path, sha256 of the new content, kinds), `left_out` (path, reason, kinds)."""
    totals: Counter[str] = Counter()
    changed, left = [], []
    for path, digest, kinds in sorted(files, key=_path):
        if kinds:
            totals.update(kinds)
            changed.append({"path": path, "sha256": digest, "kinds": dict(sorted(kinds.items()))})
    for path, reason, kinds in sorted(left_out, key=_path):
        if matcher is not None:  # the name may be the secret
            path = b"".join(rewritten((_bytes(path),), matcher, Counter(), is_json=False)).decode("utf-8", "replace")
        left.append({"path": path, "reason": reason, "kinds": dict(sorted(kinds.items()))})
    return {
        "detector": detector.name,
        "secrets": secrets.counts,
        "replaced": dict(sorted(totals.items())),
        "files": changed,
        "left_out": left,
    }


def _path(entry: tuple[str, str, Mapping[str, int]]) -> bytes:
    return _bytes(entry[0])


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
