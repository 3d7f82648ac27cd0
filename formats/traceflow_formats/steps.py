"""Which ATIF step an event of a trace belongs to, decided one event at a time.

The builder of trajectories and the tables of the store number steps with this one rule, so that `step_id` of an
event is the step in which the trajectory shows it. What is kept is small: the last steps of each agent and the
calls that have no result yet, never the trace.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple

from .trace import Event, TraceLine

__all__ = ["Place", "Steps", "is_result"]

_RECENT = 16  # model calls per agent that late events (usage, a second block) can still name
_ORPHANS = 1000  # results without a call of which it is checked whether their call may come later
_OPEN_CALLS = 200_000  # calls without a result that are remembered; the oldest are forgotten beyond it


class Place(NamedTuple):
    """A step: whose, its number from 1 in that agent's trajectory, and whether the event is its first."""

    agent: str | None  # the subagent; None is the main agent
    step: int
    opens: bool


class _Open(NamedTuple):
    """A call without result."""

    step: int
    waits: bool  # its own status does not say that it is over
    counts: bool  # and it is no copy


class _Agent:
    """Where one agent stands."""

    __slots__ = (
        *("acted", "answered", "call", "count", "ended", "group", "here", "open", "recent", "scope"),
        *("speaks", "spoken"),
    )

    def __init__(self, name: str | None) -> None:
        self.count = 0  # steps so far
        self.speaks = False  # is the last step one of the agent's model calls?
        self.group: object = None  # what a further chunk must have to stay in a step of user or system text
        self.spoken: object = None  # the model call of the last step, where the source names it
        self.scope: object = None  # its part of the trial, and whether it is copied history
        self.recent: dict[object, int] = {}  # model call -> step
        self.call = 0  # the step of the last model call
        self.here = Place(name, 0, False)  # the place of what else is in it
        self.acted = False  # did that model call make tool calls?
        self.answered = False  # has one of them returned?
        self.open = 0  # how many have not
        self.ended = False  # has its usage been stated? without an id what follows is another call


class Steps:
    """Numbers the steps of one trace: give it every event in order.

    - A prompt, a message of a person, text that the harness injected and a compaction summary are a step each;
      blocks of one message, which share a messageId, are one.
    - A model call, (agent, messageId), is one step. Where a source has no ids, a new step begins when the agent
      speaks after a tool call, when it calls a tool after all results have come, and after any other step.
    - A result belongs to the step of its call: the most recent call of that agent with that id that waits for
      one. A result that no call waits for belongs to the agent's last step.
    - An error is a step of its own. Withdrawn events, retried errors, totals, losses, gateway lines and the
      usage of the call that wrote a compaction summary are in no step.
    """

    __slots__ = ("_agents", "_early", "_open", "_orphans", "calls", "early_result", "unanswered")

    def __init__(self) -> None:
        self._agents: dict[str | None, _Agent] = {}
        self._open: dict[tuple[str | None, str], tuple[_Open, ...]] = {}
        self._early: dict[tuple[str | None, str], int] = {}  # results that came before their call: the step they are in
        self._orphans = 0
        self.calls = array("q")  # the hashes of the ids of all calls, in order
        self.early_result: int | None = None  # the step with the result of the call just placed, where that came first
        self.unanswered = 0  # calls that wait for a result, copied ones left out

    def place(self, event: Event | TraceLine) -> Place | None:
        """The step of the event, or None where it is in none."""
        kind, data = event.type, event.data
        extra: Any = data.get("extra")
        agent: Any = None
        scope: object = None  # parts of a trial and copied history never share a step with anything else
        if extra.__class__ is dict and extra:
            if extra.get("abandoned"):
                return None
            agent = extra.get("agentId")
            copied, part = extra.get("copied"), extra.get("stepName")
            if copied or part is not None:
                scope = (bool(copied), part if isinstance(part, str) else None)
        else:
            extra = None
        if agent.__class__ is not str:
            agent = data.get("parentToolCallId")
            if agent.__class__ is not str:
                agent = None
        update = data.get("update")
        if update.__class__ is not dict:
            if kind != "prompt":
                return None
            update = {}
        state = self._agents.get(agent)
        if state is None:
            if kind in _NO_STEP:
                return None
            state = self._agents[agent] = _Agent(agent)

        if kind == "tool_call_update":
            return self._result(agent, state, update)
        message = data.get("messageId")
        named = None
        if message.__class__ is str:  # a trial may hold several sessions, and made-up ids begin anew in each
            session = data.get("sessionId")
            named = (scope, session if session.__class__ is str else None, message)
        if kind == "tool_call":
            place = self._acts(agent, state, named, scope)
            self._opened(agent, state, place.step, update, extra)
            return place
        if kind == "agent_message_chunk" or kind == "agent_thought_chunk":
            if named is None:
                if state.speaks and state.spoken is None and state.scope == scope and not (state.acted or state.ended):
                    return state.here
                return self._model_call(agent, state, None, scope)
            return self._named(agent, state, named, scope)
        if kind == "usage":
            return self._usage(agent, state, named, scope, update, extra)
        if kind == "plan":
            place = self._acts(agent, state, named, scope)
            state.acted = True
            return place
        if kind == "user_message_chunk" or kind == "prompt":
            group = None if named is None else (named, *_sort(data, extra))
            if group is not None and group == state.group:
                return Place(agent, state.count, False)
            return self._other(agent, state, group)
        if kind == "error":
            return None if extra is not None and extra.get("retried") else self._other(agent, state, None)
        return None

    # -- agents' steps -----------------------------------------------------------------------------------

    def _named(self, agent: str | None, state: _Agent, named: tuple[object, ...], scope: object) -> Place:
        """The step of a model call that the source names."""
        if named == state.spoken:
            return state.here
        step = state.recent.get(named)
        return self._model_call(agent, state, named, scope) if step is None else Place(agent, step, False)

    def _acts(self, agent: str | None, state: _Agent, named: tuple[object, ...] | None, scope: object) -> Place:
        """The step of a tool call or plan."""
        if named is not None:
            return self._named(agent, state, named, scope)
        if not state.speaks or state.ended or state.scope != scope or (state.answered and not state.open):
            return self._model_call(agent, state, None, scope)
        return state.here

    def _model_call(self, agent: str | None, state: _Agent, named: tuple[object, ...] | None, scope: object) -> Place:
        state.count += 1
        state.speaks = True
        state.group = None
        state.spoken = named
        state.scope = scope
        state.call = state.count
        state.acted = state.answered = state.ended = False
        state.open = 0
        if named is not None:
            recent = state.recent
            recent[named] = state.count
            if len(recent) > _RECENT:
                del recent[next(iter(recent))]
        state.here = _new(Place, (agent, state.count, False))
        return _new(Place, (agent, state.count, True))

    def _other(self, agent: str | None, state: _Agent, group: object) -> Place:
        """A new step that is no model call."""
        state.count += 1
        state.speaks = False
        state.group = group
        return _new(Place, (agent, state.count, True))

    def _usage(
        self,
        agent: str | None,
        state: _Agent,
        named: tuple[object, ...] | None,
        scope: object,
        update: dict[str, Any],
        extra: dict[str, Any] | None,
    ) -> Place | None:
        if update.get("scope") != "call" or update.get("source") == "gateway":
            return None
        if extra is not None and extra.get("compaction"):
            return None
        if named is not None:
            place = self._named(agent, state, named, scope)
        elif not state.call or state.ended or state.scope != scope:
            place = self._model_call(agent, state, None, scope)
        else:
            place = state.here
        if place.step == state.call:
            state.ended = True
        return place

    # -- tools -------------------------------------------------------------------------------------------

    def _opened(
        self, agent: str | None, state: _Agent, step: int, update: dict[str, Any], extra: dict[str, Any] | None
    ) -> None:
        """Remember a call until its result comes."""
        call_id = update.get("toolCallId")
        if call_id.__class__ is not str:
            call_id = ""
        self.calls.append(hash(call_id))
        key = (agent, call_id)
        self.early_result = self._early.pop(key, None) if self._early else None
        waits = self.early_result is None and update.get("status") not in ("completed", "failed")
        counts = waits and not (extra is not None and extra.get("copied"))
        self.unanswered += counts
        if step == state.call:
            state.acted = True
            state.open += waits
            state.answered |= not waits
        if self.early_result is None:
            found = self._open.get(key)
            entry = _new(_Open, (step, waits, counts))
            self._open[key] = (entry,) if found is None else (*found[-7:], entry)
            if len(self._open) > _OPEN_CALLS:
                del self._open[next(iter(self._open))]

    def _result(self, agent: str | None, state: _Agent, update: dict[str, Any]) -> Place:
        call_id = update.get("toolCallId")
        key = (agent, call_id if isinstance(call_id, str) else "")
        found = self._open.get(key)
        if found is None:
            place = Place(agent, state.count, False) if state.count else self._other(agent, state, None)
            if isinstance(call_id, str) and is_result(update):
                self._orphan(agent, call_id, place.step)
            return place
        if is_result(update):
            self._close(key, found)
        step = found[-1].step
        return state.here if step == state.call else _new(Place, (agent, step, False))

    def _orphan(self, agent: str | None, call_id: str, step: int) -> None:
        """A result that no call waits for. If its call was never seen it may come yet (traces of the platform)."""
        if self._orphans < _ORPHANS:
            self._orphans += 1
            if hash(call_id) not in self.calls:
                self._early[(agent, call_id)] = step

    def _close(self, key: tuple[str | None, str], found: tuple[_Open, ...]) -> None:
        step, waits, counts = found[-1]
        if len(found) > 1:
            self._open[key] = found[:-1]
        else:
            del self._open[key]
        self.unanswered -= counts
        state = self._agents[key[0]]
        if step == state.call:
            state.answered = True
            state.open -= waits


_NO_STEP = frozenset({"trace_loss"})
_new = tuple.__new__  # what making a named tuple comes to, without a call in between


def is_result(update: dict[str, Any]) -> bool:
    """Whether a `tool_call_update` is what the call returned, not news of a call that still runs.

    Updates of the platform may lack the status; then one with content is the result.
    """
    status = update.get("status")
    if status is None:
        return update.get("content") is not None or update.get("rawOutput") is not None
    return status not in ("pending", "in_progress")


def _sort(data: dict[str, Any], extra: dict[str, Any] | None) -> tuple[object, ...]:
    """What tells a person's words, system prompts, injected text and compaction summaries apart."""
    prompt = data.get("_prompt")
    system = isinstance(prompt, dict) and prompt.get("role") == "system"
    if extra is None:
        return (False, False, system)
    injected = extra.get("injected")
    return injected if isinstance(injected, str) else bool(injected), extra.get("compaction") is not None, system
