"""Inputs for packing: SDK logs made of recorded stdout, and the packed job as a table of its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from traceflow.conversion import Conversion
from traceflow.pack import PackOptions, pack_job
from traceflow.sources import open_any

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
STARTED, ENDED = "2026-01-02T03:04:05.678Z", "2026-01-02T03:09:00.000Z"
PROMPT = "Please run the scripted tour of this directory. [[scn:basic]]"

# The SDK's name of a harness, and a recording of it whose only run went well.
AGENTS = {
    "claude": "claude-2.1.197/basic",
    "codex": "codex-0.171.0/basic",
    "gemini": "gemini-0.61.0/basic",
    "qwen": "qwen-0.15.10/basic",
    "kimi": "kimi-code-2.1.0/basic",
    "opencode": "opencode-1.18.33/basic",
    "droid": "droid-0.215.0/basic",
}


def stdout(recording: str, step: str = "") -> bytes:
    """What the harness printed."""
    return (RECORDINGS / recording / f"stdout{step}.jsonl").read_bytes()


def sdk_log(
    agent: str, /, *runs: bytes, tag: str = "evolve-0123456789abcdef", prompts: Sequence[str] = (), **meta: Any
) -> bytes:
    """An SDK session log of one run or several; `meta` goes over the header's members, None leaves one out."""
    header = {"tag": tag, "provider": "e2b", "agent": agent, "sandbox_id": "sbx_1", "timestamp": STARTED, **meta}
    lines = [_line({"_meta": {name: value for name, value in header.items() if value is not None}})]
    for number, run in enumerate(runs):
        text = prompts[number] if prompts else PROMPT
        lines += [_line({"_prompt": {"text": text}}), run if run.endswith(b"\n") else run + b"\n"]
    lines.append(_line({"_sessionEnd": {"timestamp": ENDED}}))
    return b"".join(lines)


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def pack(path: Path, out: Path, *, harness: str | None = None, **options: Any) -> Conversion:
    """Pack what lies at a path; options as of `PackOptions`."""
    conversion = Conversion()
    pack_job(open_any(path, harness), out, PackOptions(**options), conversion, root=path)
    return conversion


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def trials(job: Path) -> dict[str, Mapping[str, Any]]:
    """The results of a job's trials by their names."""
    return {path.parent.name: json.loads(path.read_bytes()) for path in sorted(job.glob("*/result.json"))}


def only_trial(job: Path) -> tuple[Path, Mapping[str, Any]]:
    """The folder and the result of a job's only trial."""
    ((name, result),) = trials(job).items()
    return job / name, result


def trajectory(trial: Path) -> dict[str, Any]:
    """The trajectory of a trial."""
    value: dict[str, Any] = json.loads((trial / "agent" / "trajectory.json").read_bytes())
    return value
