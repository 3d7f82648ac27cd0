"""The one table of bounds on what is read from outside, and where a user changes them.

A bound is a field of `Limits`; its default, its unit and what happens over it stand there and nowhere else.
Values come from, the later winning: the defaults, `[limits]` in `config.toml` in the user's configuration
folder, environment variables `TRACEFLOW_LIMIT_<NAME>`, and overrides by the caller (command line, API).
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from traceflow_formats.errors import TraceflowError

__all__ = ["ENV_PREFIX", "LimitRow", "Limits", "format_size", "load_limits", "parse_size"]

ENV_PREFIX = "TRACEFLOW_LIMIT_"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_UNITS = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40}
_UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"(\d[\d_]*(?:\.\d+)?)\s*([A-Za-z]*)").fullmatch
_LARGEST = (1 << 63) - 1


class LimitRow(NamedTuple):
    """One bound, for tables: `value` in `unit` ("bytes", "members", "x", "levels"), `over` the code of the refusal."""

    name: str
    value: int
    unit: str
    over: str
    meaning: str


def _limit(default: int, unit: str, over: str, meaning: str) -> Any:
    return field(default=default, metadata={"unit": unit, "over": over, "meaning": meaning})


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds in force. Sizes are bytes."""

    archive_bytes: int = _limit(8 * GIB, "bytes", "upload_too_large", "an archive as it is fetched or read")
    unpacked_bytes: int = _limit(64 * GIB, "bytes", "upload_too_large", "all files of a job together")
    members: int = _limit(1_000_000, "members", "upload_too_large", "files and folders of a job")
    record_bytes: int = _limit(64 * MIB, "bytes", "upload_too_large", "a config.json, result.json or lock.json")
    file_bytes: int = _limit(
        5 * GIB, "bytes", "trial_too_large", "one file: its trial is skipped; a job.log refuses the job"
    )
    atif_bytes: int = _limit(1 * GIB, "bytes", "trial_too_large", "one ATIF document")
    ratio: int = _limit(200, "x", "upload_too_large", "unpacked size by archive size, beyond ratio_free_bytes")
    ratio_free_bytes: int = _limit(1 * GIB, "bytes", "upload_too_large", "unpacked size that any archive may have")
    path_bytes: int = _limit(2048, "bytes", "invalid_archive", "the path of a member")
    path_depth: int = _limit(128, "levels", "invalid_archive", "the levels of a member's path")
    name_bytes: int = _limit(255, "bytes", "invalid_archive", "one component of a member's path")
    header_bytes: int = _limit(1 * MIB, "bytes", "invalid_archive", "one extended header of a tar or zip member")
    index_bytes: int = _limit(32 * MIB, "bytes", "upload_too_large", "the compressed list of the members' paths")

    def describe(self) -> list[LimitRow]:
        """Every bound with its value, unit, the code over it, and what it bounds, in the order of the table."""
        return [
            LimitRow(f.name, getattr(self, f.name), f.metadata["unit"], f.metadata["over"], f.metadata["meaning"])
            for f in fields(self)
        ]

    def with_values(self, values: Mapping[str, object], origin: str = "limits") -> Limits:
        """These bounds with some replaced. Raises `invalid_input` for an unknown name or a bad value."""
        return replace(self, **{name: _value(name, value, origin) for name, value in values.items()})

    def unpacked_allowed(self, archive_bytes: int) -> tuple[int, str]:
        """What an archive of this size may unpack to, and the bound that says so: "unpacked_bytes" or "ratio"."""
        by_ratio = self.ratio * archive_bytes + self.ratio_free_bytes
        return min((self.unpacked_bytes, "unpacked_bytes"), (by_ratio, "ratio"))

    def within_disk(self, folder: Path) -> Limits:
        """These bounds with `unpacked_bytes` cut to what is free on the disk of an existing folder."""
        free = shutil.disk_usage(folder).free
        return replace(self, unpacked_bytes=min(self.unpacked_bytes, max(free, 1)))


_FIELDS: dict[str, Field[Any]] = {f.name: f for f in fields(Limits)}


def load_limits(
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
) -> Limits:
    """The bounds in force for this process. `config` replaces the user's own `config.toml`; it must then exist.

    Raises `invalid_input` for a name that is no bound, a value that is none, or a file that is no TOML.
    """
    limits = Limits()
    table, origin = _config_table(config)
    limits = limits.with_values(table, origin)
    env = os.environ if environ is None else environ
    for key in sorted(env):
        if key.startswith(ENV_PREFIX):
            limits = limits.with_values({key[len(ENV_PREFIX) :].lower(): env[key]}, f"environment variable {key}")
    return limits.with_values(overrides or {}, "limits given")


def parse_size(text: str) -> int:
    """Bytes of "5GiB", "64 MiB", "1.5GB" or "1048576". Raises ValueError for anything else."""
    match = _SIZE(text.strip())
    if match is None:
        raise ValueError(f"no size: {text!r}; write it like 5GiB, 64MiB or 1048576")
    number, unit = match.groups()
    factor = _UNITS.get(unit.upper())
    if factor is None:
        raise ValueError(f"unknown unit {unit!r} in {text!r}; the units are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB")
    size = Decimal(number.replace("_", "")) * factor
    if size != size.to_integral_value():
        raise ValueError(f"{text!r} is no whole number of bytes")
    return int(size)


def format_size(size: int) -> str:
    """A size for people: "5 GiB", "1.5 MiB", "17 B"; exact or to one digit."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor:
            return f"{size / factor:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} B"


def _value(name: str, value: object, origin: str) -> int:
    known = _FIELDS.get(name)
    if known is None:
        raise TraceflowError(
            "invalid_input", f"{origin}: there is no limit {name!r}; the limits are {', '.join(_FIELDS)}", limit=name
        )
    try:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError(f"{value!r} is no number")
        if isinstance(value, int):
            number = value
        elif known.metadata["unit"] == "bytes":
            number = parse_size(value)
        elif re.fullmatch(r"\d[\d_]*", value.strip()):
            number = int(value.strip().replace("_", ""))
        else:
            raise ValueError(f"{value!r} is no whole number")
        if not 0 < number <= _LARGEST:
            raise ValueError(f"{value!r} is out of range; a limit is at least 1")
    except ValueError as error:
        raise TraceflowError("invalid_input", f"{origin}: limit {name}: {error}", limit=name) from None
    return number


def _config_table(config: Path | None) -> tuple[dict[str, object], str]:
    if config is None:
        from platformdirs import user_config_path

        path = user_config_path("traceflow", appauthor=False) / "config.toml"
    else:
        path = config
    try:
        with path.open("rb") as stream:
            document = tomllib.load(stream)
    except FileNotFoundError:
        if config is None:
            return {}, ""
        raise TraceflowError("invalid_input", f"{path}: no such configuration file", path=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TraceflowError("invalid_input", f"{path}: no valid TOML: {error}", path=str(path)) from None
    except OSError as error:
        raise TraceflowError("io_error", f"{path}: {error.strerror}", path=str(path)) from None
    table = document.get("limits", {})
    if not isinstance(table, dict):
        raise TraceflowError("invalid_input", f"{path}: [limits] is no table", path=str(path))
    return table, f"{path}: [limits]"
