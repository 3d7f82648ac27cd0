"""What a text must hold so that a pattern can match it: literals, read off the pattern's syntax.

`required(expression)` reads RE2's syntax and gives a condition that every matching text fulfils. It may ask for
less than the pattern does, never for more: whatever it does not know in all detail counts as anything at all, and
a pattern without a condition is None. Literals are folded as the index folds (see `store.grams`), so that a
condition is asked of folded text, whatever the case of pattern and text.
"""

from __future__ import annotations

from itertools import product

from traceflow.lean_typing import TYPE_CHECKING, NamedTuple
from traceflow.store.grams import GRAM, fold

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["ANY_TEXT", "CASELESS", "AllOf", "Condition", "OneOf", "literals_of", "looks_around", "required"]

_MAX_STRINGS = 24  # that one run of the pattern may stand for
_MAX_LENGTH = 512
_MAX_REPEAT = 16
_MAX_DEPTH = 100

# Letters outside ASCII are only taken when case is ignored where they have no other case. These are scripts and
# signs without case; tests compare them with what RE2 really folds.
CASELESS = (
    (0x2010, 0x2027),  # punctuation
    (0x2030, 0x205E),
    (0x20A0, 0x20BF),  # currency
    (0x2190, 0x23FF),  # arrows, mathematics, technical
    (0x2500, 0x2BFF),  # boxes, shapes, dingbats
    (0x3000, 0x9FFF),  # CJK, kana, bopomofo
    (0xAC00, 0xD7A3),  # Hangul
    (0xF900, 0xFAFF),
    (0x1F300, 0x1FAFF),  # pictographs
    (0x20000, 0x2FA1F),
)


class AllOf(NamedTuple):
    """Every one of these conditions holds."""

    parts: tuple[Condition, ...]


class OneOf(NamedTuple):
    """At least one of them holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = bytes | AllOf | OneOf  # bytes: the folded text holds them; 4 or more


ANY_TEXT = AllOf(())  # every text fulfils it


def looks_around(expression: str) -> bool:
    """Whether an RE2 expression may ask what stands before or after a match: an end of a line or text, or of a word.

    What does not is found in a longer text wherever it is found in a part of it. When in doubt the answer is yes.
    """
    at = 0
    while at < len(expression):
        character = expression[at]
        if character == "\\":
            if expression[at + 1 : at + 2] in ("A", "z", "b", "B", "Q", ""):
                return True
            at += 1
        elif character == "$" or (character == "^" and expression[at - 1 : at] != "["):
            return True
        at += 1
    return False


class _Unsure(Exception):
    """Syntax that this reader does not know: the pattern has no condition."""


class _Part(NamedTuple):
    """What is known of a part of a pattern: all strings that it matches, where those are few, and its condition."""

    exact: frozenset[str] | None
    condition: Condition | None = None


_EMPTY = _Part(frozenset({""}))
_ANYTHING = _Part(None)


def required(expression: str) -> Condition | None:
    """The condition that every text fulfils in which this RE2 expression matches; None where none can be told."""
    reader = _Reader(expression)
    try:
        part = reader.alternatives(0)
        if reader.at != len(expression):
            return None
        return _whole(part)
    except (_Unsure, RecursionError):
        return None


def literals_of(condition: Condition) -> list[bytes]:
    """All literals of a condition."""
    if isinstance(condition, bytes):
        return [condition]
    return [literal for part in condition.parts for literal in literals_of(part)]


def _whole(part: _Part) -> Condition | None:
    return _one_of_strings(part.exact) if part.exact is not None else part.condition


def _one_of_strings(strings: frozenset[str]) -> Condition | None:
    literals = sorted({fold(text.encode()) for text in strings})
    if not literals or len(literals[0]) == 0 or any(len(literal) < GRAM for literal in literals):
        return None
    return literals[0] if len(literals) == 1 else OneOf(tuple(literals))


def _all_of(conditions: list[Condition | None]) -> Condition | None:
    known = list(dict.fromkeys(c for c in conditions if c is not None))
    if not known:
        return None
    return known[0] if len(known) == 1 else AllOf(tuple(known))


def _sequence(parts: list[_Part]) -> _Part:
    """Parts one after the other. Neighbours that stand for few strings are one run."""
    conditions: list[Condition | None] = []
    run: frozenset[str] = frozenset({""})
    whole = True
    for part in parts:
        joined = _joined(run, part.exact) if part.exact is not None else None
        if joined is not None:
            run = joined
            continue
        whole = False
        conditions.append(_one_of_strings(run))
        run = part.exact if part.exact is not None else frozenset({""})
        conditions.append(part.condition)
    if whole:
        return _Part(run)
    conditions.append(_one_of_strings(run))
    return _Part(None, _all_of(conditions))


def _joined(first: frozenset[str], second: frozenset[str]) -> frozenset[str] | None:
    if len(first) * len(second) > _MAX_STRINGS:
        return None
    found = frozenset(a + b for a, b in product(first, second))
    return found if all(len(text) <= _MAX_LENGTH for text in found) else None


def _either(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    exact: frozenset[str] = frozenset()
    if all(part.exact is not None for part in parts):
        exact = exact.union(*(part.exact for part in parts if part.exact is not None))
        if len(exact) <= _MAX_STRINGS:
            return _Part(exact)
    conditions = [_whole(part) for part in parts]
    known = tuple(dict.fromkeys(c for c in conditions if c is not None))
    if len(conditions) != sum(c is not None for c in conditions):
        return _ANYTHING
    return _Part(None, known[0] if len(known) == 1 else OneOf(known))


class _Reader:
    """Reads RE2's syntax from left to right. The expression is known to be one that RE2 takes."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.any_case = False

    def alternatives(self, depth: int) -> _Part:
        """What stands up to a closing parenthesis or the end. Flags that are set inside end with it."""
        if depth > _MAX_DEPTH:
            raise _Unsure
        before = self.any_case
        branches: list[_Part] = []
        parts: list[list[_Part]] = [[]]
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.text[self.at] == "|":
                self.at += 1
                branches.append(_sequence(_flat(parts)))
                parts = [[]]
                continue
            parts.append(self._item(depth))
        branches.append(_sequence(_flat(parts)))
        self.any_case = before
        return _either(branches)

    def _item(self, depth: int) -> list[_Part]:
        """One atom with its repetitions, as parts that follow each other."""
        character = self.text[self.at]
        if self.text.startswith("\\Q", self.at):
            return self._quoted()
        if character == "(":
            atom = self._group(depth)
            if atom is None:  # flags for what follows
                return []
        elif character == "[":
            atom = self._class()
        elif character == "\\":
            atom = self._escape()
        elif character == ".":
            self.at += 1
            atom = _ANYTHING
        elif character in "^$":
            self.at += 1
            atom = _EMPTY
        elif character in "*+?":
            raise _Unsure
        else:
            self.at += 1
            atom = self._character(character)
        return self._repeated(atom)

    def _quoted(self) -> list[_Part]:
        end = self.text.find("\\E", self.at + 2)
        inside = self.text[self.at + 2 : end] if end >= 0 else self.text[self.at + 2 :]
        if not inside:
            raise _Unsure  # what a repetition after it would mean is not ours to say
        self.at = end + 2 if end >= 0 else len(self.text)
        parts = [self._character(c) for c in inside]
        return [*parts[:-1], *self._repeated(parts[-1])]

    def _repeated(self, atom: _Part) -> list[_Part]:
        """The atom as often as it must stand there at least, then what may follow."""
        parts = [atom]
        while (bounds := self._repetition()) is not None:
            least, most = bounds
            atom = parts[0] if len(parts) == 1 else _Part(None, _whole(_sequence(parts)))
            parts = _times(atom, least, most)
        return parts

    def _repetition(self) -> tuple[int, int | None] | None:
        """A repetition that stands here: least and most, None for no end."""
        rest = self.text[self.at : self.at + 1]
        if rest and rest in "*+?":
            self.at += 1
            bounds: tuple[int, int | None] = {"*": (0, None), "+": (1, None), "?": (0, 1)}[rest]
        elif rest == "{":
            end = self.text.find("}", self.at)
            inside = self.text[self.at + 1 : end] if end > 0 else ""
            low, comma, high = inside.partition(",")
            numbers = all(n.isascii() and n.isdigit() for n in ((low, high) if high else (low,)))
            if not inside or not numbers:
                return None  # an ordinary brace
            bounds = (int(low), int(high) if high else (None if comma else int(low)))
            self.at = end + 1
        else:
            return None
        if self.text.startswith("?", self.at):
            self.at += 1  # as few as possible: the same texts
        return bounds

    def _group(self, depth: int) -> _Part | None:
        """A group; None for one that only sets flags, which then hold to the end of the group around it."""
        self.at += 1
        inner = self.any_case
        if self.text.startswith("?", self.at):
            self.at += 1
            if self.text.startswith(("P<", "<"), self.at):
                self.at = self.text.index(">", self.at) + 1
            else:
                inner, closed = self._flags()
                if closed:
                    self.any_case = inner
                    return None
        outer, self.any_case = self.any_case, inner
        part = self.alternatives(depth + 1)
        self.any_case = outer
        if not self.text.startswith(")", self.at):
            raise _Unsure
        self.at += 1
        return part

    def _flags(self) -> tuple[bool, bool]:
        """Flags after `(?`: whether case is ignored, and whether the group ends with them."""
        any_case, on = self.any_case, True
        while self.at < len(self.text):
            character = self.text[self.at]
            self.at += 1
            if character == "-":
                on = False
            elif character == "i":
                any_case = on
            elif character in ":)":
                return any_case, character == ")"
            elif character not in "msU":
                break
        raise _Unsure

    def _escape(self) -> _Part:
        self.at += 1
        character = self.text[self.at : self.at + 1]
        self.at += 1
        if character in _CONTROLS:
            return self._character(_CONTROLS[character])
        if character in "AzbB" and character:
            return _EMPTY
        if character in "dDsSwWC" and character:
            return _ANYTHING
        if character in "pP" and character:
            if self.text.startswith("{", self.at):
                self.at = self.text.index("}", self.at) + 1
            else:
                self.at += 1
            return _ANYTHING
        if character == "x":
            return self._character(self._hexadecimal())
        if character and character.isascii() and not character.isalnum():
            return self._character(character)
        raise _Unsure

    def _hexadecimal(self) -> str:
        """The character of `\\x41` or `\\x{1F600}`."""
        if self.text.startswith("{", self.at):
            end = self.text.index("}", self.at)
            digits, self.at = self.text[self.at + 1 : end], end + 1
        else:
            digits, self.at = self.text[self.at : self.at + 2], self.at + 2
        try:
            number = int(digits, 16)
            if 0xD800 <= number <= 0xDFFF:
                raise _Unsure
            return chr(number)
        except (ValueError, OverflowError):
            raise _Unsure from None

    def _class(self) -> _Part:
        """A class of characters. Small ones of plain characters are known, others are anything."""
        self.at += 1
        known = True
        if self.text.startswith("^", self.at):
            self.at += 1
            known = False
        found: list[str] = []
        first = True
        while True:
            character = self.text[self.at : self.at + 1]
            if not character:
                raise _Unsure
            if character == "]" and not first:
                self.at += 1
                break
            first = False
            low = self._class_character(character)
            if low is None:
                known = False
                continue
            high = low
            if self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at):
                self.at += 1
                end = self._class_character(self.text[self.at : self.at + 1])
                if end is None:
                    raise _Unsure
                high = end
            if ord(high) - ord(low) >= _MAX_STRINGS:
                known = False
            else:
                found += [chr(n) for n in range(ord(low), ord(high) + 1) if not 0xD800 <= n <= 0xDFFF]
        if not known or len(set(found)) > _MAX_STRINGS:
            return _ANYTHING
        return _either([self._character(c) for c in dict.fromkeys(found)]) if found else _ANYTHING

    def _class_character(self, character: str) -> str | None:
        """The next character of a class; None for a class in the class."""
        if character == "[" and self.text.startswith("[:", self.at):
            end = self.text.find(":]", self.at)
            if end >= 0:
                self.at = end + 2
                return None
        if character != "\\":
            if not character:
                raise _Unsure
            self.at += 1
            return character
        self.at += 1
        escaped = self.text[self.at : self.at + 1]
        self.at += 1
        if escaped in _CONTROLS:
            return _CONTROLS[escaped]
        if escaped and escaped in "dDsSwW":
            return None
        if escaped and escaped in "pP":
            self.at = self.text.index("}", self.at) + 1 if self.text.startswith("{", self.at) else self.at + 1
            return None
        if escaped == "x":
            return self._hexadecimal()
        if escaped and escaped.isascii() and not escaped.isalnum():
            return escaped
        raise _Unsure

    def _character(self, character: str) -> _Part:
        """A character, in any case where that is asked for."""
        if character.isascii() or not self.any_case or character in "\u212a\u017f" or _caseless(character):
            return _Part(frozenset({_small(character)}))
        return _ANYTHING


_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _small(character: str) -> str:
    return fold(character.encode()).decode()


def _caseless(character: str) -> bool:
    number = ord(character)
    return any(low <= number <= high for low, high in CASELESS)


def _flat(parts: list[list[_Part]]) -> list[_Part]:
    return [part for some in parts for part in some]


def _times(atom: _Part, least: int, most: int | None) -> list[_Part]:
    """An atom that stands `least` times or more."""
    if least == 0:
        if most == 1 and atom.exact is not None and len(atom.exact) < _MAX_STRINGS:
            return [_Part(atom.exact | {""})]
        return [_EMPTY] if most == 0 else [_ANYTHING]
    if atom.exact is None:
        return [atom]
    some = [atom] * min(least, _MAX_REPEAT)
    if most == least and least <= _MAX_REPEAT:
        return some
    return [*some, _ANYTHING, atom]  # the last of them stands beside what follows
