"""The Python interface: it mirrors the command line.

    store = traceflow.open("./store", create=True)
    report = store.import_job("jobs/2026-11-30")
    store.sql("SELECT agent, avg(reward) FROM trials GROUP BY agent").df()

Failures are `TraceflowError`s with a stable `code`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from traceflow_formats import jsontext
from traceflow_formats.errors import TraceflowError

from .store import Dataset, Manifest
from .store import Store as _Store

if TYPE_CHECKING:
    import duckdb
    from traceflow_parsers.source import Parse

    from .export import Exported
    from .importer import ImportReport, Relinked
    from .limits import Limits
    from .query import Found, Hit, TrialHits

__all__ = ["Store", "TraceflowError", "convert", "open_store", "parse"]


class Store(_Store):
    """A store with everything that the command line does with one."""

    def import_job(
        self,
        source: str | Path,
        *,
        limits: Limits | None = None,
        skip_invalid: bool = False,
        replace: bool = False,
        dry_run: bool = False,
        datasets: Sequence[str] = (),
        jobs: int = 1,
    ) -> ImportReport:
        """Import a Harbor job, a folder or archive at a path or URL; see `traceflow import`.

        `datasets` are name@version, as of -d. With `jobs` over 1 so many processes parse the trials: a script that
        asks for them needs the usual `if __name__ == "__main__":`.
        """
        from .importer import import_job
        from .importer.workers import Workers

        with Workers(jobs) as workers:
            return import_job(
                self,
                source,
                limits=limits,
                skip_invalid=skip_invalid,
                replace=replace,
                dry_run=dry_run,
                datasets=datasets,
                workers=workers,
            )

    def reparse(self, job: Manifest | str, *, limits: Limits | None = None) -> ImportReport:
        """Parse the kept files of a job anew and put the result in its place; see `traceflow job reparse`."""
        from .importer.reparse import reparse_job

        return reparse_job(self, self.job(job) if isinstance(job, str) else job, limits=limits)

    def add_dataset(self, path: str | Path, name: str, version: str, *, limits: Limits | None = None) -> Dataset:
        """Check a folder of tasks, or an archive of one, and keep it; see `traceflow dataset add`."""
        from .importer import add_dataset

        return add_dataset(self, Path(path), name, version, limits=limits).dataset

    def relink(self, job: Manifest | str, datasets: Sequence[str] = ()) -> Relinked:
        """Link the trials of a job to tasks as an import would now; see `traceflow job relink`."""
        from .importer import relink_job

        return relink_job(self, self.job(job) if isinstance(job, str) else job, datasets)

    def export(
        self, job: Manifest | str, out: str | Path | BinaryIO, *, original: bool = False, redact: bool = False
    ) -> Exported:
        """Write a job as a deterministic .tar.gz; see `traceflow export`."""
        from .export import export_job

        target = Path(out) if isinstance(out, str | Path) else out
        return export_job(
            self, self.job(job) if isinstance(job, str) else job, target, original=original, redact=redact
        )

    def convert_trials(
        self,
        out: str | Path,
        *,
        to: str = "chat",
        trials: Sequence[str] = (),
        jobs: Sequence[str] | None = None,
        where: str | None = None,
        redact: bool = False,
        at: str | None = None,
    ) -> dict[str, Any]:
        """Write trials into a file, `chat` or `otlp-json`, and return the report; see `traceflow trial convert`."""
        from .conversion import Conversion
        from .export.documents import choose_trials, write_trials

        found = choose_trials(self, trials, [self.job(job) for job in jobs] if jobs is not None else None, where)
        conversion = Conversion()
        write_trials(self, found, to, Path(out), conversion, redact=redact, at=at)
        return conversion.as_dict()

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """The answer to one question over the views: `.df()`, `.arrow()`, `.pl()`, `.fetchall()`."""
        from .query import sql

        return sql(self, query)

    def grep(self, pattern: str, **scope: Any) -> Iterator[Hit]:
        """Events whose text matches an RE2 pattern; `scope` as of `traceflow.query.grep`."""
        from .query import grep

        return iter(grep(self, pattern, **scope))

    def search(self, words: str, **scope: Any) -> list[Found]:
        """The trials that fit the words best, each with its best event; `scope` as of `traceflow.query.search`."""
        from .query import search

        return search(self, words, **scope)

    def job_grep(self, job: Manifest | str, pattern: str, **options: Any) -> list[TrialHits]:
        """The trials of a job with matches: exact counts and the first five events of each."""
        from .query import job_grep

        return job_grep(self, self.job(job) if isinstance(job, str) else job, pattern, **options)


def open_store(url: str | Path, create: bool = False) -> Store:
    """The store in a folder or at a URL that fsspec knows; with `create` one is made where there is none."""
    return Store.open(str(url), create=create)


def parse(path: str | Path, harness: str | None = None) -> Parse:
    """The events of one session, stream or document: iterate once, then read `.report`.

    Raises TraceflowError unrecognized_trace, and invalid_input for a folder of several sessions.
    """
    from .sources import open_any

    sources = open_any(Path(path), harness)
    if len(sources) > 1:
        raise TraceflowError("invalid_input", f"{path} holds {len(sources)} sessions; name one of their files")
    return sources[0].parse()


def convert(
    path: str | Path,
    to: str = "atif",
    harness: str | None = None,
    *,
    out: str | Path | None = None,
    redact: bool = False,
    **options: Any,
) -> Any:
    """Sessions as a value, or with `out` as files.

    One session is the trajectory (a dict) for `atif` and the events as dicts (a list) for `trace`; all sessions are
    records (a list of dicts) for `chat` and one document (a dict) for `otlp-json`. With `out` a file or folder is
    written, as by `traceflow convert -o`, and the report is returned (a dict); so it is for `job`, which needs it.
    With `redact` markers stand where secrets stood. `options` are `at` for `otlp-json`, and those of
    `traceflow.pack.PackOptions` for `job`. For what is too large to hold give `out`.
    """
    from .conversion import Conversion
    from .conversion.outputs import TARGETS, emit, save
    from .sources import open_any

    if to not in TARGETS or (to == "job" and out is None):
        said = "job only with out=FOLDER" if to == "job" else f"not {to!r}"
        raise TraceflowError("invalid_input", f"convert makes {', '.join(TARGETS)}; {said}")
    root = Path(path)
    sources = open_any(root, harness)
    conversion = Conversion()
    if to == "job":
        from .pack import PackOptions

        options = {"job": PackOptions(**options)}
    if out is not None:
        save(sources, to, Path(out), conversion, root=root, redact=redact, **options)
        return conversion.as_dict()
    spool = io.BytesIO()
    emit(sources, to, spool, conversion, root=root, redact=redact, **options)
    if to in ("trace", "chat"):
        return [jsontext.loads(line) for line in spool.getvalue().splitlines()]
    return jsontext.loads(spool.getvalue())
