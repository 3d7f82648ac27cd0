"""Which stored trials were read by an older parser than today's, and may gain by being parsed anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from traceflow_parsers.registry import parser_versions

from .. import __version__
from ..store import Manifest, Store

__all__ = ["PARSERS", "StaleTrial", "stale_trials"]

# What reads the traces, as a job's manifest names it.
PARSERS: Mapping[str, str] = {"traceflow": __version__, **{n: str(v) for n, v in parser_versions().items()}}
_FOREIGN = ("atif", "trace")  # sources that have readers of their own, whatever the harness


class StaleTrial(NamedTuple):
    """A trial that an older parser read: `parser` is its name, None where none found a trace."""

    trial: str
    parser: str | None
    parsed_with: str | None
    current: str | None

    def as_dict(self) -> dict[str, Any]:
        return self._asdict()


def stale_trials(store: Store, job: Manifest) -> list[StaleTrial]:
    """The trials of a job whose parser has another version today, in their order.

    Where no trace was found any parser may find one now, so that such a trial is stale with the first that changed.
    """
    changed = {name for name, version in PARSERS.items() if name != "traceflow" and job.parsers.get(name) != version}
    if not changed:
        return []
    found: list[StaleTrial] = []
    for row in store.trials(job):
        if row["skipped_code"] is not None:
            continue
        source = row["trace_source"]
        parser = source if source in _FOREIGN else row["trace_harness"]
        if parser is None or parser in changed or parser not in PARSERS:
            name = parser or ""
            found.append(StaleTrial(row["trial_name"], parser, job.parsers.get(name), PARSERS.get(name)))
    return found
