"""Limits: one table, four places that set a value, and sizes that people can write."""

from __future__ import annotations

from pathlib import Path

import pytest
from traceflow_formats.errors import ERROR_CODES, TraceflowError

from traceflow.limits import Limits, format_size, load_limits, parse_size

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


def test_the_defaults_are_the_documented_ones() -> None:
    limits = load_limits(environ={})
    assert limits == Limits()
    assert (limits.archive_bytes, limits.unpacked_bytes, limits.members) == (8 * GIB, 64 * GIB, 1_000_000)
    assert (limits.record_bytes, limits.file_bytes, limits.atif_bytes) == (64 << 20, 5 * GIB, GIB)


def test_the_table_describes_every_limit() -> None:
    rows = {row.name: row for row in Limits(members=7).describe()}
    assert set(rows) == set(Limits.__dataclass_fields__)
    assert (rows["members"].value, rows["members"].unit, rows["members"].over) == (7, "members", "upload_too_large")
    assert rows["file_bytes"].over == "trial_too_large"
    assert all(row.over in ERROR_CODES and row.meaning for row in rows.values())


def test_the_nearer_place_wins(tmp_path: Path) -> None:
    config = tmp_path / "given.toml"
    config.write_text('[limits]\nmembers = 1\nratio = 1\nfile_bytes = "1KiB"\n')
    environ = {"TRACEFLOW_LIMIT_RATIO": "2", "TRACEFLOW_LIMIT_FILE_BYTES": "2KiB", "OTHER": "9"}
    limits = load_limits({"file_bytes": "3 KiB"}, environ=environ, config=config)
    assert (limits.members, limits.ratio, limits.file_bytes) == (1, 2, 3072)


def test_the_users_own_config_is_found(tmp_path: Path) -> None:
    from platformdirs import user_config_path

    config = user_config_path("traceflow", appauthor=False) / "config.toml"
    assert tmp_path in config.parents
    config.parent.mkdir(parents=True)
    config.write_text('[other]\nx = 1\n[limits]\narchive_bytes = "9GiB"\n')
    assert load_limits(environ={}).archive_bytes == 9 * GIB


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("5GiB", 5 * GIB),
        ("64 MiB", 64 << 20),
        ("1.5 kB", 1500),
        ("1.5KiB", 1536),
        ("2tib", 2 << 40),
        ("1_000_000", 1_000_000),
        (" 17 ", 17),
        ("17B", 17),
        ("8GB", 8_000_000_000),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "5G", "five", "-1", "1.5", "0.3B", "1e9", "5 GiB 3", "GiB", "NaN", "٣MiB x"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(17, "17 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (5 * GIB, "5 GiB"), (8 << 40, "8 TiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"no_such": 1}, "there is no limit 'no_such'"),
        ({"members": 0}, "at least 1"),
        ({"members": -5}, "at least 1"),
        ({"members": "1KiB"}, "no whole number"),
        ({"members": True}, "no number"),
        ({"members": 1.5}, "no number"),
        ({"members": 1 << 63}, "out of range"),
        ({"file_bytes": "5G"}, "unknown unit 'G'"),
        ({"file_bytes": "many"}, "no size"),
        ({"file_bytes": "9" * 5000}, "out of range"),
        ({"file_bytes": None}, "no number"),
    ],
)
def test_bad_values_are_refused_by_name(values: dict[str, object], part: str) -> None:
    with pytest.raises(TraceflowError) as refused:
        load_limits(values, environ={})
    assert refused.value.code == "invalid_input"
    assert part in refused.value.message
    assert refused.value.details["limit"] == next(iter(values))


def test_a_bad_variable_is_named() -> None:
    with pytest.raises(TraceflowError, match="environment variable TRACEFLOW_LIMIT_MEMBER:"):
        load_limits(environ={"TRACEFLOW_LIMIT_MEMBER": "1"})


@pytest.mark.parametrize("text", ["[limits", "limits = 3\n", "[limits]\nmembers = []\n", "[limits]\nx = 1\n", b"\xff"])
def test_a_bad_config_is_named(tmp_path: Path, text: str | bytes) -> None:
    config = tmp_path / "bad.toml"
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceflowError, match=r"bad\.toml") as refused:
        load_limits(environ={}, config=config)
    assert refused.value.code == "invalid_input"


def test_a_config_that_was_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError, match="no such configuration file"):
        load_limits(environ={}, config=tmp_path / "absent.toml")


def test_a_small_disk_bounds_what_is_unpacked(tmp_path: Path) -> None:
    assert Limits(unpacked_bytes=1 << 62).within_disk(tmp_path).unpacked_bytes < 1 << 62
    assert Limits(unpacked_bytes=5).within_disk(tmp_path).unpacked_bytes == 5
