"""Reads an ATIF document of v1.0 to v1.8: as leniently as Harbor, with every fault named, and counts it anew."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import orjson

from .. import jsontext
from ..errors import TraceflowError
from .check import lax, problems, refused
from .spool import loaded

__all__ = ["Reading", "Totals", "Warned", "read_trajectory", "totals_of"]

_OLD = ("ATIF-v1.0", "ATIF-v1.1", "ATIF-v1.2", "ATIF-v1.3", "ATIF-v1.4", "ATIF-v1.5", "ATIF-v1.6")


@dataclass(frozen=True, slots=True)
class Warned:
    """Something odd that stops nothing: how often, and where first."""

    code: str
    message: str
    where: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Totals:
    """What the steps of one trajectory add up to. None where a model call does not say; copied steps count nothing."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cost_usd: float | None


@dataclass(slots=True)
class Reading:
    """A document that was accepted: the trajectory, and what there is to say about it."""

    trajectory: dict[str, Any]
    warnings: list[Warned] = field(default_factory=list)

    @property
    def totals(self) -> Totals:
        """The totals of the root's own steps, counted anew."""
        return totals_of(self.trajectory)


def read_trajectory(data: bytes | dict[str, Any], path: str | None = None) -> Reading:
    """The trajectory of a document (its bytes, or its JSON value) and the warnings about it.

    Lax numbers come out as what they mean; references of v1.6 and older, which name a session alone, name the
    trajectory of that id. Warnings: duplicate_call_id, totals_differ, old_subagent_ref, lone_surrogate,
    invalid_utf8. Raises TraceflowError `invalid_trajectory`: `details.problems` lists every fault with its
    place; for text that is no JSON, `line` and `byte` say where.
    """
    reading = Reading({})
    document = _parsed(data, path, reading) if isinstance(data, bytes) else data
    document = _with_refs(document, reading)
    found = problems(document)
    if found:
        raise refused(found, path)
    reading.trajectory = lax(document)
    _look_over(reading.trajectory, "trajectory", reading)
    return reading


def _parsed(data: bytes, path: str | None, reading: Reading) -> Any:
    try:
        return loaded(data)
    except orjson.JSONDecodeError:
        pass
    repairs = jsontext.Repairs()
    text = data.removeprefix(b"\xef\xbb\xbf")
    try:
        value = jsontext.loads_repaired(text, repairs)
    except ValueError as error:
        line, byte, message = _place(text, str(error))
        details: dict[str, Any] = {"path": path}
        if line is not None:
            byte += len(data) - len(text)
            details |= {"line": line, "byte": byte}
            message = f"line {line}, byte {byte}: {message}"
        where = f"{path}: " if path else ""
        raise TraceflowError("invalid_trajectory", f"{where}is no JSON: {message}", **details) from None
    if repairs.surrogates:
        message = "lone surrogates were replaced by U+FFFD"
        reading.warnings.append(Warned("lone_surrogate", message, "trajectory", repairs.surrogates))
    if repairs.invalid_utf8:
        message = "bytes that are no UTF-8 were replaced by U+FFFD"
        reading.warnings.append(Warned("invalid_utf8", message, "trajectory", repairs.invalid_utf8))
    return value


def _place(text: bytes, message: str) -> tuple[int | None, int, str]:
    """Where a text stops being JSON: the line from 1, the byte from 0, and why."""
    whole = text.decode("utf-8", "surrogateescape")
    try:
        json.loads(whole)
    except json.JSONDecodeError as error:
        return error.lineno, len(whole[: error.pos].encode("utf-8", "surrogateescape")), error.msg
    except (ValueError, RecursionError):
        pass
    return None, 0, message


# -- references of v1.6 and older ----------------------------------------------------------------------------


def _with_refs(document: Any, reading: Reading) -> Any:
    """An old document whose references name their session as the trajectory; anything else as it is."""
    if not isinstance(document, dict) or document.get("schema_version") not in _OLD:
        return document
    steps = document.get("steps")
    if not isinstance(steps, list):
        return document
    renewed = [_step_with_refs(step, f"trajectory.steps.{at}", reading) for at, step in enumerate(steps)]
    return {**document, "steps": renewed}


def _step_with_refs(step: Any, where: str, reading: Reading) -> Any:
    observation = step.get("observation") if isinstance(step, dict) else None
    if not isinstance(observation, dict):
        return step
    results = observation.get("results")
    if not isinstance(results, list) or not any(
        isinstance(r, dict) and r.get("subagent_trajectory_ref") for r in results
    ):
        return step
    renewed = [_result_with_refs(result, where, reading) for result in results]
    return {**step, "observation": {**observation, "results": renewed}}


def _result_with_refs(result: Any, where: str, reading: Reading) -> Any:
    refs = result.get("subagent_trajectory_ref") if isinstance(result, dict) else None
    if isinstance(refs, dict):  # a single reference stood bare
        refs = [refs]
    if not isinstance(refs, list):
        return result
    out = []
    for ref in refs:
        if isinstance(ref, dict) and ref.get("trajectory_id") is None and ref.get("trajectory_path") is None:
            _warn(reading, "old_subagent_ref", "a reference names a session, not a trajectory", where)
            ref = {"trajectory_id": ref.get("session_id"), **{k: v for k, v in ref.items() if k != "trajectory_id"}}
        out.append(ref)
    return {**result, "subagent_trajectory_ref": out}


# -- what is odd ---------------------------------------------------------------------------------------------


def _warn(reading: Reading, code: str, message: str, where: str) -> None:
    for at, known in enumerate(reading.warnings):
        if known.code == code:
            reading.warnings[at] = Warned(code, known.message, known.where, known.count + 1)
            return
    reading.warnings.append(Warned(code, message, where))


def _look_over(document: dict[str, Any], where: str, reading: Reading) -> None:
    seen: set[str] = set()
    for at, step in enumerate(document["steps"]):
        for call in step.get("tool_calls") or ():
            call_id = call["tool_call_id"]
            if call_id in seen:
                message = f"the call id {call_id[:60]!r} stands for more than one call"
                _warn(reading, "duplicate_call_id", message, f"{where}.steps.{at}")
            seen.add(call_id)
    differing = _differing(document)
    if differing:
        _warn(reading, "totals_differ", f"final_metrics and the steps differ: {differing}", where)
    for at, child in enumerate(document.get("subagent_trajectories") or ()):
        _look_over(child, f"{where}.subagent_trajectories.{at}", reading)


def _own(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The model calls that belong to this trajectory and to no other."""
    return [
        step
        for step in document["steps"]
        if step["source"] == "agent" and not step.get("is_copied_context") and step.get("llm_call_count") != 0
    ]


def totals_of(document: dict[str, Any]) -> Totals:
    """The totals of a trajectory's own steps."""
    steps = _own(document)
    sums: list[Any] = []
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"):
        values = [(step.get("metrics") or {}).get(name) for step in steps]
        if not values or None in values:
            sums.append(None)
        elif name == "cost_usd":
            sums.append(float(sum((Decimal(repr(float(v or 0))) for v in values), Decimal())))
        else:
            sums.append(sum(values))
    return Totals(*sums)


def _differing(document: dict[str, Any]) -> str:
    """The totals that the steps contradict, in words; "" where none does.

    Some writers count subagents in, so the totals may be either. A total is left alone where the steps cannot
    tell: a call without that number, or totals whose source is said to be another.
    """
    stated = document.get("final_metrics") or {}
    extra = stated.get("extra") or {}
    if extra.get("source") in ("gateway", "run"):
        return ""
    out: list[str] = []
    own = totals_of(document)
    whole = [own, *(totals_of(child) for child in _all_children(document))]
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd"):
        claim, count = stated.get(f"total_{name}"), getattr(own, name)
        if claim is None or count is None:
            continue
        apart = extra.get("compaction")
        if isinstance(apart, dict) and isinstance(apart.get(name), int | float):
            count += apart[name]
        with_children = count + sum(getattr(t, name) or 0 for t in whole[1:])
        if not (_same(claim, count) or _same(claim, with_children)):
            out.append(f"total_{name} {claim} and {count}")
    steps = stated.get("total_steps")
    if steps is not None and steps != len(document["steps"]) and not document.get("notes"):
        out.append(f"total_steps {steps} and {len(document['steps'])}")
    return ", ".join(out)


def _same(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _all_children(document: dict[str, Any]) -> list[dict[str, Any]]:
    out = []
    for child in document.get("subagent_trajectories") or ():
        out.append(child)
        out += _all_children(child)
    return out
