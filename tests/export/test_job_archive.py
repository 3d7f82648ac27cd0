"""What a job's archive holds, that it is the same bytes every time, and that it comes back as the same job."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from traceflow.export import export_job
from traceflow.store import Manifest, Store
from traceflow.store.testing import chunk, write_job

_jobs = runpy.run_path(str(Path(__file__).with_name("export_jobs.py")))
JOBS: list[Path] = _jobs["JOBS"]
FIXTURES: Path = _jobs["FIXTURES"]
imported, tree_of, members_of = _jobs["imported"], _jobs["tree_of"], _jobs["members_of"]
CASE_84 = FIXTURES / "cases" / "84-deterministic-archive-export" / "j"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Manifest]:
    return imported(FIXTURES / "jobs" / "demo", tmp_path_factory.mktemp("demo") / "store")


@pytest.mark.parametrize("source", JOBS, ids=lambda path: path.parent.name + "-" + path.name)
def test_import_export_import_elsewhere_export_is_the_same_bytes(source: Path, tmp_path: Path) -> None:
    assert_round_trip(source, tmp_path)


@pytest.mark.parametrize("recording", _jobs["RECORDINGS"], ids=lambda path: path.name)
def test_recordings_packed_as_jobs_come_round_as_the_same_bytes(recording: Path, tmp_path: Path) -> None:
    assert_round_trip(_jobs["packed"](recording, tmp_path / "packed"), tmp_path)


def assert_round_trip(source: Path, tmp_path: Path) -> None:
    store, job = imported(source, tmp_path / "one")
    export_job(store, job, tmp_path / "first.tar.gz")
    other, again = imported(tmp_path / "first.tar.gz", tmp_path / "two")
    export_job(other, again, tmp_path / "second.tar.gz")
    assert again.job_id == job.job_id
    assert (tmp_path / "first.tar.gz").read_bytes() == (tmp_path / "second.tar.gz").read_bytes()


@pytest.mark.parametrize("source", JOBS, ids=lambda path: path.parent.name + "-" + path.name)
def test_the_original_is_exactly_what_was_imported_modes_too(source: Path, tmp_path: Path) -> None:
    store, job = imported(source, tmp_path / "store")
    result = export_job(store, job, tmp_path / "out.tar.gz", original=True)
    assert result.derived == 0
    assert members_of(tmp_path / "out.tar.gz") == tree_of(source)


@pytest.mark.parametrize("source", JOBS, ids=lambda path: path.parent.name + "-" + path.name)
def test_an_export_has_every_original_and_only_adds_to_it(source: Path, tmp_path: Path) -> None:
    store, job = imported(source, tmp_path / "store")
    export_job(store, job, tmp_path / "out.tar.gz")
    members, originals = members_of(tmp_path / "out.tar.gz"), tree_of(source)
    assert {path: members[path][1] for path in originals} == {path: data for path, (_, data) in originals.items()}
    record = json.loads(members["traceflow.json"][1])
    assert sorted(item["path"] for item in record["derived"]) == sorted(
        set(members) - set(originals) - {"traceflow.json"}
    )
    folders = {path.partition("/")[0] for path in originals if "/" in path}
    assert {path.partition("/")[0] for path in members if "/" in path} == folders
    assert {mode for mode, _ in members.values()} <= {0o644, 0o755}


def test_no_placeholder_is_added_for_what_is_absent(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    export_job(*demo, tmp_path / "out.tar.gz")
    members = members_of(tmp_path / "out.tar.gz")
    assert not [path for path, (_, data) in members.items() if not data and path.endswith((".json", ".jsonl"))]
    assert "tour__nQ8rS3t/agent/trajectory.json" not in members  # it was cancelled before the agent began


def test_steps_get_their_own_traces(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    export_job(*demo, tmp_path / "out.tar.gz")
    members = members_of(tmp_path / "out.tar.gz")
    for step in ("first", "second"):
        lines = members[f"relay__bC4dE6g/steps/{step}/agent/trace-parsed.jsonl"][1].splitlines()
        events = [json.loads(line) for line in lines]
        assert [event["seq"] for event in events] == list(range(len(events)))
        assert {event["data"]["extra"]["stepName"] for event in events} == {step}
    assert "relay__bC4dE6g/agent/trajectory.json" not in members


def test_several_processes_write_what_one_writes(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    alone = export_job(*demo, tmp_path / "alone.tar.gz", workers=0)
    team = export_job(*demo, tmp_path / "team.tar.gz", workers=2)
    assert alone.written == team.written


def test_trials_whose_names_begin_alike_keep_their_files_in_order(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path / "store"), create=True)
    names = ["a", "a-b", "a.b", "a0", "b"]  # the files of `a` come after those of `a.b`
    trials = [({"trial_id": f"id-{name}", "trial_name": name}, [chunk("agent", name)]) for name in names]
    job = write_job(store, "near", trials)
    made = [export_job(store, job, tmp_path / f"{n}.tar.gz", workers=n).written for n in (0, 2)]
    assert made[0] == made[1]
    members = members_of(tmp_path / "2.tar.gz")
    assert list(members) == sorted(members, key=str.encode)
    assert {path.partition("/")[0] for path in members} == {*names, "traceflow.json"}
    for name in names:
        assert name.encode() in members[f"{name}/agent/trace-parsed.jsonl"][1]


@pytest.mark.parametrize(("name", "kind"), [("analyze-traj", "analysis"), ("check-ds", "check-result")])
def test_reviews_come_out_as_the_trials_that_harbor_wraps_them_in(name: str, kind: str, tmp_path: Path) -> None:
    store, job = imported(FIXTURES / "harbor" / "jobs" / name, tmp_path / "store")
    first, second = (export_job(store, job, tmp_path / f"{n}.tar.gz").written for n in (1, 2))
    assert first == second
    members = members_of(tmp_path / "1.tar.gz")
    reviewed = {path.partition("/")[0] for path in members if "/" in path}
    assert len(reviewed) == 2
    for trial in reviewed:
        assert re.fullmatch(r"(analyze|check)-.+__[0-9A-Za-z]{7}", trial)
        own = {path.removeprefix(f"{trial}/"): data for path, (_, data) in members.items() if path.startswith(trial)}
        assert {"config.json", "lock.json", "result.json", "trial.log", "artifacts/manifest.json"} <= set(own)
        ruled = json.loads(own["result.json"])["verifier_result"] is not None
        assert any(path in own for path in ("verifier/reward.json", "verifier/reward.txt")) is ruled
        listed = {item["destination"]: item["status"] for item in json.loads(own["artifacts/manifest.json"])}
        assert (f"artifacts/{kind}.json" in own) is (listed.get(f"artifacts/{kind}.json") == "ok")


# -- case 84 -----------------------------------------------------------------------------------------------------

_EXPORT = """
import os, sys
os.umask(int(sys.argv[3], 8))
from pathlib import Path
from traceflow.export import export_job
from traceflow.store import Store
store = Store.open(sys.argv[1])
print(export_job(store, store.jobs()[0], Path(sys.argv[2])).written.archive_sha256)
"""


def export_apart(
    store: Store, target: Path, umask: str, environment: dict[str, str], python: str = sys.executable
) -> str:
    command = [python, "-P", "-c", _EXPORT, store.url, str(target), umask]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout.strip()


def test_case_84_the_order_and_the_headers(tmp_path: Path) -> None:
    store, job = imported(CASE_84, tmp_path / "store")
    export_job(store, job, tmp_path / "out.tar.gz", original=True)
    packed = (tmp_path / "out.tar.gz").read_bytes()
    assert packed[3] == 0  # no file name
    assert packed[4:8] == bytes(4)  # no time
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        infos = tar.getmembers()
    names = [info.name for info in infos]
    assert names[:7] == [
        f"j/{name}" for name in ("B.txt", "a-b.txt", "a.txt", "ab.txt", "config.json", "result.json", "run.sh")
    ]
    assert names[-1] == "j/á.txt"
    assert all(name.startswith("j/t1__aaaaaaa/") for name in names[7:-1])
    assert {(i.uid, i.gid, i.uname, i.gname, i.mtime) for i in infos} == {(0, 0, "", "", 0)}
    assert {info.mode for info in infos} <= {0o644, 0o755}


def test_case_84_machine_and_time_do_not_matter(tmp_path: Path) -> None:
    store, _ = imported(CASE_84, tmp_path / "store")
    tries: list[tuple[str, dict[str, str]]] = [
        ("022", {}),
        ("077", {"TZ": "Asia/Tokyo", "LC_ALL": "C"}),
        ("002", {"LC_ALL": "cs_CZ.UTF-8", "PYTHONHASHSEED": "7", "HOME": str(tmp_path)}),
    ]
    sums = {export_apart(store, tmp_path / f"{n}.tar.gz", umask, env) for n, (umask, env) in enumerate(tries)}
    for path in Path(store.url).rglob("*"):
        os.utime(path, (1, 1))
    sums.add(export_apart(store, tmp_path / "touched.tar.gz", "022", {}))
    assert len(sums) == 1


@pytest.mark.slow
def test_another_python_writes_the_same_bytes(tmp_path: Path) -> None:
    """With TRACEFLOW_OTHER_PYTHON: a Python of another version that has traceflow."""
    other = os.environ.get("TRACEFLOW_OTHER_PYTHON")
    if not other:
        pytest.skip("TRACEFLOW_OTHER_PYTHON names no other Python that has traceflow")
    for number, source in enumerate(JOBS):
        store, job = imported(source, tmp_path / f"store-{number}")
        ours = export_job(store, job, tmp_path / "ours.tar.gz").written.archive_sha256
        assert export_apart(store, tmp_path / "theirs.tar.gz", "022", {}, other) == ours


# -- values ------------------------------------------------------------------------------------------------------


def made_job(root: Path, rewards: str) -> Path:
    trial = root / "task__abc"
    trial.mkdir(parents=True)
    (root / "config.json").write_text('{"job_name": "made"}')
    (root / "result.json").write_text(
        '{"id": "0b1c2d3e-0000-4000-8000-000000000001", "n_total_trials": 1, "stats": {}}'
    )
    text = (
        '{"task_name": "t", "trial_name": "task__abc", "trial_uri": "", "task_id": {}, "task_checksum": "",'
        ' "config": {}, "agent_info": {"name": "nop", "version": "1"}, "verifier_result": {"rewards": %s}}'
    )
    (trial / "result.json").write_text(text % rewards)
    return root


def test_numbers_and_names_survive(tmp_path: Path) -> None:
    # what is no number at all is in the record alone
    rewards = '{"reward": 1, "One Half": 0.5, "tiny": 1e-05, "whole": 2.0, "odd": NaN}'
    store, job = imported(made_job(tmp_path / "made", rewards), tmp_path / "store")
    export_job(store, job, tmp_path / "out.tar.gz")
    members = members_of(tmp_path / "out.tar.gz")
    assert rewards.encode() in members["task__abc/result.json"][1]
    other, again = imported(tmp_path / "out.tar.gz", tmp_path / "elsewhere")
    export_job(other, again, tmp_path / "again.tar.gz", original=True)
    assert rewards.encode() in members_of(tmp_path / "again.tar.gz")["task__abc/result.json"][1]
    record = json.loads(members["task__abc/traceflow.json"][1])["rewards"]
    assert {name: repr(value) for name, value in record.items()} == {
        "reward": "1",
        "One Half": "0.5",
        "tiny": "1e-05",
        "whole": "2.0",
    }


def test_names_that_cannot_be_extracted_elsewhere_are_exported_and_warned_about(tmp_path: Path) -> None:
    root = made_job(tmp_path / "made", "{}")
    for name in ("aux.txt", "what?.txt", "Same.txt", "same.txt"):
        (root / "task__abc" / name).write_text(name)
    store, job = imported(root, tmp_path / "store")
    result = export_job(store, job, tmp_path / "out.tar.gz")
    assert {(w["code"], w["count"]) for w in result.warnings} == {("windows_name", 2), ("name_twin", 1)}
    members = members_of(tmp_path / "out.tar.gz")
    assert members["task__abc/aux.txt"][1] == b"aux.txt"
    assert members["task__abc/same.txt"][1] == b"same.txt"


def test_pictures_lie_beside_the_trajectory_that_shows_them(tmp_path: Path) -> None:
    root = made_job(tmp_path / "made", "{}")
    session = FIXTURES / "cases" / "26-tool-result-list-with-image" / "session.jsonl"
    place = root / "task__abc" / "agent" / "sessions" / "projects" / "-app" / "s.jsonl"
    place.parent.mkdir(parents=True)
    place.write_bytes(session.read_bytes())
    store, job = imported(root, tmp_path / "store")
    export_job(store, job, tmp_path / "out.tar.gz")
    members = {path: data for path, (_, data) in members_of(tmp_path / "out.tar.gz").items()}
    shown = set(re.findall(r"images/[0-9a-f]{32}[.][a-z]+", members["task__abc/agent/trajectory.json"].decode()))
    assert shown
    for name in shown:
        data = members[f"task__abc/agent/{name}"]
        assert name.partition("/")[2].startswith(hashlib.sha256(data).hexdigest()[:32])
    derived = {item["path"] for item in json.loads(members["traceflow.json"])["derived"]}
    assert {f"task__abc/agent/{name}" for name in shown} <= derived


def test_empty_folders_come_out_again(tmp_path: Path) -> None:
    root = made_job(tmp_path / "made", "{}")
    (root / "task__abc" / "artifacts").mkdir()
    store, job = imported(root, tmp_path / "store")
    export_job(store, job, tmp_path / "out.tar.gz", original=True)
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        assert tar.getmember("made/task__abc/artifacts").isdir()


def test_a_file_of_our_name_that_was_imported_is_no_record_of_ours(tmp_path: Path) -> None:
    root = made_job(tmp_path / "made", '{"reward": 1}')
    (root / "traceflow.json").write_text('{"mine": true}')
    store, job = imported(root, tmp_path / "store")
    result = export_job(store, job, tmp_path / "out.tar.gz")
    assert result.derived == 0
    assert members_of(tmp_path / "out.tar.gz") == tree_of(root)


# -- interruptions -----------------------------------------------------------------------------------------------


_SLOWLY = """
import sys, time
from pathlib import Path
from traceflow.export import export_job
from traceflow.store import Store
store = Store.open(sys.argv[1])

def told(done):
    print("writing", flush=True)
    time.sleep(60)

export_job(store, store.jobs()[0], Path(sys.argv[2]), progress=told, workers=2)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_an_export_that_is_killed_leaves_no_file_under_the_final_name(
    demo: tuple[Store, Manifest], tmp_path: Path, name: str
) -> None:
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip(f"there is no {name} here")
    (spool := tmp_path / "spool").mkdir()
    (out := tmp_path / "out").mkdir()
    target = out / "out.tar.gz"
    target.write_bytes(b"the export of yesterday")
    command = [sys.executable, "-P", "-c", _SLOWLY, demo[0].url, str(target)]
    environment = {**os.environ, "TMPDIR": str(spool)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        process.send_signal(number)
        assert process.wait(timeout=60) != 0
    assert target.read_bytes() == b"the export of yesterday"
    left = {path.name for path in out.iterdir()} - {target.name}
    assert not left if name == "SIGINT" else all(path.endswith(".part") for path in left)
    if name == "SIGINT":
        assert list(spool.iterdir()) == []
    export_job(*demo, target)
    assert members_of(target)


def test_an_interrupted_export_leaves_nothing(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    target = tmp_path / "out.tar.gz"

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_job(*demo, target, progress=interrupt, workers=2)
    assert list(tmp_path.iterdir()) == []


def test_an_export_to_a_url_appears_whole_or_not_at_all(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    result = export_job(*demo, "memory://exports/demo.tar.gz")
    export_job(*demo, tmp_path / "local.tar.gz")
    assert memory.cat_file("/exports/demo.tar.gz") == (tmp_path / "local.tar.gz").read_bytes()
    assert result.written.archive_bytes == memory.size("/exports/demo.tar.gz")

    def interrupt(done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_job(*demo, "memory://exports/broken.tar.gz", progress=interrupt)
    assert not memory.exists("/exports/broken.tar.gz")


def test_an_archive_is_plain_gzip_and_streams_to_a_pipe(demo: tuple[Store, Manifest], tmp_path: Path) -> None:
    class Pipe:
        def __init__(self) -> None:
            self.data = bytearray()

        def write(self, data: Any) -> int:
            self.data += data
            return len(data)

    pipe = Pipe()
    result = export_job(*demo, pipe)  # type: ignore[arg-type]
    assert len(gzip.decompress(bytes(pipe.data))) == result.written.tar_bytes
