"""Rewards: which numbers a verifier gave, and which one is the primary.

A reward is a finite number under a name. Integers stay integers, names keep their case. What stands in the place
of a number follows one table:

    "0.5"                 0.5, noted (reward_coerced); Harbor 0.26 reads it so
    true, false           1.0, 0.0, noted (reward_coerced); Harbor 0.26 reads them so
    null, list, object    no reward, noted (bad_reward)
    NaN, Infinity, 1e309  no reward, noted (bad_reward)
    "[REDACTED]"          no reward, noted (redacted_value)
    other strings         no reward, noted (bad_reward)

The primary reward is the one named `reward`, else the only one. A bad `reward` beside another name leaves no
primary: the number that is left is not what the verifier called its reward.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import TraceflowError
from .document import REDACTED, Notes, decimal, read_json

__all__ = [
    "MAX_REWARD_FILE",
    "NO_REWARDS",
    "RewardFile",
    "Rewards",
    "parse_reward_files",
    "read_reward_folder",
    "rewards_of",
]

MAX_REWARD_FILE = 1 << 20  # bytes: a reward file holds a few numbers
_PRIMARY = "reward"


class Rewards(NamedTuple):
    """The valid rewards of one verification, in the order they stood, and how many names were stated in all."""

    values: Mapping[str, int | float]
    stated: int = 0

    def __bool__(self) -> bool:
        return bool(self.values)

    @property
    def primary_key(self) -> str | None:
        """The name of the primary reward: `reward`, else the only name; None where neither is a number."""
        if _PRIMARY in self.values:
            return _PRIMARY
        return next(iter(self.values), None) if self.stated == 1 else None

    @property
    def primary(self) -> int | float | None:
        key = self.primary_key
        return None if key is None else self.values[key]


NO_REWARDS = Rewards({})


class RewardFile(NamedTuple):
    """What the reward files of a verifier folder came to. Without rewards, `problem` says why.

    `problem` is `reward_missing`, `reward_empty`, `bad_reward` or `too_large`, and `message` names the file.
    """

    rewards: Rewards
    source: str | None = None  # the file that counted
    problem: str | None = None
    message: str = ""


def rewards_of(value: object, notes: Notes, where: str = "rewards") -> Rewards:
    """The rewards of a record's `rewards` value: an object of numbers; anything else has none, and is noted."""
    if value is None:
        return NO_REWARDS
    if not isinstance(value, dict):
        notes.warn("bad_reward", f"{where} is not an object of numbers: {_shown(value)}")
        return NO_REWARDS
    values: dict[str, int | float] = {}
    for name, item in value.items():
        number = _reward(item, notes, f"{where}.{name[:80]}")
        if number is not None:
            values[name] = number
    return Rewards(values, len(value))


def _reward(value: object, notes: Notes, where: str) -> int | float | None:
    if isinstance(value, bool):
        notes.warn("reward_coerced", f"{where} is {str(value).lower()}, taken as {float(value)}")
        return float(value)
    if isinstance(value, str):
        if value == REDACTED:
            notes.warn("redacted_value", f"{where} was replaced by a scrubber")
            return None
        read = decimal(value)
        if read is not None and math.isfinite(read):
            notes.warn("reward_coerced", f"{where} is the string {value[:40]!r}, taken as {read}")
            return read
    elif isinstance(value, int | float):
        try:
            if math.isfinite(value):
                return value
        except OverflowError:  # an integer beyond every float
            pass
    notes.warn("bad_reward", f"{where} is no finite number: {_shown(value)}")
    return None


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    return str(value)[:40] if value is not None else "null"


def parse_reward_files(json: bytes | None, text: bytes | None) -> RewardFile:
    """The reward that a verifier wrote: of reward.json if it exists, else of reward.txt (None: no such file).

    A bad reward.json is no reason to look at reward.txt. reward.json holds an object of numbers or one number,
    which is named `reward`; reward.txt holds one number in decimal digits and gives a float.
    """
    if json is not None:
        return _from_json(json)
    if text is not None:
        return _from_text(text)
    return RewardFile(NO_REWARDS, None, "reward_missing", "neither reward.json nor reward.txt")


def _from_json(data: bytes) -> RewardFile:
    name = "reward.json"
    if len(data) > MAX_REWARD_FILE:
        return _too_large(name)
    if not data.strip():
        return RewardFile(NO_REWARDS, name, "reward_empty", f"{name} is empty")
    notes = Notes(name)
    try:
        value: Any = read_json(data, notes, "invalid_input")
    except TraceflowError as error:
        return RewardFile(NO_REWARDS, name, "bad_reward", error.message)
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = {_PRIMARY: value}
    # Harbor rejects the whole file for one value that is no number, so nothing is coerced here.
    items = value.values() if isinstance(value, dict) else ["no object"]
    if any(isinstance(item, bool | str) for item in items):
        return RewardFile(NO_REWARDS, name, "bad_reward", f"{name} holds something other than numbers")
    rewards = rewards_of(value, notes, name)
    if len(rewards.values) < rewards.stated or not rewards:
        said = notes.kept[-1].message if notes.kept else f"{name} holds no reward"
        return RewardFile(NO_REWARDS, name, "bad_reward", said)
    return RewardFile(rewards, name)


def _from_text(data: bytes) -> RewardFile:
    name = "reward.txt"
    if len(data) > MAX_REWARD_FILE:
        return _too_large(name)
    text = data.decode("utf-8", "replace")
    if not text.strip():
        return RewardFile(NO_REWARDS, name, "reward_empty", f"{name} is empty")
    value = decimal(text)
    if value is None or not math.isfinite(value):
        return RewardFile(NO_REWARDS, name, "bad_reward", f"{name} holds no finite number: {text.strip()[:40]!r}")
    return RewardFile(Rewards({_PRIMARY: value}, 1), name)


def _too_large(name: str) -> RewardFile:
    return RewardFile(NO_REWARDS, name, "too_large", f"{name} is larger than {MAX_REWARD_FILE} bytes")


def read_reward_folder(folder: Path) -> RewardFile:
    """The reward of a verifier folder on disk. A file over the bound is never read whole."""
    found: dict[str, bytes | None] = {}
    for name in ("reward.json", "reward.txt"):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            found[name] = None
            continue
        with path.open("rb") as stream:
            found[name] = stream.read(MAX_REWARD_FILE + 1)
    return parse_reward_files(found["reward.json"], found["reward.txt"])
