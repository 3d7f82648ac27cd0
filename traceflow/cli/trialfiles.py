"""`traceflow trial files ...` and `trial logs`: what a trial left behind. They read their own command line, see
command.py, so that each answers at once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import output
from .arguments import Option
from .command import Argument, Family
from .onetrial import FoundTrial, about_trial

if TYPE_CHECKING:
    from traceflow.trialfiles import TrialFiles

__all__ = ["files", "logs"]

_PATH = "traceflow trial files"
_SOURCE = Option(("--source",), "source", "Which files. Default: the capture, where there is one.", "trial|capture")
_CURSOR = Option(("--cursor",), "cursor", "Go on after this one: next_cursor of the page before.", "CURSOR")


def _limit(what: str, default: int) -> Option:
    return Option(("--limit", "-n"), "limit", what, "N", number=True, default=default)


def _files(trial: FoundTrial) -> TrialFiles:
    """The files of the trial, to be used as a context."""
    from traceflow.trialfiles.browse import TrialFiles

    return TrialFiles(*trial, progress=output.progress)


@about_trial(f"{_PATH} status")
def _status(trial: FoundTrial, as_json: bool) -> None:
    """Say what there is to browse."""
    with _files(trial) as found:
        document = found.status()
    if as_json:
        output.print_json(document, indent=True)
        return
    capture = document.pop("capture") or {}
    for key, value in [*document.items(), *((f"capture {k}", v) for k, v in capture.items())]:
        if value is not None:
            output.write(f"{key:<22}{output.cell(value)}\n")


@about_trial(
    f"{_PATH} ls",
    Argument("PATH", "path", "The folder.", "/"),
    _limit("Entries of a page, at most 1000.", 500),
    _CURSOR,
    _SOURCE,
)
def _ls(trial: FoundTrial, path: str, limit: int, cursor: str | None, source: str | None, as_json: bool) -> None:
    """List a folder: type, mode, size, time, change, name."""
    with _files(trial) as found:
        page = found.list(path, source=source, cursor=cursor, limit=limit)
    if as_json:
        output.print_json(page, indent=True)
        return
    columns = ("type", "mode", "size", "mtime", "changed", "name")
    output.print_table(columns, ([_shown(e, c) for c in columns] for e in page["entries"]), flexible="name")
    _more(page)


def _shown(entry: dict[str, Any], column: str) -> object:
    if column == "name":
        name = entry["name"] + ("/" if entry["type"] == "dir" else "")
        link = f" -> {entry['target']}" if entry.get("target") else ""
        missing = "" if entry["captured"] else f" ({entry.get('left_out') or 'not captured'})"
        return name + link + missing
    if column == "changed" and entry["changed"]:
        return f"{entry['changed']} {entry['phase'] or ''}".rstrip()
    return entry[column]


def _more(page: dict[str, Any]) -> None:
    if page["next_cursor"] is not None:
        output.note(f"there is more: --cursor {page['next_cursor']}")


@about_trial(
    f"{_PATH} cat",
    Argument("PATH", "path", "The file."),
    Option(("--range",), "part", "bytes=a-b (both inclusive), bytes=a-, or bytes=-n for the last n.", "RANGE"),
    _SOURCE,
)
def _cat(trial: FoundTrial, path: str, part: str | None, source: str | None, as_json: bool) -> None:
    """Print a file, or part of it, as it is; with --json as base64."""
    from traceflow.trialfiles import parse_range

    wanted = parse_range(part) if part is not None else None
    with _files(trial) as found:
        _, chunks = found.read(path, source=source, byte_range=wanted)
        if as_json:
            import base64

            data = b"".join(chunks)
            encoded = base64.b64encode(data).decode()
            output.print_json({"path": path, "bytes": len(data), "encoding": "base64", "data": encoded}, indent=True)
            return
        sys.stdout.flush()
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)


@about_trial(
    f"{_PATH} search",
    Argument("QUERY", "query", "Text that a line holds; with --regex an RE2 pattern."),
    Option(("--path",), "path", "Only in this folder or file.", "PATH", default="/"),
    Option(("--regex",), "regex", "The query is a pattern."),
    _limit("At most so many hits, up to 1000.", 200),
    _SOURCE,
)
def _search(
    trial: FoundTrial, query: str, path: str, regex: bool, limit: int, source: str | None, as_json: bool
) -> int:
    """Search the contents of text files. Exit 1 when nothing is found."""
    with _files(trial) as found:
        result = found.search(query, path=path, regex=regex, limit=limit, source=source)
    if as_json:
        output.print_json(result, indent=True)
        return 0 if result["hits"] else 1
    for hit in result["hits"]:
        output.write(output.cell(f"{hit['path']}:{hit['line']}: {hit['snippet']}") + "\n")
    if result["truncated"]:
        output.note(f"there are more than {limit} hits: narrow --path, or raise --limit")
    return 0 if result["hits"] else 1


@about_trial(
    f"{_PATH} changes",
    Option(("--phase",), "phase", "Only what changed in this phase.", "setup|agent|verifier|all", default="all"),
    _limit("Items of a page, at most 1000.", 500),
    _CURSOR,
    _SOURCE,
)
def _changes(trial: FoundTrial, phase: str, limit: int, cursor: str | None, source: str | None, as_json: bool) -> None:
    """Print what was created, modified or removed, where a manifest tells."""
    with _files(trial) as found:
        page = found.changes(phase=phase, source=source, cursor=cursor, limit=limit)
    if as_json:
        output.print_json(page, indent=True)
        return
    columns = ("changed", "phase", "size", "path")
    output.print_table(columns, ([item[c] for c in columns] for item in page["items"]), flexible="path")
    output.note(page.get("reason") or f"{page['total']} change(s), {page['changed_bytes']} bytes")
    _more(page)


@about_trial(
    f"{_PATH} archive",
    Argument("PATH", "path", "The folder, or one file.", "/"),
    Option(("--output", "-o"), "out", "The .tar.gz, or a folder for it; - is stdout.", "PATH"),
    _SOURCE,
)
def _archive(trial: FoundTrial, path: str, out: str | None, source: str | None, as_json: bool) -> None:
    """Pack a folder as a .tar.gz whose MANIFEST.tsv lists every file, also those without a content."""
    from pathlib import Path

    with _files(trial) as found:
        if out == "-":
            found.archive(path, sys.stdout.buffer, source=source)
            return
        name = (path.strip("/").rpartition("/")[2] or trial.row["trial_name"]) + ".tar.gz"
        target = Path(name) if out is None else Path(out, name) if Path(out).is_dir() else Path(out)
        written = found.archive(path, target, source=source)
    if as_json:
        facts = {"path": str(target), "members": written.members, "bytes": written.archive_bytes}
        output.print_json({**facts, "archive_sha256": written.archive_sha256}, indent=True)
        return
    output.write(output.cell(f"wrote {target}: {written.members} members, {written.archive_bytes} bytes") + "\n")


files = Family(
    _PATH,
    "Browse the files of a trial: as they were imported, or in the capture of its file system.\n\n"
    "The trial stands before or behind the verb: `files TRIAL ls` is `files ls TRIAL`.",
    {command.path.rpartition(" ")[2]: command for command in (_status, _ls, _cat, _search, _changes, _archive)},
)


@about_trial(
    "traceflow trial logs",
    Argument("STREAM", "stream", "Which log: agent, verifier or system."),
    _limit("Lines of a page, at most 1000.", 1000),
    Option(("--cursor",), "cursor", "Only lines after this one.", "SEQ", number=True),
)
def logs(trial: FoundTrial, stream: str, limit: int, cursor: int | None, as_json: bool) -> None:
    """Print a log of a trial: what the agent or the verifier printed, or what the runner wrote."""
    from traceflow.trialfiles import trial_logs

    page = trial_logs(*trial, stream, cursor=cursor, limit=limit)
    if as_json:
        output.print_json(page, indent=True)
        return
    for line in page["lines"]:
        output.write(f"{line['seq']:>6}  {line['fd']}  {output.cell(line['line'])}\n")
    if "reason" in page:
        output.note(page["reason"])
    _more(page)
