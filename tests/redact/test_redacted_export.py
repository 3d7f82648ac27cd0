"""`export --redact`: no secret is in the archive, everything else is, and the archive says what was done."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from secret_job import ENV, FOUND, JOB_ID, KEY_LINES, SECRETS, write_secret_job

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import Ran, traceflow

TRIAL = "leaky/task-0__0000000"


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the job, the job's plain export, and its redacted one."""
    folder = tmp_path_factory.mktemp("redacted")
    job = write_secret_job(folder)
    assert traceflow("import", job, store=folder / "store").code == 0
    assert traceflow("export", "leaky", "-o", folder / "plain.tar.gz", store=folder / "store").code == 0
    ran = traceflow("export", "leaky", "--redact", "-o", folder / "out.tar.gz", "--json", store=folder / "store")
    assert ran.code == 0, ran.err
    (folder / "report.json").write_text(ran.out)
    return folder


def members(archive: Path) -> dict[str, tuple[int, bytes]]:
    with tarfile.open(archive) as tar:
        return {i.name: (i.mode, tar.extractfile(i).read()) for i in tar if i.isfile()}  # type: ignore[union-attr]


def spelled(secret: str) -> set[bytes]:
    """The secret as it is, as JSON in JSON in JSON, in a URL and, all of it but its ends, in base64."""
    found = {secret, quote(secret, safe="")}
    level = {secret}
    for _ in range(3):
        level = {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in level for ascii_only in (True, False)}
        found |= level
    cores = {base64.b64encode(b"x" * n + secret.encode())[4:-4] for n in range(3)}
    return {text.encode() for text in found} | {core for core in cores if len(core) > 8}


def test_no_secret_is_in_the_archive_in_any_spelling(work: Path) -> None:
    found = members(work / "out.tar.gz")
    plain = members(work / "plain.tar.gz")
    whole = b"".join(data for _, data in plain.values())
    assert all(secret.encode() in whole for secret in (*FOUND.values(), *KEY_LINES))  # the test would see them
    for name, secret in SECRETS.items():
        for text in spelled(secret):
            places = [path for path, (_, data) in found.items() if text in data or text in path.encode()]
            if secret == ENV["PIN_SECRET"]:  # digits of longer numbers are no secret
                places = [p for p in places if not p.endswith((".jsonl", "data.json"))]
            assert places == [], name


def test_everything_else_is_byte_for_byte_what_the_plain_export_has(work: Path) -> None:
    plain, found = members(work / "plain.tar.gz"), members(work / "out.tar.gz")
    record = json.loads(found["leaky/traceflow.json"][1])
    changed = {f"leaky/{file['path']}" for file in record["redacted"]["files"]}
    lists = {f"{TRIAL}/agent/agent-home.json", "leaky/traceflow.json"}
    assert {path for path in found if found[path] != plain[path]} == changed | lists
    left_out = {path for path in plain if path not in found}
    assert {path.removeprefix(f"{TRIAL}/") for path in left_out} == {
        "agent/home/opencode.db",
        "agent/wide.txt",
        "artifacts/capture.tar.gz",
        f"artifacts/{FOUND['gitlab-pat']}.txt",
    }
    assert found[f"{TRIAL}/agent/run.sh"][0] == 0o755


def test_json_stays_json_and_numbers_keep_their_spelling(work: Path) -> None:
    found = members(work / "out.tar.gz")
    for path, (_, data) in found.items():
        if path.endswith(".json"):
            json.loads(data)
        elif path.endswith(".jsonl"):
            for line in data.splitlines():
                json.loads(line)
    data = found[f"{TRIAL}/agent/data.json"][1]
    pin = ENV["PIN_SECRET"]
    value = json.loads(data)
    assert value["pin"] == "[REDACTED:env-pin-secret:1]"
    assert value["text"] == "pin [REDACTED:env-pin-secret:1]"
    assert value["big"] == int(f"{pin}1")
    assert b"1e-05" in data
    session = next(data for path, (_, data) in found.items() if "/sessions/" in path)
    note = json.loads(session.splitlines()[-1])
    assert note["pin"] == "[REDACTED:env-pin-secret:1]"
    inner = json.loads(note["input"])
    assert inner["command"] == "curl -H 'x: [REDACTED:env-odd-token:1]'"
    assert json.loads(inner["more"]) == {"deep": "[REDACTED:env-odd-token:1]"}


def test_a_secret_has_one_marker_wherever_it_stands(work: Path) -> None:
    found = members(work / "out.tar.gz")
    marker = b"[REDACTED:github-pat:1]"
    for path in ("agent/run.sh", "agent/trajectory.json", "agent/trace-parsed.jsonl"):
        assert marker in found[f"{TRIAL}/{path}"][1], path
    assert b"github-pat:2" not in b"".join(data for _, data in found.values())
    notes = found[f"{TRIAL}/agent/notes.txt"][1].decode()
    assert notes.count("[REDACTED:private-key:1]") == 2  # as it is, and numbered with other line ends: it is one key


def test_values_that_are_no_secret_stay_and_short_ones_go_only_where_their_name_stands(work: Path) -> None:
    found = members(work / "out.tar.gz")
    env = json.loads(found[f"{TRIAL}/config.json"][1])["agent"]["env"]
    assert env["MAX_OUTPUT_TOKENS"] == "32000"
    assert env["GIT_AUTHOR_NAME"] == "somebody"
    assert (env["MASKED_KEY"], env["OTHER_KEY"]) == ("sk-a****xyz", "${OTHER_KEY}")
    assert env["DB_PASSWORD"] == "[REDACTED:env-db-password:1]"
    assert env["ANTHROPIC_API_KEY"] == "[REDACTED:env-anthropic-api-key:1]"
    assert b"somebody root" in found[f"{TRIAL}/agent/run.sh"][1]


def test_the_report_and_the_archive_count_by_kind_and_file(work: Path) -> None:
    report = json.loads((work / "report.json").read_text())
    record = json.loads(members(work / "out.tar.gz")["leaky/traceflow.json"][1])
    said = record["redacted"]
    assert report["redacted"] == said
    assert said["detector"].startswith("kingfisher-secret-scanner ")
    assert set(said["secrets"]) == {
        *FOUND, "private-key", "env-anthropic-api-key", "env-odd-token", "env-pin-secret", "env-db-password",
    }  # fmt: skip
    assert set(said["secrets"].values()) == {1}
    files = {file["path"].removeprefix("task-0__0000000/"): file["kinds"] for file in said["files"]}
    assert files["agent/run.sh"] == {"github-pat": 1}
    assert files["verifier/test-stdout.txt"] == {"pypi-upload-token": 1}
    assert said["replaced"]["pypi-upload-token"] == 1
    assert sum(said["replaced"].values()) == sum(sum(kinds.values()) for kinds in files.values())
    left = {entry["path"].removeprefix("task-0__0000000/"): entry for entry in said["left_out"]}
    assert set(left) == {
        "agent/home/opencode.db",
        "agent/wide.txt",
        "artifacts/capture.tar.gz",
        "artifacts/[REDACTED:gitlab-pat:1].txt",
    }
    assert left["agent/home/opencode.db"]["kinds"] == {"gitlab-pat": 1}
    assert [w["code"] for w in report["warnings"]] == ["redacted_left_out"]
    assert "tree_sha256" not in record["job"]  # with it a secret could be tried


def test_lists_of_files_have_the_digests_of_what_is_there(work: Path) -> None:
    found = members(work / "out.tar.gz")
    listed = json.loads(found[f"{TRIAL}/agent/agent-home.json"][1])["files"]
    for row in listed:
        data = found[f"{TRIAL}/agent/{row['path']}"][1]
        assert (row["size"], row["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert "home/opencode.db" not in {row["path"] for row in listed}
    for row in json.loads(found["leaky/traceflow.json"][1])["derived"]:
        assert hashlib.sha256(found[f"leaky/{row['path']}"][1]).hexdigest() == row["sha256"]


def test_the_store_is_as_before_and_a_second_export_the_same(work: Path) -> None:
    store = work / "store"
    assert traceflow("store", "verify", store=store).code == 0
    assert traceflow("export", "leaky", "--redact", "-o", work / "again.tar.gz", store=store).code == 0
    assert (work / "again.tar.gz").read_bytes() == (work / "out.tar.gz").read_bytes()
    assert traceflow("export", "leaky", "-o", work / "plain2.tar.gz", store=store).code == 0
    assert (work / "plain2.tar.gz").read_bytes() == (work / "plain.tar.gz").read_bytes()


def test_verify_says_that_it_is_redacted_and_finds_what_was_changed_afterwards(work: Path) -> None:
    ran = traceflow("export", "--verify", work / "out.tar.gz", store=work / "store")
    assert ran.code == 0, ran.err
    assert "is a redacted export of job" in ran.err
    ran = traceflow("export", "--verify", work / "out.tar.gz", "--json", store=work / "store")
    assert ran.json()["redacted"]["secrets"]["github-pat"] == 1
    for path in ("agent/run.sh", "agent/clean.bin"):  # one that was redacted, one that was not
        bad = work / "bad.tar.gz"
        with tarfile.open(work / "out.tar.gz") as source, tarfile.open(bad, "w:gz") as target:
            for info in source:
                stream = source.extractfile(info)
                data = stream.read() if stream else b""
                if info.name == f"{TRIAL}/{path}":
                    data = data[:-1] + b"?"
                target.addfile(info, io.BytesIO(data))
        ran = traceflow("export", "--verify", bad, "--json", store=work / "store")
        assert ran.code == 1
        assert [p["path"] for p in ran.json()["problems"]] == [f"task-0__0000000/{path}"]


def test_it_imports_elsewhere_and_beside_the_original_never_as_it(work: Path, tmp_path: Path) -> None:
    for store in (tmp_path / "elsewhere", work / "store"):
        ran = traceflow("import", work / "out.tar.gz", "--json", store=store)
        assert ran.code == 0, ran.err
        report: dict[str, Any] = ran.json()
        assert report["job_id"] != JOB_ID
        assert (report["original_job_id"], report["scored"]) == (JOB_ID, 1)
        assert report["redacted"]["secrets"]["github-pat"] == 1
        assert "redacted" in [warning["code"] for warning in report["warnings"]]
        shown = traceflow("trial", "trace", "task-0__0000000", "--job", report["job_id"], store=store)
        assert "[REDACTED:github-pat:1]" in shown.out
    ran = traceflow("export", report["job_id"], "-o", tmp_path / "back.tar.gz", store=work / "store")
    assert ran.code == 0, ran.err
    assert (tmp_path / "back.tar.gz").read_bytes() == (work / "out.tar.gz").read_bytes()
    assert traceflow("import", tmp_path / "back.tar.gz", store=work / "store").code == 1  # it is there


def test_without_the_extra_it_says_what_to_install(work: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['kingfisher_sdk'] = None; from traceflow.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    out = tmp_path / "x.tar.gz"
    ran = subprocess.run(
        [sys.executable, "-c", script, "--store", str(work / "store"), "export", JOB_ID, "--redact", "-o", str(out)],
        capture_output=True,
        timeout=60,
    )
    said = Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())
    assert said.code == 1
    assert "error[missing_extra]" in said.err
    assert 'pip install "traceflow[redact]"' in said.err
    assert not out.exists()


def test_it_is_not_asked_for_together_with_the_original(work: Path) -> None:
    assert traceflow("export", JOB_ID, "--redact", "--original", store=work / "store").code == 2
