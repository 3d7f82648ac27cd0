"""Builds the ATIF trajectory of a trace, event by event, in bounded memory.

Events are placed by `Steps`. The steps that may still change are held as drafts; the others lie in a spool, from
which a late result or usage takes one out again. `finish` links the subagents to the calls that spawned them and
counts the totals; the document is then written from the spool.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..steps import Steps, is_result
from ..trace import Event, TraceLine, agent_of
from .document import Built, Record, write_up
from .draft import Draft, atif_extra, error_extra
from .facts import END, valid_time
from .images import Images, ImageSink
from .spool import Spool, loaded
from .tally import Sums, Tally, as_metrics

__all__ = ["AtifBuilder", "trajectory"]

_SPOOL_LIMIT = 4 << 20
_LIVE_STEPS = 128
_LIVE_CHARS = 8 << 20
_LOSSES_KEPT = 100
_PARENTS_KEPT = 100
_STEP_BITS = 40


class AtifBuilder:
    """Add every event of a trace in order, then `finish`.

    `images` is where pictures go: a folder that gets `images/<sha256>.<ext>`, a function that takes that name and
    the bytes, or None: then a picture becomes a few words. `harness` and `version` overrule what the trace says.
    With `times` the steps keep what ATIF has no field for, for writers of formats that have: in `extra` of a step
    `END` is the time of its last event, in `extra` of a result `END` is the result's own.
    """

    def __init__(
        self,
        *,
        images: ImageSink | Path | None = None,
        harness: str | None = None,
        version: str | None = None,
        spool_limit: int = _SPOOL_LIMIT,
        live_steps: int = _LIVE_STEPS,
        times: bool = False,
    ) -> None:
        self._images = Images(images)
        self._times = times
        self._overrule = harness, version
        self._said: tuple[str, str | None] | None = None  # who wrote the trace, as its first event says
        self._steps = Steps()
        self._spool = Spool(spool_limit)
        self._live_steps = live_steps
        self._agents: dict[str | None, Record] = {}
        self._records: list[Record] = []
        self._live: dict[int, Draft] = {}
        self._size = 0  # characters in drafts
        self._busy = -1  # the draft in hand, which is not to be written out
        self._call_at = array("Q")  # where every call is: agent, step, copied; beside the hashes in `Steps.calls`
        self._gateway = Sums()
        self._withdrawn = Sums()
        self._withdrawn_last: tuple[object, dict[str, Any]] | None = None
        self._losses: list[dict[str, Any]] = []
        self._torn = False

    # -- events ------------------------------------------------------------------------------------------

    def add(self, event: Event | TraceLine) -> None:
        """Take the next event."""
        data = event.data
        extra = data.get("extra")
        if extra.__class__ is not dict or not extra:
            extra = None
        elif self._said is None and isinstance(name := extra.get("harness"), str):
            self._said = name, _text(extra.get("harnessVersion"))
        place = self._steps.place(event)
        update = data.get("update")
        if update.__class__ is not dict:
            update = {}
        if place is None:
            self._outside(event, update, extra)
            return
        record = self._agents.get(place.agent)
        if record is None:
            record = self._begin(place.agent, data, extra)
        if record.session_id is None:
            record.session_id = _text(data.get("sessionId"))
        parent = data.get("parentToolCallId")
        if parent.__class__ is str and parent not in record.parents and len(record.parents) < _PARENTS_KEPT:
            record.parents[parent] = len(self._call_at)
        kind = event.type
        key = record.order << _STEP_BITS | place.step
        self._busy = key
        if place.opens:
            draft = self._open(record, place.step, kind, data, update, extra)
            self._live[key] = draft
            before = 0
            if len(self._live) > self._live_steps or self._size > _LIVE_CHARS:
                self._settle(key)
        else:
            held = self._live.get(key)
            draft = held if held is not None else self._reopen(record, place.step, key)
            before = draft.size
        if draft.time is None and (time := data.get("timestamp")).__class__ is str:
            draft.at(time)
        self._take(record, place.step, draft, kind, data, update, extra)
        self._size += draft.size - before
        if self._times:
            _keep_time(draft, kind, data.get("timestamp"))

    def _take(
        self,
        record: Record,
        step: int,
        draft: Draft,
        kind: str,
        data: dict[str, Any],
        update: dict[str, Any],
        extra: dict[str, Any] | None,
    ) -> None:
        """Put what an event says into its step."""
        if kind == "tool_call_update":
            if is_result(update):
                self._result(record, step, draft, update, extra)
            return
        if draft.source == "agent":
            if draft.model is None and (model := data.get("model")).__class__ is str:
                draft.model = model
                if record.model is None:
                    record.model = model
            if extra is not None and draft.effort is None:
                effort = extra.get("reasoningEffort")
                draft.effort = effort if type(effort) in (str, int, float) else None
        if kind == "tool_call":
            draft.call(update, extra)
            self._called(record, step, draft, extra)
            return
        if kind == "usage":
            self._usage(record, step, draft, update, extra)
            return
        if kind == "agent_message_chunk" or kind == "user_message_chunk":
            self._say(draft, update.get("content"), extra)
        elif kind == "agent_thought_chunk":
            content = update.get("content")
            text = content.get("text") if content.__class__ is dict else None
            if text.__class__ is str:
                draft.think(text, extra is not None and bool(extra.get("delta")))
        elif kind == "prompt":
            prompt = data.get("_prompt")
            text = prompt.get("text") if isinstance(prompt, dict) else None
            if isinstance(text, str):
                draft.say(text, False)
        elif kind == "plan" and not draft.calls and isinstance(entries := update.get("entries"), list):
            draft.extra["plan"] = entries  # the platform shows a todo tool as nothing but its plan
        if extra is not None and kind != "error":
            atif_extra(extra, draft.extra)

    def _say(self, draft: Draft, content: Any, extra: dict[str, Any] | None) -> None:
        if content.__class__ is not dict:
            return
        text = content.get("text")
        if text.__class__ is str:
            draft.say(text, extra is not None and bool(extra.get("delta")))
        elif content.get("type") == "image":
            draft.show(self._images.part(content))
        elif content.get("type") is not None:
            draft.show(f"[{content['type']}]")

    def _called(self, record: Record, step: int, draft: Draft, extra: dict[str, Any] | None) -> None:
        call_id = draft.calls[-1]["tool_call_id"]
        copied = draft.copied
        if not copied:
            record.tally(extra).tool_calls += 1
        self._call_at.append((record.order << _STEP_BITS | step) << 1 | copied)
        if (at := self._steps.early_result) is not None:
            key = record.order << _STEP_BITS | at
            held = self._live.get(key)
            found = (held if held is not None else self._reopen(record, at, key)).take_orphan(call_id)
            if found is not None:
                draft.adopt(call_id, found)
                record.tally(extra).answered(step)

    def _result(
        self, record: Record, step: int, draft: Draft, update: dict[str, Any], extra: dict[str, Any] | None
    ) -> None:
        draft.result(update, extra, self._images)
        if "source_call_id" in draft.results[-1]:
            record.tally(extra).answered(step)

    def _usage(
        self, record: Record, step: int, draft: Draft, update: dict[str, Any], extra: dict[str, Any] | None
    ) -> None:
        metrics = as_metrics(update.get("usage"))
        if extra is not None:
            more = extra.get("atif")
            if isinstance(more, dict):
                metrics |= {n: v for n, v in more.items() if n in _TOKEN_LISTS and _numbers(v, _TOKEN_LISTS[n])}
            atif_extra({name: value for name, value in extra.items() if name != "atif"}, draft.extra)
        if not metrics:
            return
        if not draft.copied:
            record.tally(extra).count(step, metrics, draft.metrics)
        draft.metrics = metrics
        if not draft.llm:
            draft.llm = 1

    def _outside(self, event: Event | TraceLine, update: dict[str, Any], extra: dict[str, Any] | None) -> None:
        """An event that is in no step: totals, other readings of the same calls, losses, what was withdrawn."""
        data, kind = event.data, event.type
        facts = extra or {}
        if kind == "trace_loss":
            self._torn |= update.get("reason") == "truncated_tail"
            if len(self._losses) < _LOSSES_KEPT:
                self._losses.append({name: update[name] for name in ("reason", "count", "source") if name in update})
        elif kind == "error":
            if facts.get("retried") and not facts.get("abandoned"):
                self._record(data, extra).tally(extra).retries += 1
        elif kind == "usage":
            metrics = as_metrics(update.get("usage"))
            if update.get("source") == "gateway":
                self._gateway.add(metrics)
            elif update.get("scope") == "run":
                self._run(self._record(data, extra).tally(extra), update, metrics, facts)
            elif facts.get("copied"):
                return
            elif facts.get("abandoned"):
                self._withdraw((agent_of(data), data.get("messageId")), metrics)
            elif facts.get("compaction"):
                self._record(data, extra).tally(extra).compaction.add(metrics)

    def _run(self, tally: Tally, update: dict[str, Any], metrics: dict[str, Any], extra: dict[str, Any]) -> None:
        """The totals that the source states: the last word counts."""
        whole = metrics.pop("extra", {}).get("includingSubagents")
        tally.run = metrics
        tally.run_with_children = as_metrics(whole)
        tally.cumulative = bool(extra.get("cumulative"))

    def _withdraw(self, key: tuple[object, object], metrics: dict[str, Any]) -> None:
        last = self._withdrawn_last
        if key[1] is not None and last is not None and last[0] == key:
            self._withdrawn.add(last[1], -1)
        self._withdrawn_last = (key, metrics)
        self._withdrawn.add(metrics)

    # -- steps -------------------------------------------------------------------------------------------

    def _record(self, data: dict[str, Any], extra: dict[str, Any] | None) -> Record:
        agent = agent_of(data)
        return self._agents.get(agent) or self._begin(agent, data, extra)

    def _begin(self, agent: str | None, data: dict[str, Any], extra: dict[str, Any] | None) -> Record:
        record = Record(agent, len(self._records))
        if extra is not None:
            record.name, record.version = _text(extra.get("harness")), _text(extra.get("harnessVersion"))
            if isinstance(facts := extra.get("trajectory"), dict):
                record.facts = facts
        self._agents[agent] = record
        self._records.append(record)
        return record

    def _open(
        self,
        record: Record,
        step: int,
        kind: str,
        data: dict[str, Any],
        update: dict[str, Any],
        extra: dict[str, Any] | None,
    ) -> Draft:
        """A new step: whose words it holds follows from the event that opens it."""
        record.steps = step
        facts = extra or {}
        if kind == "user_message_chunk" or kind == "prompt":
            draft = Draft(*_words(kind, data, facts))
        elif kind == "error":
            draft = Draft("agent")
            draft.llm = 0
            draft.extra.update(error_extra(update, facts))
            record.failed = bool(update.get("fatal"))
        elif kind == "tool_call_update":
            draft = Draft("system", {"kind": "result_without_call"})
        else:
            draft = Draft("agent")
            said = facts.get("llmCallCount")
            draft.llm = (
                said if type(said) is int and said >= 0 else 1 if _text(data.get("messageId")) is not None else None
            )
            record.failed = False
        if extra is not None:
            draft.copied = bool(extra.get("copied"))
            if isinstance(part := extra.get("stepName"), str):
                draft.extra["step_name"] = part
        if draft.source == "agent" and kind != "error" and not draft.copied and draft.llm != 0:
            record.tally(extra).begins(step, draft.llm or 1)
        return draft

    def _reopen(self, record: Record, step: int, key: int) -> Draft:
        data = self._spool.get(record.index, step)
        draft = Draft.reopened(data, record.index.sizes[step - 1])
        self._live[key] = draft
        self._size += draft.size
        if len(self._live) > self._live_steps:
            self._settle(key)
        return draft

    def _settle(self, newest: int) -> None:
        """Write the oldest drafts out, down to half of the bounds; the newest and the one in hand stay."""
        for key in list(self._live):
            if len(self._live) <= self._live_steps // 2 and self._size <= _LIVE_CHARS // 2:
                return
            if key not in (newest, self._busy):
                self._write(key)

    def _write(self, key: int) -> None:
        draft = self._live.pop(key)
        self._size -= draft.size
        step = key & ((1 << _STEP_BITS) - 1)
        self._spool.put(self._records[key >> _STEP_BITS].index, step, draft.step(step))

    # -- the end -----------------------------------------------------------------------------------------

    def finish(self) -> Built:
        """Link the subagents, count the totals and hand over the document. The builder is spent."""
        filled = [record for record in self._records if record.steps]
        root = self._agents.get(None)
        if root is None or not root.steps:
            root = filled[0] if filled else Record(None, 0)
        children = [record for record in filled if record is not root]
        self._busy = -1
        self._link(children)
        for key in sorted(self._live):
            self._write(key)
        status = "error" if root.failed else "incomplete" if self._torn or self._steps.unanswered else None
        built = write_up(
            self._spool,
            root,
            children,
            harness=self._overrule[0] or (self._said[0] if self._said else None),
            version=self._overrule[1] or (self._said[1] if self._said else None),
            overruled=self._overrule[0] is not None,
            gateway=self._gateway,
            withdrawn=self._withdrawn,
            losses=self._losses,
            status=status,
        )
        built.images_in_words = self._images.in_words
        return built

    def _link(self, children: list[Record]) -> None:
        """Find the calls that spawned the subagents, and refer to the subagents from them."""
        wanted: dict[int, list[int]] = {hash(parent): [] for child in children for parent in child.parents}
        if not wanted:
            return
        for at, mark in enumerate(self._steps.calls):
            if mark in wanted:
                wanted[mark].append(at)
        for child in children:
            for parent, seen in child.parents.items():
                owner = self._spawner(child, parent, seen, wanted[hash(parent)])
                if owner is not None and child.owner is None:
                    child.owner = owner

    def _spawner(self, child: Record, parent: str, seen: int, calls: list[int]) -> Record | None:
        """The agent whose call it was: the last call of that id before the subagent spoke, else the first after."""
        before = [at for at in calls if at < seen]
        after = calls[len(before) :]
        ranked = sorted([*reversed(before[-8:]), *after[:8]], key=lambda at: self._call_at[at] & 1)  # copies last
        for at in ranked:
            key = self._call_at[at] >> 1
            record = self._records[key >> _STEP_BITS]
            if record is child:
                continue
            step = key & ((1 << _STEP_BITS) - 1)
            held = self._live.get(key)
            draft = held if held is not None else self._reopen(record, step, key)
            if parent in draft.call_ids:
                assert child.agent is not None
                draft.refer(parent, child.agent)
                return record
        return None


def trajectory(events: Iterable[Event | TraceLine], **options: Any) -> dict[str, Any]:
    """The trajectory of a small trace as one value; {} where the trace has no step. Options as of `AtifBuilder`."""
    builder = AtifBuilder(**options)
    for event in events:
        builder.add(event)
    with builder.finish() as built:
        if built.is_empty:
            return {}
        out = io.BytesIO()
        built.write(out)
        value: dict[str, Any] = loaded(out.getvalue())
        return value


def _words(kind: str, data: dict[str, Any], extra: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Whose words a prompt or a user chunk holds, and what the step says about them."""
    if kind == "prompt":
        prompt = data.get("_prompt")
        role = prompt.get("role") if isinstance(prompt, dict) else None
        return ("system" if role == "system" else "user"), {}
    compaction = extra.get("compaction")
    if compaction is not None:
        facts: dict[str, Any] = {
            "kind": "compaction",
            "context_management": {"type": "compaction", "boundary": "replace"},
        }
        if isinstance(compaction, dict) and compaction:
            facts["compaction"] = compaction
        return "system", facts
    injected = extra.get("injected")
    if injected:
        return "system", {"kind": injected if isinstance(injected, str) else "injected"}
    return "user", {}


def _keep_time(draft: Draft, kind: str, time: Any) -> None:
    """Keep the time of an event in what it belongs to."""
    if time.__class__ is not str or not valid_time(time):
        return
    if kind != "tool_call_update":
        draft.extra[END] = time
    elif draft.results:
        draft.results[-1].setdefault("extra", {})[END] = time


_TOKEN_LISTS: dict[str, tuple[type, ...]] = {
    "prompt_token_ids": (int,),
    "completion_token_ids": (int,),
    "logprobs": (int, float),
}


def _numbers(value: Any, types: tuple[type, ...]) -> bool:
    return isinstance(value, list) and all(type(item) in types for item in value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
