"""For tests: small task folders."""

from __future__ import annotations

import tarfile
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"


def make_task(folder: Path, instruction: str = "Do it.\n", name: str | None = None, **files: str) -> Path:
    """A task that Harbor would take; `files` are further ones, by path with __ for a slash."""
    head = f'[task]\nname = "{name}"\n' if name else ""
    texts = {
        "task.toml": f'schema_version = "1.4"\n{head}[environment]\ndocker_image = "debian"\n',
        "instruction.md": instruction,
        "tests/test.sh": "#!/bin/sh\nexit 0\n",
        **{key.replace("__", "/"): text for key, text in files.items()},
    }
    for path, text in texts.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return folder


def harbor_tasks(target: Path) -> Path:
    """The task folders of the jobs in fixtures/harbor/jobs."""
    with tarfile.open(FIXTURES / "harbor" / "tasks.tgz") as archive:
        archive.extractall(target, filter="tar")
    return target / "tasks"
