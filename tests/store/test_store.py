"""A store of jobs: what is written comes back, one commit makes a job exist, and damage is told by name."""

from __future__ import annotations

import io
import uuid
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.trace import Event, TraceLine

from traceflow.store import EventEncoder, Manifest, Store
from traceflow.store.encoder import RowBatches
from traceflow.store.schema import EVENTS, TABLES, arrow_schema
from traceflow.store.tables import fit_row
from traceflow.store.testing import call, chunk, error, prompt, result, usage, write_job

JOB = "0d5f4a54-1111-4111-8111-111111111111"
SESSION = [
    prompt("Fix the bug", timestamp="2026-03-04T05:06:00Z"),
    chunk("agent", "I look.", messageId="call-1", model="m"),
    call("c1", "Bash", {"command": "ls -la"}, messageId="call-1"),
    usage(10, 5, 2, messageId="call-1"),
    result("c1", "total 0", extra={"exitCode": 0}),
    chunk("agent", "Done.", messageId="call-2", model="m"),
    usage(20, 7, 10, messageId="call-2"),
]


@pytest.fixture(params=["local", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "local" else f"memory://{uuid.uuid4().hex}/store"


@pytest.fixture
def store(url: str) -> Store:
    return Store.open(url, create=True)


def code(caught: pytest.ExceptionInfo[TraceflowError]) -> str:
    return caught.value.code


def many(count: int, word: str = "event") -> list[Event]:
    return [chunk("agent", f"{word} {n}", messageId=f"call-{n}") for n in range(count)]


# -- what comes back -----------------------------------------------------------------------------------------


def test_a_job_comes_back_as_it_was_written(store: Store) -> None:
    files = {"config.json": b"{}", "t1/result.json": b'{"a":1}', "t1/copy.json": b'{"a":1}'}
    trials: list[tuple[dict[str, Any], list[Event]]] = [
        ({"trial_id": "t1", "task_name": "fix", "reward": 1.0, "rewards": {"reward": 1.0}}, SESSION),
        ({"trial_id": "t2", "trial_name": "second"}, []),
    ]
    write_job(store, JOB, trials, files, job={"name": "nightly"})
    again = Store.open(store.url)
    job = again.job(JOB)
    first, second = again.trials(job)
    assert (first["trial_id"], first["task_name"], first["reward"]) == ("t1", "fix", 1.0)
    assert (second["trial_name"], second["n_events"], second["reward"]) == ("second", 0, None)
    assert list(again.trace(first)) == [TraceLine(n, e.type, e.data) for n, e in enumerate(SESSION)]
    assert list(again.trace(second)) == []
    assert [(f.path, f.size) for f in again.files(job)] == [
        ("config.json", 2),
        ("t1/copy.json", 7),
        ("t1/result.json", 7),
    ]
    for path, data in files.items():
        with again.open_file(job, path) as stream:
            assert stream.read() == data
    assert again.read_range(job, "t1/result.json", 1, 3) == b'"a"'


def test_totals_of_a_trial_are_counted_from_its_events(store: Store) -> None:
    write_job(store, JOB, [({"trial_id": "t1"}, SESSION)])
    (row,) = store.trials(store.job(JOB))
    assert (row["n_events"], row["n_steps"], row["n_model_calls"], row["n_tool_calls"]) == (7, 3, 2, 1)
    assert (row["prompt_tokens"], row["completion_tokens"], row["cached_tokens"], row["cost_usd"]) == (30, 12, 12, None)


def test_a_part_of_a_trace_can_be_asked_for(store: Store) -> None:
    trials = [({"trial_id": f"t{n}"}, many(count, f"t{n}")) for n, count in enumerate((700, 3000, 5))]
    job = write_job(store, JOB, trials)
    trial = store.trial("t1", job)
    assert [line.seq for line in store.trace(trial)] == list(range(3000))
    assert {line.data["update"]["content"]["text"][:3] for line in store.trace(trial)} == {"t1 "}
    assert [line.seq for line in store.trace(trial, after=2990)] == list(range(2991, 3000))
    assert [line.seq for line in store.trace(trial, tail=3)] == [2997, 2998, 2999]
    assert [line.seq for line in store.trace(trial, tail=2000)] == list(range(1000, 3000))
    assert [line.seq for line in store.trace(trial, limit=2)] == [0, 1]
    assert [line.seq for line in store.trace(trial, after=1500, limit=600)] == list(range(1501, 2101))
    assert list(store.trace(trial, types=["prompt"])) == []
    found = store.trace(trial, matches=lambda kind, text, tool: text.endswith("77"), tail=2)
    assert [line.seq for line in found] == [2877, 2977]


def test_positions_of_a_foreign_trace_are_kept(store: Store) -> None:
    lines = [TraceLine(seq, "user_message_chunk", {"update": {}}) for seq in (1, 2, 7, 1_000_000_000)]
    with store.writer(JOB) as writer:
        writer.add_events("t", lines)
        writer.add_trial({"trial_id": "t", "trial_name": "t"})
        writer.commit()
    assert list(store.trace(store.trial("t"))) == lines


def test_rows_made_in_another_process_give_the_same_table(store: Store) -> None:
    events = many(2500)
    first = write_job(store, "first", [({"trial_id": "t1"}, events), ({"trial_id": "t2"}, SESSION)])
    with store.writer("second") as writer:
        for trial_id, found in (("t1", events), ("t2", SESSION)):
            encoder = EventEncoder("second", trial_id)
            batches: list[pa.RecordBatch] = []
            rows = RowBatches(batches.append)
            rows.extend(encoder.rows(found))
            rows.flush()
            writer.add_batches([(trial_id, rows.count)], batches)
            writer.add_trial({"trial_id": trial_id, "trial_name": trial_id, **encoder.totals().as_row()})
        second = writer.commit()
    for row, other in zip(store.trials(first), store.trials(second), strict=True):
        assert {**row, "job_id": ""} == {**other, "job_id": ""}
        assert list(store.trace(row)) == list(store.trace(other))


def test_events_lie_in_row_groups_of_1024_with_plain_text_in_one_page(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    job = write_job(store, JOB, [({"trial_id": f"t{n}"}, many(500)) for n in range(5)], {"t0/a": b"a"})
    file = pq.ParquetFile(tmp_path / "s" / job.path("events.parquet"))
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [1024, 1024, 452]
    assert file.schema_arrow.equals(arrow_schema("events"), check_metadata=False)
    at = file.schema_arrow.names.index("text")
    leaf = next(n for n in range(file.metadata.num_columns) if file.schema.column(n).path == "text")
    assert not file.schema_arrow.field(at).nullable
    for number in range(file.num_row_groups):
        column = file.metadata.row_group(number).column(leaf)
        assert not column.has_dictionary_page
        assert column.compression == "ZSTD"
    columns = [file.metadata.row_group(0).column(n) for n in range(file.metadata.num_columns)]
    small = [column for column in columns if column.compression != "ZSTD"]
    assert {column.path_in_schema for column in small} == {column.name for column in EVENTS if not column.packed}
    assert all(column.total_compressed_size < 1000 for column in small)
    for table in ("trials", "files"):
        group = pq.ParquetFile(tmp_path / "s" / job.path(f"{table}.parquet")).metadata.row_group(0)
        assert {group.column(n).compression for n in range(group.num_columns)} == {"ZSTD"}


def test_large_events_end_a_row_group_early(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    events = [chunk("agent", str(n) * 6_000_000) for n in range(8)]
    job = write_job(store, JOB, [({"trial_id": "t"}, events)])
    file = pq.ParquetFile(tmp_path / "s" / job.path("events.parquet"))
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [3, 3, 2]
    assert [line.data for line in store.trace(store.trial("t"))] == [event.data for event in events]


def test_directories_and_links_are_remembered(store: Store) -> None:
    with store.writer(JOB) as writer:
        writer.add_directory("t/empty", trial_id="t")
        writer.add_link("t/link", "../../etc/passwd", trial_id="t")
        writer.add_file("t/run.sh", io.BytesIO(b"#!"), mode=0o755, trial_id="t", derived=True)
        writer.add_file("job.log", io.BytesIO(b""))
        job = writer.commit()
    rows = {f.path: f for f in store.files(job, "t")}
    assert [(f.kind, f.mode, f.target, f.derived) for f in rows.values()] == [
        ("directory", 0o755, None, False),
        ("link", 0o777, "../../etc/passwd", False),
        ("file", 0o755, None, True),
    ]
    for path in ("t/link", "t/empty"):
        with pytest.raises(TraceflowError) as caught:
            store.open_file(job, path)
        assert code(caught) == "invalid_input"
    with pytest.raises(TraceflowError) as caught:
        store.file(job, "t/none")
    assert code(caught) == "not_found"


# -- values --------------------------------------------------------------------------------------------------


def test_values_are_made_to_fit_their_columns() -> None:
    row = fit_row(
        "trials",
        {
            "job_id": "j",
            "trial_id": "t",
            "trial_name": "n\ud800",
            "reward": float("nan"),
            "prompt_tokens": 2**70,
            "started_at": "2026-03-04T05:06:07.5+02:00",
            "finished_at": "not a time",
            "rewards": {"reward": 7, "Reward": 0.1, "bad": float("inf"), "text": "1.0", "none": None},
            "step_results": [{"b": 1, "a": 2}],
            "candidates": ("x@1", "y@2"),
        },
    )
    assert row["trial_name"] == "n\ufffd"
    assert (row["reward"], row["prompt_tokens"], row["finished_at"]) == (None, None, None)
    assert row["started_at"] == 1_772_593_567_500_000
    assert [(r["name"], r["value"], r["text"]) for r in row["rewards"]] == [
        ("reward", 7.0, None),
        ("Reward", 0.1, None),
        ("bad", None, "null"),
        ("text", None, "1.0"),
        ("none", None, "null"),
    ]
    assert row["step_results"] == '[{"a":2,"b":1}]'
    with pytest.raises(KeyError, match="no column tokens"):
        fit_row("trials", {"tokens": 1})
    with pytest.raises(ValueError, match="trial_id must not be null"):
        fit_row("trials", {"job_id": "j"})


# -- jobs by name --------------------------------------------------------------------------------------------


def test_a_job_is_found_by_id_beginning_and_name(store: Store) -> None:
    write_job(store, JOB, [], job={"original_job_name": "nightly"})
    write_job(store, "0d5f4a54-2222", [], job={"original_job_name": "nightly-2"})
    assert store.job_ids() == [JOB, "0d5f4a54-2222"]
    for name in (JOB, JOB[:13], "nightly"):
        assert store.job(name).job_id == JOB
    for name, expected in (("0d5f4a5", "job_not_found"), ("0d5f4a54", "invalid_input"), ("../x", "job_not_found")):
        with pytest.raises(TraceflowError) as caught:
            store.job(name)
        assert code(caught) == expected


def test_a_trial_is_found_by_id_beginning_and_name_over_all_jobs(store: Store) -> None:
    for job_id in ("one", "two"):
        write_job(store, job_id, [({"trial_id": f"{job_id}-trial-1", "trial_name": "fix__abc"}, [])])
    assert store.trial("one-trial-1")["job_id"] == "one"
    assert store.trial("two-tria")["job_id"] == "two"
    assert store.trial("fix__abc", store.job("two"))["job_id"] == "two"
    with pytest.raises(TraceflowError, match="2 trials") as caught:
        store.trial("fix__abc")
    assert code(caught) == "invalid_input"
    with pytest.raises(TraceflowError) as caught:
        store.trial("none-such")
    assert code(caught) == "trial_not_found"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "-x", "a\n", "a" * 129, "ä"])
def test_a_job_id_cannot_lead_out_of_the_store(store: Store, name: str) -> None:
    with pytest.raises(TraceflowError) as caught:
        store.writer(name)
    assert code(caught) == "invalid_job"


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x"])
def test_a_file_path_stays_below_the_job(store: Store, path: str) -> None:
    with store.writer(JOB) as writer, pytest.raises(ValueError, match="path"):
        writer.add_file(path, io.BytesIO(b""))


# -- commit, abort, delete -----------------------------------------------------------------------------------


def test_a_job_does_not_exist_before_its_commit_and_nothing_is_left_of_one_that_fails(store: Store) -> None:
    with store.writer(JOB) as writer:
        writer.add_file("a", io.BytesIO(b"x" * 100_000))
        writer.add_events("t", many(3000))
        assert store.job_ids() == []  # and it is left without a commit
    assert list(store.backend.objects("jobs")) == []
    with store.writer(JOB) as writer:
        writer.add_file("a", io.BytesIO(b"x"))
        writer.abort()
    assert list(store.backend.objects("jobs")) == []
    write_job(store, JOB, [])
    assert store.job_ids() == [JOB]


def test_a_job_that_is_there_is_refused_at_once_and_one_that_came_meanwhile_at_the_commit(store: Store) -> None:
    slow = store.writer(JOB)
    slow.add_file("a", io.BytesIO(b"slow"))
    write_job(store, JOB, [], {"a": b"fast"})
    with pytest.raises(TraceflowError) as caught:
        slow.commit()
    assert code(caught) == "job_already_uploaded"
    assert caught.value.details == {"existing_job_id": JOB}
    with pytest.raises(TraceflowError) as caught:
        store.writer(JOB)
    assert code(caught) == "job_already_uploaded"
    job = store.job(JOB)
    with store.open_file(job, "a") as stream:
        assert stream.read() == b"fast"
    assert store.verify().problems == []
    assert store.gc(minutes=0).removed == []


def test_an_interrupt_right_after_the_commit_does_not_take_the_job_away(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = store.backend.put_if_absent

    def interrupted(*args: Any) -> bool:
        put(*args)
        raise KeyboardInterrupt

    with store.writer(JOB) as writer:
        writer.add_file("a", io.BytesIO(b"x"))
        monkeypatch.setattr(store.backend, "put_if_absent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.commit()
    assert store.job_ids() == [JOB]
    assert store.verify(contents=True).problems == []


def test_a_deleted_job_is_gone_and_can_come_again(store: Store) -> None:
    first = write_job(store, JOB, [({"trial_id": "t"}, SESSION)], {"a": b"x"})
    write_job(store, "other", [], {"a": b"x"})
    store.delete_job(first)
    assert store.job_ids() == ["other"]
    assert list(store.backend.objects(f"jobs/{JOB}")) == []
    with pytest.raises(TraceflowError) as caught:
        list(store.files(first))
    assert code(caught) == "job_not_found"
    second = write_job(store, JOB, [({"trial_id": "t"}, SESSION)])
    assert second.revision != first.revision


def test_an_input_that_cannot_be_read_is_raised_as_it_is_and_the_job_goes_on(store: Store) -> None:
    class Unreadable(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise PermissionError(13, "Permission denied", "secret.txt")

    with store.writer(JOB) as writer:
        with pytest.raises(PermissionError):
            writer.add_file("a", Unreadable())
        writer.add_file("b", io.BytesIO(b"b"))
        job = writer.commit()
    assert [f.path for f in store.files(job)] == ["b"]


def test_events_before_a_failure_of_the_parser_stay_with_their_trial(store: Store) -> None:
    def failing() -> Any:
        yield from SESSION[:3]
        raise TraceflowError("invalid_trajectory", "on purpose")

    with store.writer(JOB) as writer:
        with pytest.raises(TraceflowError, match="on purpose"):
            writer.add_events("t1", failing())
        writer.add_trial({"trial_id": "t1", "trial_name": "t1", "incomplete": True})
        writer.add_events("t2", SESSION)
        writer.add_trial({"trial_id": "t2", "trial_name": "t2"})
        writer.commit()
    assert [line.data for line in store.trace(store.trial("t1"))] == [event.data for event in SESSION[:3]]
    assert [line.data for line in store.trace(store.trial("t2"))] == [event.data for event in SESSION]


def test_further_objects_of_a_job_are_named_by_its_manifest(store: Store) -> None:
    with store.writer(JOB) as writer:
        with writer.create_object("notes.bin") as stream:
            stream.write(b"index")
        job = writer.commit()
    found = job.object("notes.bin")
    assert found is not None
    assert found.size == 5
    assert store.backend.read_bytes(job.path("notes.bin")) == b"index"
    assert store.verify().problems == []


# -- opening -------------------------------------------------------------------------------------------------


def test_a_store_is_made_only_where_nothing_else_is(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as caught:
        Store.open(str(tmp_path / "none"))
    assert code(caught) == "store_not_found"
    assert not (tmp_path / "none").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(TraceflowError) as caught:
        Store.open(str(tmp_path / "full"), create=True)
    assert code(caught) == "invalid_input"
    with pytest.raises(TraceflowError) as caught:
        Store.open(str(tmp_path / "full" / "file"))
    assert code(caught) == "store_not_found"
    assert Store.open(str(tmp_path / "new" / "deep"), create=True).jobs() == []
    assert orjson.loads((tmp_path / "new" / "deep" / "store.json").read_bytes()) == {
        "format": "traceflow-store",
        "version": 1,
    }


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"format": "traceflow-store", "version": 2}', "store_version"),
        (b'{"format": "traceflow-store", "version": "1"}', "store_corrupt"),
        (b'{"format": "something"}', "store_corrupt"),
        (b"", "store_corrupt"),
        (b"[]", "store_corrupt"),
    ],
)
def test_a_store_of_another_kind_or_version_is_refused(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "store.json").write_bytes(content)
    with pytest.raises(TraceflowError) as caught:
        Store.open(str(tmp_path))
    assert code(caught) == expected


# -- damage and care -----------------------------------------------------------------------------------------


def damaged(store: Store, change: Any) -> Manifest:
    job = write_job(store, JOB, [({"trial_id": "t"}, many(2000))], {"a": b"x" * 1000, "b": b"y"})
    change(Path(store.url), job)
    return job


def flip(name: str, at: float) -> Any:
    def change(root: Path, job: Manifest) -> None:
        path = root / job.path(name)
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 0x55
        path.write_bytes(data)

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("pack-0000.bin", flip("pack-0000.bin", 0.5)),
        ("events.parquet", flip("events.parquet", 0.2)),
        ("trials.parquet", lambda root, job: (root / job.path("trials.parquet")).unlink()),
        ("files.parquet", lambda root, job: (root / job.path("files.parquet")).write_bytes(b"PAR1")),
        ("extra", lambda root, job: (root / job.path("extra")).write_bytes(b"x")),
        ("manifest.json", lambda root, job: (root / f"jobs/{JOB}/manifest.json").write_bytes(b"{}")),
    ],
)
def test_verify_finds_every_damaged_object(tmp_path: Path, name: str, change: Any) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    write_job(store, "sound", [({"trial_id": "t"}, SESSION)], {"a": b"x"})
    damaged(store, change)
    problems = store.verify().problems
    assert [(p.job_id, p.name.rsplit("/", 1)[-1]) for p in problems] == [(JOB, name)]


@pytest.mark.parametrize("at", [0.01, 0.1, 0.2, 0.3, 0.4, 0.5])
def test_reading_a_damaged_table_never_gives_other_events(tmp_path: Path, at: float) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    damaged(store, flip("events.parquet", at))
    try:
        texts = [line.data["update"]["content"]["text"] for line in store.trace(store.trial("t"))]
    except TraceflowError as failure:
        told = failure.code
    else:
        told = "the same" if texts == [f"event {n}" for n in range(2000)] else "other events"
    assert told in ("store_corrupt", "the same")
    assert store.verify().problems != []


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("revision", "../../x", "store_corrupt"),
        ("revision", None, "store_corrupt"),
        ("objects", [{"name": "../x", "size": 1, "sha256": ""}], "store_corrupt"),
        ("objects", [], "store_corrupt"),
        ("objects", 7, "store_corrupt"),
        ("job_id", "other", "store_corrupt"),
        ("schema_version", 99, "store_version"),
        ("store_version", 0, "store_corrupt"),
    ],
)
def test_a_manifest_that_was_tampered_with_is_refused(store: Store, field: str, value: Any, expected: str) -> None:
    write_job(store, JOB, [])
    name = f"jobs/{JOB}/manifest.json"
    manifest = orjson.loads(store.backend.read_bytes(name))
    manifest[field] = value
    store.backend.delete(name)
    store.backend.put_if_absent(name, orjson.dumps(manifest))
    with pytest.raises(TraceflowError) as caught:
        store.job(JOB)
    assert code(caught) == expected


def test_gc_removes_what_killed_writers_left_when_it_is_old(store: Store) -> None:
    write_job(store, "whole", [({"trial_id": "t"}, SESSION)])
    for name in (f"jobs/{JOB}/r1/trials.parquet", "jobs/whole/r2/pack-0000.bin", "jobs/whole/r2/.x.partial"):
        assert store.backend.put_if_absent(name, b"12345")
    before = store.info()
    assert store.gc().removed == []
    report = store.gc(minutes=0, dry_run=True)
    assert (sorted(report.removed), report.size) == ([f"jobs/{JOB}/r1", "jobs/whole/r2"], 15)
    assert store.backend.exists("jobs/whole/r2/pack-0000.bin")
    assert sorted(store.gc(minutes=0).removed) == [f"jobs/{JOB}/r1", "jobs/whole/r2"]
    assert store.gc(minutes=0).removed == []
    assert store.info() == before
    assert store.verify(contents=True).problems == []


def test_info_counts(store: Store) -> None:
    write_job(store, "one", [({"trial_id": "t"}, SESSION)], {"a": b"x", "b": b"y"})
    write_job(store, "two", [({"trial_id": "t"}, many(3)), ({"trial_id": "u"}, [error("x")])])
    info = store.info()
    assert (info.version, info.jobs, info.trials, info.events, info.files) == (1, 2, 3, 11, 2)
    assert info.size == sum(o.size for job in store.jobs() for o in job.objects)


def test_every_table_is_named_by_the_schema_in_its_order(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "s"), create=True)
    job = write_job(store, JOB, [({"trial_id": "t"}, SESSION)], {"a": b"x"})
    for table, columns in TABLES.items():
        names = pq.read_schema(tmp_path / "s" / job.path(f"{table}.parquet")).names
        assert names == [column.name for column in columns]
