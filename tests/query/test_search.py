"""Ranked search: the order is that of BM25, trials come once, phrases and exclusions hold, the index is derived."""

from __future__ import annotations

import math
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError

from traceflow.query import index_jobs, search, snippet
from traceflow.store import Store
from traceflow.store.testing import call, chunk, error, prompt, result, usage, write_job

VOCABULARY = [f"word{n}" for n in range(60)] + ["timeout", "redis", "Ошибка", "naïve", "x_1"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[tuple[str, str, int], str]]:
    """Three jobs of random texts, and the texts by job, trial and position."""
    random.seed(3)
    store = Store.open(str(tmp_path_factory.mktemp("search") / "s"), create=True)
    texts: dict[tuple[str, str, int], str] = {}
    for job_id in ("j1", "j2", "j3"):
        trials = []
        for trial_id in ("t1", "t2", "t3", "t4"):
            weights = [1 / (n + 1) for n in range(len(VOCABULARY))]
            some = [" ".join(random.choices(VOCABULARY, weights, k=random.randrange(30))) for _ in range(40)]
            for seq, text in enumerate(some):
                texts[job_id, f"{job_id}-{trial_id}", seq] = text
            row = {"trial_id": f"{job_id}-{trial_id}", "trial_name": trial_id, "agent": "a" if trial_id < "t3" else "b"}
            trials.append((row, [chunk("agent", text) for text in some]))
        write_job(store, job_id, trials)
    return store, texts


def bm25(texts: dict[tuple[str, str, int], str], words: list[str]) -> dict[tuple[str, str, int], float]:
    """The formula, written out over all texts."""
    counts = {key: Counter(w for w in re.findall(r"\w+", text.lower()) if len(w) > 1) for key, text in texts.items()}
    counts = {key: count for key, count in counts.items() if count}
    mean = sum(sum(count.values()) for count in counts.values()) / len(counts)
    scores: dict[tuple[str, str, int], float] = {}
    for word in words:
        having = [key for key, count in counts.items() if word in count]
        idf = math.log(1 + (len(counts) - len(having) + 0.5) / (len(having) + 0.5))
        for key in having:
            tf, length = counts[key][word], sum(counts[key].values())
            scores[key] = scores.get(key, 0) + idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / mean))
    return scores


@pytest.mark.parametrize(
    "words", ["timeout", "redis timeout", "word0 word59 x_1", "ошибка", "NAÏVE word1", "absent word50"]
)
def test_scores_are_those_of_bm25(corpus: tuple[Store, dict[tuple[str, str, int], str]], words: str) -> None:
    store, texts = corpus
    expected = bm25(texts, words.lower().split())
    best: dict[str, float] = {}
    matches = Counter(key[1] for key in expected)
    for (_, trial, _), score in expected.items():
        best[trial] = max(best.get(trial, 0), score)
    found = search(store, words, limit=100)
    assert {f.hit.trial_id: pytest.approx(f.score) for f in found} == best
    assert {f.hit.trial_id: f.matches for f in found} == matches
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)
    for f in found:
        assert expected[f.hit.job_id, f.hit.trial_id, f.hit.seq] == pytest.approx(f.score)
        assert texts[f.hit.job_id, f.hit.trial_id, f.hit.seq] == f.hit.text
    assert [f.hit for f in search(store, words, limit=3)] == [f.hit for f in found[:3]]


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("often", [1, 2, 16])
@pytest.mark.parametrize(
    "words",
    [
        *("word0", "word3", "word0 word1 word2", "word0 timeout", "redis timeout word1", "word0 -word1"),
        *('"word0 word1"', '"word1 word0" word2', 'word0 word2 -"word0 word1"', '"word59 timeout" word0'),
    ],
)
def test_what_is_not_scored_would_not_be_shown(
    corpus: tuple[Store, dict[tuple[str, str, int], str]],
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    often: int,
    limit: int,
) -> None:
    monkeypatch.setattr("traceflow.query.scoring._OFTEN", often)
    store, texts = corpus
    phrases = re.findall(r'(-?)"(.*?)"', words)
    plain = re.sub(r'-".*?"', "", words).replace('"', "").split()
    trials: dict[tuple[str, str], list[tuple[float, int]]] = {}
    for (job, trial, seq), score in bm25(texts, [word for word in plain if word[0] != "-"]).items():
        text = texts[job, trial, seq]
        unwanted = [word[1:] for word in plain if word[0] == "-"]
        if any((f" {phrase} " in f" {text} ") is bool(minus) for minus, phrase in phrases) or set(unwanted) & set(
            text.split()
        ):
            continue
        trials.setdefault((job, trial), []).append((-round(score, 9), seq))
    expected = sorted((*min(events), *key, len(events)) for key, events in trials.items())
    expected.sort(key=lambda found: (found[0], found[2], found[3]))
    rows = [
        (-round(score, 9), h.seq, h.job_id, h.trial_id, matches)
        for score, matches, h in search(store, words, limit=limit)
    ]
    assert rows == expected[:limit]


def test_a_search_can_be_narrowed_down(corpus: tuple[Store, Any]) -> None:
    store, _ = corpus
    assert {f.hit.job_id for f in search(store, "word0", jobs=["j2"])} == {"j2"}
    assert {f.hit.trial_name for f in search(store, "word0", agents=["b"])} == {"t3", "t4"}
    assert {f.hit.trial_id for f in search(store, "word0", trials=["j1-t2"])} == {"j1-t2"}
    assert search(store, "word0", types=["error"]) == search(store, "word0", jobs=[]) == []
    with pytest.raises(TraceflowError) as caught:
        search(store, "word0", trials=["none"])
    assert caught.value.code == "trial_not_found"


def a_session(store: Store) -> None:
    events = [
        prompt("Mend the connection to the cache"),
        chunk("thought", "The connection was refused, says the log"),
        call("c", "Bash", {"command": "redis-cli ping"}),
        result("c", "Error: connection   refused\nretry later"),
        usage(10, 5),
        error("refused: no connection"),
        chunk("agent", "error-401 is not error 402"),
    ]
    write_job(store, "j", [({"trial_id": "t"}, events), ({"trial_id": "u"}, [chunk("agent", "refused. Connection!")])])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("connection refused", {"t": 4, "u": 1}),
        ('"connection refused"', {"t": 1}),
        ('"refused connection"', {"u": 1}),
        ('"refused: no connection"', {"t": 1}),
        ("connection -refused", {"t": 1}),
        ('refused -"no connection"', {"t": 2, "u": 1}),
        ("ping", {"t": 1}),
        ("error-401", {"t": 1}),
        ("error-402", {"t": 1}),
        ("error 401", {"t": 2}),
        ("100%", {}),
        ("connection_", {}),
    ],
)
def test_words_phrases_and_exclusions(tmp_path: Path, words: str, expected: dict[str, int]) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    a_session(store)
    assert {f.hit.trial_id: f.matches for f in search(store, words)} == expected


@pytest.mark.parametrize(
    "words", ["", "  ", "!!", "a", '""', "-word", "w" * 600, " ".join(f"w{n}" for n in range(100))]
)
def test_a_question_without_words_or_with_too_many_is_refused(tmp_path: Path, words: str) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    a_session(store)
    with pytest.raises(TraceflowError) as caught:
        search(store, words)
    assert caught.value.code == "invalid_input"


def test_a_snippet_is_one_line_around_most_of_the_words(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    text = "redis once. " + "filler text " * 100 + "then redis\nhad a timeout here " + "more filler " * 100
    write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", text)])])
    (found,) = search(store, "timeout redis")
    part, spans = snippet(found.hit)
    assert "then redis had a timeout here" in part
    assert [part[a:b] for a, b in spans] == ["redis", "timeout"]
    assert len(part) <= 160


def test_the_index_is_derived(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    a_session(store)
    told: list[str] = []
    expected = search(store, "refused", progress=lambda amount, word: told.append(word))
    assert told == ["j", "j"]
    assert store.verify().problems == []
    folder = tmp_path / "s" / store.job("j").path("search")
    assert sorted(p.name for p in folder.iterdir()) == ["docs.parquet", "words.pages", "words.parquet"]
    assert index_jobs(store, store.jobs()) == 0
    shutil.rmtree(folder)
    assert search(store, "refused") == expected
    assert index_jobs(store, store.jobs()) == 0
    (tmp_path / "s" / store.job("j").path("events.grep")).unlink()  # hits are then read by the engine
    assert search(store, "refused") == expected
    assert search(store, '"connection refused"')[0].hit.seq == 3


def test_a_store_in_memory_can_be_searched() -> None:
    import uuid

    store = Store.open(f"memory://{uuid.uuid4().hex}/store", create=True)
    a_session(store)
    assert [f.hit.trial_id for f in search(store, "ping")] == ["t"]


def test_a_job_without_words_is_no_failure(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    write_job(store, "j", [({"trial_id": "t"}, [usage(1, 2)])])
    write_job(store, "k", [])
    assert search(store, "word") == []


def test_any_parquet_engine_reads_the_words(corpus: tuple[Store, dict[tuple[str, str, int], str]]) -> None:
    import duckdb

    store, texts = corpus
    search(store, "word0")
    folder = f"{store.url}/{store.job('j2').path('search')}"
    some = [text for (job_id, _, _), text in texts.items() if job_id == "j2"]
    expected = [
        (term, event, count)
        for event, text in enumerate(some)
        for term, count in Counter(re.findall(r"\w+", text.lower())).items()
    ]
    with duckdb.connect() as connection:
        words = connection.execute(f"SELECT term, event, tf FROM '{folder}/words.parquet'").fetchall()
        docs = connection.execute(f"SELECT event, length, trial_id, type FROM '{folder}/docs.parquet'").fetchall()
    assert words == sorted(expected, key=lambda row: (row[0].encode(), row[1]))
    assert [row[1] for row in docs] == [len(text.split()) for text in some]
    assert docs[39:41] == [(39, docs[39][1], "j2-t1", "agent_message_chunk"), (40, docs[40][1], "j2-t2", docs[40][3])]


def test_terms_over_several_row_groups_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceflow.query.postings import open_words

    for name in ("_WORDS_ROWS", "_DOCS_ROWS"):
        monkeypatch.setattr(f"traceflow.query.words.{name}", 16)
    store = Store.open(str(tmp_path / "s"), create=True)
    random.seed(8)
    texts = [" ".join(random.choices(["aa", "aaa", "ab", "zz", f"w{n % 9}", "0"], k=4)) for n in range(100)]
    job = write_job(store, "j", [({"trial_id": "t"}, [chunk("agent", text) for text in texts])])
    assert index_jobs(store, [job]) == 1
    words = open_words(store.backend, job)
    assert words is not None
    for term in ["aa", "aaa", "ab", "zz", "w0", "w8", "a", "b", "zzz", ""]:
        events, counts = words.postings(term)
        having = {n: text.split().count(term) for n, text in enumerate(texts) if term in text.split()}
        assert dict(zip(events, counts, strict=True)) == having
        assert list(events) == sorted(having)
    assert list(words.lengths()) == [sum(len(word) > 1 for word in text.split()) for text in texts]
    assert words.types([0, 15, 16, 99]) == ["agent_message_chunk"] * 4


def test_a_column_of_several_pages_is_read_in_part(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from traceflow.store.pages import read_int32

    numbers = [(n * 2_654_435_761) % (1 << 31) - (1 << 30) for n in range(5000)]
    schema = pa.schema([pa.field("a", pa.int32(), False)])
    for encoding in ("PLAIN", "BYTE_STREAM_SPLIT"):
        how: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"a": encoding}, "compression": "zstd"}
        table = pa.table({"a": pa.array(numbers, pa.int32())}, schema=schema)
        pq.write_table(table, tmp_path / "x", data_page_size=1000, write_batch_size=100, **how)
        column = pq.read_metadata(tmp_path / "x").row_group(0).column(0)
        start = column.data_page_offset
        chunk = (tmp_path / "x").read_bytes()[start : start + column.total_compressed_size]
        for first, count in ((0, 5000), (0, 1), (999, 2), (250, 1500), (4999, 1), (5000, 0)):
            assert list(read_int32(chunk, 5000, first, count)) == numbers[first : first + count]


@pytest.mark.parametrize("name", ["words.pages", "words.parquet", "docs.parquet"])
def test_a_damaged_index_is_told_or_made_anew(tmp_path: Path, name: str) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    a_session(store)
    expected = search(store, "refused connection")
    path = tmp_path / "s" / store.job("j").path(f"search/{name}")
    data = path.read_bytes()
    path.write_bytes(data[:30])
    if name == "words.pages":
        assert search(store, "refused connection") == expected
        return
    with pytest.raises(TraceflowError) as caught:
        search(store, "refused connection")
    assert caught.value.code == "store_corrupt"
    path.unlink()
    with pytest.raises(TraceflowError, match="damaged"):
        search(store, "refused connection")


def test_a_search_needs_no_engine_once_jobs_are_indexed(tmp_path: Path) -> None:
    import subprocess
    import sys

    store = Store.open(str(tmp_path / "s"), create=True)
    a_session(store)
    index_jobs(store, store.jobs())
    program = (
        "import sys; from traceflow.cli import run; code = run(['search', sys.argv[2], '--store', sys.argv[1]]);"
        "print(code, sorted({'duckdb', 'pyarrow', 'typer', 'numpy', 'pydantic', 'orjson'} & sys.modules.keys()))"
    )
    for words in ("ping", '"connection refused" -ping'):
        argv = [sys.executable, "-c", program, store.url, words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "0 []"
