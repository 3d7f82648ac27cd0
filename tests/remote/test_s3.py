"""A store on S3: a real server on loopback, the same contract, the same answers."""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import many_at_once
import pytest
from s3_server import BUCKET, S3Server
from traceflow_formats.errors import TraceflowError

from traceflow.cli import run
from traceflow.store import JobWriter, Manifest, Store
from traceflow.store.remote import FsspecBackend
from traceflow.store.testing import BackendContract, chunk, write_job

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import DEMO, traceflow

JOB = "11111111-1111-4111-8111-111111111111"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def url(server: S3Server) -> str:
    """A place on the server that nothing lies at."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


class TestS3(BackendContract):
    @pytest.fixture
    def backend(self, url: str) -> FsspecBackend:
        return FsspecBackend.open(url)


def one_job(store: Store, text: str = "kept") -> Manifest:
    return write_job(store, JOB, [({"trial_id": "t"}, [chunk("agent", text)])], {"a": b"x" * 100})


def commit(writer: JobWriter, text: str) -> str:
    """Write a job of one event: `won`, or the code of the refusal."""
    writer.add_events("t", [chunk("agent", text)])
    writer.add_trial({"trial_id": "t", "trial_name": "t"})
    try:
        writer.commit()
    except TraceflowError as error:
        return error.code
    return "won"


def at_once(count: int, do: Callable[[int], str]) -> list[str]:
    """What each of so many threads is told that begin in the same moment."""
    barrier = Barrier(count)

    def run(number: int) -> str:
        barrier.wait()
        return do(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


# -- the commit ----------------------------------------------------------------------------------------------


def test_of_writers_that_commit_in_the_same_moment_one_wins(url: str) -> None:
    store = Store.open(url, create=True)
    assert store.info().commit == "conditional put"
    outcomes = at_once(6, lambda number: commit(store.writer(JOB), f"writer {number}"))
    assert sorted(outcomes) == ["job_already_uploaded"] * 5 + ["won"]
    (line,) = store.trace(store.trial("t"))
    assert line.data["update"]["content"]["text"] == f"writer {outcomes.index('won')}"
    assert store.gc(minutes=0).removed == []  # the losers took everything away
    assert store.verify(contents=True).problems == []


def test_of_writers_that_replace_a_job_in_the_same_moment_one_wins(url: str) -> None:
    store = Store.open(url, create=True)
    job = one_job(store)
    outcomes = at_once(6, lambda number: commit(store.rewriter(job), f"writer {number}"))
    assert sorted(outcomes) == ["store_conflict"] * 5 + ["won"]
    (line,) = store.trace(store.trial("t"))
    assert line.data["update"]["content"]["text"] == f"writer {outcomes.index('won')}"
    assert [name for name in store.gc(minutes=0).removed if name.startswith("jobs/")] == [job.folder]
    assert store.verify(contents=True).problems == []


def test_a_job_that_is_deleted_in_the_same_moment_is_not_brought_back(url: str) -> None:
    store = Store.open(url, create=True)
    writer = store.rewriter(one_job(store))
    store.delete_job(store.job(JOB))
    assert commit(writer, "too late") == "job_not_found"
    assert list(store.backend.objects("jobs")) == []


def test_a_catalog_spares_requests_and_tells_what_is_gone(server: S3Server, url: str) -> None:
    store = Store.open(url, create=True)
    jobs = [write_job(store, f"job-{n}", [({"trial_id": f"t{n}"}, [chunk("agent", "x")])]) for n in range(40)]

    def asked(store: Store) -> int:
        before = len(server.requests())
        assert len(store.jobs()) == len(list(store.all_trials())) == len(jobs)
        return len(server.requests()) - before

    without = asked(store)
    store.compact()
    with_catalog, again = asked(Store.open(url)), asked(Store.open(url))
    assert without > 80
    assert with_catalog < 20
    assert again < with_catalog, "what was read once is kept on this machine"
    store.delete_job(jobs.pop())
    assert commit(store.rewriter(jobs[0]), "another revision") == "won"
    other = Store.open(url)
    assert [job.job_id for job in other.jobs()] == sorted(job.job_id for job in jobs)
    assert len(other.listing().known) == len(jobs) - 1
    (line,) = other.trace(other.trial("t", other.job("job-0")))
    assert line.data["update"]["content"]["text"] == "another revision"
    assert other.verify().problems == []


def test_a_server_that_passes_over_conditions_is_found_out_and_writers_at_once_are_refused(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3", ignore="conditions"):
        store = Store.open(f"s3://{BUCKET}/store", create=True)
        job = one_job(store)
        assert store.info().commit == "no conditional write: writers of one job at the same time are refused"
        for outcomes in (
            at_once(6, lambda number: commit(store.writer("other"), f"writer {number}")),
            at_once(6, lambda number: commit(store.rewriter(job), f"writer {number}")),
        ):
            assert outcomes.count("won") <= 1
            assert set(outcomes) <= {"won", "store_conflict", "job_already_uploaded"}
        if not store.has_job("other"):  # each saw another one
            assert commit(store.writer("other"), "alone") == "won"
        store.gc(minutes=0)
        assert not [o.name for o in store.backend.objects("") if o.name.endswith(".partial")]
        assert store.verify(contents=True).problems == []


# -- failures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("replaces", [False, True])
def test_a_commit_whose_answer_is_lost_is_a_commit(tmp_path: Path, replaces: bool) -> None:
    """The server dies when it has written the manifest and before it says so; the client asks again."""
    with S3Server(tmp_path / "s3") as server:
        store = Store.open(f"s3://{BUCKET}/store", create=True)
        writer = store.rewriter(one_job(store)) if replaces else store.writer(JOB)
        server.kill()
        server.options = {"die_after": "manifest.json"}
        server.start()
        again = server.restart_when_it_dies()
        assert commit(writer, "written once") == "won"
        again.join()
        (line,) = store.trace(store.trial("t"))
        assert line.data["update"]["content"]["text"] == "written once"
        assert store.verify(contents=True).problems == []


@pytest.mark.parametrize("write", [3, 7])
def test_an_import_whose_server_is_killed_is_an_error_in_words_and_a_repeat_succeeds(
    tmp_path: Path, write: int
) -> None:
    """The server dies at a write, the third or the commit, and comes back after the import has given up."""
    with S3Server(tmp_path / "s3") as server:
        store = Store.open(f"s3://{BUCKET}/store", create=True)
        write_job(store, "before", [({"trial_id": "t"}, [chunk("agent", "kept")])])
        server.kill()
        server.options = {"die_at": str(write)}
        server.start()
        failed = traceflow("import", DEMO, "--json", "--store", store.url, AWS_MAX_ATTEMPTS="1")
        error = failed.json()["error"]
        assert (failed.code, error["code"]) == (1, "io_error")
        assert store.url in error["message"]
        assert "import again" in error["message"]
        server.options = {}
        server.start()
        assert store.job_ids() == ["before"]
        assert store.verify(contents=True).problems == []
        assert store.gc(minutes=0).removed != [], "what was written before is there, and nobody sees it"
        assert len({o.name.split("/")[1] for o in store.backend.objects("jobs")}) == 1
        assert traceflow("import", DEMO, "--store", store.url).code == 0
        assert store.verify(contents=True).problems == []
        assert len(store.job_ids()) == 2


def test_a_server_that_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with S3Server(tmp_path / "s3") as server:
        url = f"s3://{BUCKET}/store"
        one_job(Store.open(url, create=True))
        server.kill()
        for command in (("job", "list"), ("sql", "FROM trials"), ("grep", "kept")):
            down = traceflow(*command, "--json", "--store", url, AWS_MAX_ATTEMPTS="1")
            error = down.json()["error"]
            assert (down.code, error["code"]) == (1, "io_error")
            assert "check that the server can be reached" in error["message"]
        server.start()


def test_a_bucket_that_does_not_exist_is_told_and_not_made(server: S3Server) -> None:
    missing = traceflow("job", "list", "--json", "--store", "s3://misspelt/store")
    assert missing.json()["error"]["code"] == "store_not_found"
    failed = traceflow("import", DEMO, "--json", "--store", "s3://misspelt/store")
    assert (failed.code, failed.json()["error"]["code"]) == (1, "io_error")
    with pytest.raises(FileNotFoundError):
        FsspecBackend.open("s3://misspelt")._fs.info("misspelt")


# -- the command line ----------------------------------------------------------------------------------------


def test_every_command_gives_what_it_gives_on_a_disk(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here = str(tmp_path / "store")
    names = {url: str(tmp_path / "remote.tar.gz"), here: str(tmp_path / "local.tar.gz")}
    commands = [
        ["import", str(DEMO), "--json"],
        ["job", "list", "--json"],
        ["job", "show", "demo", "--json"],
        ["trial", "list", "--json"],
        ["grep", "the", "--count"],
        ["grep", r"\d{3}-\d{4}", "--json"],
        ["search", "error", "-n", "3", "--json"],
        ["sql", "SELECT trial_name, n_steps, reward FROM trials ORDER BY ALL", "--json"],
        ["sql", "SELECT name, status, count(*) AS n FROM tool_calls GROUP BY ALL ORDER BY ALL", "--json"],
        ["export", "demo", "-o", "OUT", "--original"],
        ["job", "reparse", "demo", "--json"],
        ["store", "verify", "--contents", "--json"],
        ["store", "gc", "--json"],
        ["store", "info", "--json"],
        ["job", "delete", "demo", "--yes", "--json"],
        ["job", "list", "--json"],
    ]

    def answer(command: list[str], store: str) -> tuple[int, str]:
        code = run([names[store] if word == "OUT" else word for word in command] + ["--store", store])
        out = capfd.readouterr().out
        differs = r'"(imported_at|url|commit)": ?"[^"]*"|"cache": ?(null|\{[^}]*\})|' + re.escape(names[store])
        return code, re.sub(differs, "", out)

    for command in commands:
        there, expected = (answer(command, store) for store in (url, here))
        assert there == expected, command
        assert there[0] == 0 or command[:1] == ["grep"], command
    assert Path(names[url]).read_bytes() == Path(names[here]).read_bytes()


# -- many at once --------------------------------------------------------------------------------------------

SECONDS = float(os.environ.get("TRACEFLOW_S3_SECONDS", "6"))


def test_two_importers_and_ten_readers_at_once(url: str) -> None:
    """Both importers write the same jobs and replace them, so that they meet all the time."""
    store = Store.open(url, create=True)
    one_job(store)
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    importers = [spawn.Process(target=many_at_once.importer, args=(url, n, SECONDS, told)) for n in range(2)]
    readers = [spawn.Process(target=many_at_once.readers, args=(url, 5, SECONDS, told)) for _ in range(2)]
    for process in (*importers, *readers):
        process.start()
    results = [told.get(timeout=SECONDS * 4 + 60) for _ in range(2 + 10)]
    for process in (*importers, *readers):
        process.join()
    assert [problem for result in results for problem in result["problems"]] == []
    reads = [result["reads"] for result in results if "reads" in result]
    assert len(reads) == 10
    assert min(reads) > 0
    wrote = [result for result in results if "won" in result]
    won = [number for result in wrote for number in result["won"]]
    assert sorted(won) == sorted(set(won)), "no job was won twice"
    assert {many_at_once.job_id(number) for number in won} | {JOB} == set(store.job_ids()), "nothing is lost"
    for number in won:
        many_at_once.check(store, many_at_once.job_id(number))
    assert store.verify(contents=True).problems == []
    swaps = sum(result["swapped"] for result in wrote)
    old = [name for name in store.gc(minutes=0).removed if name.startswith("jobs/")]
    assert len(old) == swaps, "the losers took everything away"
