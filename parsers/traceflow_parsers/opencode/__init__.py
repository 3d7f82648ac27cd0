"""OpenCode: its SQLite database with the log, older JSON files, exports, and the JSON of stdout."""

from __future__ import annotations

from ..source import Harness
from .files import is_database, session_at, sessions_in
from .parts import HARNESS_NAME
from .session import OpencodeSession, is_session
from .stdout import OpencodeStdout, is_stdout

__all__ = ["HARNESS", "OpencodeSession", "OpencodeStdout"]

HARNESS = Harness(
    name=HARNESS_NAME,
    version=1,
    stdout_names=("opencode.txt",),
    is_stdout=is_stdout,
    is_session=is_session,
    stdout=OpencodeStdout,
    session_at=lambda path: session_at(path, OpencodeSession),
    sessions_in=lambda folder: sessions_in(folder, OpencodeSession),
    is_store=is_database,
)
