"""The models of ATIF (Agent Trajectory Interchange Format) v1.0 to v1.8, as Harbor 0.26 reads them.

They accept and refuse what Harbor's own models accept and refuse: unknown keys only in the open dictionaries
(`extra`, `arguments`, tool definitions), lax numbers (`"1"` and `1.0` are the step id 1), no field tied to a
version. With `strict=True` they take exact types only; that is for what we write. A document is checked by
`check.problems`, which goes step by step; these models are its shapes, and the rules inside one step.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from .facts import ImageType, valid_time

__all__ = [
    "AUDIO_TYPES",
    "Agent",
    "AudioSource",
    "ContentPart",
    "FinalMetrics",
    "ImageSource",
    "Metrics",
    "Observation",
    "ObservationResult",
    "Step",
    "SubagentTrajectoryRef",
    "ToolCall",
    "Trajectory",
    "TrajectoryHead",
]

Version = Literal[
    "ATIF-v1.0",
    "ATIF-v1.1",
    "ATIF-v1.2",
    "ATIF-v1.3",
    "ATIF-v1.4",
    "ATIF-v1.5",
    "ATIF-v1.6",
    "ATIF-v1.7",
    "ATIF-v1.8",
]

AudioType = Literal[
    "audio/wav",
    "audio/mpeg",
    "audio/mp4",
    "audio/aac",
    "audio/ogg",
    "audio/flac",
    "audio/webm",
    "audio/aiff",
]
AUDIO_TYPES: frozenset[str] = frozenset(get_args(AudioType))
_AUDIO_ALIASES = {
    "mp3": "mpeg",
    "mpga": "mpeg",
    "x-mpeg": "mpeg",
    "x-wav": "wav",
    "wave": "wav",
    "vnd.wave": "wav",
    "x-m4a": "mp4",
    "m4a": "mp4",
    "x-aac": "aac",
    "x-flac": "flac",
    "x-aiff": "aiff",
}

Free = dict[str, Any]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ImageSource(_Model):
    """Where an image is: relative to the trajectory file, absolute, or a URL."""

    media_type: ImageType
    path: str


class AudioSource(_Model):
    """Where a sound is (v1.8)."""

    media_type: AudioType
    path: str
    duration_sec: Annotated[float, Field(ge=0)] | None = None

    @field_validator("media_type", mode="before")
    @classmethod
    def _known_name(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        name = value.strip().lower()
        family, _, kind = name.partition("/")
        return f"audio/{_AUDIO_ALIASES.get(kind, kind)}" if family == "audio" else name


class ContentPart(_Model):
    """A piece of a message or result (v1.6): text, image, or audio (v1.8)."""

    type: Literal["text", "image", "audio"]
    text: str | None = None
    source: ImageSource | AudioSource | None = None

    @model_validator(mode="after")
    def _text_or_source(self) -> ContentPart:
        if self.type == "text":
            if self.text is None:
                raise ValueError("a text part needs text")
            if self.source is not None:
                raise ValueError("a text part has no source")
            return self
        wanted = ImageSource if self.type == "image" else AudioSource
        if self.text is not None:
            raise ValueError(f"an {self.type} part has no text")
        if not isinstance(self.source, wanted):
            raise ValueError(f"an {self.type} part needs the source of an {self.type}")
        return self


def _text_or_parts(value: object) -> str:
    return "parts" if isinstance(value, list | tuple) else "text"


Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[ContentPart], Tag("parts")],
    Discriminator(_text_or_parts),
]


class Agent(_Model):
    """The program that ran."""

    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[Free] | None = None
    extra: Free | None = None


class ToolCall(_Model):
    """A call of a tool."""

    tool_call_id: str
    function_name: str
    arguments: Free
    extra: Free | None = None


class SubagentTrajectoryRef(_Model):
    """Names the trajectory of a subagent: one embedded in this document, or a file."""

    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None
    extra: Free | None = None

    @model_validator(mode="after")
    def _names_one(self) -> SubagentTrajectoryRef:
        if self.trajectory_id is None and self.trajectory_path is None:
            raise ValueError("a reference needs trajectory_id or trajectory_path")
        return self


class ObservationResult(_Model):
    """What one call returned."""

    source_call_id: str | None = None
    content: Content | None = None
    subagent_trajectory_ref: list[SubagentTrajectoryRef] | None = None
    extra: Free | None = None


class Observation(_Model):
    """What the environment returned in a step."""

    results: list[ObservationResult]


class Metrics(_Model):
    """The tokens and the money of one step; prompt tokens include cached ones."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    extra: Free | None = None


class FinalMetrics(_Model):
    """The totals of a trajectory, as its writer states them."""

    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: Annotated[int, Field(ge=0)] | None = None
    extra: Free | None = None


_AGENT_ONLY = ("model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics")
_MODEL_ONLY = ("metrics", "reasoning_content")


class Step(_Model):
    """One step, with the rules that hold within it."""

    step_id: Annotated[int, Field(ge=1)]
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: Content
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: Annotated[int, Field(ge=0)] | None = None
    extra: Free | None = None

    @field_validator("timestamp")
    @classmethod
    def _is_time(cls, value: str | None) -> str | None:
        if value is not None and not valid_time(value):
            raise ValueError(f"{value[:60]!r} is no ISO 8601 time")
        return value

    @model_validator(mode="after")
    def _holds_together(self) -> Step:
        faults: list[str] = []
        if self.source != "agent":
            faults += [f"a {self.source} step has no {n}" for n in _AGENT_ONLY if getattr(self, n) is not None]
        elif self.llm_call_count == 0:
            faults += [f"a step without a model call has no {n}" for n in _MODEL_ONLY if getattr(self, n) is not None]
        known = {call.tool_call_id for call in self.tool_calls or ()}
        for at, result in enumerate(self.observation.results if self.observation else ()):
            if result.source_call_id is not None and result.source_call_id not in known:
                faults.append(f"observation.results.{at}: {result.source_call_id[:60]!r} is no call of this step")
        if faults:
            raise ValueError("; ".join(faults))
        return self


class TrajectoryHead(_Model):
    """A trajectory without its steps and subagents."""

    schema_version: Version = "ATIF-v1.8"
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    extra: Free | None = None


class Trajectory(TrajectoryHead):
    """A whole document. `check.problems` reads one step by step, with bounds, and lists every fault."""

    steps: Annotated[list[Step], Field(min_length=1)]
    subagent_trajectories: list[Trajectory] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> Trajectory:
        for number, step in enumerate(self.steps, 1):
            if step.step_id != number:
                raise ValueError(f"step_id {step.step_id} where {number} should stand")
        ids = [child.trajectory_id for child in self.subagent_trajectories or ()]
        if None in ids:
            raise ValueError("an embedded subagent needs a trajectory_id")
        if len(set(ids)) != len(ids):
            raise ValueError("two embedded subagents share a trajectory_id")
        return self
