"""The secrets of a run, each with its marker, and the one pattern that finds all of them.

A marker says the kind and a number, `[REDACTED:github-pat:1]`: the same secret has the same marker wherever it stands.
Numbers are given in order of first appearance, never made from the secret: of a short one even a digest could be
guessed. A marker needs no escape in JSON or a URL, so it may stand wherever the secret stood.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .detector import Found
from .spelling import spellings, wide_spellings

__all__ = ["SHORTEST", "Matcher", "Secret", "Secrets"]

SHORTEST = 6  # characters of a stated value that is searched for: a shorter one would stand in every text


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret's kind and number."""

    kind: str
    number: int

    @property
    def marker(self) -> bytes:
        return f"[REDACTED:{self.kind}:{self.number}]".encode()


class Secrets:
    """Collects the secrets of a run. `counts` are how many of each kind other runs have had: numbers go on there."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        self._counts = Counter(counts or {})
        self._by_value: dict[str, Secret] = {}
        self._short: dict[tuple[str, str], Secret] = {}  # by name and value: replaced where both stand, in JSON

    def add(self, found: Found) -> None:
        """Keep a secret that was found; one that is known keeps its marker."""
        known = next((self._by_value[v] for v in (found.value, *found.parts) if v in self._by_value), None)
        if known is None:
            self._counts[found.kind] += 1
            known = Secret(found.kind, self._counts[found.kind])
        for value in (found.value, *found.parts):
            self._by_value.setdefault(value, known)

    def state(self, name: str, value: str) -> None:
        """Keep the value of a variable whose name says that it is secret."""
        kind = "env-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower()).strip("-")
        if len(value) >= SHORTEST:
            self.add(Found(kind, value))
        elif (name, value) not in self._short:
            self._counts[kind] += 1
            self._short[name, value] = Secret(kind, self._counts[kind])

    @property
    def counts(self) -> dict[str, int]:
        """How many secrets of each kind there are."""
        distinct = {*self._by_value.values(), *self._short.values()}
        return dict(sorted(Counter(secret.kind for secret in distinct).items()))

    def matcher(self) -> Matcher | None:
        """The pattern of all secrets; None where there are none."""
        return Matcher(self._by_value, self._short) if self._by_value or self._short else None


class Matcher:
    """Finds every spelling of every secret; of several at one place the longest."""

    def __init__(self, secrets: Mapping[str, Secret], short: Mapping[tuple[str, str], Secret]) -> None:
        self._of: dict[bytes, Secret] = {}
        self._instead: dict[bytes, bytes] = {}  # what is written for a spelling, where that is not the marker alone
        wide: dict[bytes, Secret] = {}
        for (name, value), secret in short.items():
            for between in (":", ": "):
                spelled = f"{json.dumps(name)}{between}{json.dumps(value)}".encode()
                self._of[spelled] = secret
                self._instead[spelled] = json.dumps(name).encode() + between.encode() + b'"' + secret.marker + b'"'
        for value, secret in sorted(secrets.items(), key=lambda pair: (-len(pair[0]), pair[0])):
            for spelled in spellings(value):
                self._of.setdefault(spelled, secret)
            for spelled in wide_spellings(value):
                wide.setdefault(spelled, secret)
        self._wide = {**wide, **self._of}
        self.longest = max(map(len, self._wide))
        self.has_numbers = any(is_number(spelled) for spelled in self._of)
        self.pattern = _compiled(self._of)
        self._wide_pattern = _compiled(self._wide)

    def secret(self, spelled: bytes) -> Secret:
        return self._of[spelled]

    def marker(self, spelled: bytes) -> bytes:
        """What is written instead of a spelling."""
        return self._instead.get(spelled) or self._of[spelled].marker

    def holds(self, text: bytes) -> bool:
        """Whether a text spells a secret."""
        return self.pattern.search(text) is not None

    def hits(self, chunks: Iterable[bytes], *, wide: bool = False) -> Counter[str]:
        """How often each kind is in a content, whatever stands around it; `wide` looks for UTF-16 as well."""
        pattern, of = (self._wide_pattern, self._wide) if wide else (self.pattern, self._of)
        counts: Counter[str] = Counter()
        waiting = b""
        for chunk in chunks:
            waiting += chunk
            end = 0
            for match in pattern.finditer(waiting):
                if match.start() >= len(waiting) - self.longest:
                    break  # it may be longer than what is there
                end = match.end()
                counts[of[match.group()].kind] += 1
            waiting = waiting[max(end, len(waiting) - self.longest) :]
        counts.update(of[match.group()].kind for match in pattern.finditer(waiting))
        return counts


def is_number(spelled: bytes) -> bool:
    """Whether a secret could be a number of JSON, outside any string."""
    return not spelled.strip(b"0123456789+-.eE")


def _compiled(spelled: Iterable[bytes]) -> Any:
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1  # bytes are bytes
    options.longest_match = True
    options.max_mem = 256 << 20
    return re2.compile(b"|".join(re2.escape(text) for text in sorted(spelled)), options)
