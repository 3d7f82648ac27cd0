"""docs/chat.md, docs/otlp.md and docs/redaction.md do what they say: their commands print what stands below them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import ROOT
from traceflow_formats import chat, otlp

PAGES = [ROOT / "docs" / name for name in ("chat.md", "otlp.md", "redaction.md")]
BLOCK = re.compile(r"```(sh|text|json)\n(.*?)```", re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if page.exists()], ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_says(page: Path, tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    script = tmp_path / "bin" / "traceflow"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom traceflow.__main__ import main\nmain()\n")
    script.chmod(0o755)
    env = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}", "TRACEFLOW_STORE": "store"}
    blocks = BLOCK.findall(page.read_text())
    assert any(kind == "sh" for kind, _ in blocks)
    for number, (kind, command) in enumerate(blocks):
        if kind != "sh":
            continue
        ran = subprocess.run(
            ["bash", "-uo", "pipefail", "-c", command], cwd=tmp_path, env=env, capture_output=True, timeout=300
        )
        printed = (ran.stdout + ran.stderr).decode()
        said, text = blocks[number + 1] if number + 1 < len(blocks) else ("", "")
        if said == "text":
            assert printed.strip() == text.strip()
        else:
            assert ran.returncode == 0, printed


@pytest.mark.parametrize(("module", "name"), [(chat, "chat.md"), (otlp, "otlp.md")])
def test_every_loss_is_documented(module: object, name: str) -> None:
    source = Path(str(module.__file__)).read_text()  # type: ignore[attr-defined]
    losses = set(re.findall(r'losses\.add\(\s*"(\w+)"', source))
    page = (ROOT / "docs" / name).read_text()
    assert len(losses) >= 10
    assert [loss for loss in sorted(losses) if f"`{loss}`" not in page] == []
