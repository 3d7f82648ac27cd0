"""Writes synthetic runs as files of a given size: JSON lines, and OpenCode's database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from . import claude_code, codex, droid, gemini_cli, kimi, opencode, qwen_code
from .run import START, Run
from .shape import Record, Shape

__all__ = ["SHAPES", "write_run"]

SHAPES: dict[str, dict[str, Shape]] = {
    "claude-code": claude_code.SHAPES,
    "codex": codex.SHAPES,
    "gemini-cli": gemini_cli.SHAPES,
    "qwen-code": qwen_code.SHAPES,
    "kimi-code": kimi.CODE_SHAPES,
    "kimi-cli": kimi.CLI_SHAPES,
    "opencode": opencode.SHAPES,
    "droid": droid.SHAPES,
}
_BATCH = 2000


def write_run(harness: str, kind: str, folder: Path, size: int, short: bool, seed: int = 1) -> Path:
    """Write one run of about `size` bytes into a folder and return the file; `kind` is session or stdout."""
    shape, run = SHAPES[harness][kind], Run(seed, short)
    path = folder / shape.name
    if shape.name.endswith(".db"):
        _write_database(path, shape, run, size)
        return path
    with path.open("wb") as out:
        written = 0
        for record in _records(shape, run):
            if record is None:
                if written >= size:
                    break
                continue
            written += out.write(shape.dumps(record) + b"\n")
        for record in shape.tail(run):
            out.write(shape.dumps(record) + b"\n")
    return path


def _records(shape: Shape, run: Run) -> Iterator[Record | None]:
    """The records of a run without end; None after each model call, where it may be cut."""
    yield from shape.head(run)
    for turn in run.turns():
        yield from shape.turn(run, turn)
        yield None


def _write_database(path: Path, shape: Shape, run: Run, size: int) -> None:
    session = "ses_" + run.session
    connection = sqlite3.connect(path)
    connection.executescript(opencode.SCHEMA)
    connection.execute(
        "INSERT INTO session (id, project_id, slug, directory, title, version, time_created, time_updated)"
        " VALUES (?, 'global', 'swift-knight', '/srv/app', 'Scripted run', '1.18.33', ?, ?)",
        (session, START, START),
    )
    messages: list[tuple[object, ...]] = []
    parts: list[tuple[object, ...]] = []
    written = 0
    for record in _records(shape, run):
        if record is not None:
            data = shape.dumps(record["data"]).decode()
            written += len(data.encode())
            if message := record.get("message"):
                parts.append((record["id"], message, session, record["time"], record["time"], data))
            else:
                messages.append((record["id"], session, record["time"], record["time"], data))
        elif len(parts) > _BATCH or written >= size:
            connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?)", messages)
            connection.executemany("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", parts)
            messages.clear()
            parts.clear()
            if written >= size:
                break
    connection.commit()
    connection.close()
