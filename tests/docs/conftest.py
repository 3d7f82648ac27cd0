"""A fresh environment, as a newcomer has it after `pip install .`."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with nothing but what `pip install .` puts there.

    There is no network in tests: the dependencies are those of the environment that runs the test, and the build
    backend is taken from it as well.
    """
    folder = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"]
    target = ["--target", str(site), "--upgrade", str(ROOT)]
    subprocess.run([*install, *target], check=True, capture_output=True, timeout=300)
    script = folder / "bin" / "traceflow"
    script.write_text(f"#!{folder}/bin/python\nfrom traceflow.__main__ import main\nmain()\n")
    script.chmod(0o755)
    return folder
