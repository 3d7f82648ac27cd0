"""The harnesses that are known. A new one is a module that makes a `Harness`, and a line here."""

from __future__ import annotations

from . import claude_code, codex, droid, gemini_cli, opencode, qwen_code
from .foreign import FOREIGN_VERSIONS
from .kimi import cli as kimi_cli
from .kimi import code as kimi_code
from .source import Harness

__all__ = ["HARNESSES", "harness_named", "parser_versions"]

HARNESSES: tuple[Harness, ...] = (
    claude_code.HARNESS,
    codex.HARNESS,
    gemini_cli.HARNESS,
    qwen_code.HARNESS,
    kimi_code.HARNESS,
    kimi_cli.HARNESS,
    opencode.HARNESS,
    droid.HARNESS,
)


def harness_named(name: str) -> Harness | None:
    """The harness of this name, or None."""
    return next((h for h in HARNESSES if h.name == name), None)


def parser_versions() -> dict[str, int]:
    """The version of each harness's parsers, and of the readers of trajectories and traces (`atif`, `trace`)."""
    return {**{h.name: h.version for h in HARNESSES}, **FOREIGN_VERSIONS}
