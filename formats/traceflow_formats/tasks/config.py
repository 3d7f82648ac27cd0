"""The rules of a task.toml (Harbor 0.26): names, versions, steps, and the types of the fields that a run depends on.

Harbor's models take what pydantic takes: numbers may stand in strings. Keys that it does not know are ignored.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["ConfigCheck", "Problem", "step_name_fault"]

_PACKAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*/[a-zA-Z0-9][a-zA-Z0-9._-]*")
_BAD_IN_STEP = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]')
_DEVICE = re.compile(r"(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[1-9¹²³])", re.IGNORECASE)
_TOPOLOGY = re.compile(r"[1-9]\d*(x[1-9]\d*)+", re.ASCII)
_SIZE = re.compile(r"\s*[+-]?(\d+(\.\d*)?|\.\d+)\s*[GgMmKk]\s*", re.ASCII)
_FILE = "task.toml"


class Problem(NamedTuple):
    """Something that makes a task unusable: the path it is about, below the task folder, and what is wrong."""

    path: str
    message: str


def step_name_fault(name: str) -> str | None:
    """Why a step's name cannot name a folder on every system, or None for one that can."""
    if not name.strip() or name in (".", ".."):
        return "is empty or a path"
    if name.endswith((".", " ")):
        return "ends with a dot or a space"
    if _BAD_IN_STEP.search(name):
        return "holds a character that file systems refuse"
    if _DEVICE.fullmatch(name.partition(".")[0].rstrip(" ")):
        return "is a device name"
    if len(name.encode("utf-8", "replace")) > 255:
        return "is longer than 255 bytes"
    return None


def _is_number(value: object) -> bool:
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, int | float)


def _is_whole(value: object) -> bool:
    if isinstance(value, str):
        return bool(re.fullmatch(r"\s*[+-]?\d+(\.0+)?\s*", value, re.ASCII))
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_cpus(value: object) -> bool:
    return _is_number(value) and math.isfinite(float(value))  # type: ignore[arg-type]


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _is_user(value: object) -> bool:
    return isinstance(value, str | int)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_size(value: object) -> bool:
    """A size of the older fields memory and storage: 512M, 1.5G; other types are ignored by Harbor."""
    return not isinstance(value, str) or bool(_SIZE.fullmatch(value))


def _is_artifacts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) or _is_artifact(item) for item in value)


def _is_artifact(item: object) -> bool:
    if not isinstance(item, dict):
        return False
    source, destination = item.get("source"), item.get("destination")
    if not isinstance(source, str) or ".." in source.split("/"):
        return False
    if destination is None or destination == "":
        return True
    if not isinstance(destination, str) or "\\" in destination or destination.startswith("/"):
        return False
    return ".." not in destination.split("/") and destination.rstrip("/") not in ("", ".", "manifest.json")


def _is_server(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    needed = {"sse": "url", "http": "url", "streamable-http": "url", "stdio": "command"}
    key = needed.get(value.get("transport", "sse"))
    return key is not None and isinstance(value.get(key), str) and bool(value[key])


Rule = tuple[str, Callable[[object], bool]]
_NUMBER: Rule = ("a number", _is_number)
_WHOLE: Rule = ("a whole number", _is_whole)
_STRING: Rule = ("a string", _is_text)
_STRINGS: Rule = ("a list of strings", _is_texts)
_TABLE: Rule = ("a table", _is_table)
_VARIABLES: Rule = ("a table of strings", _is_environment)
_LEGACY_SIZE: Rule = ("a size like 512M or 2G", _is_size)


def _one_of(*words: str, any_case: bool = False) -> Rule:
    def holds(value: object) -> bool:
        return isinstance(value, str) and (value.lower() if any_case else value) in words

    return " or ".join(words), holds


_NETWORK: Mapping[str, Rule] = {
    "network_mode": _one_of("no-network", "public", "allowlist"),
    "allowed_hosts": _STRINGS,
}
_AGENT: Mapping[str, Rule] = {**_NETWORK, "timeout_sec": _NUMBER, "user": ("a string or a whole number", _is_user)}
_VERIFIER: Mapping[str, Rule] = {
    **_AGENT,
    "env": _VARIABLES,
    "environment_mode": _one_of("shared", "separate"),
    "environment": _TABLE,
}
_ENVIRONMENT: Mapping[str, Rule] = {
    **_NETWORK,
    "build_timeout_sec": _NUMBER,
    "docker_image": _STRING,
    "os": _one_of("linux", "windows", any_case=True),
    "cpus": ("a finite number", _is_cpus),
    "memory_mb": _WHOLE,
    "storage_mb": _WHOLE,
    "gpus": _WHOLE,
    "gpu_types": _STRINGS,
    "env": _VARIABLES,
    "skills_dir": _STRING,
    "workdir": _STRING,
    "healthcheck": _TABLE,
    "tpu": _TABLE,
    "memory": _LEGACY_SIZE,
    "storage": _LEGACY_SIZE,
}
_ROOT: Mapping[str, Rule] = {
    "task": _TABLE,
    "metadata": _TABLE,
    "verifier": _TABLE,
    "agent": _TABLE,
    "environment": _TABLE,
    "solution": _TABLE,
    "source": _STRING,
    "multi_step_reward_strategy": _one_of("mean", "final"),
    "artifacts": ("a list of paths and tables with a source, none with ..", _is_artifacts),
}


class ConfigCheck:
    """A parsed task.toml: `all` adds its problems to a list, the rest answers what the folder must hold."""

    def __init__(self, config: Mapping[str, Any], problems: list[Problem]) -> None:
        self.config = config
        self.problems = problems
        self.steps: list[tuple[str, Mapping[str, Any]]] = []

    def all(self) -> None:
        config = self.config
        self._rules(config, "", _ROOT)
        schema = config.get("schema_version", config.get("version"))
        if schema is not None and not isinstance(schema, str):
            self._problem("schema_version must be a string")
        self._package()
        self._agent(config, "agent")
        self._verifier(config, "verifier")
        self._environment(config, "environment")
        if isinstance(solution := config.get("solution"), dict):
            self._rules(solution, "solution.", {"env": _VARIABLES})
        self._steps()

    # -- what the folder must hold ------------------------------------------------------------------------

    @property
    def docker_image(self) -> str | None:
        image = _table(self.config, "environment").get("docker_image")
        return image if isinstance(image, str) and image else None

    @property
    def system(self) -> str:
        return _system(_table(self.config, "environment")) or "linux"

    def separate(self, step: Mapping[str, Any] | None) -> bool:
        """Whether the verifier of a step (None: of the task) runs in an environment of its own."""
        verifiers = [] if step is None else [_table(step, "verifier")]
        for verifier in (*verifiers, _table(self.config, "verifier")):
            mode = verifier.get("environment_mode")
            if mode in ("shared", "separate"):
                return bool(mode == "separate")
            if isinstance(verifier.get("environment"), dict):
                return True
        return False

    def verifier_images(self, step: Mapping[str, Any] | None) -> list[str | None]:
        """The images that the step's verifier and the task's name, innermost first."""
        holders = [self.config] if step is None else [step, self.config]
        tables = [_table(_table(holder, "verifier"), "environment") for holder in holders]
        return [image if isinstance(image := table.get("docker_image"), str) else None for table in tables]

    def verifier_system(self, step: Mapping[str, Any] | None) -> str:
        holders = [self.config] if step is None else [step, self.config]
        for holder in holders:
            verifier = _table(holder, "verifier")
            if isinstance(verifier.get("environment"), dict):
                return _system(_table(verifier, "environment")) or self.system
        return self.system

    # -- rules --------------------------------------------------------------------------------------------

    def _package(self) -> None:
        package = self.config.get("task")
        if not isinstance(package, dict):
            return
        name = package.get("name")
        if not isinstance(name, str):
            self._problem("task.name is missing" if name is None else "task.name must be a string")
        elif not _PACKAGE.fullmatch(name) or ".." in name:
            self._problem(f"task.name must be org/name in letters, digits, dots, dashes: {name[:80]!r}")
        version = package.get("version")
        if version is not None and not (isinstance(version, str) and version):
            self._problem("task.version must be a string that is not empty")
        self._rules(package, "task.", {"description": _STRING, "keywords": _STRINGS})
        authors = package.get("authors", [])
        if not isinstance(authors, list) or not all(isinstance(a, dict) and _is_text(a.get("name")) for a in authors):
            self._problem("task.authors must be a list of tables with a name")

    def _steps(self) -> None:
        steps = self.config.get("steps")
        if steps is None:
            return
        if not isinstance(steps, list):
            self._problem("steps must be a list of tables")
            return
        seen: dict[str, str] = {}
        for index, step in enumerate(steps):
            where = f"steps[{index}]"
            name = step.get("name") if isinstance(step, dict) else None
            if not isinstance(name, str):
                self._problem(f"{where} must be a table with a name")
                continue
            if fault := step_name_fault(name):
                self._problem(f"{where}.name {fault}: {name[:80]!r}")
                continue
            key = unicodedata.normalize("NFC", name).casefold()
            if key in seen:
                self._problem(f"{where}.name {name[:80]!r} falls together with {seen[key][:80]!r}")
                continue
            seen[key] = name
            self._agent(step, f"{where}.agent")
            self._verifier(step, f"{where}.verifier")
            self._min_reward(step.get("min_reward"), where)
            self._rules(step, f"{where}.", {"healthcheck": _TABLE, "artifacts": _ROOT["artifacts"]})
            self.steps.append((name, step))

    def _min_reward(self, value: object, where: str) -> None:
        values = value.values() if isinstance(value, dict) else [value]
        if value is not None and not all(map(_is_number, values)):
            self._problem(f"{where}.min_reward must be a number or a table of numbers")

    def _agent(self, holder: Mapping[str, Any], where: str) -> None:
        agent = holder.get("agent")
        if isinstance(agent, dict):
            self._rules(agent, f"{where}.", _AGENT)
            self._hosts(agent, where)
        elif agent is not None and where != "agent":
            self._problem(f"{where} must be a table")

    def _verifier(self, holder: Mapping[str, Any], where: str) -> None:
        verifier = holder.get("verifier")
        if not isinstance(verifier, dict):
            if verifier is not None and where != "verifier":
                self._problem(f"{where} must be a table")
            return
        self._rules(verifier, f"{where}.", _VERIFIER)
        self._hosts(verifier, where)
        if verifier.get("environment_mode") == "shared" and isinstance(verifier.get("environment"), dict):
            self._problem(f"{where}.environment needs environment_mode separate")
        self._environment(verifier, f"{where}.environment")
        hooks = verifier.get("collect", [])
        if not isinstance(hooks, list) or not all(isinstance(h, dict) and _is_text(h.get("command")) for h in hooks):
            self._problem(f"{where}.collect must be a list of tables with a command")

    def _environment(self, holder: Mapping[str, Any], where: str) -> None:
        environment = holder.get("environment")
        if not isinstance(environment, dict):
            return
        self._rules(environment, f"{where}.", _ENVIRONMENT)
        self._hosts(environment, where, default_mode=True)
        healthcheck, tpu = environment.get("healthcheck"), environment.get("tpu")
        if isinstance(healthcheck, dict) and not _is_text(healthcheck.get("command")):
            self._problem(f"{where}.healthcheck needs a command")
        if isinstance(tpu, dict):
            topology = tpu.get("topology")
            fits = isinstance(topology, str) and _TOPOLOGY.fullmatch(topology.strip())
            if not fits or not (_is_text(tpu.get("type")) and tpu.get("type")):
                self._problem(f"{where}.tpu needs a type and a topology like 2x4")
        servers = environment.get("mcp_servers", [])
        if not isinstance(servers, list) or not all(map(_is_server, servers)):
            self._problem(f"{where}.mcp_servers must be a list of tables with a name and a url or command")

    def _hosts(self, table: Mapping[str, Any], where: str, *, default_mode: bool = False) -> None:
        hosts, mode = table.get("allowed_hosts"), table.get("network_mode")
        unused = hosts == [] and (default_mode or mode is not None)
        if hosts is not None and mode != "allowlist" and not unused:
            self._problem(f"{where}.allowed_hosts needs network_mode allowlist")

    def _rules(self, table: Mapping[str, Any], where: str, rules: Mapping[str, Rule]) -> None:
        for key, (expected, holds) in rules.items():
            if key in table and not holds(table[key]):
                self._problem(f"{where}{key} must be {expected}")

    def _problem(self, message: str) -> None:
        self.problems.append(Problem(_FILE, message))


def _table(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, dict) else {}


def _system(environment: Mapping[str, Any]) -> str | None:
    system = environment.get("os")
    return system.lower() if isinstance(system, str) and system.lower() in ("linux", "windows") else None
