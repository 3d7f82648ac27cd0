"""What commands print: tables, JSON, notes, errors and progress, in one manner for all of them.

On a terminal a table is cut to its width; in a pipe it is tab-separated and whole. Cells never carry control
characters: text comes from strangers, and a terminal obeys escape codes.
"""

from __future__ import annotations

import errno
import os
import re
import sys

from traceflow_formats.errors import TraceflowError

from traceflow.lean_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, TextIO

    from .progressbar import Advance

__all__ = [
    "MATCH",
    "cell",
    "cut",
    "label",
    "note",
    "os_error",
    "painted",
    "print_error",
    "print_json",
    "print_table",
    "progress",
    "shows_progress",
    "usage_error",
    "write",
]

_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"


_LABEL = r"(error|warning|skipped)\[\w+\]:"
MATCH = "1;31"  # what a search found
_LABELS = {"error": "1;31", "warning": "33", "skipped": "33"}


def painted(text: str, code: str, stream: TextIO | None = None) -> str:
    """A text in a colour of the terminal (SGR), where there is one that wants it (NO_COLOR, TERM=dumb)."""
    stream = stream or sys.stdout
    if not text or not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{code}m{text}\x1b[0m"


def label(text: str, stream: TextIO | None = None) -> str:
    """`error[code]:`, `warning[code]:` or `skipped[code]:`, so that it stands out on a terminal."""
    return painted(text, _LABELS[text.partition("[")[0].rstrip(":")], stream)


def write(text: str) -> None:
    """Text to stdout, as UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def note(message: str) -> None:
    """One message to stderr, after what was printed before it."""
    _flush()
    text = cell(message)
    if found := re.match(_LABEL, text):
        text = label(found[0], sys.stderr) + text[found.end() :]
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _flush() -> None:
    """What was printed goes out before a message; where stdout has gone the message is the more needed."""
    try:
        sys.stdout.flush()
    except OSError:
        return


def usage_error(usage: str, message: str) -> None:
    """A command line that cannot be understood, as the other commands say it."""
    command = usage.partition(" [")[0]
    sys.stderr.write(f"Usage: {usage}\nTry '{command} --help' for help.\n\nError: {cell(message)}\n")
    sys.stderr.flush()


def print_json(value: Any, *, indent: bool = False) -> None:
    """One JSON value to stdout: a line, or indented for a document that people read."""
    from traceflow_formats import jsontext

    sys.stdout.flush()
    sys.stdout.buffer.write(jsontext.pretty(value) if indent else jsontext.dumps(value) + b"\n")


def print_error(error: TraceflowError, as_json: bool) -> None:
    """An error: one line on stderr, and with --json the object on stdout."""
    if as_json:
        body = {"code": error.code, "message": error.message, "details": error.details}
        try:
            print_json({"error": body})
            sys.stdout.flush()
        except OSError:  # what went wrong may be stdout itself
            pass
    note(str(error))


def os_error(error: OSError) -> TraceflowError:
    """What the machine refused, in words that say what to do."""
    where = f"{error.filename}: " if error.filename else ""
    if error.errno == errno.ENOSPC:
        return TraceflowError("io_error", f"{where}no space left on the disk; free some and run it again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return TraceflowError("io_error", f"{where}permission denied", path=error.filename)
    if error.errno == errno.ENOENT:
        return TraceflowError("not_found", f"{where}no such file or folder", path=error.filename)
    if error.errno == errno.EISDIR:
        return TraceflowError("invalid_input", f"{where}a folder where a file belongs", path=error.filename)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return TraceflowError("invalid_input", f"{where}{error.strerror}", path=error.filename)
    return TraceflowError("io_error", f"{where}{error.strerror or error}", path=error.filename)


def cell(value: object) -> str:
    """A value as it stands in a table: numbers short, null empty, control characters as escapes."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    if text.isprintable():  # most are, and the expression is not needed then
        return text
    return re.sub(_CONTROL, lambda m: f"\\x{ord(m[0]):02x}" if ord(m[0]) < 256 else f"\\u{ord(m[0]):04x}", text)


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    flexible: str | None = None,
    optional: Sequence[str] = (),
) -> int:
    """Rows under headings; returns how many.

    On a terminal that is too narrow the `optional` columns are left out, the first named first, then `flexible` gives
    way, then the widest; where that does not help, each row is a list of names and values. A pipe gets everything.
    """
    if not sys.stdout.isatty():
        write("\t".join(columns) + "\n")
        count = 0
        for row in rows:
            write("\t".join(cell(value) for value in row) + "\n")
            count += 1
        return count
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(r[i]) for r in cells)]) for i, name in enumerate(columns)]
    shown = _shown(widths, columns, optional)
    numeric = [all(not r[i] or _is_number(r[i]) for r in cells) for i in shown]
    kept = [widths[i] for i in shown]
    _fit(kept, [columns[i] for i in shown], flexible)
    if sum(kept) + 2 * (len(kept) - 1) > _room():
        _print_records(columns, cells)
        return len(cells)
    heading = [c.upper() for c in columns]
    for line in (heading, *cells):
        parts = [
            _cut(line[i], width).rjust(width) if number else _cut(line[i], width).ljust(width)
            for i, width, number in zip(shown, kept, numeric, strict=True)
        ]
        text = "  ".join(parts).rstrip()
        write((painted(text, "1") if line is heading else text) + "\n")
    return len(cells)


def _print_records(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Rows of very many columns: one below the other, each with what it has."""
    width = max(map(len, columns))
    for number, row in enumerate(rows, 1):
        write(painted(f"ROW {number}", "1") + "\n")
        for name, value in zip(columns, row, strict=True):
            if value:
                write(f"{name:<{width}}  {_cut(value, max(_room() - width - 2, 20))}\n")


def _shown(widths: list[int], columns: Sequence[str], optional: Sequence[str]) -> list[int]:
    """The columns for which there is room, by number."""
    shown = list(range(len(columns)))
    for name in optional:
        if sum(widths[i] for i in shown) + 2 * (len(shown) - 1) <= _room():
            break
        shown.remove(columns.index(name))
    for name in reversed(optional):  # a narrow one may have gone for nothing, when a wide one followed
        number = columns.index(name)
        if number not in shown and sum(widths[i] + 2 for i in shown) + widths[number] <= _room():
            shown = sorted([*shown, number])
    return shown


def _room() -> int:
    import shutil

    return shutil.get_terminal_size((100, 24)).columns


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _fit(widths: list[int], columns: Sequence[str], flexible: str | None) -> None:
    room = _room() - 2 * (len(widths) - 1)
    while sum(widths) > room:
        at = columns.index(flexible) if flexible in columns else widths.index(max(widths))
        if widths[at] <= 12:
            at = widths.index(max(widths))
        if widths[at] <= 6:
            return
        widths[at] -= 1


def cut(text: str, width: int, indent: int = 0) -> str:
    """A text cut to `width`, and on a terminal to what is left of its line behind `indent` characters."""
    if sys.stdout.isatty():
        return _cut(text, max(min(width, _room() - indent), 20))
    return text[:width]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def shows_progress() -> bool:
    """Whether progress is shown: on a terminal that can."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_PROGRESS" not in os.environ


def progress(label: str, total: int | None = None, unit: str = "") -> AbstractContextManager[Advance]:
    """Progress of long work on stderr, only on a terminal. Call what it gives with the amount done and a word."""
    if not shows_progress():
        from contextlib import nullcontext

        return nullcontext(lambda amount, word: None)
    from .progressbar import shown

    return shown(label, total)
