"""One step while its events come in, and the step as ATIF writes it.

A finished step can be opened again (`Draft.reopened`) when a late result or its usage comes: nothing that a step
says is lost on the way.
"""

from __future__ import annotations

from typing import Any

from .. import jsontext
from ..times import normal_time
from .facts import valid_time
from .images import Images
from .spool import dumped

__all__ = ["Draft", "arguments_of", "atif_extra", "event_extra"]

# facts that both formats have, under the name that each writes
_NAMES = {
    "stopReason": "stop_reason",
    "requestId": "request_id",
    "exitCode": "exit_code",
    "durationMs": "duration_ms",
}
_BACK = {theirs: ours for ours, theirs in _NAMES.items()}
# facts that decide what an event becomes, and stand in the step in another way
_SPENT = frozenset(
    {
        "agentId",
        "abandoned",
        "copied",
        "retried",
        "stepName",
        "delta",
        "injected",
        "compaction",
        "harness",
        "harnessVersion",
        "llmCallCount",
        "reasoningEffort",
        "trajectory",
        "subagentRefs",
        "atif",
    }
)
_RAW_OUTPUT_BYTES = 4096  # a raw output beyond it repeats the text (traces of the platform); the trace keeps it

Part = list[str] | dict[str, Any]  # the pieces of a text, or an image


def atif_extra(extra: dict[str, Any], into: dict[str, Any]) -> None:
    """Put what an event's `extra` says into a step's, a call's or a result's."""
    for name, value in extra.items():
        if name not in _SPENT and value is not None:
            into[_NAMES.get(name, name)] = value
    more = extra.get("atif")
    if isinstance(more, dict):
        into.update(more)


def error_extra(update: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """What an error's step says: the words, whether it was the end, its kind where known (`rate_limit`, ...).

    Harnesses name the kind `errorKind` or `error`; a failure of the provider is marked `is_api_error`.
    """
    error: dict[str, Any] = {
        "message": str(update.get("message") or "(no message)"),
        "fatal": bool(update.get("fatal")),
    }
    rest = {name: value for name, value in extra.items() if name not in _OF_ERRORS}
    kind = next((k for k in (extra.get("errorKind"), extra.get("error")) if isinstance(k, str) and k), None)
    if kind is not None:
        error["kind"] = kind
    out: dict[str, Any] = {"error": error}
    if extra.get("isApiError") or extra.get("isApiErrorMessage"):
        out["is_api_error"] = True
    atif_extra(rest, out)
    out["error"] = error
    return out


_OF_ERRORS = frozenset({"errorKind", "error", "isApiError", "isApiErrorMessage"})


def event_extra(extra: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `atif_extra`: names that both have, and under `atif` everything else."""
    out: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in extra.items():
        ours = _BACK.get(name)
        if ours is not None and value is not None:
            out[ours] = value
        else:
            rest[name] = value
    if rest:
        out["atif"] = rest
    return out


def arguments_of(raw: Any) -> dict[str, Any]:
    """The arguments as an object: JSON text of one is parsed, anything else becomes `{"input": value}`."""
    if isinstance(raw, dict):
        return raw
    if raw is None:
        return {}
    if isinstance(raw, str) and raw.lstrip()[:1] == "{":
        try:
            value = jsontext.loads(raw)
            if jsontext.rounded(value):
                value = jsontext.loads(raw, exact=True)
        except ValueError:
            return {"input": raw}
        if isinstance(value, dict):
            return value
    return {"input": raw}


class Draft:
    """A step in the making. `source` is system, user or agent; the builder fills the rest as events come."""

    __slots__ = (
        "call_ids",
        "calls",
        "copied",
        "effort",
        "extra",
        "llm",
        "metrics",
        "model",
        "parts",
        "results",
        "size",
        "source",
        "thoughts",
        "time",
    )

    def __init__(self, source: str, extra: dict[str, Any] | None = None) -> None:
        self.source = source
        self.time: str | None = None
        self.model: str | None = None
        self.effort: str | float | None = None
        self.parts: list[Part] = []
        self.thoughts: list[list[str]] = []
        self.calls: list[dict[str, Any]] = []
        self.call_ids: set[str] = set()
        self.results: list[dict[str, Any]] = []
        self.metrics: dict[str, Any] | None = None
        self.copied = False
        self.llm: int | None = None
        self.extra: dict[str, Any] = {} if extra is None else extra
        self.size = 200  # about how many characters it holds

    # -- events ------------------------------------------------------------------------------------------

    def at(self, time: str) -> None:
        """The time of an event; the first one is the step's. Text that is no time is kept beside the step."""
        if valid_time(time):
            self.time = time
            return
        try:
            self.time = normal_time(time)[0]
        except (ValueError, OverflowError):
            self.extra.setdefault("timestamp", time)

    def say(self, text: str, delta: bool) -> None:
        """A block of text; a delta continues the text before it."""
        if not text:
            return
        self.size += len(text)
        last = self.parts[-1] if delta and self.parts else None
        if isinstance(last, list):
            last.append(text)
        else:
            self.parts.append([text])

    def show(self, part: dict[str, Any] | str) -> None:
        """An image, or the words that stand for one."""
        self.size += 200
        self.parts.append([part] if isinstance(part, str) else part)

    def think(self, text: str, delta: bool) -> None:
        """A block of reasoning."""
        if not text:
            return
        self.size += len(text)
        if self.llm == 0:
            self.llm = None  # somebody says that no model was called, and what it thought
        if delta and self.thoughts:
            self.thoughts[-1].append(text)
        else:
            self.thoughts.append([text])

    def call(self, update: dict[str, Any], extra: dict[str, Any] | None) -> None:
        """A tool call, under the harness's own name for the tool."""
        call_id = update.get("toolCallId")
        call_id = call_id if isinstance(call_id, str) else ""
        name = update.get("toolName")
        arguments = arguments_of(update.get("rawInput"))
        call: dict[str, Any] = {"tool_call_id": call_id, "function_name": name, "arguments": arguments}
        more: dict[str, Any] = {}
        if not isinstance(name, str):
            for field in ("title", "kind"):
                if isinstance(other := update.get(field), str) and other:
                    call["function_name"], more["function_name_from"] = other, field
                    break
            else:
                call["function_name"] = ""
        if extra is not None:
            atif_extra(extra, more)
        if more:
            call["extra"] = more
        self.calls.append(call)
        self.call_ids.add(call_id)
        self.size += 200 + sum(len(value) for value in arguments.values() if value.__class__ is str)

    def result(self, update: dict[str, Any], extra: dict[str, Any] | None, images: Images) -> None:
        """What a call returned. Where the call is not in this step the result stands without one, its id beside it."""
        call_id = update.get("toolCallId")
        call_id = call_id if isinstance(call_id, str) else ""
        result: dict[str, Any] = {}
        more: dict[str, Any] = {}
        if call_id in self.call_ids:
            result["source_call_id"] = call_id
        elif call_id:
            more["tool_call_id"] = call_id
        content, diffs = _result_content(update.get("content"), images)
        if content is not None:
            result["content"] = content
        if diffs:
            more["diffs"] = diffs
        status = update.get("status")
        if isinstance(status, str) and status != "completed":
            more["status"] = status
        raw = update.get("rawOutput")
        if raw is not None and (content is None or len(dumped(raw)) <= _RAW_OUTPUT_BYTES):
            more["raw_output"] = raw
        if extra is not None:
            refs = extra.get("subagentRefs")
            if isinstance(refs, list) and (files := [ref for ref in refs if _names_file(ref)]):
                result["subagent_trajectory_ref"] = files
            atif_extra(extra, more)
        if more:
            result["extra"] = more
        self.results.append(result)
        self.size += 300 + (len(content) if isinstance(content, str) else 0)

    def refer(self, call_id: str, trajectory_id: str) -> None:
        """The subagent that a call of this step spawned."""
        for result in self.results:
            if result.get("source_call_id") == call_id:
                break
        else:
            result = {"source_call_id": call_id}
            self.results.append(result)
        refs = result.setdefault("subagent_trajectory_ref", [])
        refs.append({"trajectory_id": trajectory_id})

    def take_orphan(self, call_id: str) -> dict[str, Any] | None:
        """Remove and return a result that named this call before the call was there."""
        for at, result in enumerate(self.results):
            if "source_call_id" not in result and result.get("extra", {}).get("tool_call_id") == call_id:
                return self.results.pop(at)
        return None

    def adopt(self, call_id: str, result: dict[str, Any]) -> None:
        """Take in a result that came before its call."""
        extra = {name: value for name, value in result["extra"].items() if name != "tool_call_id"}
        rest = {name: value for name, value in result.items() if name != "extra"}
        self.results.append({"source_call_id": call_id, **rest, **({"extra": extra} if extra else {})})

    # -- the step ----------------------------------------------------------------------------------------

    def step(self, number: int) -> dict[str, Any]:
        """The step as it stands, keys in the order of the model, nulls left out."""
        out: dict[str, Any] = {"step_id": number}
        if self.time is not None:
            out["timestamp"] = self.time
        out["source"] = self.source
        if self.model is not None:
            out["model_name"] = self.model
        if self.effort is not None:
            out["reasoning_effort"] = self.effort
        out["message"] = self._message()
        if self.thoughts:
            out["reasoning_content"] = "\n\n".join(map("".join, self.thoughts))
        if self.calls:
            out["tool_calls"] = self.calls
        if self.results:
            out["observation"] = {"results": self.results}
        if self.metrics:
            out["metrics"] = self.metrics
        if self.copied:
            out["is_copied_context"] = True
        if self.llm is not None:
            out["llm_call_count"] = self.llm
        if self.extra:
            out["extra"] = self.extra
        return out

    def _message(self) -> str | list[dict[str, Any]]:
        parts = self.parts
        if len(parts) == 1 and isinstance(parts[0], list):
            return "".join(parts[0])
        if not any(isinstance(part, dict) for part in parts):
            return "\n\n".join("".join(part) for part in parts)
        out: list[dict[str, Any]] = []
        for part in parts:
            if isinstance(part, dict):
                out.append(part)
            elif out and out[-1]["type"] == "text":
                out[-1] = {"type": "text", "text": f"{out[-1]['text']}\n\n{''.join(part)}"}
            else:
                out.append({"type": "text", "text": "".join(part)})
        return out

    @classmethod
    def reopened(cls, step: dict[str, Any], size: int) -> Draft:
        """The draft of a step that `step` gave."""
        draft = cls(step["source"], step.get("extra"))
        draft.time = step.get("timestamp")
        draft.model = step.get("model_name")
        draft.effort = step.get("reasoning_effort")
        message = step["message"]
        if isinstance(message, str):
            draft.parts = [[message]] if message else []
        else:
            draft.parts = [[part["text"]] if part["type"] == "text" else part for part in message]
        if (reasoning := step.get("reasoning_content")) is not None:
            draft.thoughts = [[reasoning]]
        draft.calls = step.get("tool_calls", [])
        draft.call_ids = {call["tool_call_id"] for call in draft.calls}
        draft.results = step.get("observation", {}).get("results", [])
        draft.metrics = step.get("metrics")
        draft.copied = step.get("is_copied_context", False)
        draft.llm = step.get("llm_call_count")
        draft.size = size
        return draft


def _names_file(ref: Any) -> bool:
    """Whether a reference leads to a file; those to embedded subagents are made anew."""
    if not isinstance(ref, dict) or not isinstance(ref.get("trajectory_path"), str):
        return False
    rest = {name: value for name, value in ref.items() if value is not None and name != "trajectory_path"}
    more = rest.pop("extra", {})
    return isinstance(more, dict) and all(n in _REF_IDS and isinstance(v, str) for n, v in rest.items())


_REF_IDS = frozenset({"trajectory_id", "session_id"})


def _result_content(content: Any, images: Images) -> tuple[str | list[dict[str, Any]] | None, list[dict[str, Any]]]:
    """The content of a result, verbatim: a text where there is one text block, else parts. And diffs, if any."""
    if not isinstance(content, list):
        content = [content] if isinstance(content, dict) else []
    parts: list[dict[str, Any]] = []
    diffs: list[dict[str, Any]] = []
    for item in content:
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        block = item.get("content") if kind == "content" else item
        if not isinstance(block, dict):
            continue
        if kind == "diff":
            diffs.append({name: item.get(name) for name in ("path", "oldText", "newText")})
        elif isinstance(text := block.get("text"), str):
            parts.append({"type": "text", "text": text})
        elif block.get("type") == "image":
            part = images.part(block)
            parts.append({"type": "text", "text": part} if isinstance(part, str) else part)
        else:
            parts.append({"type": "text", "text": f"[{block.get('type') or 'unknown content'}]"})
    if not parts:
        return None, diffs
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"], diffs
    return parts, diffs
