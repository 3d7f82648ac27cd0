"""Who said a `user` or `developer` message of a codex rollout: a person, or the harness.

Rollouts write both with the same role. In order of weight: the kind that the item itself states (0.171), the
event that repeats what a person typed (`user_message` up to 0.80, the `UserMessage` item since), and the form
of the text, where a file has neither. The event follows its message, so messages wait until the model speaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from ..emit import text_block
from .output import picture

__all__ = ["Said", "Words", "injected_kind"]

_KINDS = {  # the tag that wraps a text -> the kind of what was put in
    "environment_context": "environment_context",
    "user_instructions": "agents_md",
    "INSTRUCTIONS": "agents_md",
    "skill": "skills",
    "skills_instructions": "skills",
    "permissions instructions": "permissions",
    "turn_aborted": "turn_aborted",
    "subagent_notification": "subagent_notification",
    "user_shell_command": "command",
    "hook_context": "hook",
    "hook_prompt": "hook",
    "collaboration_mode": "collaboration_mode",
    "multi_agent_mode": "multi_agent_mode",
    "tools": "tools",
    "apps_instructions": "apps",
    "plugins_instructions": "plugins",
    "model_switch": "model_switch",
    "personality_spec": "personality",
    "goal_context": "goal",
    "system-reminder": "system_reminder",
}
_OPENINGS = (  # texts that carry no tag of their own
    ("# AGENTS.md instructions", "agents_md"),
    ("Another language model started to solve this problem", "compaction_summary"),
)


def injected_kind(text: str) -> str | None:
    """What the harness put in, judged by the form of the text alone, or None where it may be a person's.

    A text counts when a known tag wraps the whole of it: a prompt that mentions such a tag is a prompt.
    """
    start = text.lstrip()
    if start.startswith("<"):
        tag = start[1 : start.find(">", 1, 60)]
        kind = _KINDS.get(tag)
        return kind if kind is not None and text.rstrip().endswith(f"</{tag}>") else None
    for opening, kind in _OPENINGS:
        if start.startswith(opening):
            return kind
    return None


class Said(NamedTuple):
    """One block of a message: `injected` is the kind of what the harness put in, None for a person's words.

    The words of a person and the pictures with them share a `message`.
    """

    injected: str | None
    block: dict[str, Any]
    time: str | None
    message: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class _Block:
    message: int
    block: dict[str, Any]
    time: str | None
    hint: str | None  # the kind that the item states
    person: bool | None
    default: str  # the kind of a text whose form says nothing
    matched: bool = False

    @property
    def text(self) -> str | None:
        text = self.block.get("text")
        return text if isinstance(text, str) else None

    @property
    def open(self) -> bool:
        """Whether an event may still name it as what a person typed."""
        return not self.matched and self.person is not False and self.text is not None


class Words:
    """The messages that wait for a decision. `hear` and `hear_event` take them in, `take` hands them over."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._events: list[tuple[str, str | None]] = []
        self._messages = 0
        self._events_known = False  # the file repeats what a person typed
        self.waiting = 0  # messages and events that wait for a decision

    def hear(self, payload: dict[str, Any], time: str | None) -> None:
        """A message of a role that is not the model's."""
        self._messages += 1
        self.waiting += 1
        user = payload.get("role") == "user"
        content = payload.get("content")
        if isinstance(content, str):
            content = [{"text": content}]
        if not isinstance(content, list):
            return
        stated = payload.get("internal_chat_message_metadata_passthrough")
        kinds = stated.get("content_item_kinds") if isinstance(stated, dict) else None
        for number, part in enumerate(content):
            if not isinstance(part, dict):
                continue
            text, url = part.get("text"), part.get("image_url")
            if isinstance(text, str) and text:
                block = text_block(text)
            elif isinstance(url, str):
                block = picture(url)
            else:
                continue
            hint = kinds[number] if isinstance(kinds, list) and number < len(kinds) else None
            if not isinstance(hint, str) or hint == "unknown":
                hint = None
            person = None if user and hint is None else user and hint is not None and hint.startswith("user.")
            default = "context" if user else "developer"
            self._blocks.append(_Block(self._messages, block, time, hint, person, default))

    def hear_event(self, text: str, time: str | None) -> None:
        """An event says what a person typed; it names a message, or stands alone where the file has none."""
        self._events_known = True
        self.waiting += 1
        self._events.append((text, time))

    def take(self) -> list[Said]:
        """The decided blocks in source order; the texts of one message of a person are one text."""
        blocks, events = self._blocks, self._events
        self._blocks, self._events = [], []
        self.waiting = 0
        for text, time in [event for event in events if not _match(event[0], blocks)]:
            self._fit(text, time, blocks)
        said: list[Said] = []
        for _, message in groupby(blocks, key=lambda block: block.message):
            said.extend(self._decided(list(message)))
        return said

    def _decided(self, message: list[_Block]) -> list[Said]:
        pictured = any(block.text is None for block in message)
        for block in message:
            text = block.text
            if block.person is None and text is not None and not (pictured and _wraps_picture(text)):
                block.person = not self._events_known and injected_kind(text) is None
        spoken = any(block.person for block in message)
        said: list[Said] = []
        texts: list[str] = []
        pictures: list[Said] = []
        for block in message:
            text = block.text
            if block.person is False:
                said.append(Said(_kind_of(block), block.block, block.time))
            elif text is None:  # a picture goes with the words of its message
                kind = None if spoken or block.person or not self._events_known else block.default
                pictures.append(Said(kind, block.block, block.time))
            elif block.person and not (pictured and _wraps_picture(text)):
                texts.append(text)
        if not texts:
            return said + pictures
        name = f"message-{message[0].message}" if pictures else None
        words = Said(None, text_block("\n".join(texts)), message[0].time, name)
        return [*said, words, *(picture._replace(message=name) for picture in pictures)]

    def _fit(self, text: str, time: str | None, blocks: list[_Block]) -> None:
        """An event whose text no message has in full: the last open message is meant, or none was written."""
        if not text:  # nothing but a picture was sent
            shown = next((b for b in reversed(blocks) if b.text is None and b.person is None), None)
            if shown is not None:
                shown.person = shown.matched = True
            return
        for block in reversed(blocks):
            if block.open and (block.person or injected_kind(block.text or "") is None):
                block.person = block.matched = True
                return
        self._messages += 1
        blocks.append(_Block(self._messages, text_block(text), time, None, True, "context", True))


def _match(text: str, blocks: list[_Block]) -> bool:
    for block in blocks:
        if block.open and block.text == text:
            block.person = block.matched = True
            return True
    wanted = text.strip()
    for _, message in groupby((block for block in blocks if block.open), key=lambda block: block.message):
        parts = list(message)
        texts = [part.text or "" for part in parts]
        if wanted in ("".join(texts).strip(), "\n".join(texts).strip()):
            for part in parts:
                part.person = part.matched = True
            return True
    return False


def _wraps_picture(text: str) -> bool:
    """Codex puts `<image name=...>` and `</image>` around the picture of a message: no words of anybody."""
    return text.startswith(("<image", "</image>")) and len(text) < 200


def _kind_of(block: _Block) -> str:
    text = block.text
    kind = injected_kind(text) if text is not None else None
    if kind is not None:
        return kind
    if block.hint is not None:
        area, _, name = block.hint.partition(".")
        return (area if name in ("", "instructions") else name).removeprefix("host_")
    return block.default
