"""The files of a trial: listing, reading, search, changes, archives and logs, from the store and from captures."""

from __future__ import annotations

import io
import json
import os
import runpy
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traceflow_formats.errors import TraceflowError

from traceflow.cli import run
from traceflow.store import Store, tables
from traceflow.trialfiles import TrialFiles, parse_range, trial_logs

_jobs = runpy.run_path(str(Path(__file__).with_name("export_jobs.py")))
FIXTURES: Path = _jobs["FIXTURES"]
imported, tree_of = _jobs["imported"], _jobs["tree_of"]
TRIAL = "task__abc"


def job_of(root: Path, files: dict[str, bytes]) -> Path:
    """A job of one trial with these files."""
    result = {
        "task_name": "t",
        "trial_name": TRIAL,
        "trial_uri": "",
        "task_id": {},
        "task_checksum": "",
        "config": {},
        "agent_info": {"name": "nop", "version": "1"},
    }
    records = {"config.json": {"job_name": "made"}, "result.json": {"n_total_trials": 1, "stats": {}}}
    everything = {name: json.dumps(value).encode() for name, value in records.items()}
    everything[f"{TRIAL}/result.json"] = json.dumps(result).encode()
    for name, data in {**everything, **{f"{TRIAL}/{name}": data for name, data in files.items()}}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


@pytest.fixture
def browse(tmp_path: Path) -> Iterator[Callable[..., TrialFiles]]:
    """Opens the files of a trial that has the files given."""
    opened: list[TrialFiles] = []

    def made(files: dict[str, bytes]) -> TrialFiles:
        store, job = imported(job_of(tmp_path / "job", files), tmp_path / "store")
        found = TrialFiles(store, job, store.trials(job)[0])
        opened.append(found.__enter__())
        return found

    yield made
    for found in opened:
        found.__exit__()


def read(files: TrialFiles, path: str, wanted: str | None = None, source: str | None = None) -> bytes:
    size, chunks = files.read(path, byte_range=parse_range(wanted) if wanted else None, source=source)
    data = b"".join(chunks)
    assert len(data) == size
    return data


def names(page: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in page["entries"]]


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(TraceflowError) as caught:
        call()
    return caught.value.code


# -- the stored tree ---------------------------------------------------------------------------------------------

SOME = {"agent/b.txt": b"beta\n", "agent/a/deep.txt": b"0123456789", "agent-x": b"x", "trial.log": b""}


def test_a_listing_has_the_platforms_shape(browse: Any) -> None:
    page = browse(SOME).list("/agent")
    assert list(page) == ["path", "source", "entries", "next_cursor", "ms"]
    assert (page["path"], page["source"], page["next_cursor"]) == ("/agent", "trial", None)
    folder, file = page["entries"]
    assert (folder["name"], folder["type"]) == ("a", "dir")
    assert file == {
        "name": "b.txt",
        "type": "file",
        "size": 5,
        "mtime": None,
        "mode": f"{0o666 & ~umask():04o}",
        "owner": None,
        "changed": None,
        "phase": None,
        "captured": True,
    }


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_root_is_the_trial(browse: Any) -> None:
    files = browse(SOME)
    for root in ("/", "", ".", "//./"):
        assert names(files.list(root)) == ["agent", "agent-x", "result.json", "trial.log"]


def test_pages_follow_each_other(browse: Any) -> None:
    files = browse({f"d/{n:03d}": b"x" for n in range(25)})
    found, cursor = [], None
    while True:
        page = files.list("d", limit=10, cursor=cursor)
        found += names(page)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [f"{n:03d}" for n in range(25)]


NEAR = ["a", "a b", "a!", "a-b", "a-b.c", "a.txt", "a0", "ab", "b", "b-", "é", "😀", "\uffee"]
INSIDE = [f"{name}{end}" for name in NEAR for end in ("", "/x", "/a-b/y", "/a/z")]


@settings(max_examples=60, deadline=None)
@given(st.sets(st.sampled_from(INSIDE), min_size=1), st.integers(1, 5), st.sampled_from([1, 2, 3, 1024]))
def test_pages_of_any_names_are_what_lies_there_in_the_order_of_its_bytes(
    paths: set[str], size: int, rows: int
) -> None:
    folders = {path[:end] for path in paths for end in range(len(path)) if path[end] == "/"}
    there = sorted(path for path in paths if path not in folders)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "GROUP_ROWS", rows)
        store = Store.open(folder, create=True)
        with store.writer("near") as writer:
            for path in there:
                writer.add_file(f"{TRIAL}/d/{path}", io.BytesIO(b""), trial_id="t")
            writer.add_file(f"{TRIAL}/e", io.BytesIO(b""), trial_id="t")
            writer.add_trial({"trial_id": "t", "trial_name": TRIAL, "status": "UNSCORED"})
            job = writer.commit({}, {}, {})
        with TrialFiles(store, job, store.trials(job)[0]) as files:
            found: list[str] = []
            cursor = None
            while not found or cursor is not None:
                page = files.list("d", limit=size, cursor=cursor)
                found += names(page)
                cursor = page["next_cursor"]
            assert found == sorted({path.partition("/")[0] for path in there}, key=str.encode)
            for path in there:
                assert read(files, f"d/{path}") == b""


@pytest.mark.parametrize(
    ("wanted", "data"),
    [
        ("bytes=0-3", b"0123"),
        ("bytes=4-", b"456789"),
        ("bytes=-2", b"89"),
        ("2-2", b"2"),
        ("bytes=5-500", b"56789"),
        ("bytes=-500", b"0123456789"),
        (None, b"0123456789"),
    ],
)
def test_ranges_have_inclusive_ends(browse: Any, wanted: str | None, data: bytes) -> None:
    assert read(browse(SOME), "agent/a/deep.txt", wanted) == data


@pytest.mark.parametrize("wanted", ["bytes=10-", "bytes=3-1", "bytes=-", "x", "bytes=1-2,4-5", "bytes=--3"])
def test_a_range_that_is_none_is_refused(browse: Any, wanted: str) -> None:
    files = browse(SOME)
    assert code_of(lambda: read(files, "agent/a/deep.txt", wanted)) == "invalid_input"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("../result.json", "invalid_input"),
        ("/agent/../../x", "invalid_input"),
        ("agent/..", "invalid_input"),
        ("a\0b", "invalid_input"),
        ("x" * 9000, "invalid_input"),
        ("/etc/passwd", "not_found"),
        ("agen", "not_found"),
        ("agent/b.txt/c", "not_found"),
        ("%2e%2e/config.json", "not_found"),
        ("agent", "invalid_input"),
        ("agent/b\udcff.txt", "not_found"),
        ("agent/\ud800", "not_found"),
        ("agent/b.txt\n", "not_found"),
        ("agent%", "not_found"),
        ("agent' OR '1'='1", "not_found"),
    ],
)
def test_no_path_leads_out_of_the_trial(browse: Any, path: str, code: str) -> None:
    files = browse(SOME)
    assert code_of(lambda: read(files, path)) == code


def test_search_finds_lines_of_text_files(browse: Any) -> None:
    files = browse({"a.txt": b"one\nTwo needle\nthree\n", "b.bin": b"\0needle\n", "d/c.txt": "häß needle".encode()})
    result = files.search("needle")
    assert result["hits"] == [
        {"path": "/a.txt", "line": 2, "snippet": "Two needle"},
        {"path": "/d/c.txt", "line": 1, "snippet": "häß needle"},
    ]
    assert result["truncated"] is False
    assert [h["path"] for h in files.search("needle", path="/d")["hits"]] == ["/d/c.txt"]
    assert files.search("needle", limit=1)["truncated"] is True
    assert files.search("needle", limit=2)["truncated"] is False
    assert [h["line"] for h in files.search("^T.o", regex=True)["hits"]] == [2]
    assert files.search("T.o")["hits"] == []
    assert code_of(lambda: files.search("(", regex=True)) == "invalid_input"
    assert code_of(lambda: files.search("")) == "invalid_input"


def test_a_match_across_large_contents_is_found_with_its_line(browse: Any) -> None:
    lines = [b"%07d some filler text of a line" % n for n in range(400_000)]
    lines[399_990] += b" needle"
    files = browse({"big.txt": b"\n".join(lines)})
    assert files.search("needle")["hits"][0]["line"] == 399_991


def test_what_the_agents_home_left_out_is_listed_and_does_not_open(browse: Any) -> None:
    home = {
        "files": [{"path": ".x/kept", "size": 4, "changed": "created", "phase": "agent"}],
        "skipped": [{"path": ".x/big.db", "size": 10**9, "reason": "binary"}, {"path": "../../evil"}],
        "excluded": [".x/tmp/plugins"],
    }
    files = browse({"agent/agent-home.json": json.dumps(home).encode(), "agent/.x/kept": b"kept"})
    entries = {e["name"]: e for e in files.list("agent/.x")["entries"]}
    assert set(entries) == {"kept", "big.db", "tmp"}
    assert (entries["big.db"]["captured"], entries["big.db"]["left_out"]) == (False, "binary")
    assert (entries["kept"]["changed"], entries["kept"]["phase"]) == ("created", "agent")
    assert code_of(lambda: read(files, "agent/.x/big.db")) == "not_captured"
    assert [i["path"] for i in files.changes(phase="agent")["items"]] == ["/agent/.x/kept"]
    assert files.changes(phase="verifier")["total"] == 0


def test_failed_artifacts_are_listed_as_left_out(browse: Any) -> None:
    manifest = [
        {"source": "/a", "destination": "artifacts/a", "type": "file", "status": "ok"},
        {"source": "/b", "destination": "artifacts/b", "type": "file", "status": "failed"},
        {"source": "/c", "destination": "../../c", "type": "file", "status": "failed"},
    ]
    files = browse({"artifacts/manifest.json": json.dumps(manifest).encode(), "artifacts/a": b"a"})
    entries = {e["name"]: e for e in files.list("artifacts")["entries"]}
    assert entries["b"]["left_out"] == "failed"
    assert entries["a"]["captured"]
    assert set(entries) == {"a", "b", "manifest.json"}


def test_the_demo_job_reads_back_as_it_lies_there(tmp_path: Path) -> None:
    source = FIXTURES / "jobs" / "demo"
    store, job = imported(source, tmp_path / "store")
    for trial in store.trials(job):
        with TrialFiles(store, job, trial) as files:
            originals = tree_of(source / trial["trial_name"])
            status = files.status()
            assert (status["state"], status["files"]) == ("none", len(originals))
            assert {path: read(files, path) for path in originals} == {p: d for p, (_, d) in originals.items()}


# -- captures ----------------------------------------------------------------------------------------------------

MANIFEST = (
    b"path\ttype\tsize\tmtime\tmode\towner\tchanged\tphase\tcaptured\tleft_out\ttarget\n"
    b"/app/new.txt\tfile\t4\t2026-01-01T00:00:00Z\t0640\troot\tcreated\tagent\ttrue\t\t\n"
    b"/usr/bin/tool\tfile\t900\t\t0755\troot\t\t\tfalse\t\t\n"
    b"/app/huge.bin\tfile\t9999\t\t0644\troot\tmodified\tverifier\tfalse\ttoo large\t\n"
    b"/app/gone.txt\tfile\t3\t\t\t\tremoved\tagent\tfalse\t\t\n"
    b"/../../evil\tfile\t1\n"
)


def capture(members: dict[str, bytes | tuple[bytes, str]], manifest: bytes | None = MANIFEST) -> bytes:
    """A .tar.gz: names with contents, or (type, target) for links and the like."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in {**members, **({"MANIFEST.tsv": manifest} if manifest is not None else {})}.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, tuple):
                info.type, info.linkname = content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


CAPTURED = {
    "app/new.txt": b"new\n",
    "app/in": (tarfile.SYMTYPE, "new.txt"),
    "app/out": (tarfile.SYMTYPE, "../../etc/passwd"),
    "app/loop": (tarfile.SYMTYPE, "loop"),
    "app/pipe": (tarfile.FIFOTYPE, ""),
    "app/twin": (tarfile.LNKTYPE, "app/new.txt"),
    "../escape": b"no",
}


def test_a_capture_is_browsed_in_place_of_the_folder(browse: Any) -> None:
    files = browse({"artifacts/fs.tar.gz": capture(CAPTURED), "trial.log": b""})
    status = files.status()
    assert status["state"] == "captured"
    assert status["capture"] | {"bytes": 0} == {
        "path": "artifacts/fs.tar.gz",
        "record": "incomplete",
        "left_out": 2,  # one too large, one whose name leads elsewhere
        "files": 2,
        "bytes": 0,
        "image_files": 1,
    }
    assert names(files.list("/")) == ["app", "usr"]
    entries = {e["name"]: e for e in files.list("/app")["entries"]}
    assert {name: e["type"] for name, e in entries.items()} == {
        "huge.bin": "file",
        "in": "symlink",
        "loop": "symlink",
        "new.txt": "file",
        "out": "symlink",
        "pipe": "other",
        "twin": "file",
    }
    assert entries["new.txt"]["mode"] == "0640"
    assert (entries["new.txt"]["changed"], entries["new.txt"]["phase"]) == ("created", "agent")
    assert entries["huge.bin"]["left_out"] == "too large"
    assert entries["out"]["target"] == "../../etc/passwd"
    assert names(files.list("/", source="trial")) == ["artifacts", "result.json", "trial.log"]


def test_a_file_that_the_run_never_touched_lists_but_does_not_open(browse: Any) -> None:
    files = browse({"fs.tar.gz": capture(CAPTURED)})
    assert files.list("/usr/bin")["entries"][0]["captured"] is False
    assert code_of(lambda: read(files, "/usr/bin/tool")) == "not_captured"
    assert code_of(lambda: read(files, "/app/huge.bin")) == "not_captured"
    assert files.search("new")["image_files_excluded"] == 2


def test_links_are_followed_inside_the_capture_and_never_out_of_it(browse: Any) -> None:
    files = browse({"fs.tar.gz": capture(CAPTURED)})
    assert read(files, "/app/in") == b"new\n"
    assert read(files, "/app/in", "bytes=1-2") == b"ew"
    assert read(files, "/app/twin") == b"new\n"
    assert code_of(lambda: read(files, "/app/out")) == "not_captured"
    assert code_of(lambda: read(files, "/app/loop")) == "invalid_input"
    assert code_of(lambda: read(files, "/app/pipe")) == "not_captured"


def test_changes_of_a_capture_by_phase(browse: Any) -> None:
    files = browse({"fs.tar.gz": capture(CAPTURED)})
    page = files.changes()
    assert [(i["path"], i["changed"]) for i in page["items"]] == [
        ("/app/gone.txt", "removed"),
        ("/app/huge.bin", "modified"),
        ("/app/new.txt", "created"),
    ]
    assert page["total"] == 3
    assert page["changed_bytes"] == 3 + 9999 + 4
    assert [i["path"] for i in files.changes(phase="verifier")["items"]] == ["/app/huge.bin"]
    first = files.changes(limit=2)
    assert [i["path"] for i in files.changes(cursor=first["next_cursor"])["items"]] == ["/app/new.txt"]


def answers(files: TrialFiles) -> dict[str, Any]:
    """What the verbs say of a capture; times left out."""
    said: dict[str, Any] = {"status": files.status(), "changes": files.changes()}
    for phase in ("setup", "agent", "verifier"):
        for after in (None, "/app/gone.txt", "/app/h", "/zzz", "\udcff"):
            said[f"changes of {phase} after {after}"] = files.changes(phase=phase, cursor=after, limit=1)
    for after in (None, "d3", "\udcff\x00"):
        said[f"many after {after}"] = files.list("/many", cursor=after, limit=2) | {"ms": 0}
    for path in ("/", "/app", "/usr/bin", "/many/d3"):
        said[path] = files.list(path) | {"ms": 0}
    for query, path in (("new", "/"), ("7", "/many/d3"), ("new", "/app/new.txt")):
        said[f"{query} in {path}"] = files.search(query, path=path) | {"ms": 0}
    for path in ("/app/in", "/app/twin", "/many/d3/f2003"):
        said[f"content of {path}"] = read(files, path), read(files, path, "bytes=1-2")
    for path in ("/usr/bin/tool", "/app/out", "/app/loop", "/app/pipe", "/nowhere"):
        said[f"error of {path}"] = code_of(lambda path=path: read(files, path))  # type: ignore[misc]
    return said


@pytest.mark.parametrize("inside", ["", "wrapped/"])
def test_the_kept_index_of_a_large_capture_says_what_the_capture_says(
    inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = {f"many/d{i % 10}/f{i}": str(i).encode() for i in range(2500)}
    members = {inside + name: content for name, content in {**many, **CAPTURED}.items()}
    members[f"{inside}app/twin"] = (tarfile.LNKTYPE, f"{inside}app/new.txt")
    members[f"{inside}MANIFEST.tsv"] = MANIFEST
    store, job = imported(job_of(tmp_path / "job", {"fs.tar.gz": capture(members, manifest=None)}), tmp_path / "store")
    monkeypatch.setenv("TRACEFLOW_CACHE", str(tmp_path / "cache"))

    def asked(name: str) -> tuple[dict[str, Any], bytes]:
        with TrialFiles(store, job, store.trials(job)[0]) as files:
            files.archive("/", tmp_path / name)
            return answers(files), (tmp_path / name).read_bytes()

    read_anew = asked("one.tar.gz")
    (kept,) = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert kept.read_bytes()[:15] == b"SQLite format 3"
    assert read_anew[0]["content of /many/d3/f2003"] == (b"2003", b"00")
    assert asked("two.tar.gz") == read_anew
    kept.write_bytes(b"damaged")
    assert asked("three.tar.gz") == read_anew
    assert kept.read_bytes()[:15] == b"SQLite format 3"


def test_a_sparse_file_is_read_through_the_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "hole", "GNU.sparse.realsize": "9"}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (
            *((f"many/f{n}", b"plain") for n in range(2500)),
            ("hole", b"1\n4\n5\n".ljust(512, b"\0") + b"needl"),
            ("MANIFEST.tsv", b"path\n/hole\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info.pax_headers = headers if name == "hole" else {}
            tar.addfile(info, io.BytesIO(content))
    store, job = imported(job_of(tmp_path / "job", {"fs.tar.gz": out.getvalue()}), tmp_path / "store")
    monkeypatch.setenv("TRACEFLOW_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        with TrialFiles(store, job, store.trials(job)[0]) as files:
            assert read(files, "hole") == b"\0\0\0\0needl"
            assert read(files, "hole", "bytes=3-4") == b"\0n"
            assert len(files.search("plain", path="many", limit=3)["hits"]) == 3


@pytest.mark.parametrize("ends", ["file", "link"])
def test_of_a_name_that_a_capture_holds_twice_the_last_stands(browse: Any, ends: str) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in (("other", b"other"), ("twice", b"first"), ("MANIFEST.tsv", b"path\n")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        info = tarfile.TarInfo("twice")
        if ends == "link":
            info.type, info.linkname = tarfile.LNKTYPE, "other"
        info.size = 6 if ends == "file" else 0
        tar.addfile(info, io.BytesIO(b"second"))
    files = browse({"fs.tar.gz": out.getvalue()})
    assert read(files, "twice") == (b"second" if ends == "file" else b"other")
    assert files.search("first")["hits"] == []


@pytest.mark.parametrize("spoiled", ["size", "target"])
def test_an_index_that_no_database_holds_is_not_kept(
    spoiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"/many/f{i}\tfile\t{10**17 if spoiled == 'size' else 1}\n".encode() for i in range(2500)]
    members = {"a": b"a", **({"b": (tarfile.SYMTYPE, "\udcff")} if spoiled == "target" else {})}
    packed = capture(members, b"path\ttype\tsize\n" + b"".join(rows) + b"/big\tfile\t" + b"9" * 30 + b"\n")
    store, job = imported(job_of(tmp_path / "job", {"fs.tar.gz": packed}), tmp_path / "store")
    monkeypatch.setenv("TRACEFLOW_CACHE", str(tmp_path / "cache"))
    for _ in range(2):
        with TrialFiles(store, job, store.trials(job)[0]) as files:
            assert files.status()["capture"]["files"] >= 1
            assert read(files, "/a") == b"a"


def test_the_trial_may_stand_before_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(job_of(tmp_path / "job", {"agent/a.txt": b"a"}), tmp_path / "store")
    printed = []
    for words in (["ls", TRIAL, "agent"], [TRIAL, "ls", "agent"]):
        assert run(["--store", str(tmp_path / "store"), "trial", "files", *words]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert "a.txt" in printed[0]


def test_an_archive_of_a_folder_is_a_capture_again(browse: Any, tmp_path: Path) -> None:
    files = browse({"fs.tar.gz": capture(CAPTURED)})
    written = files.archive("/app", tmp_path / "one.tar.gz")
    assert files.archive("/app", tmp_path / "two.tar.gz") == written
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        assert tar.getnames() == ["MANIFEST.tsv", "app/new.txt", "app/twin"]
        manifest = tar.extractfile("MANIFEST.tsv")
        assert manifest is not None
        rows = [line.split(b"\t") for line in manifest.read().splitlines()]
    assert {row[0]: row[8] for row in rows[1:]}[b"/app/huge.bin"] == b"false"
    assert {row[0]: row[10] for row in rows[1:]}[b"/app/out"] == b"../../etc/passwd"


@pytest.mark.parametrize(
    "data",
    [b"", b"\x1f\x8b", b"no archive", capture(CAPTURED)[:200], b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\xff" * 64],
    ids=["empty", "magic", "text", "torn", "garbage"],
)
def test_an_archive_that_cannot_be_read_is_said_and_the_folder_still_opens(browse: Any, data: bytes) -> None:
    files = browse({"fs.tar.gz": data, "trial.log": b"log"})
    status = files.status()
    assert status["state"] == "none"
    assert read(files, "trial.log", source="trial") == b"log"


def test_an_archive_without_a_manifest_is_a_file_like_others(browse: Any) -> None:
    files = browse({"fs.tar.gz": capture({"a": b"a"}, manifest=None)})
    assert names(files.list("/")) == ["fs.tar.gz", "result.json"]
    assert code_of(lambda: files.list("/", source="capture")) == "invalid_input"


# -- many files, logs, the command line --------------------------------------------------------------------------


@pytest.mark.slow
def test_very_many_files_answer_at_once(tmp_path: Path) -> None:
    count = int(os.environ.get("TRACEFLOW_MANY_FILES", "10000"))
    store = Store.open(str(tmp_path / "store"), create=True)
    with store.writer("many") as writer:
        for n in range(count):
            writer.add_file(f"{TRIAL}/d{n // 1000:03d}/f{n:06d}", io.BytesIO(b"%d" % n), trial_id="t")
        writer.add_trial({"trial_id": "t", "trial_name": TRIAL, "status": "UNSCORED"})
        job = writer.commit({}, {}, {})
    trial = store.trials(job)[0]

    def took(call: Callable[[TrialFiles], Any]) -> float:
        best = 9.0
        for _ in range(3):
            began = time.perf_counter()
            with TrialFiles(store, job, trial) as files:
                call(files)
            best = min(best, time.perf_counter() - began)
        return best

    last = f"d{(count - 1) // 1000:03d}/f{count - 1:06d}"
    times = {
        "ls": took(lambda files: files.list("/")),
        "ls folder": took(lambda files: files.list("/d000")),
        "cat": took(lambda files: read(files, last)),
        "changes": took(lambda files: files.changes()),
        "status": took(lambda files: files.status()),
    }
    assert {name: t for name, t in times.items() if t > 0.2 * max(1, os.getloadavg()[0])} == {}


def test_logs_page_by_line_with_their_stream(tmp_path: Path) -> None:
    files = {
        "agent/codex.txt": b"one\ntwo\r\nthree",
        "agent/stderr.log": b"oops\n",
        "agent/notes.txt": b"no log\n",
        "verifier/test-stdout.txt": b"",
    }
    store, job = imported(job_of(tmp_path / "job", files), tmp_path / "store")
    trial = store.trials(job)[0]
    page = trial_logs(store, job, trial, "agent")
    assert page["lines"] == [
        {"seq": 0, "t": None, "fd": "out", "line": "one"},
        {"seq": 1, "t": None, "fd": "out", "line": "two"},
        {"seq": 2, "t": None, "fd": "out", "line": "three"},
        {"seq": 3, "t": None, "fd": "err", "line": "oops"},
    ]
    assert page["next_cursor"] is None
    first = trial_logs(store, job, trial, "agent", limit=2)
    rest = trial_logs(store, job, trial, "agent", cursor=first["next_cursor"])
    assert [line["seq"] for line in rest["lines"]] == [2, 3]
    assert trial_logs(store, job, trial, "verifier")["reason"] == "the log is empty"
    assert trial_logs(store, job, trial, "system")["reason"] == "the trial has no trial.log"
    assert code_of(lambda: trial_logs(store, job, trial, "metrics")) == "invalid_input"


def test_the_commands(tmp_path: Path, capfdbinary: Any) -> None:
    store, _ = imported(job_of(tmp_path / "job", SOME), tmp_path / "store")
    word = ["--store", store.url]

    def said(*words: str, code: int = 0) -> bytes:
        assert run(["trial", *words, *word]) == code
        data: bytes = capfdbinary.readouterr().out
        return data

    assert said("files", "cat", TRIAL, "agent/a/deep.txt", "--range", "bytes=-3") == b"789"
    assert json.loads(said("files", "cat", TRIAL, "agent/b.txt", "--json"))["data"] == "YmV0YQo="
    assert b"dir\t\t\t\t\ta/\n" in said("files", "ls", TRIAL, "agent")
    assert json.loads(said("files", "status", TRIAL, "--json"))["root"] == "/"
    assert said("files", "search", TRIAL, "bet") == b"/agent/b.txt:1: beta\n"
    assert said("files", "search", TRIAL, "nothing like it", code=1) == b""
    assert json.loads(said("files", "changes", TRIAL, "--json"))["items"] == []
    said("files", "archive", TRIAL, "agent", "-o", str(tmp_path / "agent.tar.gz"))
    assert tarfile.is_tarfile(tmp_path / "agent.tar.gz")
    assert json.loads(said("files", "cat", TRIAL, "nope", "--json", code=1))["error"]["code"] == "not_found"
    assert json.loads(said("logs", TRIAL, "system", "--json"))["stream"] == "system"
