"""OpenCode: its SQLite database with the log, older JSON files, exports, and the JSON of stdout."""

from .parser import HARNESS, OpencodeSession, OpencodeStdout

__all__ = ["HARNESS", "OpencodeSession", "OpencodeStdout"]
