"""What commands print: tables, JSON, notes, errors and progress, in one manner for all of them.

On a terminal a table is cut to its width; in a pipe it is tab-separated and whole. Cells never carry control
characters: text comes from strangers, and a terminal obeys escape codes.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from traceflow_formats.errors import TraceflowError

__all__ = [
    "cell",
    "note",
    "os_error",
    "print_error",
    "print_json",
    "print_table",
    "progress",
    "shows_progress",
    "usage_error",
    "write",
]

_CONTROL = "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"


def write(text: str) -> None:
    """Text to stdout, as UTF-8 whatever the locale says."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "replace"))


def note(message: str) -> None:
    """One message to stderr."""
    sys.stderr.write(f"{cell(message)}\n")
    sys.stderr.flush()


def usage_error(usage: str, message: str) -> None:
    """A command line that cannot be understood, as the other commands say it."""
    sys.stderr.write(
        f"Usage: {usage}\nTry '{' '.join(usage.split()[:2])} --help' for help.\n\nError: {cell(message)}\n"
    )
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
        print_json({"error": body})
        sys.stdout.flush()
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
    way, then the widest. A pipe gets everything.
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
    for line in ([c.upper() for c in columns], *cells):
        parts = [
            _cut(line[i], width).rjust(width) if number else _cut(line[i], width).ljust(width)
            for i, width, number in zip(shown, kept, numeric, strict=True)
        ]
        write("  ".join(parts).rstrip() + "\n")
    return len(cells)


def _shown(widths: list[int], columns: Sequence[str], optional: Sequence[str]) -> list[int]:
    """The columns for which there is room, by number."""
    shown = list(range(len(columns)))
    for name in optional:
        if sum(widths[i] for i in shown) + 2 * (len(shown) - 1) <= _room():
            break
        shown.remove(columns.index(name))
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


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


Advance = Callable[[int, str], None]


def shows_progress() -> bool:
    """Whether progress is shown: on a terminal that can."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_PROGRESS" not in os.environ


@contextmanager
def progress(label: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """Progress of long work on stderr, only on a terminal. Call what it gives with the amount done and a word."""
    if not shows_progress():
        yield lambda amount, word: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)

        def advance(amount: int, word: str) -> None:
            bar.update(task, advance=amount, description=f"{label} {cell(word)[:40]}")

        yield advance
