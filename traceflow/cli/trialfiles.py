"""`traceflow trial files ...`, `trial logs` and `trial download`: what a trial left behind."""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from traceflow_formats.errors import TraceflowError

from . import output
from .help import Group, group
from .onetrial import FoundTrial, of_trial
from .options import AsJson

if TYPE_CHECKING:
    from traceflow.trialfiles import TrialFiles


class _TrialOrVerb(Group):
    """The trial may stand before the verb as well as behind it: `files TRIAL ls PATH` is `files ls TRIAL PATH`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) > 1 and args[0] not in self.commands and args[1] in self.commands:
            args = [args[1], args[0], *args[2:]]
        return super().parse_args(ctx, args)


files = group(
    "Browse the files of a trial: as they were imported, or in the capture of its file system.\n\n"
    "The trial stands before or behind the verb: `files TRIAL ls` is `files ls TRIAL`.",
    cls=_TrialOrVerb,
)

Source = Annotated[
    str | None,
    typer.Option("--source", metavar="trial|capture", help="Which files. Default: the capture, where there is one."),
]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Go on after this one: next_cursor of the page before.")]


def _files(trial: FoundTrial) -> TrialFiles:
    """The files of the trial, to be used as a context."""
    from traceflow.trialfiles import TrialFiles

    return TrialFiles(*trial)


@files.command()
@of_trial
def status(trial: FoundTrial, as_json: AsJson = False) -> None:
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


@files.command("ls")
@of_trial
def ls(
    trial: FoundTrial,
    path: Annotated[str, typer.Argument(help="The folder.")] = "/",
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Entries of a page, at most 1000.")] = 500,
    cursor: Cursor = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
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


@files.command()
@of_trial
def cat(
    trial: FoundTrial,
    path: Annotated[str, typer.Argument(help="The file.")],
    range_: Annotated[
        str | None,
        typer.Option(
            "--range", metavar="RANGE", help="bytes=a-b (both inclusive), bytes=a-, or bytes=-n for the last n."
        ),
    ] = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
    """Print a file, or part of it, as it is; with --json as base64."""
    from traceflow.trialfiles import parse_range

    wanted = parse_range(range_) if range_ is not None else None
    with _files(trial) as found:
        _, chunks = found.read(path, source=source, byte_range=wanted)
        if as_json:
            data = b"".join(chunks)
            encoded = base64.b64encode(data).decode()
            output.print_json({"path": path, "bytes": len(data), "encoding": "base64", "data": encoded}, indent=True)
            return
        sys.stdout.flush()
        for chunk in chunks:
            sys.stdout.buffer.write(chunk)


@files.command()
@of_trial
def search(
    trial: FoundTrial,
    query: Annotated[str, typer.Argument(help="Text that a line holds; with --regex an RE2 pattern.")],
    path: Annotated[str, typer.Option("--path", help="Only in this folder or file.")] = "/",
    regex: Annotated[bool, typer.Option("--regex", help="The query is a pattern.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="At most so many hits, up to 1000.")] = 200,
    source: Source = None,
    as_json: AsJson = False,
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


@files.command()
@of_trial
def changes(
    trial: FoundTrial,
    phase: Annotated[
        str, typer.Option("--phase", metavar="setup|agent|verifier|all", help="Only what changed in this phase.")
    ] = "all",
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Items of a page, at most 1000.")] = 500,
    cursor: Cursor = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
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


@files.command()
@of_trial
def archive(
    trial: FoundTrial,
    path: Annotated[str, typer.Argument(help="The folder, or one file.")] = "/",
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="The .tar.gz, or a folder for it; - is stdout."),
    ] = None,
    source: Source = None,
    as_json: AsJson = False,
) -> None:
    """Pack a folder as a .tar.gz whose MANIFEST.tsv lists every file, also those without a content."""
    with _files(trial) as found:
        if out is not None and str(out) == "-":
            found.archive(path, sys.stdout.buffer, source=source)
            return
        name = (path.strip("/").rpartition("/")[2] or trial.row["trial_name"]) + ".tar.gz"
        target = Path(name) if out is None else out / name if out.is_dir() else out
        written = found.archive(path, target, source=source)
    if as_json:
        facts = {"path": str(target), "members": written.members, "bytes": written.archive_bytes}
        output.print_json({**facts, "archive_sha256": written.archive_sha256}, indent=True)
        return
    output.write(output.cell(f"wrote {target}: {written.members} members, {written.archive_bytes} bytes") + "\n")


@of_trial
def logs(
    trial: FoundTrial,
    stream: Annotated[str, typer.Argument(help="Which log: agent, verifier or system.")],
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Lines of a page, at most 1000.")] = 1000,
    cursor: Annotated[int | None, typer.Option("--cursor", metavar="SEQ", help="Only lines after this one.")] = None,
    as_json: AsJson = False,
) -> None:
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


@of_trial
def download(
    trial: FoundTrial,
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Where the trial's folder goes; of a stream the file."),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream", help="Only trace-parsed, trace-stdout, trace-stderr, trace-atif, agent-home or verifier."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trial as a folder, or one stream of it to stdout or a file."""
    from dataclasses import asdict

    from traceflow.export.download import download_trial

    if stream is not None:
        size = _download_stream(trial, stream, out, overwrite)
        if as_json and out is not None:
            output.print_json({"path": str(out), "stream": stream, "bytes": size}, indent=True)
        return
    name = trial.row["trial_name"]
    with output.progress(f"downloading {name}"):
        done = download_trial(*trial, (out or Path()) / name, overwrite=overwrite)
    if as_json:
        output.print_json(asdict(done), indent=True)
        return
    output.write(output.cell(f"wrote {done.path}: {done.files} files, {done.bytes} bytes") + "\n")
    if done.left_out:
        output.note(f"{len(done.left_out)} file(s) that are no text are only named in agent-home.json")


def _download_stream(trial: FoundTrial, stream: str, out: Path | None, overwrite: bool) -> int:
    from traceflow.export.download import write_stream
    from traceflow.files import atomic_file

    if out is None or str(out) == "-":
        sys.stdout.flush()
        return write_stream(*trial, stream, sys.stdout.buffer)
    if out.exists() and not overwrite:
        raise TraceflowError("invalid_input", f"{out} is there already: say --overwrite to replace it", path=str(out))
    with atomic_file(out) as file:
        return write_stream(*trial, stream, file)
