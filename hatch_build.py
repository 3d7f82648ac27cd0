"""Compiles the modules that see every event, where a wheel is built with HATCH_BUILD_HOOKS_ENABLE=1.

Without it a wheel is pure Python and runs everywhere. Which modules are compiled is in pyproject.toml. mypyc makes C of
them and setuptools what Python loads; both are needed for the build alone. The modules themselves stay in the wheel
beside them, so that tracebacks show their lines.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_COMPILE = """
import json, sys
from mypyc.build import mypycify
from setuptools import setup

modules, out = json.loads(sys.argv[1]), sys.argv[2]
flags = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
extensions = mypycify([*flags, *modules], opt_level="2", debug_level="0", group_name="traceflow", target_dir=out + "/c")
setup(ext_modules=extensions, script_args=["build_ext", "--build-lib", out + "/lib", "--build-temp", out + "/o"])
"""


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    _scratch: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what comes of it to the wheel; a checkout that is being worked on stays as it is."""
        if version == "editable":
            return
        self._scratch = tempfile.TemporaryDirectory()
        source, out = Path(self._scratch.name, "source"), Path(self._scratch.name, "out")
        for package in map(Path, self.build_config.packages):
            shutil.copytree(Path(self.root) / package, source / package.name)
        modules = self._at(source, "modules") - self._at(source, "except")
        command = [sys.executable, "-c", _COMPILE, json.dumps(sorted(modules)), str(out)]
        done = subprocess.run(command, cwd=source, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            needed = (
                "That takes a C compiler and Python's headers; without HATCH_BUILD_HOOKS_ENABLE nothing is compiled."
            )
            raise RuntimeError(f"{done.stdout[-4000:]}\nThe modules could not be compiled. {needed}")
        for path in (out / "lib").rglob("*"):
            if path.is_file():
                build_data["force_include"][str(path)] = path.relative_to(out / "lib").as_posix()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def _at(self, source: Path, name: str) -> set[str]:
        """The files at the patterns of a list in pyproject.toml. Raises ValueError where there are none at one."""
        found: set[str] = set()
        for pattern in self.config[name]:
            paths = {path.relative_to(source).as_posix() for path in source.glob(pattern)}
            if not paths:
                raise ValueError(f"pyproject.toml, {name}: there is nothing at {pattern}")
            found |= paths
        return found

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._scratch is not None:
            self._scratch.cleanup()
