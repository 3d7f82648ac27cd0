"""A job with a secret of every kind in every sort of file, made up here: none stands in the repository."""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import sqlite3
import string
import sys
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.append(str(Path(__file__).parents[1] / "importer"))
from job_builder import JOB_ID, claude_rows, write_job_folder, write_trial_folder

__all__ = ["ENV", "FOUND", "JOB_ID", "KEY_LINES", "PRIVATE_KEY", "SECRETS", "write_secret_job"]

_DICE = random.Random(20261130)
_ALNUM = string.ascii_letters + string.digits


def _of(alphabet: str, count: int) -> str:
    return "".join(_DICE.choice(alphabet) for _ in range(count))


ENV = {
    "ANTHROPIC_API_KEY": "live-" + _of(_ALNUM, 30),
    "ODD_TOKEN": 'q/"' + _of(_ALNUM, 12) + "\\<é>&\n" + _of(_ALNUM, 4),
    "PIN_SECRET": "9" + _of("0123456789", 7),
}
FOUND = {
    "github-pat": "ghp_" + _of(_ALNUM, 36),
    "anthropic-api-key": "sk-ant-api03-" + _of(_ALNUM + "-_", 93) + "AA",
    "slack-bot-token": "xoxb-" + _of(string.digits, 12) + "-" + _of(string.digits, 12) + "-" + _of(_ALNUM, 24),
    "gitlab-pat": "glpat-" + _of(_ALNUM, 20),
    "pypi-upload-token": "pypi-AgEIcHlwaS5vcmc" + _of(_ALNUM, 80),
    "aws-secret-access-key": _of(_ALNUM + "/+", 39) + "z",
}
KEY_LINES = [_of(_ALNUM + "+/", 64) for _ in range(12)]
PRIVATE_KEY = "\n".join(["-----BEGIN RSA PRIVATE KEY-----", *KEY_LINES, "-----END RSA PRIVATE KEY-----"])
SECRETS = {**ENV, **FOUND, **{f"key-line-{n}": line for n, line in enumerate(KEY_LINES)}}


def _database(path: Path, secret: str) -> bytes:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE part (data TEXT)")
        connection.execute("INSERT INTO part VALUES (?)", (json.dumps({"text": f"the key is {secret}"}),))
    connection.close()
    data = path.read_bytes()
    path.unlink()
    return data


def _tar_gz(name: str, data: bytes) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _files(folder: Path) -> dict[str, bytes]:
    found, pin, odd = FOUND, ENV["PIN_SECRET"], ENV["ODD_TOKEN"]
    rows = claude_rows("11111111-2222-4333-8444-555555555555", 2, f"use {found['github-pat']} and {odd}")
    inner = json.dumps({"command": f"curl -H 'x: {odd}'", "more": json.dumps({"deep": odd})})
    rows += json.dumps({"type": "x-note", "input": inner, "pin": int(pin), "big": int(f"1{pin}0")}).encode() + b"\n"
    notes = [
        f"token={found['anthropic-api-key']} slack {found['slack-bot-token']}",
        f"AWS_SECRET_ACCESS_KEY={found['aws-secret-access-key']}",
        PRIVATE_KEY,
        "\r\n".join(f"   {n}\t{line}" for n, line in enumerate(PRIVATE_KEY.splitlines())),
        f"basic {base64.b64encode(('user:' + ENV['ANTHROPIC_API_KEY']).encode()).decode()}",
        f"https://x.example/?key={quote(odd, safe='')}",
        f"raw {odd} pin {pin}",
    ]
    wide = f"key {ENV['ANTHROPIC_API_KEY']}\n".encode("utf-16")
    return {
        "agent/sessions/projects/-app/11111111-2222-4333-8444-555555555555.jsonl": rows,
        "agent/notes.txt": "\n".join(notes).encode(),
        "agent/data.json": json.dumps(
            {"pin": int(pin), "big": int(f"{pin}1"), "text": f"pin {pin}", "slashed": found["gitlab-pat"], "n": 1e-05},
            indent=1,
        ).encode(),
        "agent/home/opencode.db": _database(folder / "x.db", found["gitlab-pat"]),
        "agent/wide.txt": wide,
        "agent/clean.bin": bytes(range(256)) * 9,
        "artifacts/capture.tar.gz": _tar_gz("a/b.txt", f"hidden {found['github-pat']}".encode()),
        "artifacts/clean.tar.gz": _tar_gz("a/b.txt", b"nothing"),
        f"artifacts/{found['gitlab-pat']}.txt": b"a name that tells",
        "verifier/test-stdout.txt": f"upload with {found['pypi-upload-token']}\n".encode(),
    }


def write_secret_job(folder: Path) -> Path:
    """The job folder."""
    job = write_job_folder(folder / "leaky")
    config: dict[str, Any] = {
        "task": {"path": "tasks/x"},
        "agent": {
            "name": "claude-code",
            "env": {
                **ENV,
                "DB_PASSWORD": "root",
                "MAX_OUTPUT_TOKENS": "32000",
                "GIT_AUTHOR_NAME": "somebody",
                "MASKED_KEY": "sk-a****xyz",
                "OTHER_KEY": "${OTHER_KEY}",
            },
        },
    }
    name = "task-0__0000000"
    trial = write_trial_folder(job, name, _files(folder), config=config, verifier_result={"rewards": {"reward": 1}})
    (trial / "config.json").write_text(json.dumps({**config, "trial_name": name}, indent=4))
    (trial / "agent" / "run.sh").write_text(f"#!/bin/sh\nexport GH={FOUND['github-pat']}\nsomebody root\n")
    (trial / "agent" / "run.sh").chmod(0o755)
    return job
