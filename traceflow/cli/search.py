"""`traceflow search`: ranked search. Like grep it reads its own command line, so that it answers at once."""

from __future__ import annotations

from traceflow.lean_typing import TYPE_CHECKING

from . import output
from .arguments import Option, UsageError, help_text, parse
from .grep import AGENT, AS_JSON, JOB, MODEL, STORE, TRIAL, TYPE, document
from .opening import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["HELP", "search"]

HELP = (
    'Find the trials whose events fit the words best: `timeout redis`, `"connection refused"`, `timeout -docker`. '
    "Jobs are indexed on their first search. Exit 1 when nothing fits."
)
_USAGE = "traceflow search [OPTIONS] WORDS..."
_ARGUMENTS = [("WORDS...", "Words of 2 to 40 letters; 'quoted phrases'; -word for what must not be there.")]
_OPTIONS = (
    *(JOB, TRIAL, TYPE, AGENT, MODEL),
    Option(("--limit", "-n"), "limit", "At most so many trials.", "N", least=1, default=10),
    *(STORE, AS_JSON),
)
_SCOPE = ("jobs", "trials", "types", "agents", "models", "limit")


def search(argv: Sequence[str]) -> int:
    """Run the command with these words and return the exit code."""
    try:
        values, words = parse(_OPTIONS, argv, loose=True)
        if "help" in values:
            output.write(help_text(_USAGE, HELP, _ARGUMENTS, _OPTIONS))
            return 0
        if not words:
            raise UsageError("Missing argument 'WORDS...'.")
    except UsageError as error:
        output.usage_error(_USAGE, str(error))
        return 2
    return _search(" ".join(map(_quoted, words)), values)


def _quoted(word: str) -> str:
    """A word as it stands; one with a space in it was quoted for the shell and is a phrase."""
    return f'"{word}"' if " " in word.strip() and '"' not in word else word


def _search(words: str, values: dict[str, Any]) -> int:
    from traceflow.query.ranked import search as ask
    from traceflow.query.ranked import snippet

    opened = open_store(values["store"])
    with output.progress("indexing") as advance:
        found = ask(opened, words, **{key: values[key] for key in _SCOPE}, progress=advance)
    for score, matches, hit in found:
        text, spans = snippet(hit)
        if values["json"]:
            row = {"score": round(score, 6), "matches": matches, **document(hit), "snippet": text}
            output.print_json(row)
            continue
        tool = f" {hit.tool_name}" if hit.tool_name else ""
        more = f" (+{matches - 1})" if matches > 1 else ""
        where = f"{output.cell(hit.trial_name)}:{hit.seq}:{hit.type}{output.cell(tool)}"
        output.write(f"{score:6.2f}  {where}{more}\n        {_marked(text, spans)}\n")
    return 0 if found else 1


def _marked(text: str, spans: list[tuple[int, int]]) -> str:
    out, at = [], 0
    for start, end in spans:
        if start >= at:
            out += [output.cell(text[at:start]), output.painted(output.cell(text[start:end]), output.MATCH)]
            at = end
    return "".join(out) + output.cell(text[at:])
