"""Small Harbor jobs for tests, their archives, and what a store holds of them."""

from __future__ import annotations

import hashlib
import json
import tarfile
import uuid
import zipfile
from pathlib import Path
from typing import Any

import zstandard

from traceflow.export.archive import export_job
from traceflow.store import Store

FIXTURES = Path(__file__).parents[2] / "fixtures"
DEMO = FIXTURES / "jobs" / "demo"
HARBOR_JOBS = FIXTURES / "harbor" / "jobs"
CASES = FIXTURES / "cases"
JOB_ID = "11111111-1111-4111-8111-111111111111"


def claude_rows(session: str, turns: int, word: str = "step") -> bytes:
    """A Claude Code session: a prompt, then `turns` messages of the model, each with a call and its result."""
    rows: list[dict[str, Any]] = []
    base = {"sessionId": session, "version": "2.1.0", "isSidechain": False, "cwd": "/app"}

    def add(kind: str, message: dict[str, Any]) -> None:
        number = len(rows)
        uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session}/{number}"))
        parent = rows[-1]["uuid"] if rows else None
        time = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}.000Z"
        rows.append({"parentUuid": parent, **base, "type": kind, "message": message, "uuid": uid, "timestamp": time})

    add("user", {"role": "user", "content": f"please {word}"})
    for n in range(turns):
        call = {"type": "tool_use", "id": f"toolu_{n}", "name": "Bash", "input": {"command": f"echo {word} {n}"}}
        text = {"type": "text", "text": f"{word} {n}"}
        usage = {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": n}
        message = {"id": f"msg_{n}", "type": "message", "role": "assistant", "model": "claude-x", "usage": usage}
        add("assistant", {**message, "content": [text, call]})
        result = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": f"{word} {n}\n"}
        add("user", {"role": "user", "content": [result]})
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def trial_record(name: str, **more: Any) -> dict[str, Any]:
    """The seven keys that a trial's result.json needs, and an id."""
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"trial/{name}")),
        "task_name": name.partition("__")[0],
        "trial_name": name,
        "trial_uri": "",
        "task_id": {},
        "task_checksum": "",
        "config": {},
        "agent_info": {"name": "claude-code", "version": "2.1.0"},
        **more,
    }


def write_trial_folder(job: Path, name: str, files: dict[str, bytes] | None = None, **record: Any) -> Path:
    """A trial of a job, with further files by their path below it."""
    folder = job / name
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"task": {"path": "tasks/x"}, "trial_name": name}))
    (folder / "result.json").write_text(json.dumps(trial_record(name, **record)))
    for path, data in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def write_job_folder(job: Path, trials: int = 0, turns: int = 3, job_id: str | None = JOB_ID, **result: Any) -> Path:
    """A job of so many trials, each with a session of Claude Code and a reward of 0 or 1."""
    job.mkdir(parents=True)
    (job / "config.json").write_text(json.dumps({"job_name": job.name}))
    record = {"started_at": "2026-01-01T00:00:00", "n_total_trials": trials, **({"id": job_id} if job_id else {})}
    (job / "result.json").write_text(json.dumps({**record, **result}))
    for n in range(trials):
        session = str(uuid.UUID(int=n + 1))
        name = f"task-{n}__{n:07d}"
        files = {f"agent/sessions/projects/-app/{session}.jsonl": claude_rows(session, turns, f"word{n}")}
        write_trial_folder(job, name, files, verifier_result={"rewards": {"reward": n % 2}})
    return job


def new_store(folder: Path) -> Store:
    return Store.open(str(folder / "store"), create=True)


# -- archives --------------------------------------------------------------------------------------------------


def tar_gz(folder: Path, target: Path, top: str | None = None) -> Path:
    """An archive of a folder's files; `top` is the folder around them, none where it is ""."""
    with tarfile.open(target, "w:gz") as tar:
        tar.add(folder, arcname=folder.name if top is None else top or ".")
    return target


def tar_plain(folder: Path, target: Path) -> Path:
    with tarfile.open(target, "w") as tar:
        tar.add(folder, arcname=folder.name)
    return target


def tar_zst(folder: Path, target: Path) -> Path:
    plain = tar_plain(folder, target.with_suffix(".plain"))
    target.write_bytes(zstandard.ZstdCompressor().compress(plain.read_bytes()))
    plain.unlink()
    return target


def zip_of(folder: Path, target: Path, top: str | None = None) -> Path:
    prefix = folder.name + "/" if top is None else top
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, prefix + path.relative_to(folder).as_posix())
    return target


# -- what a store holds ----------------------------------------------------------------------------------------


def contents(store: Store, job: str) -> dict[str, Any]:
    """All of a job but when and how it came: trials, events, files with their digests."""
    manifest = store.job(job)
    trials = store.trials(manifest)
    return {
        "trials": trials,
        "events": {row["trial_name"]: list(store.trace(row)) for row in trials},
        "files": [(f.path, f.kind, f.size, f.mode & 0o111, f.sha256, f.derived) for f in store.files(manifest)],
        "tables": {o.name: o.sha256 for o in manifest.objects if o.name == "events.parquet"},
        "facts": {k: v for k, v in manifest.job.items() if k not in ("imported_at", "imported_as")},
        "report": dict(manifest.report),
    }


def export_sha(store: Store, job: str, folder: Path) -> str:
    """The digest of the job's export."""
    target = folder / "export.tar.gz"
    export_job(store, store.job(job), target)
    return hashlib.sha256(target.read_bytes()).hexdigest()


def assert_clean(store: Store) -> None:
    """The store verifies, and nothing is in it that belongs to no job."""
    assert store.verify(contents=True).problems == []
    assert store.gc(minutes=0, dry_run=True).removed == []
