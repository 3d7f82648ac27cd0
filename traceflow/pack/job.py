"""Runs into a Harbor job folder: raw files at the harness's own places, a trajectory, and the records.

The folder appears under its name when everything is in it, or not at all. Same sources, same task, same scores: the
same bytes. The id of a run is a UUIDv5 of its raw bytes and its task, as in the official packing; a job of one run
has the same id.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from traceflow_formats import jsontext
from traceflow_formats.atif import AtifBuilder, Built, Summary
from traceflow_formats.errors import TraceflowError
from traceflow_formats.text import clean_text
from traceflow_formats.times import normal_time
from traceflow_formats.trace import Event, agent_of
from traceflow_parsers.contract import Part
from traceflow_parsers.detect import open_file
from traceflow_parsers.report import Report
from traceflow_parsers.sdk import SDK_AGENTS
from traceflow_parsers.source import Source, file_input

from ..conversion import Conversion, refuse_empty
from .places import raws_of, stream_place
from .raw import Raw, file_raw, read_ranges
from .records import PackedRun, agent_name, job_config, job_result, trial_config, trial_result
from .scores import Rewards, match_runs
from .sdk import SdkLog, SdkRun, read_sdk_log

__all__ = ["PackOptions", "check_new", "new_folder", "pack_job"]

_REFUSALS = ("empty_trace", "invalid_trajectory", "invalid_input")  # of one run; anything else ends the packing
_STREAM = "stream.jsonl"  # the name of a stream until its run has an id
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class PackOptions:
    """What a job shall be called and what is known beyond the sources.

    `task` names the task of every run; without it each run has a task of its own, named after its session.
    `rewards` and `exceptions` are (file, entries by run name). `skip_invalid` leaves refused runs out.
    """

    job_name: str | None = None
    task: str | None = None
    system_prompt: str | None = None
    rewards: tuple[Path, Mapping[str, Rewards]] | None = None
    exceptions: tuple[Path, Mapping[str, dict[str, Any]]] | None = None
    skip_invalid: bool = False


@dataclass(frozen=True, slots=True)
class _Packed:
    """A run whose folder is filled, and what it is known by."""

    run: PackedRun
    names: set[str]
    report: Report
    summary: Summary
    failed: TraceflowError | None  # refused, unless its exception is recorded


@dataclass(slots=True)
class _Job:
    """A job while its folder is filled."""

    folder: Path
    options: PackOptions
    conversion: Conversion
    root: Path
    alone: bool  # there is one source
    packed: list[_Packed] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)  # names of trials, in lower case
    refused: list[TraceflowError] = field(default_factory=list)


def pack_job(
    sources: list[Source],
    out: Path,
    options: PackOptions,
    conversion: Conversion,
    *,
    root: Path | None = None,
    progress: Callable[[int, str], None] = lambda amount, word: None,
) -> None:
    """Write the job folder `out`; names of runs are relative to `root`, the path that the sources were found at.

    Raises TraceflowError: invalid_input for an `out` that holds something, for a run that may not be packed and for
    scores that fit no run, empty_trace where no run has a step.
    """
    check_new(out)
    shared = Counter(source.path for source in sources)
    with new_folder(out) as folder:
        job = _Job(folder, options, conversion, root or Path(), len(sources) == 1)
        for source in sources:
            try:
                if source.kind == "sdk":
                    _pack_log(job, source)
                else:
                    _pack_source(job, source, shared[source.path] > 1)
            except TraceflowError as error:
                if error.code not in _REFUSALS:
                    raise
                job.refused.append(error)
            progress(1, source.path.name)
        runs = _settle(job)
        _write_records(folder, clean_text(options.job_name or out.absolute().name)[0], runs)
    conversion.outputs.extend(str(out / run.trial) for run in runs)


def check_new(out: Path) -> None:
    """Raise invalid_input where a job cannot be packed to: something is there."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise TraceflowError(
            "invalid_input", f"{out} is there already; a job is packed into a new folder", path=str(out)
        )


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder that appears under the name `out` when the block ends, whole or not at all."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name[:40]}.", suffix=".part", dir=out.parent))
    try:
        yield folder
        umask = os.umask(0)
        os.umask(umask)
        folder.chmod(0o777 & ~umask)
        if out.is_dir():
            out.rmdir()  # an empty one, as was checked
        folder.rename(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


# -- one run -----------------------------------------------------------------------------------------------


def _pack_source(job: _Job, source: Source, shared: bool) -> None:
    """A session, a stdout stream, a trajectory or a parsed trace: one run."""
    with _place(job) as place:
        agent = place / "agent"
        stream = source.kind == "stdout"
        raws = [file_raw(_STREAM, source.path)] if stream else raws_of(source, shared=shared)
        digest = _write_raws(agent, raws)
        report, watch, built = _build(source, job.options.system_prompt, None, agent)
        with built:
            session = report.session_id or source.session_id or source.path.stem
            run = _known(job, agent_name(report.harness or source.harness), report, watch, built, digest, session)
            if stream:
                _file_stream(agent, stream_place(source.harness, str(run.id), watch.first, "packed"))
            _finish(job, place, run, digest, {session, *_paths(job, source.path)}, built, report)


def _file_stream(agent: Path, name: str) -> None:
    """Give a stream its place, which its run's id names."""
    target = agent / name
    target.parent.mkdir(parents=True, exist_ok=True)
    (agent / _STREAM).rename(target)


def _pack_log(job: _Job, source: Source) -> None:
    """An SDK log: each of its runs. One that is refused does not keep the others from being packed."""
    log = read_sdk_log(source.path, source.harness)
    if log.tag_differs:
        job.conversion.warn(
            "tag_differs", f"the file is named {log.tag}, its _meta says {log.meta.get('tag')}", str(log.path)
        )
    for run in log.runs:
        try:
            _pack_run(job, source, log, run)
        except TraceflowError as error:
            if error.code not in _REFUSALS:
                raise
            job.refused.append(error)


def _pack_run(job: _Job, source: Source, log: SdkLog, run: SdkRun) -> None:
    tag = log.tag or source.path.stem
    several = len(log.runs) > 1
    session = f"{tag}#{log.runs.index(run) + 1}" if several else tag
    said = log.meta.get("agent")
    agent = said if isinstance(said, str) and said else agent_name(source.harness)
    forced = source.harness if source.harness != "trace" else None
    with _place(job) as place:
        raw = place / "agent" / _STREAM
        digest = _write_raws(raw.parent, [Raw(_STREAM, lambda: read_ranges(log.path, log.ranges(run)))])
        copy = open_file(raw, forced)._replace(inputs=(file_input(raw, Part(log.path.name)),))
        report, watch, built = _build(copy, job.options.system_prompt, tag, raw.parent)
        with built:
            found = _known(job, agent, report, watch, built, digest, session)
            if not several:  # then the log's own times are the run's
                model = log.meta.get("model")
                found = replace(
                    found,
                    trial=f"{_short(found.task)}__sdk" if job.alone else found.trial,
                    model=model if isinstance(model, str) and model else found.model,
                    started_at=log.started_at or found.started_at,
                    finished_at=log.ended_at or found.finished_at,
                )
            harness = forced or SDK_AGENTS.get(agent, "")
            _file_stream(raw.parent, stream_place(harness, str(found.id), log.started_at, "sdk-upload"))
            names = {session} if several else {session, *_paths(job, source.path), *_told(report)}
            why = _why_failed(log, run, built)
            failed = log.refuse(run, f"{why}; pack it with its recorded exception") if why is not None else None
            _finish(job, place, found, digest, names, built, report, failed)


@contextmanager
def _place(job: _Job) -> Iterator[Path]:
    """A folder for a run that is being packed; what is left of it at the end is removed."""
    place = job.folder / ".run"
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _told(report: Report) -> set[str]:
    return {report.session_id} if report.session_id else set()


def _why_failed(log: SdkLog, run: SdkRun, built: Built) -> str | None:
    """Why the official packing refuses a run whose exception is not recorded; None for one that went well."""
    if not log.ends:
        return "no _sessionEnd: the session was not closed, the run may be unfinished"
    if log.harness in ("claude-code", "codex", "gemini-cli", "qwen-code", "droid"):
        if run.closed_badly:
            return f"{log.harness} says that the run failed"
        if run.closed_well != 1:
            return f"{run.closed_well} closing lines of {log.harness}; a run that went well has exactly one"
    return "the run ends with an error" if built.summary.status == "error" else None


class _Watch:
    """Facts of a run that its trajectory does not say: the main agent's model, first and last time."""

    def __init__(self) -> None:
        self.model: str | None = None
        self._first = self._last = ""

    def take(self, event: Event) -> None:
        data = event.data
        time, model = data.get("timestamp"), data.get("model")
        if isinstance(time, str) and not (data.get("extra") or {}).get("copied"):
            time = time.removesuffix("Z")  # so that more digits come after fewer
            if not self._first or time < self._first:
                self._first = time
            self._last = max(self._last, time)
        if self.model is None and isinstance(model, str) and agent_of(data) is None:
            self.model = model

    @property
    def first(self) -> str | None:
        return _time(self._first)

    @property
    def last(self) -> str | None:
        return _time(self._last)


def _time(text: str) -> str | None:
    """A time of a trace, or None for text of a foreign one that is none."""
    try:
        return normal_time(f"{text}Z" if "+" not in text else text)[0]
    except ValueError:
        return None


def _build(source: Source, system: str | None, tag: str | None, agent: Path) -> tuple[Report, _Watch, Built]:
    """The trajectory of a source, its pictures written to `agent/images`. Raises empty_trace."""
    parse = source.parse()
    watch = _Watch()
    builder = AtifBuilder(images=agent)
    if system is not None:
        builder.add(Event("prompt", _named({"_prompt": {"text": system, "role": "system"}}, tag)))
    count = 0
    for event in parse:
        watch.take(event)
        count += 1
        prompt = event.data.get("_prompt")
        if system is not None and prompt == {"text": system, "role": "system"}:
            continue  # the source has it too
        builder.add(Event(event.type, _named(event.data, tag)) if count == 1 else event)
    built = builder.finish()
    try:
        refuse_empty(source, parse.report, empty=built.is_empty or not count)
    except TraceflowError:
        built.close()
        raise
    return parse.report, watch, built


def _named(data: dict[str, Any], tag: str | None) -> dict[str, Any]:
    """An event under the name of its SDK session, which names the whole trajectory."""
    return data if tag is None else {**data, "sessionId": tag}


def _known(job: _Job, agent: str, report: Report, watch: _Watch, built: Built, digest: str, session: str) -> PackedRun:
    summary = built.summary
    task = clean_text(job.options.task or session)[0]
    ident = uuid5(NAMESPACE_URL, f"{digest}:{task}")
    return PackedRun(
        id=ident,
        task=task,
        trial=f"{_short(task)}__{ident.hex[:7]}",
        agent=agent,
        version=report.version or "",
        model=watch.model,
        started_at=watch.first,
        finished_at=watch.last,
        n_input_tokens=summary.prompt_tokens,
        n_cache_tokens=summary.cached_tokens,
        n_output_tokens=summary.completion_tokens,
        cost_usd=None if summary.cost_partial else summary.cost_usd,
    )


def _finish(
    job: _Job,
    place: Path,
    run: PackedRun,
    digest: str,
    names: set[str],
    built: Built,
    report: Report,
    failed: TraceflowError | None = None,
) -> None:
    """Write the trajectory and put the run's folder in its place."""
    if digest in job.digests:
        job.conversion.warn("duplicate_session", f"{run.task}: the same bytes as another run; packed once", report.path)
        return
    job.digests.add(digest)
    with (place / "agent" / "trajectory.json").open("wb") as out:
        built.write(out)
    if run.trial.lower() in job.taken:
        run = replace(run, trial=f"{run.trial}-{run.id.hex}")
    job.taken.add(run.trial.lower())
    place.rename(job.folder / run.trial)
    job.packed.append(_Packed(run, names, report, built.summary, failed))


def _paths(job: _Job, path: Path) -> set[str]:
    """The names that a run goes by because of its file."""
    found = {path.name, path.stem, str(path), str(path.absolute())}
    if path.is_relative_to(job.root):
        found.add(path.relative_to(job.root).as_posix())
    return found - {"", "."}


def _short(task: str) -> str:
    """The part of a trial's name that its task gives: at most 32 characters, as Harbor cuts it."""
    short = _UNSAFE.sub("_", task.rpartition("/")[2] or task)[:32].rstrip("_-").lstrip(".")
    return short or "task"


def _write_raws(agent: Path, raws: Iterable[Raw]) -> str:
    """Write raw files and return the SHA-256 of the run: of its file, or of the list of its files' digests."""
    lines: list[tuple[str, str]] = []
    for raw in raws:
        name = PurePosixPath(raw.name)
        if name.is_absolute() or ".." in name.parts:
            raise ValueError(f"unsafe name {raw.name!r}")
        target = agent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256()
        with target.open("xb") as out:
            for chunk in raw.chunks():
                digest.update(chunk)
                out.write(chunk)
        lines.append((raw.name, digest.hexdigest()))
    if len(lines) == 1:
        return lines[0][1]
    return hashlib.sha256("".join(f"{digest}  {name}\n" for name, digest in sorted(lines)).encode()).hexdigest()


# -- the job -----------------------------------------------------------------------------------------------


def _settle(job: _Job) -> list[PackedRun]:
    """Give each run its score and its exception, and decide about those that were refused."""
    options, packed = job.options, job.packed
    names = [item.names for item in packed]
    rewards = match_runs(*options.rewards, names) if options.rewards is not None else {}
    exceptions = match_runs(*options.exceptions, names) if options.exceptions is not None else {}
    kept: list[PackedRun] = []
    for at, item in enumerate(packed):
        if item.failed is not None and at not in exceptions:
            job.refused.append(item.failed)
            shutil.rmtree(job.folder / item.run.trial)
            continue
        kept.append(replace(item.run, rewards=rewards.get(at), exception=exceptions.get(at)))
        job.conversion.add(item.report, item.summary)
        if item.summary.status == "error" and at not in exceptions:
            job.conversion.warn("failed_run", f"{item.run.task} ends with an error; its trial has no exception")
    invalid = [error for error in job.refused if error.code == "invalid_input"]
    if job.refused and (not kept or (invalid and not options.skip_invalid)):
        raise _refusal(invalid or job.refused)
    for error in job.refused:
        job.conversion.warn(error.code, error.message, error.details.get("path"))
    unscored = sum(run.rewards is None for run in kept)
    if options.rewards is not None and unscored:
        job.conversion.warn("unscored", f"{unscored} of {len(kept)} runs have no score in {options.rewards[0]}")
    if all(run.started_at is None for run in kept):
        job.conversion.warn("no_start_time", "no source says when its run began; the job has no started_at")
    return sorted(kept, key=lambda run: run.trial)


def _refusal(errors: list[TraceflowError]) -> TraceflowError:
    if len(errors) == 1:
        return errors[0]
    return TraceflowError(
        errors[0].code,
        f"{len(errors)} runs cannot be packed, the first: {errors[0].message}",
        refused=[{"code": error.code, "message": error.message} for error in errors[:100]],
    )


def _write_records(folder: Path, name: str, runs: list[PackedRun]) -> None:
    ident = _job_id(runs)
    for run in runs:
        _write(folder / run.trial / "config.json", trial_config(run, ident))
        _write(folder / run.trial / "result.json", trial_result(run, ident))
    _write(folder / "config.json", job_config(name, runs))
    _write(folder / "result.json", job_result(ident, runs))


def _job_id(runs: list[PackedRun]) -> UUID:
    """The id of a job's only run; of several, made from theirs."""
    if len(runs) == 1:
        return runs[0].id
    listed = "\n".join(sorted(str(run.id) for run in runs))
    return uuid5(NAMESPACE_URL, hashlib.sha256(listed.encode()).hexdigest() + ":job")


def _write(path: Path, record: dict[str, Any]) -> None:
    path.write_bytes(jsontext.pretty(record))
