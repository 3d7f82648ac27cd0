"""docs/sql.md tells the truth: its columns are the views', and its examples give what it prints.

To write the answers anew after a change: TRACEFLOW_WRITE_DOCS=1 pytest tests/query/test_docs_sql.py
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.trace import Event

from traceflow.query import VIEWS, sql
from traceflow.store import Store
from traceflow.store.testing import call, chunk, error, prompt, result, usage, write_job

DOCS = Path(__file__).parents[2] / "docs" / "sql.md"
EXAMPLE = re.compile(r"```sql\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def session(task: str, passed: bool, tokens: int, model: str, at: str) -> list[Event]:
    """A run of a few calls: it looks, it edits, it tests."""
    words, status, code = ("3 passed", "completed", 0) if passed else ("1 failed", "failed", 1)
    return [
        prompt(f"Fix {task}.", timestamp=f"{at}:00Z"),
        chunk("agent", "I look at the tests.", messageId="call-1", model=model, timestamp=f"{at}:01Z"),
        call("c1", "Bash", {"command": "ls tests"}, messageId="call-1"),
        call("c2", "Read", {"file_path": f"/app/{task}.py"}, "read", messageId="call-1"),
        usage(tokens, 40, 0, messageId="call-1", model=model),
        result("c1", f"test_{task}.py", extra={"exitCode": 0, "durationMs": 120}),
        result("c2", "def main(): ..."),
        call("c3", "Bash", {"command": "pytest -q"}, messageId="call-2", model=model, timestamp=f"{at}:20Z"),
        usage(tokens + 100, 25, tokens, messageId="call-2", model=model),
        result("c3", words, status, timestamp=f"{at}:31Z", extra={"exitCode": code, "durationMs": 11000}),
        *([] if passed else [error("API Error: overloaded", extra={"retried": True})]),
        chunk("agent", "Done.", messageId="call-3", model=model),
        usage(tokens + 200, 10, tokens + 100, messageId="call-3", model=model),
    ]


def sample(root: Path) -> Store:
    """Two nights of two tasks with two attempts each; the second night another model."""
    store = Store.open(str(root / "store"), create=True)
    nights = {
        "monday": ("small-1", {"parser": (1.0, 0.0), "server": (0.0, None)}),
        "tuesday": ("large-1", {"parser": (1.0, 1.0), "server": (1.0, 0.0)}),
    }
    for day, (name, (model, tasks)) in enumerate(nights.items()):
        trials: list[tuple[dict[str, Any], list[Event]]] = []
        for task, rewards in tasks.items():
            for attempt, reward in enumerate(rewards):
                at = f"2026-03-0{day + 2}T05:{attempt:02d}"
                row: dict[str, Any] = {
                    "trial_id": f"{name}-{task}-{attempt}",
                    "trial_name": f"{task}__{name[:3]}{attempt}",
                    "task_name": task,
                    "source": "fixes",
                    "agent": "claude-code",
                    "agent_version": "2.1.0",
                    "model": model,
                    "started_at": f"{at}:00Z",
                    "finished_at": f"{at}:40Z",
                    "cost_usd": 0.25 * (day + 1) + attempt / 8,
                    "trace_source": "session",
                }
                if reward is None:
                    row |= {"status": "INDETERMINATE", "exception_type": "VerifierTimeoutError", "reward_valid": False}
                    row |= {"exception_message": "no answer after 600 s", "cost_usd": None}
                else:
                    row |= {"status": "SCORED", "reward": reward, "rewards": {"reward": reward}, "reward_valid": True}
                trials.append((row, session(task, reward == 1.0, 1000 * (day + 1), model, at)))
        write_job(
            store, f"{name}-job", trials, {"config.json": b"{}"}, {"name": name, "imported_at": "2026-03-05T00:00:00Z"}
        )
    return store


def table(columns: list[str], rows: list[tuple[Any, ...]]) -> str:
    """Columns of text, as wide as they need to be; nothing for null."""
    lines = [columns, *[["" if value is None else str(value) for value in row] for row in rows]]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    return "".join(
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() + "\n" for line in lines
    )


def answer(store: Store, query: str) -> str:
    relation = sql(store, query)
    return table(list(relation.columns), relation.fetchall())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return sample(tmp_path_factory.mktemp("docs"))


def test_every_example_gives_what_the_page_prints(store: Store) -> None:
    text = DOCS.read_text()
    answers = {query: answer(store, query) for query, _ in EXAMPLE.findall(text)}
    assert len(answers) >= 10
    written = EXAMPLE.sub(lambda m: f"```sql\n{m[1]}```\n\n```text\n{answers[m[1]]}```", text)
    if os.environ.get("TRACEFLOW_WRITE_DOCS"):
        DOCS.write_text(written)
    assert written == text


@pytest.mark.parametrize("view", VIEWS)
def test_the_page_lists_the_columns_of_every_view(store: Store, view: str) -> None:
    section = DOCS.read_text().split(f"\n### {view}\n")[1].split("\n### ")[0].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \| (.+?) \| (.+) \|$", section, re.MULTILINE)
    described = sql(store, f"SELECT column_name, column_type FROM (DESCRIBE {view})").fetchall()
    assert [(name, kind) for name, kind, _ in listed] == [
        (n, t.replace("TIMESTAMP_US", "TIMESTAMP")) for n, t in described
    ]
    assert all(meaning.strip() for _, _, meaning in listed)
