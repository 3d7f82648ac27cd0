"""Checks an ATIF document and lists every fault with its place.

Steps are checked one by one, so that a document of a gigabyte needs no second copy of itself as objects, and
that a fault in one step hides none in another. Embedded subagents are followed to a bounded depth.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter, ValidationError

from ..errors import TraceflowError
from .facts import MAX_DEPTH, WRITTEN_VERSION
from .models import Step, TrajectoryHead

__all__ = ["Problem", "lax", "problems", "refused", "strict_problems", "validate_strict"]

_PROBLEMS_KEPT = 1000

_INT, _FLOAT, _BOOL = TypeAdapter(int), TypeAdapter(float), TypeAdapter(bool)


class Problem(NamedTuple):
    """A fault and its place, such as `trajectory.steps.3.tool_calls.0.arguments`."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def problems(document: Any) -> list[Problem]:
    """Every fault of a document by Harbor's rules; an empty list means that Harbor accepts it."""
    return list(_trajectory(document, "trajectory", 0, strict=False))


def strict_problems(document: Any) -> list[Problem]:
    """Every fault of a document by the rules of what we write: Harbor's, and

    exact types, v1.7, counts that are not negative, a right `total_steps`, and references that lead somewhere.
    """
    found = list(_trajectory(document, "trajectory", 0, strict=True))
    if not found:
        found += _written(document, "trajectory", set(_embedded(document)))
    return found


def validate_strict(document: Any) -> None:
    """Raise TraceflowError `invalid_trajectory` unless the document is as what we write."""
    if found := strict_problems(document):
        raise refused(found)


def refused(found: list[Problem], path: str | None = None) -> TraceflowError:
    """The error for a document with these faults: the first in words, all of them in `details.problems`."""
    where = f"{path}: " if path else ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    listed = [{"where": p.where, "message": p.message} for p in found[:_PROBLEMS_KEPT]]
    return TraceflowError(
        "invalid_trajectory", f"{where}{found[0]}{more}", path=path, problems=listed, problem_count=len(found)
    )


def _trajectory(document: Any, where: str, depth: int, strict: bool) -> Iterator[Problem]:
    if not isinstance(document, dict):
        yield Problem(where, "is no JSON object")
        return
    if depth > MAX_DEPTH:
        yield Problem(where, f"subagents are nested more than {MAX_DEPTH} deep")
        return
    head = {key: value for key, value in document.items() if key not in ("steps", "subagent_trajectories")}
    yield from _shape(TrajectoryHead, head, where, strict)
    yield from _steps(document.get("steps"), f"{where}.steps", strict)
    children = document.get("subagent_trajectories")
    if children is None:
        return
    where = f"{where}.subagent_trajectories"
    if not isinstance(children, list):
        yield Problem(where, "is no list")
        return
    seen: dict[str, int] = {}
    for at, child in enumerate(children):
        yield from _trajectory(child, f"{where}.{at}", depth + 1, strict)
        name = child.get("trajectory_id") if isinstance(child, dict) else None
        if name is None:
            yield Problem(f"{where}.{at}", "an embedded subagent needs a trajectory_id")
        elif isinstance(name, str) and seen.setdefault(name, at) != at:
            yield Problem(f"{where}.{at}.trajectory_id", f"{name[:60]!r} is that of subagent {seen[name]} as well")


def _steps(steps: Any, where: str, strict: bool) -> Iterator[Problem]:
    if not isinstance(steps, list):
        yield Problem(where, "Field required" if steps is None else "is no list")
        return
    if not steps:
        yield Problem(where, "there is no step")
    for at, raw in enumerate(steps):
        try:
            step = Step.model_validate(raw, strict=strict)
        except ValidationError as error:
            yield from _told(error, f"{where}.{at}")
            number = raw.get("step_id") if isinstance(raw, dict) else None
            if type(number) is not int:
                continue
        else:
            number = step.step_id
        if number != at + 1:
            yield Problem(f"{where}.{at}.step_id", f"is {number}, should be {at + 1}: steps count 1, 2, 3, ...")


def _shape(model: type[BaseModel], value: Any, where: str, strict: bool) -> Iterator[Problem]:
    try:
        model.model_validate(value, strict=strict)
    except ValidationError as error:
        yield from _told(error, where)


def _told(error: ValidationError, where: str) -> Iterator[Problem]:
    for fault in error.errors(include_url=False, include_context=False, include_input=True):
        place = ".".join([where, *map(str, fault["loc"])])
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            message = "is no key of ATIF"
        elif fault["type"] == "literal_error":
            message += f", got {str(fault['input'])[:60]!r}"
        yield Problem(place, message)


def lax(document: dict[str, Any]) -> dict[str, Any]:
    """A checked document in which the numbers that pydantic reads laxly (`"1"`, `1.0`, `"yes"`) are what they mean.

    What needs no change is shared with the document given, which stays as it is.
    """
    out = dict(document)
    out["steps"] = [_lax_step(step) for step in document["steps"]]
    if (totals := document.get("final_metrics")) is not None:
        names = ("total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_steps")
        out["final_metrics"] = _exact(totals, names, ("total_cost_usd",))
    if (children := document.get("subagent_trajectories")) is not None:
        out["subagent_trajectories"] = [lax(child) for child in children]
    return out


def _lax_step(step: dict[str, Any]) -> dict[str, Any]:
    out = _exact(step, ("step_id", "llm_call_count"), ())
    copied = step.get("is_copied_context")
    if copied is not None and type(copied) is not bool:
        out = {**out, "is_copied_context": _BOOL.validate_python(copied)}
    if (metrics := step.get("metrics")) is not None:
        exact = _exact(metrics, ("prompt_tokens", "completion_tokens", "cached_tokens"), ("cost_usd",))
        if exact is not metrics:
            out = {**out, "metrics": exact}
    return out


def _exact(value: dict[str, Any], whole: tuple[str, ...], broken: tuple[str, ...]) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in whole:
        if (number := value.get(name)) is not None and type(number) is not int:
            changed[name] = _INT.validate_python(number)
    for name in broken:
        if (number := value.get(name)) is not None and type(number) not in (int, float):
            changed[name] = _FLOAT.validate_python(number)
    return {**value, **changed} if changed else value


# -- what we write -------------------------------------------------------------------------------------------


def _embedded(document: dict[str, Any]) -> Iterator[str]:
    for child in document.get("subagent_trajectories") or ():
        yield child["trajectory_id"]
        yield from _embedded(child)


def _written(document: dict[str, Any], where: str, known: set[str]) -> Iterator[Problem]:
    if document.get("schema_version") != WRITTEN_VERSION:
        yield Problem(f"{where}.schema_version", f"is not {WRITTEN_VERSION}")
    totals = document.get("final_metrics") or {}
    yield from _counts(totals, f"{where}.final_metrics")
    if totals.get("total_steps") != len(document["steps"]):
        yield Problem(f"{where}.final_metrics.total_steps", f"is not {len(document['steps'])}")
    for at, step in enumerate(document["steps"]):
        place = f"{where}.steps.{at}"
        yield from _counts(step.get("metrics") or {}, f"{place}.metrics")
        for number, result in enumerate((step.get("observation") or {}).get("results") or ()):
            for ref in result.get("subagent_trajectory_ref") or ():
                if ref.get("trajectory_path") is None and ref.get("trajectory_id") not in known:
                    yield Problem(f"{place}.observation.results.{number}", "refers to a subagent that is not embedded")
    for at, child in enumerate(document.get("subagent_trajectories") or ()):
        yield from _written(child, f"{where}.subagent_trajectories.{at}", known)


def _counts(numbers: dict[str, Any], where: str) -> Iterator[Problem]:
    for name, value in numbers.items():
        if isinstance(value, int | float) and value < 0:
            yield Problem(f"{where}.{name}", f"is negative: {value}")
