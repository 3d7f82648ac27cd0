"""DuckDB over a store: a connection that sees the store's folder and nothing else, sized to the machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from traceflow.store.store import Store

__all__ = ["arrow_reader", "engine_settings", "open_locked", "quote"]


def quote(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def arrow_reader(relation: Any, rows: int) -> Any:
    """The answer as a stream of Arrow batches, whatever DuckDB of those we allow calls it."""
    return relation.to_arrow_reader(rows) if hasattr(relation, "to_arrow_reader") else relation.fetch_arrow_reader(rows)


def open_locked(store: Store) -> tuple[duckdb.DuckDBPyConnection, str]:
    """A connection that sees the store's folder and nothing else, and the root of the store as DuckDB names it."""
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": False})
    try:
        root = store.backend.duckdb_root(connection)
        for name, value in engine_settings(store.backend.parallel).items():
            connection.execute(f"SET {name} = {value}")
        connection.execute(f"SET allowed_directories = [{quote(root)}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
    except BaseException:
        connection.close()
        raise
    return connection, root


def engine_settings(at_least: int = 1) -> dict[str, str]:
    """Settings sized to the machine: its processors, and half of the memory that this process may use. Where threads
    wait for a network there are `at_least` so many."""
    folder = Path(tempfile.gettempdir(), f"traceflow-{os.getpid()}")
    return {
        "TimeZone": "'UTC'",
        "threads": str(max(_processors(), at_least)),
        "memory_limit": quote(f"{max(256, _memory() // 2 >> 20)}MiB"),
        "temp_directory": quote(str(folder)),  # what does not fit the memory; the default is the working folder
        "enable_progress_bar": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "preserve_insertion_order": "true",
    }


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> int:
    """Bytes of memory of the machine, or of the container when that has fewer."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        total = 4 << 30
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(name).read_text()))
        except (OSError, ValueError):
            continue
    return total
