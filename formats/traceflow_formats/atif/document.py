"""The finished document: who is whose subagent, the totals of each, and the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, BinaryIO, NamedTuple

from .facts import MAX_DEPTH, WRITTEN_VERSION
from .spool import Index, Spool, dumped, loaded
from .tally import FIELDS, Sums, Tally, joined, merged, money

__all__ = ["Built", "Record", "Summary", "Trajectory", "write_up"]


class Record:
    """One agent of a trace while its trajectory is built."""

    def __init__(self, agent: str | None, order: int) -> None:
        self.agent = agent
        self.order = order
        self.steps = 0
        self.index = Index()
        self.session_id: str | None = None
        self.name: str | None = None
        self.version: str | None = None
        self.model: str | None = None
        self.facts: dict[str, Any] = {}  # what a trajectory that was read said of itself
        self.parents: dict[str, int] = {}  # the calls that spawned it, and how many calls stood before
        self.owner: Record | None = None
        self.children: list[Record] = []
        self.failed = False  # its last word is a fatal error
        self._tallies: dict[str | None, Tally] = {}

    def tally(self, extra: dict[str, Any] | None) -> Tally:
        """The numbers of the part of the trial that an event belongs to."""
        part = extra.get("stepName") if extra is not None else None
        if not isinstance(part, str):
            part = None
        found = self._tallies.get(part)
        if found is None:
            found = self._tallies[part] = Tally()
        return found

    @property
    def tallies(self) -> list[Tally]:
        """The numbers of all parts."""
        return list(self._tallies.values()) or [Tally()]


class Summary(NamedTuple):
    """What a trajectory comes to, subagents included. None where it is not known; copied steps count nothing."""

    steps: int = 0  # of all trajectories
    root_steps: int = 0
    subagents: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    cost_partial: bool = False  # the cost is that of the priced calls alone
    status: str | None = None  # error | incomplete


_Frame = tuple[dict[str, Any], dict[str, Any]]  # what stands before the steps of an agent, and what behind them


class Trajectory:
    """One agent of a finished document: everything that ATIF says of it but its steps, and these one by one.

    `parent` is the trajectory_id of the agent that spawned it and `spawned_by` the id of the call, where known.
    """

    __slots__ = ("_index", "_spool", "facts", "parent", "spawned_by")

    def __init__(
        self, facts: dict[str, Any], parent: str | None, spawned_by: str | None, spool: Spool, index: Index
    ) -> None:
        self.facts = facts
        self.parent = parent
        self.spawned_by = spawned_by
        self._spool = spool
        self._index = index

    @property
    def id(self) -> str:
        trajectory_id: str = self.facts["trajectory_id"]
        return trajectory_id

    def steps(self) -> Iterator[dict[str, Any]]:
        """Its steps in order; they may be taken any number of times while the document is open."""
        buffer = bytearray()
        for chunk in self._spool.array(self._index):
            buffer += chunk
            if b"\n" in chunk:
                *lines, rest = bytes(buffer).split(b",\n")
                buffer = bytearray(rest)
                for line in lines:
                    yield loaded(line)
        if buffer:
            yield loaded(bytes(buffer))


class Built:
    """A document that is ready to be written. Close it when done: its steps lie in a temporary file."""

    def __init__(self, spool: Spool, root: Record, frames: dict[int, _Frame], summary: Summary) -> None:
        self._spool = spool
        self._root = root
        self._frames = frames  # by order of the agent
        self.summary = summary
        self.images_in_words = 0  # images for which a few words stand

    @property
    def is_empty(self) -> bool:
        """Whether the trace has no step: ATIF has no document for that."""
        return not self._root.steps

    def chunks(self) -> Iterator[bytes]:
        """The document: compact JSON, one step a line, keys in the order of the models, no nulls."""
        if not self.is_empty:
            yield from self._document(self._root)
            yield b"\n"

    def trajectories(self) -> Iterator[Trajectory]:
        """The root and its subagents, each behind its parent, for writers of other formats."""
        if not self.is_empty:
            yield from self._below(self._root, None)

    def _below(self, record: Record, parent: str | None) -> Iterator[Trajectory]:
        head, tail = self._frames[record.order]
        spawned_by = next(iter(record.parents), None) if record.owner is not None else None
        yield Trajectory({**head, **tail}, parent, spawned_by, self._spool, record.index)
        for child in record.children:
            yield from self._below(child, head["trajectory_id"])

    def _document(self, record: Record) -> Iterator[bytes]:
        head, tail = self._frames[record.order]
        yield dumped(head)[:-1] + b',"steps":[\n'
        yield from self._spool.array(record.index)
        yield b"\n]," + dumped(tail)[1:-1]
        if record.children:
            between = b',"subagent_trajectories":[\n'
            for child in record.children:
                yield between
                yield from self._document(child)
                between = b",\n"
            yield b"]"
        yield b"}"

    def write(self, out: BinaryIO) -> int:
        """Write the document and return its bytes; nothing where it is empty."""
        size = 0
        for chunk in self.chunks():
            out.write(chunk)
            size += len(chunk)
        return size

    def close(self) -> None:
        """Give the temporary space back."""
        self._spool.close()

    def __enter__(self) -> Built:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def write_up(
    spool: Spool,
    root: Record,
    children: list[Record],
    *,
    harness: str | None,
    version: str | None,
    overruled: bool,
    gateway: Sums,
    withdrawn: Sums,
    losses: list[dict[str, Any]],
    status: str | None,
) -> Built:
    """The document of a root and its subagents, whose steps are all in the spool."""
    _plant(root, children)
    counted = _Counted(root)
    frames: dict[int, _Frame] = {}
    summary = Summary()
    for record in [root, *children]:
        extra = dict(facts) if isinstance(facts := record.facts.get("extra"), dict) else {}
        totals, notes, whole = counted.own[record.order]
        if record is root:
            totals, notes, whole = _root_totals(root, totals, notes, whole, gateway, withdrawn)
            if status is not None:
                notes["status"] = status
            if losses:
                extra["trace_loss"] = losses
            summary = _summary(root, children, whole, status)
        final = {f"total_{name}": totals[name] for name in (*FIELDS, "cost_usd") if name in totals}
        final["total_steps"] = record.steps
        if isinstance(said := record.facts.get("totals_extra"), dict):
            notes = {**said, **notes}
        if notes:
            final["extra"] = notes
        head = {
            "schema_version": WRITTEN_VERSION,
            "session_id": record.session_id or root.session_id,
            "trajectory_id": _root_id(root) if record is root else record.agent,
            "agent": _agent(record, root, harness, version, overruled),
        }
        tail = {
            "notes": _text(record.facts.get("notes")),
            "final_metrics": final,
            "continued_trajectory_ref": _text(record.facts.get("continued_trajectory_ref")),
            "extra": extra or None,
        }
        frames[record.order] = (
            {k: v for k, v in head.items() if v is not None},
            {k: v for k, v in tail.items() if v is not None},
        )
    return Built(spool, root, frames, summary)


def _agent(record: Record, root: Record, harness: str | None, version: str | None, overruled: bool) -> dict[str, Any]:
    name = harness if overruled or record is root or record.name is None else record.name
    said = version if overruled or record is root or record.name is None else record.version
    out: dict[str, Any] = {"name": name or "unknown", "version": said or "unknown"}
    if (model := _text(record.facts.get("model_name")) or record.model) is not None:
        out["model_name"] = model
    tools = record.facts.get("tool_definitions")
    if isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools):
        out["tool_definitions"] = tools
    if isinstance(extra := record.facts.get("agent_extra"), dict):
        out["extra"] = extra
    return out


def _root_id(root: Record) -> str:
    return _text(root.facts.get("trajectory_id")) or root.session_id or root.agent or "root"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# -- who is whose subagent -----------------------------------------------------------------------------------


def _plant(root: Record, children: list[Record]) -> None:
    """Make the agents a tree: what hangs on nothing, on itself, or too deep, hangs on the root."""
    depth = {root.order: 0}
    for child in children:
        line: dict[int, Record] = {}
        at: Record | None = child
        while at is not None and at.order not in depth and at.order not in line:
            line[at.order] = at
            at = at.owner
        below = None if at is None or at.order in line else at
        for record in reversed(line.values()):
            parent = below if below is not None and depth[below.order] < MAX_DEPTH - 1 else root
            depth[record.order] = depth[parent.order] + 1
            parent.children.append(record)
            below = record
    for record in [root, *children]:
        record.children.sort(key=lambda child: child.order)


# -- totals --------------------------------------------------------------------------------------------------


class _Counted:
    """The totals of each agent: its own, the notes about them, and those with its subagents."""

    def __init__(self, root: Record) -> None:
        self.own: dict[int, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {}
        self._count(root)

    def _count(self, record: Record) -> tuple[dict[str, Any], bool]:
        """The totals with subagents, and whether any model was called."""
        tallies = record.tallies
        called = any(t.model_calls or t.compaction.calls or t.run for t in tallies)
        totals, notes = joined([t.totals() for t in tallies])
        if retries := sum(t.retries for t in tallies):
            notes["retries"] = retries
        below = [self._count(child) for child in record.children]
        whole = totals
        if record.children:
            parts = ([totals] if called else []) + [part for part, any_call in below if any_call]
            whole = merged(parts)
            _price_whole(whole, totals, parts, from_run=any("cost_usd" in (t.run or {}) for t in tallies))
        stated = merged([t.run_with_children or {} for t in tallies])
        if record.children or stated:
            known = {**whole, **stated}  # the source knows of calls that it does not show
            whole = {name: known[name] for name in (*FIELDS, "cost_usd", "cost_partial") if name in known}
            if whole:
                notes["including_subagents"] = whole
        self.own[record.order] = (totals, notes, whole)
        return whole, called or any(any_call for _, any_call in below)


def _price_whole(whole: dict[str, Any], own: dict[str, Any], parts: list[dict[str, Any]], from_run: bool) -> None:
    """The cost with subagents. What a source states for the run covers subagents that have no price of their own."""
    prices = [part["cost_usd"] for part in parts if "cost_usd" in part]
    if not prices:
        return
    whole["cost_usd"] = money(prices)
    if len(prices) < len(parts) and not (from_run and "cost_usd" in own):
        whole["cost_partial"] = True


def _root_totals(
    root: Record,
    totals: dict[str, Any],
    notes: dict[str, Any],
    whole: dict[str, Any],
    gateway: Sums,
    withdrawn: Sums,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The root's totals. What a gateway counted stands instead of what the harness counted, never beside it."""
    if gateway.calls:
        counted = gateway.stated()
        if root.children:  # it cannot tell the agents apart
            whole = {**counted, "source": "gateway"}
            notes["including_subagents"] = whole
        else:
            notes = {name: notes[name] for name in ("retries",) if name in notes}
            notes |= {"source": "gateway"} | ({"harness": totals} if totals else {})
            totals = whole = counted
    elif withdrawn.calls:
        gone = withdrawn.complete()
        everything = merged([whole, gone] if whole else [gone])
        if everything:
            notes["including_abandoned"] = everything
    return totals, notes, whole


def _summary(root: Record, children: list[Record], whole: dict[str, Any], status: str | None) -> Summary:
    records = [root, *children]
    tallies = [tally for record in records for tally in record.tallies]
    partial = bool(whole.get("cost_partial")) or any(
        "cost_usd" not in (t.run or {}) and 0 < t.steps.priced < t.steps.calls + len(t.silent) for t in tallies
    )
    return Summary(
        steps=sum(record.steps for record in records),
        root_steps=root.steps,
        subagents=len(children),
        model_calls=sum(tally.model_calls for tally in tallies),
        tool_calls=sum(tally.tool_calls for tally in tallies),
        prompt_tokens=whole.get("prompt_tokens"),
        completion_tokens=whole.get("completion_tokens"),
        cached_tokens=whole.get("cached_tokens"),
        cost_usd=whole.get("cost_usd"),
        cost_partial=partial and "cost_usd" in whole and whole.get("source") != "gateway",
        status=status,
    )
