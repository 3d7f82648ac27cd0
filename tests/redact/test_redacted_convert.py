"""`convert --redact`: whatever is written holds no secret, and the report says what was replaced."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from secret_job import ENV, FOUND, SECRETS, write_secret_job

import traceflow as library

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from running import traceflow


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_secret_job(tmp_path_factory.mktemp("leaky"))


def assert_clean(data: bytes) -> None:
    for name, secret in SECRETS.items():
        if name != "PIN_SECRET":
            for spelled in (secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[3:-3]):
                assert spelled.encode() not in data, name


@pytest.mark.parametrize("to", ["atif", "trace", "chat", "otlp-json"])
def test_a_trials_session_is_redacted_with_what_its_records_state(job: Path, to: str, tmp_path: Path) -> None:
    session = next(job.glob("*/agent/sessions/**/*.jsonl"))
    plain = traceflow("convert", session, "--to", to)
    assert FOUND["github-pat"] in plain.out
    ran = traceflow("convert", session, "--to", to, "--redact")
    assert ran.code == 0, ran.err
    assert_clean(ran.out.encode())
    assert "[REDACTED:github-pat:1]" in ran.out
    assert "[REDACTED:env-odd-token:1]" in ran.out
    assert "redacted: " in ran.err
    file = tmp_path / "x.jsonl"
    again = traceflow("convert", session, "--to", to, "--redact", "-o", file, "--json")
    assert again.code == 0, again.err
    assert again.json()["outputs"] == [str(file)]
    assert again.json()["redacted"]["secrets"]["github-pat"] == 1
    if to != "otlp-json":  # there the name says that it shall be a line
        assert file.read_text() == ran.out
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]
    for line in file.read_text().splitlines() if to != "atif" else [file.read_text()]:
        json.loads(line)


def test_a_folder_has_its_sessions_redacted(job: Path, tmp_path: Path) -> None:
    ran = traceflow("convert", next(job.glob("*/agent/sessions")), "--redact", "-o", tmp_path / "out", "--json")
    assert ran.code == 0, ran.err
    (file,) = (tmp_path / "out").glob("*/trajectory.json")
    assert ran.json()["outputs"] == [str(file)]
    assert_clean(file.read_bytes())


def test_a_packed_job_is_redacted_and_says_so(job: Path, tmp_path: Path) -> None:
    session = next(job.glob("*/agent/sessions/**/*.jsonl"))
    for name, more in (("plain", ()), ("redacted", ("--redact",))):
        ran = traceflow("convert", session, "--to", "job", "--task", "t", "-o", tmp_path / name, *more)
        assert ran.code == 0, ran.err
        ran = traceflow("import", tmp_path / name, "--json", store=tmp_path / "store")
        assert ran.code == 0, ran.err
    assert ran.json()["redacted"]["secrets"]["github-pat"] == 1
    for path in (tmp_path / "redacted").rglob("*"):
        if path.is_file():
            assert_clean(path.read_bytes())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain", "redacted", "store"]


def test_in_python_too(job: Path) -> None:
    session = next(job.glob("*/agent/sessions/**/*.jsonl"))
    (record,) = library.convert(session, to="chat", redact=True)
    assert ENV["ODD_TOKEN"] not in json.dumps(record, ensure_ascii=False)
    assert "[REDACTED:env-odd-token:1]" in record["messages"][0]["content"]
