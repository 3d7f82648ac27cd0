"""For all tests: nothing outside of their own folders is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What is kept of stores elsewhere is not the user's."""
    folder: Path = tmp_path_factory.mktemp("cache")
    os.environ["TRACEFLOW_CACHE"] = str(folder)
