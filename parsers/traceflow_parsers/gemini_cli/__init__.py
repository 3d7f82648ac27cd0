"""Gemini CLI: session logs that rewrite themselves, older documents, subagents, and the stream-json of stdout."""

from .session import GeminiSession
from .stdout import HARNESS, GeminiStdout

__all__ = ["HARNESS", "GeminiSession", "GeminiStdout"]
