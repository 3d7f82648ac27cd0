"""Qwen Code: session trees, the subagents that only telemetry knows, and the stream-json of stdout."""

from .session import QwenSession
from .stdout import HARNESS, QwenStdout

__all__ = ["HARNESS", "QwenSession", "QwenStdout"]
