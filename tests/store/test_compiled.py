"""The modules that pyproject.toml names are compiled in a wheel that is built so; `.ci/run` runs the tests with one."""

from __future__ import annotations

import os
import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

import pytest
import traceflow_parsers

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif("TRACEFLOW_COMPILED" not in os.environ, reason="set where the compiled wheel is installed")
def test_each_module_that_is_to_be_compiled_is() -> None:
    hook = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
    packages = Path(traceflow_parsers.__file__).parents[1]
    wanted, others = (
        {path.relative_to(packages) for pattern in hook["custom"][name] for path in packages.glob(pattern)}
        for name in ("modules", "except")
    )
    assert len(wanted - others) > 40
    for path in wanted - others:
        spec = find_spec(".".join(path.with_suffix("").parts))
        assert spec is not None
        assert str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES)), path
