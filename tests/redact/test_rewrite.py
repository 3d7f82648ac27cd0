"""Rewriting: no secret is left in what JSON means, JSON stays JSON, and the pieces it comes in do not matter."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from traceflow.redact.detector import Detector, Found
from traceflow.redact.names import is_secret_name, stated
from traceflow.redact.rewrite import rewritten
from traceflow.redact.secrets import Matcher, Secrets

ODD = 'k"e\\y/é\n<1>&end'
PIN = "48151623"
PLAIN = "nightly-9f8e7d6c"
LONGER = PLAIN + "-and-more"


def matcher_of(*values: str) -> Matcher:
    secrets = Secrets()
    for value in values:
        secrets.add(Found("thing", value))
    matcher = secrets.matcher()
    assert matcher is not None
    return matcher


ALL = matcher_of(ODD, PIN, PLAIN, LONGER)
MARKERS = {
    ODD: "[REDACTED:thing:1]",
    PIN: "[REDACTED:thing:2]",
    PLAIN: "[REDACTED:thing:3]",
    LONGER: "[REDACTED:thing:4]",
}


def redact(data: bytes, matcher: Matcher = ALL, *, is_json: bool = False, size: int = 1 << 20) -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(rewritten(pieces, matcher, Counter(), is_json=is_json))


def expected(value: Any) -> Any:
    """What a value means with markers in it."""
    if isinstance(value, str):
        for secret in (LONGER, ODD, PIN, PLAIN):
            value = value.replace(secret, MARKERS[secret])
        return value
    if isinstance(value, list):
        return [expected(item) for item in value]
    if isinstance(value, dict):
        return {expected(key): expected(item) for key, item in value.items()}
    return MARKERS[PIN] if type(value) is int and value == int(PIN) else value


words = st.sampled_from(["", "a", "\\", '"', "\n", "é", "/", " 1", "{", "[x]: ", ODD, PLAIN, LONGER, f" {PIN} "])
texts = st.lists(words, max_size=5).map("".join)
values = st.recursive(
    st.one_of(texts, st.just(int(PIN)), st.integers(0, 9), st.none(), st.floats(0, 1)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(values, st.sampled_from([None, 1]), st.booleans(), st.integers(1, 40))
def test_json_means_the_same_with_markers(value: Any, indent: int | None, ascii_only: bool, size: int) -> None:
    data = json.dumps({"v": value}, indent=indent, ensure_ascii=ascii_only).encode()
    found = json.loads(redact(data, is_json=True, size=size))
    assert found == expected({"v": value})


@settings(max_examples=200, deadline=None)
@given(texts, st.integers(1, 3))
def test_json_in_json_is_redacted_in_its_depth(text: str, depth: int) -> None:
    data = text
    for _ in range(depth):
        data = json.dumps({"inner": data})
    found = redact(data.encode(), is_json=True).decode()
    for _ in range(depth):
        found = json.loads(found)["inner"]
    assert found == expected(text)


@pytest.mark.parametrize("seed", range(20))
def test_the_pieces_do_not_matter(seed: int) -> None:
    dice = random.Random(seed)
    parts = [ODD, PIN, PLAIN, LONGER, "x" * 300_000, "\n", '{"a": ', '"', "9", "\\", "abc"]
    data = "".join(dice.choice(parts) for _ in range(12)).encode()
    whole = redact(data)
    for size in (1, 7, 4096, 1 << 16) if len(data) < 5000 else (4096, 1 << 16, 300_007):
        assert redact(data, size=size) == whole


def test_the_tail_of_an_escape_is_no_secret_in_json_and_one_elsewhere() -> None:
    line = b'{"text": "x\\nightly-9f8e7d6c"}'  # a line feed, and a word that begins differently
    assert redact(line) == line
    path = b"C:\\nightly-9f8e7d6c"
    assert redact(path) == b"C:\\[REDACTED:thing:3]"


def test_a_number_is_one_whole() -> None:
    line = f'{{"a":{PIN},"b":1{PIN},"c":{PIN}.5,"d":"1{PIN}"}}'.encode()
    found = json.loads(redact(line, is_json=True))
    assert found == {"a": MARKERS[PIN], "b": int(f"1{PIN}"), "c": float(f"{PIN}.5"), "d": f"1{MARKERS[PIN]}"}


def test_of_two_secrets_at_one_place_the_longer_is_meant() -> None:
    assert redact(f"{LONGER} {PLAIN}".encode()) == b"[REDACTED:thing:4] [REDACTED:thing:3]"


@pytest.mark.parametrize("distance", [-70_000, -40, -20, -1, 0, 1, 20])
def test_a_secret_on_the_border_of_two_windows_is_found(distance: int) -> None:
    dice = random.Random(5)
    token = "ghp_" + "".join(dice.choice("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(36))
    window = 4 << 20
    before = (b"some words of a log\n" * (window // 20 + 10))[: window + distance - 8] + b"\ntoken: "
    data = before + token.encode() + b" \n" + b"more words\n" * 20_000
    pieces = [data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)]
    assert {found.value for found in Detector().find(pieces)} == {token}


def test_a_run_goes_on_counting_where_an_earlier_one_ended() -> None:
    secrets = Secrets({"thing": 2})
    secrets.add(Found("thing", "abcdefgh"))
    matcher = secrets.matcher()
    assert matcher is not None
    assert redact(b"abcdefgh", matcher) == b"[REDACTED:thing:3]"
    assert secrets.counts == {"thing": 1}


def test_names_that_say_secret_are_harbors_and_their_like() -> None:
    secret = ["API_KEY", "token", "GITHUB_PAT", "db_password", "AWS_SECRET", "X_AUTH", "GOOGLE_CREDENTIALS"]
    plain = ["MAX_TOKENS", "TOKENIZER", "GIT_AUTHOR_NAME", "PATH", "HOME", "LANG"]
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in plain if is_secret_name(name)] == []


def test_records_state_secrets_in_env_and_kwargs_at_any_depth() -> None:
    record = {
        "key": "not in a map of variables",
        "agent": {"env": {"A_KEY": " v1 ", "N": "v"}, "kwargs": {"api_key": "v2", "n": 3}},
        "trials": [
            {"verifier": {"env": {"B_TOKEN": 12345678, "C_KEY": "ab****yz", "D_KEY": "${D_KEY}", "E_KEY": True}}}
        ],
    }
    assert list(stated(record)) == [("A_KEY", "v1"), ("api_key", "v2"), ("B_TOKEN", "12345678")]
