"""Claude Code: session files with their subagents, and the stream-json of stdout."""

from .files import HARNESS
from .session import ClaudeSession
from .stdout import ClaudeStdout

__all__ = ["HARNESS", "ClaudeSession", "ClaudeStdout"]
