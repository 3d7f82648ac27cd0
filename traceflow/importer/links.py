"""Which task of which dataset a trial ran: three steps in a fixed order, and a reason where there is no link.

1. Datasets named with `-d`: the task of the trial's name in them, when its digest is the trial's.
2. Else, where the job's config.json names datasets that are registered: the task with the trial's digest in those.
3. Else the task with the trial's digest in any dataset.

The trial's digest is the one in its lock.json. A name alone never links: names are reused, contents are not. The
first step that applies to a job decides for all its trials; nothing falls through to a later one.

| reason | what it says |
|---|---|
| `hash_mismatch` | the named dataset has a task of this name, with another content |
| `task_not_in_dataset` | the named dataset has no such task |
| `no_task_digest` | the trial's lock states no digest (or there is no lock) |
| `no_hash_match` | no registered dataset holds the digest |
| `no_dataset_named` | a registered task has the trial's name, but the trial has no digest and nothing names a dataset |
| `dataset_ambiguous` | several datasets hold the digest: `candidates`; name one with `-d` |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ..store import Dataset, Store

__all__ = ["KnownTask", "Link", "Linker", "Rollup", "flagged", "linker"]

FLAG, RECORD, HASH, NONE = "dataset_flag", "job_dataset_record", "task_hash", "none"


class KnownTask(NamedTuple):
    """A registered task: its dataset as name@version, its name, its folder's name, its content digest."""

    dataset: str
    name: str
    folder: str
    digest: str


class Link(NamedTuple):
    """How a trial is linked: to `task` of `dataset` (name@version), or not, with the reason."""

    linked_by: str
    dataset: str | None = None
    task: str | None = None
    reason: str | None = None
    candidates: tuple[str, ...] = ()

    def columns(self) -> dict[str, Any]:
        """The columns of the trials table."""
        return {
            "linked_by": self.linked_by,
            "dataset": self.dataset,
            "link_reason": self.reason,
            "candidates": list(self.candidates) or None,
        }

    @property
    def word(self) -> str:
        """The reason, or "linked": what reports count."""
        return self.reason or "linked"


@dataclass
class Linker:
    """Decides for the trials of one job. `step` is the step that applies, `tasks` those of its datasets.

    `named` says whether the job's own record names any dataset, registered or not.
    """

    step: str
    tasks: Iterable[KnownTask]
    named: bool = False
    _by_digest: dict[str, list[KnownTask]] = field(default_factory=dict, init=False)
    _by_name: dict[str, list[KnownTask]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for task in self.tasks:
            self._by_digest.setdefault(task.digest, []).append(task)
            for name in {task.name, task.folder}:
                self._by_name.setdefault(name, []).append(task)

    def link(self, name: str, digest: str | None) -> Link:
        """The link of a trial with this task name and digest."""
        called = self._called(name)
        if self.step == FLAG:
            if not called:
                return _none("task_not_in_dataset")
            if digest is None:
                return _none("no_task_digest")
            return self._one([t for t in called if t.digest == digest], name, "hash_mismatch")
        if digest is None:
            return _none("no_dataset_named" if self.step == HASH and called and not self.named else "no_task_digest")
        otherwise = "no_hash_match" if self.step == HASH else "hash_mismatch" if called else "task_not_in_dataset"
        return self._one(self._by_digest.get(digest, []), name, otherwise)

    def _called(self, name: str) -> list[KnownTask]:
        """The tasks of this name; only where no task has it, those whose folder has it."""
        found = self._by_name.get(name, []) if name else []
        return [task for task in found if task.name == name] or found

    def _one(self, found: Sequence[KnownTask], name: str, otherwise: str) -> Link:
        datasets = sorted({task.dataset for task in found})
        if not datasets:
            return _none(otherwise)
        if len(datasets) > 1:
            return Link(NONE, reason="dataset_ambiguous", candidates=tuple(datasets))
        names = sorted(task.name for task in found)  # one content may stand under two names
        return Link(self.step, datasets[0], name if name in names else names[0])


def _none(reason: str) -> Link:
    return Link(NONE, reason=reason)


def flagged(store: Store, names: Iterable[str]) -> list[Dataset]:
    """The datasets that `-d` names. Raises as Store.dataset: dataset_not_found, dataset_version_not_found, ..."""
    return list({dataset.label: dataset for dataset in map(store.dataset, names)}.values())


def linker(store: Store, named: Sequence[Mapping[str, Any]], flags: Sequence[Dataset] = ()) -> Linker:
    """The linker of a job whose record names these datasets (name, version, ref), with the datasets of `-d`."""
    names = [ref for ref in named if ref.get("name")]
    if flags:
        return Linker(FLAG, _tasks(store, flags), bool(names))
    known = store.datasets()
    recorded = [dataset for dataset in known if any(_names(ref, dataset) for ref in names)]
    return Linker(RECORD if recorded else HASH, _tasks(store, recorded or known), bool(names))


def _names(ref: Mapping[str, Any], dataset: Dataset) -> bool:
    """Whether a job's record names this version: by version or ref; without either all versions are named."""
    stated = [ref[key] for key in ("version", "ref") if ref.get(key)]
    return ref.get("name") == dataset.name and (not stated or dataset.version in stated)


def _tasks(store: Store, datasets: Iterable[Dataset]) -> Iterable[KnownTask]:
    for dataset in datasets:
        for row in store.tasks(dataset, ("task_name", "path", "digest")):
            yield KnownTask(dataset.label, row["task_name"], row["path"], row["digest"])


# -- rows per task -----------------------------------------------------------------------------------------


class Rollup:
    """The links of a job's trials, added one by one with the names of their tasks."""

    def __init__(self) -> None:
        self._by_task: dict[str, list[Link]] = {}
        self._same: dict[Link, Link] = {}  # each link once
        self._counts: dict[str, int] = {}

    def add(self, name: str, link: Link) -> None:
        self._by_task.setdefault(name, []).append(self._same.setdefault(link, link))
        self._counts[link.word] = self._counts.get(link.word, 0) + 1

    @property
    def counts(self) -> dict[str, int]:
        """Trials by reason or "linked"."""
        return dict(sorted(self._counts.items()))

    def rows(self) -> list[dict[str, Any]]:
        """A row for each task. What is the same in several is one object: a job may have ten thousand tasks."""
        known: dict[tuple[Link, ...], dict[str, Any]] = {}
        rows = []
        for name in sorted(self._by_task):
            links = tuple(self._by_task[name])
            row = known.get(links)
            if row is None:
                row = known[links] = _row(links)
            rows.append({"task_name": name, **row})
        return rows


def _row(links: Sequence[Link]) -> dict[str, Any]:
    linked = [link for link in links if link.dataset is not None]
    reasons = [link.reason for link in links if link.reason is not None]
    return {
        "n_trials": len(links),
        "n_linked": len(linked),
        "n_unlinked": len(links) - len(linked),
        "linked_by": linked[0].linked_by if linked else NONE,
        "datasets": sorted({link.dataset for link in linked if link.dataset}),
        "link_reasons": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
        "candidates": sorted({candidate for link in links for candidate in link.candidates}),
    }
