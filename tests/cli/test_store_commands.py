"""The commands that read a store, on the job that ships with the project."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from running import DEMO, Ran, traceflow

JOB = "a31db0bc-ee63-5485-a6b5-46cebbf3a208"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stores") / "store"
    assert traceflow("import", DEMO, store=path).code == 0
    return path


def test_a_job_is_listed_and_shown_with_the_report_of_its_import(store: Path) -> None:
    (job,) = traceflow("job", "list", "--json", store=store).lines()
    assert (job["name"], job["job_id"], job["n_trials"], job["n_scored"]) == ("demo", JOB, 7, 4)
    shown = traceflow("job", "show", "demo", "--json", store=store).json()
    assert shown["outcomes"] == {"CANCELLED": 1, "INDETERMINATE": 1, "SCORED": 4, "UNSCORED": 1}
    assert shown["report"]["trials"] == 7
    assert shown["reported_totals"]["n_input_tokens"] == 91443
    assert traceflow("job", "show", JOB[:8], store=store).out.startswith("name")
    missing = traceflow("job", "show", "nobody", "--json", store=store)
    assert (missing.code, missing.json()["error"]["code"]) == (1, "job_not_found")


def test_trials_are_listed_with_rewards_tokens_and_cost(store: Path) -> None:
    rows = {row["trial_name"]: row for row in traceflow("trial", "list", "--json", store=store).lines()}
    assert len(rows) == 7
    tour = rows["tour__rS2tU4v"]
    assert (tour["agent"], tour["status"], tour["reward"]) == ("claude-code", "SCORED", 0.5)
    assert (tour["prompt_tokens"], tour["completion_tokens"], tour["cached_tokens"]) == (37602, 216, 36000)
    assert tour["cost_usd"] == pytest.approx(0.0192105)
    assert rows["delegate__aB3dE5f"]["prompt_tokens"] == 10518, "subagents are included"
    assert rows["fragile__wX6yZ8A"]["exception_type"] == "NonZeroAgentExitCodeError"
    assert rows["toolbox__hJ5kL7m"]["cost_usd"] is None, "unknown is null, not 0"
    scored = traceflow("trial", "list", "--status", "scored", store=store).out.splitlines()
    assert len(scored) == 5
    assert len(traceflow("trial", "list", "-n", "2", "--json", store=store).lines()) == 2


def test_a_trace_is_cut_by_type_pattern_position_and_count(store: Path) -> None:
    whole = traceflow("trial", "trace", "tour__rS2tU4v", "--json", store=store).lines()
    assert [event["seq"] for event in whole] == list(range(len(whole)))
    calls = traceflow("trial", "trace", "tour__rS2tU4v", "--type", "tool_call", "--json", store=store).lines()
    assert calls == [event for event in whole if event["type"] == "tool_call"]
    assert len(calls) == 10
    tail = traceflow("trial", "trace", "tour__rS2tU4v", "--tail", "3", "--json", store=store).lines()
    assert tail == whole[-3:]
    after = traceflow("trial", "trace", "tour__rS2tU4v", "--cursor", "5", "-n", "2", "--json", store=store).lines()
    assert after == whole[6:8]
    found = traceflow("trial", "trace", "tour__rS2tU4v", "--grep", "MISSING.TXT", "--json", store=store).lines()
    assert found
    assert all("missing.txt" in json.dumps(event).lower() for event in found)
    lines = traceflow("trial", "trace", "tour__rS2tU4v", store=store).out.splitlines()
    assert len(lines) == len(whole)
    assert max(map(len, lines)) <= 6 + 2 + 20 + 2 + 140
    assert traceflow("trial", "trace", "tour__rS2tU4v", "--grep", "no such words", store=store).code == 1
    assert "error[empty_trace]" in traceflow("trial", "trace", "tour__nQ8rS3t", store=store).err


def test_a_multi_step_trial_has_one_trace_with_the_step_on_each_event(store: Path) -> None:
    events = traceflow("trial", "trace", "relay__bC4dE6g", "--json", store=store).lines()
    steps = [event["data"]["extra"]["stepName"] for event in events]
    assert list(dict.fromkeys(steps)) == ["first", "second"]


def test_grep_finds_counts_and_says_nothing_found(store: Path) -> None:
    found = traceflow("grep", "no such FILE", "--json", store=store).lines()
    assert {hit["trial_name"] for hit in found} >= {"tour__rS2tU4v", "tour__kM7nP9q"}
    hit = found[0]
    start, end = hit["spans"][0]
    assert hit["text"][start:end].lower() == "no such file"
    counts = traceflow("grep", "no such FILE", "--count", store=store).out.splitlines()
    assert sum(int(line.split("\t")[1]) for line in counts) == len(found)
    names = traceflow("grep", "no such FILE", "-l", store=store).out.splitlines()
    assert names == [line.split("\t")[0] for line in counts]
    assert traceflow("grep", "no such FILE", "-s", store=store).code == 1
    assert traceflow("grep", "n.t there at all", "-F", store=store) == Ran(1, "", "")
    bad = traceflow("grep", "(", store=store)
    assert (bad.code, bad.err.startswith("error[invalid_input]: ")) == (1, True)
    assert traceflow("grep", "x" * 513, store=store).code == 1


def test_a_job_is_searched_trial_by_trial_with_exact_counts(store: Path) -> None:
    found = traceflow("job", "grep", "demo", "missing.txt", "--json", store=store).lines()
    assert [trial["trial_id"] for trial in found] == sorted(trial["trial_id"] for trial in found)
    counts = {trial["trial_name"]: trial["match_count"] for trial in found}
    for name, count in counts.items():
        events = traceflow("trial", "trace", name, "--grep", "missing.txt", "--json", store=store).lines()
        assert len(events) == count
    assert all(trial["events"] == sorted(trial["events"], key=lambda e: e["seq"])[:5] for trial in found)
    first = traceflow("job", "grep", "demo", "missing.txt", "-n", "1", store=store)
    assert f"--cursor {found[0]['trial_id']}" in first.err
    rest = traceflow("job", "grep", "demo", "missing.txt", "--cursor", found[0]["trial_id"], "--json", store=store)
    assert rest.lines() == found[1:]
    assert traceflow("job", "grep", "demo", "nowhere to be found", store=store).code == 1
    assert traceflow("job", "verify", "demo", "--contents", store=store).code == 0


def test_sql_answers_in_every_format_and_only_reads(store: Path, tmp_path: Path) -> None:
    query = "SELECT trial_name, reward FROM trials WHERE reward IS NOT NULL ORDER BY trial_name"
    table = [line.split("\t") for line in traceflow("sql", query, store=store).out.splitlines()]
    assert table[:2] == [["trial_name", "reward"], ["delegate__aB3dE5f", "1"]]
    assert traceflow("sql", query, "--json", store=store).lines()[0] == {
        "trial_name": "delegate__aB3dE5f",
        "reward": 1.0,
    }
    assert traceflow("sql", query, "-f", "csv", store=store).out.splitlines()[1] == "delegate__aB3dE5f,1.0"
    out = tmp_path / "rewards.parquet"
    assert traceflow("sql", query, "-o", out, store=store).code == 0
    assert pq.read_table(out).num_rows == 4
    for bad in (
        "COPY trials TO 'x.csv'",
        "CREATE TABLE t (a INT)",
        "SELECT * FROM read_csv('/etc/passwd')",
        "nonsense",
        "",
    ):
        ran = traceflow("sql", bad, "--json", store=store, cwd=tmp_path)
        assert (ran.code, ran.json()["error"]["code"]) == (1, "invalid_input"), bad
        assert ran.err.count("\n") == 1
    assert "did you mean prompt_tokens" in traceflow("sql", "SELECT tokens FROM trials", store=store).err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rewards.parquet"]


def test_a_store_that_is_not_there_and_one_that_is_empty(tmp_path: Path) -> None:
    ran = traceflow("job", "list", store=tmp_path / "none")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error[store_not_found]: ")
    assert not (tmp_path / "none").exists()


def test_a_job_is_deleted_and_its_id_is_free_again(tmp_path: Path) -> None:
    store = tmp_path / "store"
    assert traceflow("import", DEMO, store=store).code == 0
    again = traceflow("import", DEMO, "--json", store=store)
    assert (again.code, again.json()["error"]["code"]) == (1, "job_already_uploaded")
    assert again.json()["error"]["details"] == {"existing_job_id": JOB}
    assert traceflow("job", "delete", "demo", "--yes", "--json", store=store).json() == {"deleted": JOB}
    assert traceflow("job", "list", "--json", store=store).out == ""
    assert traceflow("import", DEMO, store=store).code == 0
    assert traceflow("store", "verify", "--contents", store=store).code == 0


def test_the_import_report_has_the_shape_that_scripts_read(tmp_path: Path) -> None:
    report = traceflow("import", DEMO, "--json", store=tmp_path / "store").json()
    keys = [
        "job_id",
        "original_job_id",
        "original_job_name",
        "trials",
        "scored",
        "skipped",
        "task_links",
        "reported_totals",
        "warnings",
    ]
    assert list(report) == keys
    assert (report["trials"], report["scored"], report["skipped"]) == (7, 4, [])


def test_hostile_text_reaches_no_terminal(tmp_path: Path) -> None:
    """Escape codes in a model's words are shown as escapes."""
    session = tmp_path / "s.jsonl"
    words = {"role": "user", "content": "red \u001b[31m alert \u0007 \u202e back"}
    session.write_text(
        json.dumps({"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s", "message": words})
    )
    store = tmp_path / "store"
    job = tmp_path / "job"
    trial = job / "t__aaaaaaa"
    (trial / "agent" / "sessions" / "projects" / "-w").mkdir(parents=True)
    (trial / "agent" / "sessions" / "projects" / "-w" / "s.jsonl").write_bytes(session.read_bytes())
    (job / "config.json").write_text("{}")
    (job / "result.json").write_text("{}")
    record = {"task_name": "t", "trial_name": "t__aaaaaaa", "trial_uri": "", "task_id": {}, "task_checksum": ""}
    record |= {"config": {}, "agent_info": {"name": "claude-code", "version": "1"}}  # type: ignore[dict-item]
    (trial / "result.json").write_text(json.dumps(record))
    assert traceflow("import", job, store=store).code == 0
    shown = traceflow("trial", "trace", "t__aaaaaaa", store=store).out + traceflow("grep", "alert", store=store).out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert "\\x1b[31m alert \\x07 \\u202e" in shown


def on_terminal(columns: int, *arguments: str, store: Path, **more: str) -> list[str]:
    """What a command prints on a terminal of so many columns."""
    if shutil.which("script") is None:
        pytest.skip("no `script` to make a terminal with")
    command = " ".join(map(shlex.quote, [sys.executable, "-m", "traceflow", *arguments]))
    environment = {
        **os.environ,
        "TRACEFLOW_STORE": str(store),
        "COLUMNS": str(columns),
        "TERM": "xterm",
        "NO_COLOR": "1",
        **more,
    }
    ran = subprocess.run(["script", "-qec", command, "/dev/null"], capture_output=True, env=environment, timeout=120)
    return ran.stdout.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize("columns", [60, 100, 200])
def test_tables_fit_the_terminal(columns: int, store: Path) -> None:
    lines = on_terminal(columns, "trial", "list", store=store)
    assert len(lines) == 8
    assert max(map(len, lines)) <= columns
    assert columns < 80 or any(line.startswith("tour__rS2tU4v ") for line in lines), "names stay whole where they can"
    assert ("JOB" in lines[0]) == (columns == 200)


def test_a_narrow_table_keeps_the_columns_for_which_there_is_room(store: Path) -> None:
    heads = [on_terminal(columns, "trial", "list", store=store)[0].split() for columns in (80, 110)]
    assert "TOOLS" not in heads[0]
    assert {"TOOLS", "CACHED", "STEPS"} <= set(heads[1])
    assert "MODEL" not in heads[1], "the one column that does not fit"


def test_very_many_columns_stand_below_each_other(store: Path) -> None:
    lines = on_terminal(80, "sql", "SELECT * FROM trials ORDER BY trial_name LIMIT 2", store=store)
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith(("ROW", "trial_name"))] == [
        "ROW 1",
        f"{'trial_name':<28}delegate__aB3dE5f",
        "ROW 2",
        f"{'trial_name':<28}fragile__wX6yZ8A",
    ]


def test_colours_are_for_a_terminal_that_wants_them(store: Path) -> None:
    words = ("grep", "No such file", "-t", "tour__rS2tU4v")
    red = "cat: missing.txt: \x1b[1;31mNo such file\x1b[0m or directory"
    assert on_terminal(100, *words, store=store, NO_COLOR="")[0].endswith(red)
    for plain in ({"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}):
        assert "\x1b" not in on_terminal(100, *words, store=store, **plain)[0]
    (failed,) = on_terminal(200, "job", "show", "nobody", store=store, NO_COLOR="")
    assert failed.startswith("\x1b[1;31merror[job_not_found]:\x1b[0m no job 'nobody'")
    assert "\x1b" not in traceflow("job", "show", "nobody", store=store).err


def test_nothing_to_list_is_said(store: Path) -> None:
    listed = traceflow("trial", "list", "--status", "budget", store=store)
    assert (listed.code, listed.out.count("\n"), listed.err[:14]) == (0, 1, "no such trials")


def test_jobs_that_an_older_parser_read_are_found_and_parsed_anew(store: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(store, tmp_path / "own"))
    (manifest,) = own.glob("jobs/*/manifest.json")
    older = json.loads(manifest.read_bytes())
    older["parsers"]["claude-code"] = "0"
    manifest.write_text(json.dumps(older))
    (told,) = traceflow("job", "reparse", "--all", "--dry-run", "--json", store=own).lines()
    parsers = {trial["parser"] for trial in told["stale"]}
    assert (told["job_id"], parsers) == (JOB, {"claude-code", None})  # one trial has no trace: one may be found now
    lines = traceflow("job", "reparse", "demo", "--dry-run", store=own).out.splitlines()
    assert len(lines) == len(told["stale"])
    assert {line.rpartition("  ")[2] for line in lines} == {"claude-code 0, now 1", "no trace found"}
    assert json.loads(manifest.read_bytes()) == older, "a dry run writes nothing"
    assert traceflow("job", "reparse", "--all", "--stale", store=own).out.startswith("parsed demo as")
    again = traceflow("job", "reparse", "--all", "--stale", store=own)
    assert (again.code, again.out) == (0, "")
    assert "1 job(s) were read by the parsers of this version" in again.err
    for wrong in ((), ("demo", "--all")):
        assert traceflow("job", "reparse", *wrong, "--json", store=own).json()["error"]["code"] == "invalid_input"
    bounded = traceflow("job", "reparse", "demo", "--limit", "nothing=1", "--json", store=own)
    assert bounded.json()["error"]["code"] == "invalid_input"
