"""Pictures of a terminal: SVG of what a command printed, and the text of such a picture.

The letters are text, set in whichever fixed-width font the reader has; nothing is loaded from elsewhere.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from xml.etree import ElementTree

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

__all__ = ["picture", "text_of_picture"]

_COLOURS = [
    tuple(bytes.fromhex("3c424af062627ec678e2b6566ea8f0c88cdc5abec8d6dbe1"[at : at + 6])) for at in range(0, 48, 6)
]
_THEME = TerminalTheme((24, 27, 32), (214, 219, 225), _COLOURS)  # type: ignore[arg-type]
_PAGE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<style>
.{unique_id}-matrix {{ font: {char_height}px/{line_height}px ui-monospace, SFMono-Regular, Menlo, Consolas,
  "DejaVu Sans Mono", "Liberation Mono", monospace; white-space: pre; }}
{styles}
</style>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
_CHARACTER = 12.2  # how wide rich sets one
_TEXT = re.compile(
    r'<text class="([\w-]+)" x="([\d.]+)" y="([\d.]+)" textLength="[\d.]+" clip-path="[^"]+">(.*?)</text>', re.S
)
_COLUMN = re.compile("[^\xa0]+(?:\xa0[^\xa0]+)*")  # words with one blank between them


def picture(commands: Sequence[tuple[str, str]], columns: int, name: str) -> str:
    """An SVG of a terminal in which these commands were typed, with what each showed."""
    console = Console(
        record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="256", legacy_windows=False
    )
    lines: list[Text] = []
    for command, shown in commands:
        lines += Text.assemble(("$ ", "green"), (command, "bold green")).split("\n")
        lines += Text.from_ansi(shown.rstrip("\n")).split("\n") if shown else []
    for line in lines:  # a terminal breaks lines anywhere, not between words
        for piece in line.divide(range(columns, len(line), columns)) if len(line) > columns else [line]:
            console.print(piece, no_wrap=True, overflow="ignore", crop=False, highlight=False)
    svg = _TEXT.sub(_placed, console.export_svg(title="", theme=_THEME, code_format=_PAGE, unique_id=name))
    return "\n".join(line.strip() for line in svg.splitlines() if line.strip()) + "\n"


def _placed(element: re.Match[str]) -> str:
    """A text of rich's as one element for each column of it: not every viewer keeps spaces, or heeds textLength."""
    style, x, y, content = element.groups()
    if content == "\n":
        return ""
    words = html.unescape(content)
    return "".join(
        f'<text class="{style}" x="{float(x) + found.start() * _CHARACTER:g}" y="{y}" '
        f'textLength="{len(found[0]) * _CHARACTER:g}">{html.escape(found[0], quote=False)}</text>\n'
        for found in _COLUMN.finditer(words)
    )


def text_of_picture(svg: str) -> str:
    """The lines that a picture shows."""
    lines: dict[float, str] = {}
    for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        y = float(element.get("y", 0))
        words = "".join(element.itertext()).replace("\N{NO-BREAK SPACE}", " ")
        lines[y] = lines.get(y, "").ljust(round(float(element.get("x", 0)) / _CHARACTER)) + words
    return "".join(lines[y] + "\n" for y in sorted(lines))
