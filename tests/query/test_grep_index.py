"""The index and a scan give the same answer: whatever the pattern, the text, the order, and the state of the index."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import re2
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError

from traceflow.query import grep, grep_counts
from traceflow.query.blocks import BlockSearch, in_order
from traceflow.query.literals import CASELESS, AllOf, Condition, OneOf, literals_of, looks_around, required
from traceflow.query.pattern import Pattern
from traceflow.store import Manifest, Store
from traceflow.store.grams import buckets, fold
from traceflow.store.grep_build import block_grams, build_index
from traceflow.store.grep_index import open_index
from traceflow.store.testing import call, chunk, error, result, write_job

EXAMPLES = int(os.environ.get("TRACEFLOW_GREP_EXAMPLES", "300"))  # 10,000 in the slow version


def condition(pattern: str, **how: bool) -> Condition | None:
    return required(Pattern.parse(pattern, **how).expression)


# -- literals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("Xenolith_Quark", b"xenolith_quark"),
        ("error|fail(ed|ure)", OneOf((b"error", b"failed", b"failure"))),
        ("Foo.*bar baz", b"bar baz"),
        ("long one.*Other", AllOf((b"long one", b"other"))),
        ("a+b{3}cdef", b"abbbcdef"),
        ("(?:ab|cd){2}e", OneOf((b"ababe", b"abcde", b"cdabe", b"cdcde"))),
        ("[Tt]hread[AB]", OneOf((b"threada", b"threadb"))),
        (r"^\bfoo\.py\b$", b"foo.py"),
        ("x?yabcd", OneOf((b"xyabcd", b"yabcd"))),
        ("x*yabcd", b"yabcd"),
        (r"\Qa.b*c\E+d", b"a.b*c"),
        (r"\x41\x{42}cd\t", b"abcd\t"),
        ("ab{,3}cd", b"ab{,3}cd"),  # no repetition: RE2 takes it as it stands
        ("(?P<name>word)s", b"words"),
        ("(?i)[k]elvin", b"kelvin"),
        ("\u212aelvin", b"kelvin"),
        ("日本", "日本".encode()),
        ("foo(?-i:Bär)", "foobär".encode()),
        ("foBär", None),  # letters that have another case, beside less than four bytes
        ("Straße", b"stra"),
        ("abc", None),
        ("abcd?", None),
        ("abcd|x", None),
        ("(abcd)*", None),
        ("(abcd){0,2}", None),
        ("(a+)+$", None),
        (r"\d{3}-\d{4}", None),
        (r"\pLabcd\p{Greek}efgh", AllOf((b"abcd", b"efgh"))),
        ("[[:alpha:]]abcd[^]x]", b"abcd"),
        ("[]abcd]efgh", OneOf((b"]efgh", b"aefgh", b"befgh", b"cefgh", b"defgh"))),
        (r"\101bcde", None),  # octal: not read, so nothing is claimed
    ],
)
def test_a_pattern_says_what_a_text_must_hold(pattern: str, expected: Condition | None) -> None:
    found = condition(pattern)
    if isinstance(expected, OneOf):
        assert isinstance(found, OneOf)
        assert sorted(map(str, found.parts)) == sorted(map(str, expected.parts))
    else:
        assert found == expected


def test_plain_text_is_one_literal() -> None:
    assert condition("a.b*(c[d", fixed=True) == b"a.b*(c[d"
    assert condition("a\x00bcd", fixed=True) == b"a\x00bcd"


def test_case_is_only_ignored_where_it_is_folded_as_re2_folds() -> None:
    """Of every character that is kept with case ignored: whatever RE2 takes for it folds to the same."""
    everything = "".join(chr(n) for n in range(1, 0x30000) if not 0xD800 <= n <= 0xDFFF)
    ranges = "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in CASELESS)
    kept = re2.compile(f"[{ranges}]").findall(everything)
    assert len(kept) > 50_000
    assert re2.compile(f"(?i)[{ranges}]").findall(everything) == kept  # nothing else matches one of them
    assert all(c.lower() == c.upper() == c.casefold() == c or "\uf900" <= c <= "\ufaff" for c in kept)
    low = everything[:0x3000]
    for character in re2.compile(f"[{ranges}]").findall(low):
        assert re2.compile(f"(?i){re2.escape(character)}").findall(low) == [character]
    for letter in "abcdefghijklmnopqrstuvwxyz":
        for same in re2.compile(f"(?i){letter}").findall(everything):
            assert fold(same.encode()) == letter.encode()
    assert condition("abcd→é日") == "abcd→".encode()


# -- the index ---------------------------------------------------------------------------------------------------


def test_a_block_has_every_gram_of_its_rows() -> None:
    texts = [
        "",
        "abc",
        "The quick Brown fox",
        "K\u212a \u017fS ß",
        "日本語のテキスト",
        "x" * 5000,
        "\x00\x01\x02\x03\x04",
    ]
    array = pa.chunked_array([pa.array(texts[:3]), pa.array(["left out", *texts[3:]]).slice(1)])
    bits = int.from_bytes(block_grams(array.chunks), "little")
    for text in texts:
        assert all(bits >> bucket & 1 for bucket in buckets(fold(text.encode())))
    assert not all(bits >> bucket & 1 for bucket in buckets(b"left out"))


def test_a_large_block_is_hashed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = pa.chunked_array([pa.array([f"line {n} of many, {n * 7919}" for n in range(2000)])])
    whole = block_grams(text.chunks)
    monkeypatch.setattr("traceflow.store.grep_build._PART", 1000)
    assert block_grams(text.chunks) == whole


def spread(store: Store, job_id: str, needles: Iterable[int], events: int = 5000) -> Manifest:
    """A job of two trials and many events, some of which hold `Needle_1234`."""
    wanted = frozenset(needles)
    made = [chunk("agent", f"Event {n} " + ("has Needle_1234" if n in wanted else "is hay")) for n in range(events)]
    half = events // 2
    trials = [({"trial_id": f"{job_id}-1", "trial_name": "one", "agent": "a"}, made[:half])]
    trials += [({"trial_id": f"{job_id}-2", "trial_name": "two", "agent": "b"}, made[half:])]
    return write_job(store, job_id, trials)


def places(hits: Iterable[Any]) -> list[tuple[Any, ...]]:
    return [(h.job_id, h.trial_id, h.trial_name, h.seq, h.type, h.tool_name, h.agent_id, h.text) for h in hits]


def test_only_blocks_that_can_match_are_read(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    job = spread(store, "j", [3000])
    index = open_index(store.backend, job)
    assert index is not None
    assert index.blocks == 5
    assert index.having(b"needle_1234") == {2}
    assert index.having(b"event ") == {0, 1, 2, 3, 4}
    assert index.having(b"absent_word") == set()
    assert [t.name for t in index.trials] == ["one", "two"]
    assert sum(1 for _ in grep(store, "needle_1234")) == 1


def test_jobs_of_many_blocks_have_several_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traceflow.store.grep_build.SEGMENT_BLOCKS", 2)
    store = Store.open(str(tmp_path / "s"), create=True)
    job = spread(store, "j", [0, 1023, 1024, 4999], 5000)
    index = open_index(store.backend, job)
    assert index is not None
    assert index.having(b"needle_1234") >= {0, 1, 4}
    assert [h.seq for h in grep(store, "needle_1234")] == [0, 1023, 1024, 2499]


@pytest.mark.parametrize("worth", [1, 1000], ids=["threads", "one by one"])
def test_many_blocks_are_read_at_once_and_a_damaged_one_ends_only_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr("traceflow.query.blocks._WORTH", worth)
    monkeypatch.setattr("traceflow.query.blocks._AHEAD", 4)
    monkeypatch.setattr("traceflow.query.matching._threads", lambda store, limit: 3)
    store = Store.open(str(tmp_path / "s"), create=True)
    for job_id in "abcd":
        spread(store, job_id, range(0, 5000, 500))
    expected = places(grep(store, "needle_1234"))
    assert [place[:2] for place in expected] == [(j, f"{j}-{t}") for j in "abcd" for t in (1, 2) for _ in range(5)]
    assert places(grep(store, "needle_1234", limit=13)) == expected[:13]
    counts = grep_counts(store, "needle_1234")
    assert [row.matches for row in counts] == [5] * 8
    index = open_index(store.backend, store.job("b"))
    assert index is not None
    events = Path(store.url, store.job("b").path("events.parquet"))
    data = bytearray(events.read_bytes())
    at, length = index.page("seq", 2)  # of the hits, so that some of the job were given before
    data[at : at + length] = bytes(length)
    events.write_bytes(data)
    with pytest.raises(TraceflowError) as caught:  # the scan that takes over cannot read it either
        list(grep(store, "needle_1234"))
    assert caught.value.code in ("store_corrupt", "io_error", "invalid_input")
    assert grep_counts(store, "needle_1234") == counts  # counts do not need it


def test_work_is_done_in_order_and_threads_end_with_it() -> None:
    import time
    from _thread import _count as running
    from itertools import count, islice

    before = running()
    for threads in (1, 4):
        for items in (range(0), range(3), range(500)):
            assert list(in_order(lambda n: n * n, items, threads)) == [(n, n * n) for n in items]
    endless = in_order(lambda n: -n, count(), 4)
    assert list(islice(endless, 100)) == [(n, -n) for n in range(100)]
    endless.close()
    deadline = time.monotonic() + 10
    while running() > before and time.monotonic() < deadline:  # the last step of a thread is not seen
        time.sleep(0.01)
    assert running() == before


@pytest.fixture(scope="module")
def three_jobs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store.open(str(tmp_path_factory.mktemp("three") / "s"), create=True)
    spread(store, "j", [5, 1500, 1501, 4999])
    spread(store, "j-k", [0, 2500])
    spread(store, "l", [], 1500)
    return store


ASKED: list[dict[str, Any]] = [
    {},
    {"limit": 1},
    {"limit": 3},
    {"tail": 1},
    {"tail": 4},
    {"tail": 4, "limit": 2},
    {"trials": ["two"]},
    {"agents": ["a"]},
    {"jobs": ["j-k", "l"], "models": [None]},
    {"types": ["agent_message_chunk"]},
    {"types": ["error"]},
    {"case_sensitive": True},
]


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize(
    "pattern",
    [
        *("needle_1234", "Needle_12.4", "event 49|needle_1234", "needle", "absent_"),
        *("hay$", r"_\d[^x]*", "99|x*y"),  # without literals
    ],
)
def test_index_and_scan_give_the_same_hits(three_jobs: Store, pattern: str, asked: dict[str, Any]) -> None:
    store = three_jobs
    assert places(grep(store, pattern, **asked)) == places(grep(store, pattern, **asked, use_index=False))
    if not asked.keys() & {"limit", "tail"}:
        assert grep_counts(store, pattern, **asked) == grep_counts(store, pattern, **asked, use_index=False)


def damage(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "cut":
        data = data[: len(data) // 2]
    elif how == "empty":
        data = bytearray()
    elif how == "footer":
        data[-60] ^= 0xFF
    elif how == "frames":
        data[8 : len(data) // 2] = os.urandom(len(data) // 2 - 8)
    elif how == "tail":
        data[-12] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["cut", "empty", "footer", "frames", "tail", "missing"])
def test_a_damaged_index_is_a_scan(tmp_path: Path, how: str) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    jobs = [spread(store, "j", [5, 4999]), spread(store, "k", [0])]
    expected = places(grep(store, "needle_1234"))
    path = tmp_path / "s" / jobs[0].path("events.grep")
    if how == "missing":
        path.unlink()
    else:
        damage(path, how)
    assert places(grep(store, "needle_1234")) == expected
    assert [row.matches for row in grep_counts(store, "needle_1234")] == [1, 1, 1]
    assert places(grep(store, "needle_1234", tail=2)) == expected[-2:]


def test_an_index_that_was_made_later_answers_the_same(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    job = spread(store, "j", [5, 4999])
    written = store.backend.read_bytes(job.path("events.grep"))
    name = build_index(store.backend, job)
    assert name == job.path("search/events.grep")
    assert store.backend.read_bytes(name) == written
    assert store.verify().problems == []


def test_a_hit_of_the_index_is_whole(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    when = "2026-03-04T05:06:07.5Z"
    events = [
        call("c1", "Bash", {"command": "echo Needle_1234"}, timestamp=when, extra={"agentId": "sub"}),
        result("c1", "Needle_1234\n", timestamp=when, extra={"agentId": "sub"}),
        error("no Needle_1234"),
        chunk("agent", "\u212aeep the Needle_1234: é", timestamp=when),
    ]
    write_job(store, "j", [({"trial_id": "none"}, []), ({"trial_id": "t"}, events)])
    found, scanned = (list(grep(store, "needle_1234", use_index=use)) for use in (True, False))
    assert found == scanned
    assert [(h.type, h.tool_name, h.agent_id, h.timestamp) for h in found[:1]] == [
        ("tool_call", "Bash", "sub", 1_772_600_767_500_000)
    ]


# each costs a search that is done in a twentieth of a second a hundredth of its time or more
SLOW_TO_IMPORT = {
    *("duckdb", "pyarrow", "typer", "numpy", "pydantic", "orjson"),
    *("concurrent.futures", "contextlib", "dataclasses", "datetime", "inspect", "pathlib", "platform", "shutil"),
    *("signal", "subprocess", "typing", "uuid", "zstandard"),
}


def test_the_index_answers_without_an_engine(tmp_path: Path) -> None:
    import subprocess

    store = Store.open(str(tmp_path / "s"), create=True)
    spread(store, "j", [3000])
    program = (
        "import sys; from traceflow.cli import run; code = run(['grep', 'needle_1234', '--store', sys.argv[1]]);"
        f"print(code, sorted({SLOW_TO_IMPORT!r} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program, store.url], capture_output=True, text=True, check=True)
    assert done.stdout == "two:500:agent_message_chunk: Event 3000 has Needle_1234\n0 []\n"


def as_version_1(path: Path, texts: list[list[str]]) -> None:
    """Write the index of one segment as the first version did: grams hashed once, the trials in the footer."""
    data = path.read_bytes()
    unpack, pack = zstandard.ZstdDecompressor().decompress, zstandard.ZstdCompressor().compress
    offset, length = (int.from_bytes(data[at : at + 8], "little") for at in (-24, -16))
    line, _, numbers = unpack(data[offset : offset + length]).partition(b"\n")
    head = json.loads(line)
    start, size = head["trials"]
    blocks = [{b for text in block for b in buckets(fold(text.encode()), False)} for block in texts]
    assert len(blocks) == head["blocks"] <= 8
    frames = [
        pack(bytes(sum((n in block) << at for at, block in enumerate(blocks)) for n in range(first, first + 1024)))
        for first in range(0, 1 << 18, 1024)
    ]
    head |= {"version": 1, "trials": json.loads(unpack(data[start : start + size])), "segments": [[8, len(blocks)]]}
    lengths = b"".join(len(frame).to_bytes(8, "little") for frame in frames)
    footer = pack(json.dumps(head).encode() + b"\n" + lengths + numbers[len(lengths) :])
    body = data[:8] + b"".join(frames)
    path.write_bytes(body + footer + len(body).to_bytes(8, "little") + len(footer).to_bytes(8, "little") + data[-8:])


def test_the_first_version_of_the_index_is_read(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    texts = [f"event {n} has Needle_{n % 1500}" for n in range(2500)]
    write_job(store, "a", [({"trial_id": "t"}, [chunk("agent", text) for text in texts])])
    job = store.job("a")
    place = Path(store.url, job.path("search/events.grep"))
    build_index(store.backend, job)
    as_version_1(place, [texts[at : at + 1024] for at in (0, 1024, 2048)])
    stored = job.object("events.grep")
    assert stored is not None
    job.objects = tuple(each for each in job.objects if each is not stored)  # as a job that was written without
    index = open_index(store.backend, job)
    assert index is not None
    assert index.having(b"needle_777") == {0, 2}
    assert [trial.rows for trial in index.trials] == [2500]
    found = BlockSearch(store.backend, job, index, Pattern.parse("needle_777"), b"needle_777")
    assert [found.number(row) for rows in found.rows() for row in rows] == [777, 2277]
    assert {trial.name for trial in index.trials} == {"t"}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (r"\d{3}-\d{4}", False),
        ("a[^b]c", False),
        (r"\$\^[a-z]+", False),
        (r"(?im:x*)", False),
        ("^a", True),
        ("a|b$", True),
        (r"a\b", True),
        (r"\Aa", True),
        (r"a\z", True),
        (r"a\Bb", True),
        (r"\Q^\E", True),
        ("[a^]", True),
        ("\\", True),
    ],
)
def test_what_looks_around_is_known(expression: str, expected: bool) -> None:
    assert looks_around(expression) is expected


# -- any pattern -------------------------------------------------------------------------------------------------

WORDS = ["error", "Error", "ERROR", "kelvin", "\u212aelvin", "mi\u017fs", "miss", "MISS", "straße", "STRASSE", "日本語"]
WORDS += [
    "Ошибка",
    "ошибка",
    "foo.py",
    "x_1234",
    "  ",
    "\n",
    "é",
    "É",
    "a",
    "b",
    "ab",
    "-",
    "0123",
    "→→",
    "\x00",
    "(",
    "[",
]
TEXT = st.lists(st.sampled_from(WORDS), max_size=8).map("".join)
ATOM = st.one_of(
    st.sampled_from([w for w in WORDS if w not in ("(", "[", "\x00")]).map(lambda w: w.replace(".", "\\.")),
    st.sampled_from(WORDS).map(lambda w: f"\\Q{w}\\E"),
    st.sampled_from(
        [".", "\\d", "\\w+", "\\s", "[a-e]", "[^x]", "[kKsS]", "[é日]", "\\b", "^", "$", "\\x65rror", "\\pL"]
    ),
    st.sampled_from(["(?i)", "(?-i)", "(?s)", "(?i:erROR)", "(?-i:Error)", "[[:digit:]]{4}", "\\x{212a}", "\\pL"]),
)
PATTERN = st.recursive(
    ATOM,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0}", "{2,}", "*?", "+?", "??"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


def holds(asked: Condition, text: bytes) -> bool:
    if isinstance(asked, bytes):
        return asked in text
    return (all if isinstance(asked, AllOf) else any)(holds(part, text) for part in asked.parts)


def has_condition(pattern: str) -> bool:
    """Whether the index is asked for it."""
    return not refused(pattern) and condition(pattern) is not None


def refused(pattern: str) -> bool:
    try:
        Pattern.parse(pattern)
    except TraceflowError:
        return True
    return False


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(PATTERN, st.lists(TEXT, min_size=1, max_size=20), st.booleans())
def test_what_matches_fulfils_the_condition(pattern: str, texts: list[str], case_sensitive: bool) -> None:
    if refused(pattern):
        return
    parsed = Pattern.parse(pattern, case_sensitive=case_sensitive)
    asked = required(parsed.expression)
    if asked is None:
        return
    assert all(len(literal) >= 4 for literal in literals_of(asked))
    for text in [*texts, "".join(texts), pattern]:
        if parsed.compile().search(text):
            assert holds(asked, fold(text.encode())), (pattern, text)


Text = tuple[str, str, int, bytes]  # job, trial, position, text


class Corpus:
    """A store, and its texts in their order. Hypothesis shows it when an example fails, so it has a short name."""

    def __init__(self, store: Store, texts: list[Text]) -> None:
        self.store = store
        self.texts = texts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Two jobs of small blocks, of texts that are alike and differ in case and script."""
    import random

    random.seed(5)
    store = Store.open(str(tmp_path_factory.mktemp("corpus") / "s"), create=True)
    all_texts: list[Text] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("traceflow.store.tables.GROUP_ROWS", 50)
        for job_id, count in (("j", 500), ("k", 140)):
            texts = ["".join(random.choices(WORDS, k=random.randrange(7))) for _ in range(count)]
            half = count // 3
            trials = [(f"{job_id}1", texts[:half]), (f"{job_id}2", texts[half:])]
            job = write_job(store, job_id, [({"trial_id": t}, [chunk("agent", x) for x in some]) for t, some in trials])
            all_texts += [(job_id, t, seq, text.encode()) for t, some in trials for seq, text in enumerate(some)]
            index = open_index(store.backend, job)
            assert index is not None
            assert index.blocks == -(-count // 50)
    return Corpus(store, all_texts)


def in_texts(texts: list[Text], pattern: str, case_sensitive: bool, **asked: Any) -> list[Text]:
    """The answer of RE2 itself to each text."""
    options = re2.Options()
    options.case_sensitive = case_sensitive
    search = re2.compile(f"(?m:{pattern})", options).search
    found = [text for text in texts if search(text[3]) and text[1] in asked.get("trials", ("j1", "j2", "k1", "k2"))]
    return found[: asked["limit"]] if "limit" in asked else found[-asked.get("tail", 0) :]


ASKED_OF_ANY: list[dict[str, Any]] = [{}, {}, {"limit": 7}, {"tail": 7}, {"trials": ["j2"]}]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(PATTERN.filter(has_condition), st.booleans(), st.sampled_from(ASKED_OF_ANY))
def test_the_index_answers_any_pattern_as_re2_does(
    corpus: Corpus, pattern: str, case_sensitive: bool, asked: dict[str, Any]
) -> None:
    expected = in_texts(corpus.texts, pattern, case_sensitive, **asked)
    hits = grep(corpus.store, pattern, case_sensitive=case_sensitive, **asked)
    assert [(h.job_id, h.trial_id, h.seq, h.text.encode()) for h in hits] == expected


@settings(max_examples=EXAMPLES // 10, deadline=None, suppress_health_check=list(HealthCheck))
@given(PATTERN.filter(lambda pattern: not refused(pattern)), st.booleans(), st.sampled_from(ASKED_OF_ANY))
def test_index_and_scan_agree_on_any_pattern(
    corpus: Corpus, pattern: str, case_sensitive: bool, asked: dict[str, Any]
) -> None:
    """Those too that the index does not answer: the scan is then compared with RE2."""
    how = {**asked, "case_sensitive": case_sensitive}
    scanned = places(grep(corpus.store, pattern, **how, use_index=False))
    assert [(*place[:2], place[3], place[7].encode()) for place in scanned] == in_texts(corpus.texts, pattern, **how)
    assert places(grep(corpus.store, pattern, **how)) == scanned
