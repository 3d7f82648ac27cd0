"""`traceflow export`: jobs out of the store as deterministic archives, and checking such an archive."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from traceflow_formats.errors import TraceflowError

from . import output
from .arguments import Option, UsageError
from .command import Argument, Command
from .onetrial import AS_JSON, STORE
from .opening import open_store

if TYPE_CHECKING:
    from traceflow.export import Exported
    from traceflow.store import Manifest, Store

__all__ = ["export"]

_SUMS = "SHA256SUMS"
_HELP = """Export jobs as .tar.gz that Harbor reads: the same bytes every time, on every machine.

Every imported file comes out byte for byte. Added are agent/trajectory.json and agent/trace-parsed.jsonl where
none was, agent/agent-home.json, and traceflow.json, which lists what was added. Several jobs go to one folder,
with their digests in SHA256SUMS. With --verify FILE the exit code is 1 when the archive is not the store's.
With --redact markers stand where secrets stood, files that cannot be rewritten are left out, and both are counted."""
_ARGUMENTS = [Argument("JOB", "jobs", "The jobs: name, id, or the first 8 characters of it.", many=True)]
_OPTIONS = [
    Option(
        ("--output", "-o"),
        "out",
        "The archive, a folder for it, or a URL. Default: <job>.tar.gz here; - is stdout.",
        "PATH|URL",
    ),
    Option(("--all",), "every", "Every job of the store, into the folder that -o names."),
    Option(("--original",), "original", "Exactly what was imported, without what an export adds."),
    Option(("--redact",), "redact", "Replace secrets by markers. The store is not changed."),
    Option(("--verify",), "verify", "Check this archive against the store; nothing is written.", "FILE"),
    *(STORE, AS_JSON),
]


def _run(
    jobs: list[str],
    out: str | None,
    every: bool,
    original: bool,
    redact: bool,
    verify: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    if verify is not None:
        if every or original or redact or out is not None or len(jobs) > 1:
            raise UsageError("Invalid value: --verify takes one archive and at most one job")
        return _verify(open_store(store), jobs, verify, as_json)
    if redact and original:
        raise UsageError(
            "Invalid value: --original writes exactly what was imported, --redact changes it: say one of them"
        )
    if every == bool(jobs):
        raise UsageError("Invalid value: name one job or several, or say --all")
    from traceflow.export.worker import hold_little

    hold_little()
    opened = open_store(store)
    found = opened.jobs() if every else [opened.job(name) for name in dict.fromkeys(jobs)]
    found = list({job.job_id: job for job in found}.values())
    if out == "-":
        if len(found) != 1 or as_json:
            raise UsageError("Invalid value: -o - writes one archive to stdout, where --json would print")
        from traceflow.export import export_job

        done = export_job(opened, found[0], sys.stdout.buffer, original=original, redact=redact)
        _say(done, "stdout", output.note)
        return 0
    several = every or len(found) > 1
    if several and out is None:
        raise UsageError("Invalid value: say with -o which folder the archives go to")
    written: list[tuple[str, Exported]] = []
    for job, target in _targets(found, out, several):
        written.append((target, _export(opened, job, target, original, redact)))
        if as_json:
            output.print_json({"path": target, **written[-1][1].as_dict()}, indent=not several)
        else:
            _say(written[-1][1], target, lambda line: output.write(output.cell(line) + "\n"))
    if several and out is not None:
        _write_sums(out, written)
    return 0


export = Command("traceflow export", _HELP, _run, _ARGUMENTS, _OPTIONS)


def _targets(jobs: list[Manifest], out: str | None, several: bool) -> list[tuple[Manifest, str]]:
    """Where each job goes. Jobs of one name get the beginning of their ids behind it."""
    from collections import Counter
    from pathlib import Path

    from traceflow.archive.urls import is_url
    from traceflow.export import archive_name
    from traceflow.export.target import is_folder_url, join_url

    count = Counter(archive_name(job).casefold() for job in jobs)
    found = []
    for job in jobs:
        name = archive_name(job)
        file = f"{name}-{job.job_id[:8]}.tar.gz" if count[name.casefold()] > 1 else f"{name}.tar.gz"
        if out is None:
            target = file
        elif is_url(out):
            target = join_url(out, file) if several or is_folder_url(out) else out
        else:
            folder = several or out.endswith("/") or Path(out).is_dir()
            target = str(Path(out) / file) if folder else out
        found.append((job, target))
    if several and len({target for _, target in found}) < len(found):
        raise TraceflowError("invalid_input", "two of these jobs would go to one file: export them one by one")
    return found


def _export(store: Store, job: Manifest, target: str, original: bool, redact: bool) -> Exported:
    from traceflow.export import export_job

    with output.progress(f"exporting {target.rpartition('/')[2]}") as advance:
        return export_job(store, job, target, original=original, redact=redact, progress=lambda done: advance(0, ""))


def _say(result: Exported, shown: str, say: Callable[[str], None]) -> None:
    written = result.written
    say(f"wrote {shown}: {written.members} members, {written.archive_bytes} bytes, {result.derived} file(s) added")
    say(f"sha256 {written.archive_sha256} archive ({written.encoder})")
    say(f"sha256 {written.tar_sha256} tar")
    if result.redacted is not None:
        from .redaction import redaction_line

        say(redaction_line(result.redacted))
    for warning in result.warnings:
        from .import_ import warning_line

        output.note(warning_line(warning))


def _write_sums(out: str, written: list[tuple[str, Exported]]) -> None:
    """SHA256SUMS in the folder of the archives, as `sha256sum -c` reads it; the digest of each tar is a comment."""
    from pathlib import Path

    from traceflow.archive.urls import is_url
    from traceflow.files import atomic_file

    lines = []
    for target, result in sorted(written, key=lambda pair: pair[0].encode()):
        name = target.rpartition("/")[2].partition("?")[0]
        lines.append(f"# {name}: tar {result.written.tar_sha256}, packed by {result.written.encoder}\n")
        lines.append(f"{result.written.archive_sha256}  {name}\n")
    content = "".join(lines).encode()
    if not is_url(out):
        with atomic_file(Path(out) / _SUMS) as file:
            file.write(content)
        return
    from traceflow.export.target import join_url, write_whole

    write_whole(join_url(out, _SUMS), content)


def _verify(store: Store, names: list[str], file: str, as_json: bool) -> int:
    from dataclasses import asdict
    from pathlib import Path

    from traceflow.export import find_job, verify_archive

    from .redaction import redaction_line

    archive = Path(file)
    with output.progress(f"verifying {archive.name}"):
        job = store.job(names[0]) if names else find_job(store, archive)
        checked = verify_archive(store, job, archive)
    if as_json:
        output.print_json(asdict(checked), indent=True)
        return 1 if checked.problems else 0
    for problem in checked.problems:
        output.write(output.cell(f"{problem['path']}: {problem['message']}") + "\n")
    if checked.redacted is not None and not checked.problems:
        output.note(f"{archive} is a redacted export of job {job.job_id}: the rest of it is the store's, byte for byte")
        output.note(redaction_line(checked.redacted))
    elif checked.exact:
        what = "what was imported" if checked.original else "an export"
        output.note(f"{archive} is {what} of job {job.job_id}, byte for byte: {checked.members} members")
    elif checked.problems:
        output.note(f"{archive} is not job {job.job_id}: {len(checked.problems)} problem(s)")
    else:
        output.note(f"{archive} holds the files of job {job.job_id}, packed in another way than an export's")
    return 1 if checked.problems else 0
