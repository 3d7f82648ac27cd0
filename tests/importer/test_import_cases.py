"""The faults of other people's tools, as jobs: the right code, nothing outside the store, nothing half visible."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job_builder import (
    CASES,
    JOB_ID,
    assert_clean,
    claude_rows,
    contents,
    export_sha,
    new_store,
    write_job_folder,
    write_trial_folder,
)
from traceflow_formats.errors import TraceflowError

from traceflow.importer import add_dataset, import_job
from traceflow.limits import Limits
from traceflow.query import connect
from traceflow.store import Store

MIB = int(os.environ.get("TRACEFLOW_TEST_MIB", "32"))  # of the large inputs


def case(number: int) -> Path:
    (found,) = CASES.glob(f"{number}-*")
    return found


def as_job(tmp_path: Path, folder: Path) -> Path:
    """A case's job that lacks what every job has, with it."""
    job = shutil.copytree(folder, tmp_path / folder.name)
    for name in ("config.json", "result.json"):
        if not (job / name).exists():
            (job / name).write_text(json.dumps({"id": JOB_ID} if name == "result.json" else {}))
    return job


def test_59_of_a_crashed_job_what_is_whole_lands(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    with pytest.raises(TraceflowError) as caught:
        import_job(store, case(59) / "j")
    assert caught.value.code == "invalid_trial"
    assert "t3__ccccccc/result.json" in caught.value.message
    assert "byte" in caught.value.message
    assert store.job_ids() == []
    report = import_job(store, case(59) / "j", skip_invalid=True)
    assert (report.trials, report.scored) == (1, 1)
    assert {s["trial"]: s["code"] for s in report.skipped} == {
        "t2__bbbbbbb": "trial_incomplete",
        "t3__ccccccc": "invalid_trial",
        "t4__ddddddd": "invalid_trial",
        "t5__eeeeeee": "invalid_trial",
    }
    manifest = store.job(report.job_id)
    assert manifest.job["n_total_trials"] == 6
    assert store.file(manifest, "notes/readme.txt").trial_id is None
    assert_clean(store)


@pytest.mark.parametrize("name", ["empty-job", "no-job-files"])
def test_59_a_folder_without_the_jobs_records_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as caught:
        import_job(new_store(tmp_path), case(59) / name)
    assert caught.value.code == "not_a_job_dir"


def test_60_an_exception_does_not_take_a_reward_away(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    report = import_job(store, case(60) / "j")
    rows = store.trials(store.job(report.job_id))
    assert (report.trials, report.scored) == (5, 3)
    assert [row["reward"] for row in rows if row["status"] == "SCORED"] == [1.0, 0.0, 1.0]
    assert sum(row["exception_type"] is not None for row in rows) == 3
    assert sum(row["reported_prompt_tokens"] or 0 for row in rows) == 400
    assert report.reported_totals["n_trials_reporting"] == 4


def test_62_rewards_of_every_shape(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    report = import_job(store, case(62) / "j", skip_invalid=True)
    rows = {row["trial_name"].partition("__")[0]: row for row in store.trials(store.job(report.job_id))}
    primary = {name: row["reward"] for name, row in rows.items() if row["reward"] is not None}
    expected = {"t0": -0.5, "t1": 0.5, "t2": 1.0, "t7": 0.7, "t8": 0.9, "t9": 7.0, "t93": 1.0}
    assert {name: value for name, value in primary.items() if name != "t92"} == expected
    assert {r["name"]: r["value"] for r in rows["t6"]["rewards"]} == {"a": 0.2, "b": 0.4}
    assert len(rows["t8"]["rewards"]) == 61
    assert {r["name"] for r in rows["t9"]["rewards"]} == {"reward", "Reward"}
    with connect(store) as connection:
        (mean,) = connection.execute("SELECT avg(reward) FROM trials WHERE trial_name NOT LIKE 't92%'").fetchone() or (
            0,
        )
    assert math.isclose(mean, sum(expected.values()) / 7)


def test_63_reward_files_are_files_and_a_large_one_is_bounded(tmp_path: Path) -> None:
    """The record states the reward; what the verifier wrote is kept byte for byte."""
    job = write_job_folder(tmp_path / "run", 0)
    for folder in sorted(path for path in case(63).iterdir() if path.is_dir()):
        files = {f"verifier/{p.name}": p.read_bytes() for p in (folder / "verifier").iterdir()}
        write_trial_folder(job, f"{folder.name}__0000000", files, verifier_result={"rewards": {"reward": 0.25}})
    write_trial_folder(job, "h__0000000", {"verifier/reward.txt": b"1" * 200_000})
    store = new_store(tmp_path)
    report = import_job(store, job, limits=Limits(file_bytes=100_000))
    assert {s["trial"]: s["code"] for s in report.skipped} == {"h__0000000": "trial_too_large"}
    assert report.scored == report.trials == 7


def test_65_a_session_id_that_is_not_unique_mixes_nothing_up(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 0)
    for name in ("a", "b", "copy-of-a"):
        data = (case(65) / name / "trajectory.json").read_bytes()
        write_trial_folder(job, f"{name}__0000000", {"agent/trajectory.json": data})
    bad = (case(65) / "bad-subagents.json").read_bytes()
    write_trial_folder(job, "bad__0000000", {"agent/trajectory.json": bad})
    store = new_store(tmp_path)
    import_job(store, job)
    events = {row["trial_name"]: [(e.seq, e.data) for e in store.trace(row)] for row in store.trials(store.job(JOB_ID))}
    assert events["a__0000000"] == events["copy-of-a__0000000"] != events["b__0000000"]
    digests = [f.sha256 for f in store.files(store.job(JOB_ID)) if f.path.endswith("trajectory.json")]
    assert len(digests) == 4
    assert len(set(digests)) == 3


def test_66_copied_context_is_not_counted(tmp_path: Path) -> None:
    job = write_job_folder(tmp_path / "run", 0)
    files = {f"agent/{p.name}": p.read_bytes() for p in case(66).glob("trajectory*.json")}
    write_trial_folder(job, "a__0000000", files)
    store = new_store(tmp_path)
    import_job(store, job)
    row = store.trial("a__0000000")
    alone = json.loads((case(66) / "trajectory.json").read_bytes())
    own = [s["metrics"] for s in alone["steps"] if s.get("metrics") and not s.get("is_copied_context")]
    assert row["prompt_tokens"] == sum(m["prompt_tokens"] for m in own)
    assert row["completion_tokens"] == sum(m["completion_tokens"] for m in own)


def test_69_names_that_collide_on_other_file_systems_are_all_kept(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    reports = [import_job(store, as_job(tmp_path, case(69) / name)) for name in ("j", "j2")]
    assert [report.trials for report in reports] == [3, 1]
    names = [row["trial_name"] for row in store.trials(store.job(reports[0].job_id))]
    assert sorted(names)[:2] == [
        "a-very-long-task-name-that-goes-__RVK8oHQ",
        "a-very-long-task-name-that-goes-__rvK8oHQ",
    ]
    assert len({row["trial_id"] for r in reports for row in store.trials(store.job(r.job_id))}) == 4


HARMLESS = "setuid.tar.gz"  # its mode bits are dropped
HOSTILE = sorted(path.name for path in case(71).glob("*.tar.gz") if path.name != HARMLESS)


@pytest.mark.parametrize("name", HOSTILE)
def test_71_a_hostile_archive_is_refused_whole(name: str, tmp_path: Path) -> None:
    store = new_store(tmp_path / "in")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(TraceflowError) as caught:
        import_job(store, case(71) / name)
    assert caught.value.code == "invalid_archive"
    assert set(tmp_path.rglob("*")) == before
    assert store.job_ids() == []


def test_71_modes_that_a_file_must_not_have_are_dropped_and_said(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    report = import_job(store, case(71) / HARMLESS)
    assert "mode_dropped" in [warning["code"] for warning in report.warnings]
    assert {file.mode for file in store.files(store.job(report.job_id))} <= {0o644, 0o755}


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("bomb-2GiB.tar.gz", {"upload_too_large"}),
        ("lying-size.tar.gz", {"upload_too_large", "invalid_archive"}),
        ("negative-size.tar.gz", {"invalid_archive"}),
        ("many-members.tar.gz", {"upload_too_large"}),
        ("concatenated-gzip.tar.gz", {"not_a_job_dir"}),
    ],
)
def test_72_bombs_are_refused_in_bounded_memory(name: str, codes: set[str], bombs: Path, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom traceflow.importer import import_job\n"
        "from traceflow.limits import Limits\nfrom traceflow.store import Store\n"
        "from traceflow_formats.errors import TraceflowError\n"
        f"bounds = Limits(unpacked_bytes={MIB << 19}, file_bytes={MIB << 17}, members={20 * MIB})\n"
        "try:\n    import_job(Store.open(sys.argv[2], create=True), Path(sys.argv[1]), limits=bounds)\n"
        "except TraceflowError as error:\n    print(error.code)\n"
        "status = Path('/proc/self/status').read_text()  # ru_maxrss begins with the peak of the parent\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) // 1024)\n"
    )
    (tmp_path / "spool").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, str(bombs / name), str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "spool")},
    )
    code, memory = done.stdout.split()
    assert code in codes
    assert int(memory) < 300
    assert list((tmp_path / "spool").iterdir()) == []
    assert [o.name for o in Store.open(str(tmp_path / "store")).backend.objects("")] == ["store.json"]


@pytest.fixture(scope="session")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The case's archives; without TRACEFLOW_TEST_MIB=2048 the bomb and the number of members are smaller ones."""
    folder = tmp_path_factory.mktemp("bombs")
    script = (case(72) / "make_input.py").read_text().replace("bomb(2048)", f"bomb({MIB})")
    subprocess.run([sys.executable, "-c", script.replace("300000", str(30 * MIB))], cwd=folder, check=True)
    return folder


# -- 83: again and again -------------------------------------------------------------------------------------------


def with_session(tmp_path: Path, data: bytes) -> Path:
    job = tmp_path / "run"
    shutil.rmtree(job, ignore_errors=True)
    write_job_folder(job, 0)
    write_trial_folder(job, "a__0000000", {"agent/sessions/projects/-app/s.jsonl": data})
    return job


def words(store: Store) -> str:
    return " ".join(
        str(event.data.get("update", event.data.get("_prompt"))) for event in store.trace(store.trial("a__0000000"))
    )


# content digest of each variant, as the case states it; the trial was locked to that of `clean`
DIGESTS_74 = {
    "clean": "b8d8a818ef088f429a9a6bbbfc5499f0c2cfd2ff1e4d18e70127cd71408f2970",
    "junk": "b8d8a818ef088f429a9a6bbbfc5499f0c2cfd2ff1e4d18e70127cd71408f2970",
    "crlf": "a875d19a5b0fac390d7251d0865464ddbac21433fd32cfd4257575ab27075000",
    "gitignore": "0ff83fa1529eb2fbbab23eb64093a760fcedca71fc6b90591448ccfbdbc80f36",
}


@pytest.mark.parametrize("variant", DIGESTS_74)
def test_74_a_trial_links_to_the_task_with_the_content_that_it_was_locked_to(variant: str, tmp_path: Path) -> None:
    task = shutil.copytree(case(74) / variant, tmp_path / "tasks" / "demo")
    if variant in ("junk", "gitignore"):  # git keeps no caches
        (task / "tests" / "__pycache__").mkdir()
        (task / "tests" / "__pycache__" / "x.pyc").write_bytes(b"\0")
    (task / "tests" / "test.sh").chmod(0o755)  # modes and times are no content
    os.utime(task / "instruction.md", (1, 1))
    store = new_store(tmp_path)
    add_dataset(store, tmp_path / "tasks", "demo", "1")
    (kept,) = store.tasks(store.dataset("demo@1"))
    assert kept["digest"] == f"sha256:{DIGESTS_74[variant]}"
    job = write_job_folder(tmp_path / "run", 0)
    lock = {"lock.json": (case(74) / "lock.json").read_bytes()}
    write_trial_folder(job, "demo__0000001", lock, task_checksum="another digest, which is compared with nothing")
    same = variant in ("clean", "junk")
    for flags, linked_by, reason in (
        ((), "task_hash", "no_hash_match"),
        (("demo@1",), "dataset_flag", "hash_mismatch"),
    ):
        report = import_job(store, job, datasets=flags, replace=True)
        (row,) = store.trials(store.job(report.job_id))
        found = (row["linked_by"], row["dataset"], row["link_reason"], row["task_digest"])
        expected = (linked_by, "demo@1", None) if same else ("none", None, reason)
        assert found == (*expected, f"sha256:{DIGESTS_74['clean']}")


def test_83_a_file_that_changed_without_its_size_and_time_is_read_anew(tmp_path: Path) -> None:
    store = new_store(tmp_path)
    before, after = (case(83) / name for name in ("before.jsonl", "after-same-size.jsonl"))
    job = with_session(tmp_path, before.read_bytes())
    import_job(store, job)
    session = job / "a__0000000" / "agent" / "sessions" / "projects" / "-app" / "s.jsonl"
    times = session.stat()
    session.write_bytes(after.read_bytes())
    os.utime(session, ns=(times.st_atime_ns, times.st_mtime_ns))
    import_job(store, job, replace=True)
    assert "omega" in words(store)


def test_83_a_file_that_grew_gives_each_line_once(tmp_path: Path) -> None:
    whole = (case(83) / "appended.jsonl").read_bytes()
    store = new_store(tmp_path)
    import_job(store, with_session(tmp_path, whole[:300]))
    import_job(store, with_session(tmp_path, whole), replace=True)
    spoken = [
        e
        for e in store.trace(store.trial("a__0000000"))
        if e.type in ("prompt", "user_message_chunk", "agent_message_chunk")
    ]
    fresh = new_store(tmp_path / "fresh")
    import_job(fresh, with_session(tmp_path, whole))
    assert len(spoken) == 2
    assert contents(fresh, JOB_ID)["events"] == contents(store, JOB_ID)["events"]
    assert export_sha(fresh, JOB_ID, tmp_path) == export_sha(store, JOB_ID, tmp_path)


def test_a_hundred_megabyte_session_is_imported_in_bounded_memory(tmp_path: Path) -> None:
    rows: Any = claude_rows("s", 200).splitlines(keepends=True)
    job = write_job_folder(tmp_path / "run", 0)
    folder = write_trial_folder(job, "a__0000000") / "agent" / "sessions" / "projects" / "-app"
    folder.mkdir(parents=True)
    with (folder / "s.jsonl").open("wb") as out:
        out.writelines(rows)
        filler = (
            b'{"type":"attachment","sessionId":"s","attachment":{"type":"file","content":"' + b"x" * 100_000 + b'"}}\n'
        )
        for _ in range(MIB * 10):
            out.write(filler)
    script = (
        "import sys\nfrom pathlib import Path\nfrom traceflow.importer import import_job\n"
        "from traceflow.store import Store\nimport_job(Store.open(sys.argv[2], create=True), Path(sys.argv[1]))\n"
        "status = Path('/proc/self/status').read_text()  # ru_maxrss begins with the peak of the parent\n"
        "print(int(status.split('VmHWM:')[1].split()[0]) // 1024)\n"
    )
    command = [sys.executable, "-c", script, str(job), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 300
