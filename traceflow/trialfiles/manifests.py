"""What manifests say of the files of a run: MANIFEST.tsv of a capture, agent-home.json, artifacts/manifest.json.

They are claims of strangers: names that lead elsewhere are passed over, values of the wrong sort are unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .model import Entry, clean_path

__all__ = [
    "COLUMNS",
    "MANIFEST",
    "agent_home_hints",
    "artifact_hints",
    "manifest_hints",
    "manifest_line",
    "split_lines",
]

MANIFEST = "MANIFEST.tsv"
COLUMNS = ("path", "type", "size", "mtime", "mode", "owner", "changed", "phase", "captured", "left_out", "target")
_ALIASES = {"name": "path", "kind": "type", "bytes": "size", "reason": "left_out", "link": "target", "uid": "owner"}
_TYPES = {"file": "file", "f": "file", "-": "file", "dir": "dir", "directory": "dir", "d": "dir"}
_TYPES |= {"symlink": "symlink", "link": "symlink", "l": "symlink", "other": "other"}
_CHANGES = frozenset({"created", "modified", "removed"})
_ESCAPES = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}
_ESCAPED = re.compile(r"\\[tnr\\]")
_OCTAL = re.compile(r"(?:0o)?([0-7]{1,6})").fullmatch


def manifest_hints(lines: Iterable[bytes]) -> dict[str, Entry]:
    """The rows of a MANIFEST.tsv by path. The first line may name the columns; else they are `COLUMNS`."""
    names: list[str] = list(COLUMNS)
    found: dict[str, Entry] = {}
    for number, raw in enumerate(lines):
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        fields = line.split("\t")
        if number == 0:
            heading = [
                _ALIASES.get(f.strip().lstrip("#").strip().lower(), f.strip().lstrip("#").lower()) for f in fields
            ]
            if "path" in heading:
                names = heading
                continue
        if not line or line.startswith("#"):
            continue
        if "\\" in line:
            fields = [_ESCAPED.sub(lambda m: _ESCAPES[m[0]], field) for field in fields]
        row = {name: field for name, field in zip(names, fields, strict=False) if field not in ("", "-")}
        path = _inside(row.get("path"))
        if path:
            found[path] = _entry(path, row)
    return found


def manifest_line(path: str, entry: Entry) -> bytes:
    """One row of a MANIFEST.tsv with the columns `COLUMNS`."""
    values = {**entry.as_dict(), "path": f"/{path}", "captured": "true" if entry.captured else "false"}
    cells = ["" if values.get(name) is None else _escaped(str(values[name])) for name in COLUMNS]
    return ("\t".join(cells) + "\n").encode("utf-8", "replace")


def agent_home_hints(data: bytes) -> dict[str, Entry]:
    """The files of an agent-home.json, relative to its folder; what it says was left out has no content."""
    try:
        value = jsontext.loads(data)
    except ValueError:
        return {}
    found: dict[str, Entry] = {}
    if not isinstance(value, dict):
        return {}
    for key in ("files", "skipped", "excluded"):
        rows = value.get(key)
        for row in rows if isinstance(rows, list) else ():
            row = {"path": row} if isinstance(row, str) else row
            if not isinstance(row, dict) or not (path := _inside(row.get("path"))):
                continue
            if key != "files":
                row = {**row, "captured": False, "left_out": row.get("left_out") or row.get("reason") or key}
            found[path] = _entry(path, row)
    return found


def artifact_hints(data: bytes) -> dict[str, Entry]:
    """The entries of an artifacts/manifest.json, by path below the trial: what failed or was skipped has no content."""
    from traceflow_formats.harbor import read_manifest

    try:
        entries = read_manifest(data).items
    except TraceflowError:
        return {}
    found: dict[str, Entry] = {}
    for item in entries:
        path = _inside(item.destination)
        if path and path.startswith("artifacts/"):
            missing = item.status not in (None, "ok", "empty")
            row = {**item.raw, "captured": not missing, "left_out": item.status if missing else None}
            found[path] = _entry(path, row | {"type": "dir" if item.type == "directory" else "file"})
    return found


def _entry(path: str, row: dict[str, Any]) -> Entry:
    changed, phase, owner = _text(row.get("changed")), _text(row.get("phase")), row.get("owner")
    captured = row.get("captured")
    return Entry(
        path.rpartition("/")[2],
        _TYPES.get(str(row.get("type") or "file").lower(), "other"),
        _size(row.get("size", row.get("size_bytes"))),
        _text(row.get("mtime")),
        _mode(row.get("mode")),
        str(owner) if isinstance(owner, str | int) and not isinstance(owner, bool) and owner != "" else None,
        changed if changed in _CHANGES else None,
        phase,
        not (captured is False or str(captured).lower() in ("false", "no", "0")),
        _text(row.get("left_out")),
        _text(row.get("target")),
    )


def _inside(path: object) -> str:
    """A path of a manifest, relative to the root; "" for what is none."""
    if not isinstance(path, str):
        return ""
    try:
        return clean_path(path)
    except TraceflowError:
        return ""


def _text(value: object) -> str | None:
    return value[:4096] if isinstance(value, str) and value else None


def _size(value: object) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _mode(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value & 0o7777:04o}"
    match = _OCTAL(value) if isinstance(value, str) else None
    return f"{int(match[1], 8) & 0o7777:04o}" if match else None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def split_lines(chunks: Iterable[bytes], longest: int = 1 << 20) -> Iterator[bytes]:
    """The lines of a content that comes in pieces, without their line feeds; of a longer line the beginning."""
    parts: list[bytes] = []
    room = longest
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        parts.append(first[:room])
        room -= len(parts[-1])
        if others:
            yield b"".join(parts)
            yield from (line[:longest] for line in others[:-1])
            parts = [others[-1][:longest]]
            room = longest - len(parts[0])
    if any(parts):
        yield b"".join(parts)
