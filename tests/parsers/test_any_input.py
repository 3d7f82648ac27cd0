"""Any bytes, any truncation, any line dropped, doubled or swapped: events in order, a valid trajectory, or a refusal.

`TRACEFLOW_FUZZ_SECONDS` fuzzes each input for so long (100 for a release: each harness has six); without it each gets
a few rounds. `TRACEFLOW_FUZZ_FROM` is the first seed, so that another run is of other faults.
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats import jsontext
from traceflow_formats.atif import strict_problems, trajectory
from traceflow_formats.errors import TraceflowError
from traceflow_parsers.contract import Part
from traceflow_parsers.registry import HARNESSES
from traceflow_parsers.source import Harness, head_records
from traceflow_parsers.testing import check_events

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "recordings"
SECONDS = float(os.environ.get("TRACEFLOW_FUZZ_SECONDS", "0"))
FIRST = int(os.environ.get("TRACEFLOW_FUZZ_FROM", "0"))
ROUNDS = 12


def deep(levels: int) -> Any:
    """Objects in objects: orjson reads 1,024 levels and writes 254."""
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


_WRONG: list[Any] = [
    *(None, True, 0, -1, 1e300, "", "x" * 300, "\ud83d", [], [[]], {}, {"type": "text"}, 2**70),
    *(deep(300), deep(700)),
]


def inputs() -> Iterator[tuple[str, Harness, str, Path]]:
    """A few inputs of each harness: its stdout, and its session files that are JSON lines."""
    for harness in HARNESSES:
        found = {"stdout": 0, "session": 0}
        for folder in sorted(RECORDINGS.glob("*/*")):
            if folder.name not in ("basic", "subagent", "compact", "errors"):
                continue
            files = [*folder.glob("stdout*.jsonl"), *(p for p in (folder / "home").rglob("*.json*") if p.is_file())]
            for path in sorted(files):
                if path.stat().st_size > 200_000:
                    continue
                records = head_records(path)
                kind = "stdout" if harness.is_stdout(records) else "session" if harness.is_session(records) else None
                if kind is not None and found[kind] < 3:
                    found[kind] += 1
                    yield f"{harness.name}-{kind}-{found[kind]}", harness, kind, path


INPUTS = list(inputs())


def spoiled(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """One to four faults in a file."""
    for _ in range(dice.randint(1, 4)):
        lines = data.split(b"\n")
        at, to = dice.randrange(len(lines)), dice.randrange(len(lines))
        fault = dice.randrange(9)
        if fault == 0:
            data = data[: dice.randrange(len(data) + 1)]
            continue
        if fault == 1:
            del lines[at]
        elif fault == 2:
            lines.insert(to, lines[at])
        elif fault == 3:
            lines[at], lines[to] = lines[to], lines[at]
        elif fault == 4:
            lines.insert(at, dice.choice(others))
        elif fault == 5:
            row = bytearray(lines[at])
            for _ in range(dice.randint(1, 5)):
                if row:
                    row[dice.randrange(len(row))] = dice.randrange(256)
            lines[at] = bytes(row)
        elif fault == 6:
            lines[at] = bytes(dice.randrange(256) for _ in range(dice.randrange(40)))
        else:
            lines[at] = with_wrong_value(lines[at], dice)
        data = b"\n".join(lines)
        if not data:
            return b"{}"
    return data


def with_wrong_value(line: bytes, dice: random.Random) -> bytes:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    here = value
    for _ in range(dice.randint(1, 6)):
        if isinstance(here, dict) and here:
            key: Any = dice.choice(sorted(here))
        elif isinstance(here, list) and here:
            key = dice.randrange(len(here))
        else:
            break
        if dice.random() < 0.4 or not isinstance(here[key], dict | list):
            if dice.random() < 0.3 and isinstance(here, dict):
                del here[key]
            else:
                here[key] = dice.choice(_WRONG)
            break
        here = here[key]
    return json.dumps(value).encode()


def check(harness: Harness, kind: str, data: bytes, path: Path) -> None:
    if kind == "stdout":
        parser = harness.stdout()
        parser.begin(Part("stdout.jsonl"))
        events = [event for line in data.split(b"\n") for event in parser.feed(line + b"\n")]
        events += parser.finish()
        report = parser.report
    else:
        path.write_bytes(data)
        try:
            parse = harness.session_at(path).parse()
            events = list(parse)
        except TraceflowError:
            return
        report = parse.report
    check_events(events)
    lines = report.lines
    assert lines.read == lines.parsed + lines.unknown + lines.malformed + lines.duplicate
    document = trajectory(events)
    assert document == {} or not list(strict_problems(document))
    for event in events:
        jsontext.dumps(event.data)


@pytest.mark.parametrize(("name", "harness", "kind", "source"), INPUTS, ids=[name for name, *_ in INPUTS])
def test_spoiled_input_is_survived(name: str, harness: Harness, kind: str, source: Path, tmp_path: Path) -> None:
    data = source.read_bytes()
    others = [line for *_, path in INPUTS[::3] for line in path.read_bytes().split(b"\n")[:2]]
    began, seed = time.monotonic(), FIRST
    while seed < FIRST + ROUNDS or time.monotonic() - began < SECONDS:
        dice = random.Random(f"{name}/{seed}")
        broken = spoiled(data, others, dice)
        target = tmp_path / source.name
        try:
            check(harness, kind, broken, target)
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}: {error!r}") from error
        seed += 1


def places(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The places of a record, three levels of them; the first item stands for a list."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in inner:
        yield (*at, key)
        if len(at) < 2:
            yield from places(item, (*at, key))


@pytest.mark.parametrize(("name", "harness", "kind", "source"), INPUTS, ids=[name for name, *_ in INPUTS])
def test_a_value_without_bottom_is_left_out_at_any_place(
    name: str, harness: Harness, kind: str, source: Path, tmp_path: Path
) -> None:
    data, seen, target = source.read_bytes(), set(), tmp_path / source.name
    lines = [data] if data.startswith(b"{\n") else data.split(b"\n")
    for number, line in enumerate(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        for at in list(places(record)):
            if (sort := (record.get("type"), at)) in seen:
                continue
            seen.add(sort)
            wrong = copy.deepcopy(record)
            here = wrong
            for key in at[:-1]:
                here = here[key]
            here[at[-1]] = deep(700)
            try:
                check(
                    harness,
                    kind,
                    b"\n".join([*lines[:number], json.dumps(wrong).encode(), *lines[number + 1 :]]),
                    target,
                )
            except Exception as error:
                raise AssertionError(f"{at} of line {number}: {error!r}") from error
    assert seen


def test_every_harness_is_fuzzed_on_both_of_its_sources() -> None:
    kinds = {(harness.name, kind) for _, harness, kind, _ in INPUTS}
    wanted = {(h.name, kind) for h in HARNESSES for kind in ("stdout", "session")}
    assert wanted - kinds <= {("opencode", "session")}, "its sessions are databases: test_opencode spoils those"
