"""Codex, OpenAI's command line agent: its stdout (`codex exec --json`) and its rollout files, 0.2x to 0.171."""

from __future__ import annotations

from pathlib import Path

from ..source import Harness, Source
from .files import is_session, session_at, sessions_in
from .session import CodexSession
from .stdout import CodexStdout, is_stdout

__all__ = ["HARNESS", "CodexSession", "CodexStdout"]


def _session_at(path: Path) -> Source:
    return session_at(path, CodexSession)


def _sessions_in(folder: Path) -> list[Source]:
    return sessions_in(folder, CodexSession)


HARNESS = Harness(
    name="codex",
    version=1,
    stdout_names=("codex.txt",),
    is_stdout=is_stdout,
    is_session=is_session,
    stdout=CodexStdout,
    session_at=_session_at,
    sessions_in=_sessions_in,
)
