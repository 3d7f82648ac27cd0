"""Sources: what was found on disk, ready to be handed to a parser in order.

A `Harness` says how its two sources are told apart from everybody else's, and where its sessions lie below a
home folder. A `Source` is one session, or one stdout stream: its files in reading order and the parser to use.
Nothing here writes, and symlinks are never followed.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from traceflow_formats.trace import Event

from .contract import Parser, Part
from .lines import MAX_LINE, LongLine, file_lines, iter_lines
from .report import Report

__all__ = ["Harness", "Input", "Parse", "Source", "entries_of", "file_input", "head_records", "walk_files"]

HEAD_LINES = 60
DOCUMENT_BYTES = 1 << 20
HEAD_BYTES = 4 << 20


class Input(NamedTuple):
    """One file of a source: what the parser is told of it, and its lines (all of them at each call)."""

    part: Part
    lines: Callable[[], Iterator[bytes]]


class Source(NamedTuple):
    """One session or stream. `path` is the main file or folder, `session_id` what its place says, if anything."""

    harness: str
    kind: str  # session | stdout | trace | atif | sdk
    path: Path
    inputs: tuple[Input, ...]
    make: Callable[[], Parser]
    session_id: str | None = None
    files: tuple[Path, ...] = ()  # every file that belongs to it, read or not

    def parse(self) -> Parse:
        """A parse of the source from its beginning."""
        return Parse(self)


class Parse:
    """One reading of a source: iterate it once for the events; `report` is complete after the last one."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._parser = source.make()

    @property
    def report(self) -> Report:
        return self._parser.report

    def __iter__(self) -> Iterator[Event]:
        parser = self._parser
        for item in self.source.inputs:
            parser.begin(item.part)
            yield from chain.from_iterable(map(parser.feed, item.lines()))
        yield from parser.finish()


def _no_store(_: Path) -> bool:
    return False


class Harness(NamedTuple):
    """One harness, as the registry knows it."""

    name: str
    version: int  # of what its parsers give: raised with every change of it, so that stored jobs are known to be older
    stdout_names: tuple[str, ...]  # the file that a runner tees its stdout into, under agent/
    is_stdout: Callable[[Sequence[dict[str, Any]]], bool]  # do these first records come from its stdout?
    is_session: Callable[[Sequence[dict[str, Any]]], bool]  # do they come from its session file?
    stdout: Callable[[], Parser]
    session_at: Callable[[Path], Source]  # the session whose main file this is, with what lies beside it
    sessions_in: Callable[[Path], list[Source]]  # the root sessions below a folder, at the harness's own places
    is_store: Callable[[Path], bool] = _no_store  # a file of many sessions (a database): `sessions_in` takes it too

    def stdout_source(self, path: Path) -> Source:
        """The stream that a file holds."""
        return Source(self.name, "stdout", path, (file_input(path, Part(path.name)),), self.stdout, files=(path,))


def file_input(path: Path, part: Part, max_line: int = MAX_LINE) -> Input:
    """A file, line by line."""
    return Input(part, lambda: file_lines(path, max_line))


def head_records(path: Path, most: int = HEAD_LINES) -> list[dict[str, Any]]:
    """The first JSON objects of a file, for detection: at most 60 lines, or `most`, and 4 MiB of it.

    Lines that are no JSON object are passed over (noise, a torn end); escape codes before a brace are too.
    A file that is one JSON document over many lines, or one too long, gives that document as far as its first
    1 MiB tells: the members that are whole, and of the first list that is not, the items that are. Of a document
    that is a list the objects in it count.
    """
    records: list[dict[str, Any]] = []
    size = 0
    lines = document = opens = False
    with path.open("rb") as stream:
        for number, line in enumerate(iter_lines(stream, HEAD_BYTES)):
            size += len(line)
            if number >= most or size > HEAD_BYTES:
                break
            record = _object(line)
            if number == 0:
                document = record is None and line.lstrip(b"\xef\xbb\xbf \t\r").startswith((b"{", b"["))
                opens = document and line.rstrip().endswith((b"{", b"["))  # no torn line: a document goes on below
            if record is not None:
                records.append(record)
                lines = lines or line.startswith(b"{")  # nested objects of a document are indented
    if document and (opens or not lines) and (found := _document_head(path)):
        return found[:HEAD_LINES]
    return records


def _document_head(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as stream:
        data = stream.read(DOCUMENT_BYTES)
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = data.decode("utf-16" if utf16 else "utf-8-sig", "replace")
    decoder = json.JSONDecoder()
    found: dict[str, Any] = {}
    start = _after(text, 0)
    members: list[Any] = []
    try:
        if text.startswith("[", start):
            _items(decoder, text, start, members)
        at = _after(text, start + 1)
        while text.startswith('"', at):
            key, at = decoder.raw_decode(text, at)
            at = _after(text, at)
            if text.startswith("[", at):
                items = found[key] = []
                at = _items(decoder, text, at, items)
            else:
                found[key], at = decoder.raw_decode(text, at)
            at = _after(text, at)
    except (ValueError, RecursionError):  # the end of what was read, or of what is JSON
        pass
    return [found] if found else [item for item in members if isinstance(item, dict)]


def _items(decoder: json.JSONDecoder, text: str, at: int, items: list[Any]) -> int:
    """Read a list item by item, so that what was read of it stays when it is cut; returns where it ends."""
    at = _after(text, at + 1)
    while not text.startswith("]", at):
        item, at = decoder.raw_decode(text, at)
        items.append(item)
        at = _after(text, at)
    return at + 1


def _after(text: str, at: int) -> int:
    """The position of the next token: past blanks, commas and colons."""
    while at < len(text) and text[at] in " \t\r\n,:":
        at += 1
    return at


def _object(line: bytes) -> dict[str, Any] | None:
    if type(line) is LongLine:
        return None
    start = line.find(b"{")
    if start < 0:
        return None
    try:
        value = orjson.loads(line[start:])
    except orjson.JSONDecodeError:
        try:
            value = json.loads(line[start:].decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def walk_files(root: Path, suffixes: tuple[str, ...] = ()) -> Iterator[Path]:
    """The regular files below a folder in the order of their paths; links and special files are passed over."""
    open_folders = [iter(entries_of(root))]
    while open_folders:
        entry = next(open_folders[-1], None)
        if entry is None:
            open_folders.pop()
        elif entry.is_dir(follow_symlinks=False):
            open_folders.append(iter(entries_of(entry.path)))
        elif entry.is_file(follow_symlinks=False) and (not suffixes or entry.name.endswith(suffixes)):
            yield Path(entry.path)


def entries_of(folder: Path | str) -> list[os.DirEntry[str]]:
    """What lies in a folder, by name; nothing where there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (NotADirectoryError, FileNotFoundError):
        return []
