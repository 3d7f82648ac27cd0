"""The log streams of a trial, line by line: what its agent and its verifier printed, and what the runner wrote."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor.layout import STDOUT_NAMES

from ..store import FileRow, Manifest, Store
from .manifests import split_lines

__all__ = ["STREAMS", "stderr_files", "stdout_files", "trial_logs"]

STREAMS = ("agent", "verifier", "system")
MAX_LINES = 1000
_LINE = 1 << 20  # bytes; the rest of a longer line is left out
_PLACES = ("agent/", "steps/", "trial.log", "verifier/")  # where logs may be, below the trial
_STDERR = ("stderr.log", "stderr.txt")


def trial_logs(
    store: Store,
    job: Manifest,
    trial: dict[str, Any],
    stream: str,
    *,
    cursor: int | None = None,
    limit: int = MAX_LINES,
) -> dict[str, Any]:
    """One page of a stream: `{"stream", "lines": [{"seq", "t", "fd", "line"}], "next_cursor", "reason"?}`.

    `seq` counts from 0 over the whole stream, `cursor` is the last one seen, `t` is null: files keep no clock.
    `fd` is out or err. A page without lines has the reason. Raises invalid_input for another stream or a bad limit.
    """
    if stream not in STREAMS:
        raise TraceflowError("invalid_input", f"{stream[:40]!r} is no log stream: say {', '.join(STREAMS)}")
    if not 0 < limit <= MAX_LINES:
        raise TraceflowError("invalid_input", f"a page has 1 to {MAX_LINES} lines, not {limit}")
    files = _files(store, job, trial, stream)
    after = -1 if cursor is None else cursor
    lines: list[dict[str, Any]] = []
    more = False
    for seq, (fd, line) in enumerate(_lines(store, job, files)):
        if seq <= after:
            continue
        if len(lines) == limit:
            more = True
            break
        lines.append({"seq": seq, "t": None, "fd": fd, "line": line})
    page: dict[str, Any] = {"stream": stream, "lines": lines, "next_cursor": lines[-1]["seq"] if more else None}
    if not lines:
        page["reason"] = _reason(stream, bool(files), cursor)
    return page


def stdout_files(names: list[str]) -> list[str]:
    """Of the paths below a trial those that hold what a harness printed: its own file, else stdout.log; by step."""
    found = []
    for base in _bases(names):
        inside = {n.removeprefix(f"{base}agent/") for n in names if n.startswith(f"{base}agent/")}
        known = next((name for name in (*STDOUT_NAMES, "stdout.log") if name in inside), None)
        if known is None:
            flat = sorted(n for n in inside if "/" not in n and n.endswith((".txt", ".log")))
            known = next((n for n in flat if not n.endswith(_STDERR)), None)
        if known is not None:
            found.append(f"{base}agent/{known}")
    return found


def stderr_files(names: list[str]) -> list[str]:
    """The files that hold what a harness printed to stderr."""
    there = set(names)
    return [path for base in _bases(names) for name in _STDERR if (path := f"{base}agent/{name}") in there]


def _bases(names: list[str]) -> list[str]:
    steps = dict.fromkeys(n.split("/", 2)[1] for n in names if n.startswith("steps/") and n.count("/") >= 2)
    return [*(f"steps/{step}/" for step in steps), ""]


def _files(store: Store, job: Manifest, trial: dict[str, Any], stream: str) -> list[tuple[str, FileRow]]:
    prefix = f"{trial['trial_name']}/"
    with store.file_table(job) as table:
        paths = [table.table(prefix + top, ("path",)).column("path").to_pylist() for top in _PLACES]
        names = [path[len(prefix) :] for path in chain(*paths)]
        there = set(names)
        if stream == "agent":
            wanted = [("out", n) for n in stdout_files(names)] + [("err", n) for n in stderr_files(names)]
        elif stream == "verifier":
            logs = (("out", "verifier/test-stdout.txt"), ("err", "verifier/test-stderr.txt"))
            wanted = [(fd, base + name) for base in _bases(names) for fd, name in logs]
        else:
            wanted = [("out", "trial.log")]
        rows = [(fd, table.find(prefix + name)) for fd, name in wanted if name in there]
    return [(fd, row) for fd, row in rows if row is not None and row.packed is not None]


def _lines(store: Store, job: Manifest, files: list[tuple[str, FileRow]]) -> Iterator[tuple[str, str]]:
    packs = store.contents(job)
    for fd, row in files:
        assert row.packed is not None
        for raw in split_lines(packs.chunks(row.packed), _LINE):
            yield fd, raw.decode("utf-8", "replace").rstrip("\r")


def _reason(stream: str, has_files: bool, cursor: int | None) -> str:
    if not has_files:
        what = {
            "agent": "no stdout or stderr of an agent",
            "verifier": "no output of a verifier",
            "system": "no trial.log",
        }
        return f"the trial has {what[stream]}"
    return "the log is empty" if cursor is None else "there are no lines after the cursor"
