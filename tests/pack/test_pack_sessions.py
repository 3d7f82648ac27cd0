"""Sessions in a job: raw files at the harness's own places, which read as they did at home."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pack_inputs import RECORDINGS, only_trial, pack, trajectory, tree, trials
from traceflow_formats.atif import strict_problems
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import outcome_of, read_job, read_trial
from traceflow_formats.trace import Event
from traceflow_parsers.source import Source

from traceflow.sources import open_any

HOMES = sorted(path for path in RECORDINGS.glob("*/*/home") if path.is_dir())
NAMES = [f"{path.parent.parent.name}/{path.parent.name}" for path in HOMES]
PLACES = {
    "claude-2.1.197/basic": ".claude/projects/-srv-app/",
    "codex-0.171.0/basic": ".codex/sessions/2026/11/30/rollout-",
    "gemini-0.61.0/basic": ".gemini/tmp/app/chats/session-",
    "qwen-0.15.10/basic": ".qwen/projects/-srv-app/chats/",
    "kimi-code-2.1.0/basic": ".kimi-code/sessions/wd_app_",
    "kimi-cli-1.40.0/basic": ".kimi/sessions/",
    "opencode-1.18.33/basic": ".local/share/opencode/opencode.db",
    "opencode-1.0.162/subagent": ".local/share/opencode/storage/",
    "droid-0.215.0/basic": ".factory/sessions/-srv-app/",
}


def events_at(path: Path) -> list[list[Event]]:
    return sorted((list(source.parse()) for source in open_any(path)), key=str)


def raw_files(trial: Path) -> dict[str, bytes]:
    made = ("trajectory.json", "images/")
    return {name: data for name, data in tree(trial / "agent").items() if not name.startswith(made)}


@pytest.mark.parametrize("home", HOMES, ids=NAMES)
def test_a_packed_home_gives_the_same_events(home: Path, tmp_path: Path) -> None:
    pack(home, tmp_path / "job")
    packed = [events for trial in trials(tmp_path / "job") for events in events_at(tmp_path / "job" / trial / "agent")]
    assert sorted(packed, key=str) == events_at(home)


@pytest.mark.parametrize("home", HOMES, ids=NAMES)
def test_the_records_are_read_without_a_warning_and_the_trajectories_are_valid(home: Path, tmp_path: Path) -> None:
    pack(home, tmp_path / "job")
    job = read_job((tmp_path / "job/config.json").read_bytes(), (tmp_path / "job/result.json").read_bytes())
    assert (job.name, job.n_total_trials, job.warnings) == ("job", len(trials(tmp_path / "job")), ())
    for name in trials(tmp_path / "job"):
        trial = read_trial((tmp_path / "job" / name / "result.json").read_bytes(), f"{name}/result.json")
        assert (trial.trial_name, trial.job_id, trial.warnings) == (name, job.id, ())
        assert outcome_of(trial).status == "UNSCORED"
        document = trajectory(tmp_path / "job" / name)
        assert strict_problems(document) == []
        assert trial.agent_name
        assert trial.model_name == document["agent"].get("model_name")


@pytest.mark.parametrize("home", HOMES, ids=NAMES)
def test_a_job_has_the_same_bytes_wherever_its_sources_lie(home: Path, tmp_path: Path) -> None:
    pack(home, tmp_path / "one" / "job")
    shutil.copytree(home, tmp_path / "elsewhere" / "home")
    pack(tmp_path / "elsewhere" / "home", tmp_path / "two" / "job")
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


@pytest.mark.parametrize(("recording", "place"), PLACES.items())
def test_raw_files_stand_at_the_places_of_the_harness_unchanged(recording: str, place: str, tmp_path: Path) -> None:
    pack(RECORDINGS / recording / "home", tmp_path / "job")
    at_home = tree(RECORDINGS / recording / "home")
    found = {
        name: data for trial in trials(tmp_path / "job") for name, data in raw_files(tmp_path / "job" / trial).items()
    }
    assert found
    assert all(name.startswith(place) for name in found)
    assert {name: at_home[name] for name in found} == found


def test_subagents_and_sidecars_go_with_their_session(tmp_path: Path) -> None:
    pack(RECORDINGS / "claude-2.1.197/subagent/home", tmp_path / "job")
    trial, _ = only_trial(tmp_path / "job")
    assert set(raw_files(trial)) == set(tree(RECORDINGS / "claude-2.1.197/subagent/home"))


LOOSE = {
    "claude-2.1.197/basic": "*.jsonl",
    "codex-0.171.0/basic": "rollout-*.jsonl",
    "gemini-0.61.0/basic": "session-*.jsonl",
    "gemini-0.22.4/basic": "session-*.json",
    "qwen-0.15.10/basic": "*.jsonl",
    "kimi-code-2.1.0/basic": "wire.jsonl",
    "kimi-cli-1.40.0/basic": "wire.jsonl",
    "droid-0.215.0/basic": "*.jsonl",
}


@pytest.mark.parametrize("name", ["main.jsonl", "main.log"])
@pytest.mark.parametrize(("recording", "pattern"), LOOSE.items())
def test_a_loose_file_is_packed_where_its_harness_finds_it(
    recording: str, pattern: str, name: str, tmp_path: Path
) -> None:
    (session,) = (RECORDINGS / recording / "home").rglob(pattern)
    loose = tmp_path / "downloads" / name.replace(".jsonl", session.suffix)
    loose.parent.mkdir()
    shutil.copy(session, loose)
    pack(loose, tmp_path / "job")
    trial, _ = only_trial(tmp_path / "job")
    (file,) = raw_files(trial)
    assert file.startswith(".")
    assert "downloads" not in file
    ((packed,), (at_home,)) = events_at(trial / "agent"), events_at(loose)
    assert [e.type for e in packed] == [e.type for e in at_home]
    assert [e.data.get("update") for e in packed] == [e.data.get("update") for e in at_home]


# -- OpenCode: one store, many sessions ------------------------------------------------------------------------


@pytest.fixture
def shared_database(tmp_path: Path) -> Path:
    """A home whose database holds the sessions of three recordings."""
    target = tmp_path / "home/.local/share/opencode/opencode.db"
    target.parent.mkdir(parents=True)
    first, *others = (
        RECORDINGS / f"opencode-1.18.33/{name}/home/.local/share/opencode/opencode.db"
        for name in ("subagent", "basic", "errors")
    )
    shutil.copy(first, target)
    connection = sqlite3.connect(target)
    for other in others:
        connection.execute("ATTACH ? AS other", (str(other),))
        for table in ("session", "message", "part"):
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA table_info({table})"))
            connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM other.{table}")
        connection.commit()
        connection.execute("DETACH other")
    connection.close()
    return tmp_path / "home"


def test_of_a_database_with_many_sessions_each_trial_gets_its_own_rows(shared_database: Path, tmp_path: Path) -> None:
    pack(shared_database, tmp_path / "job")
    assert len(trials(tmp_path / "job")) == 3
    packed = [e for t in trials(tmp_path / "job") for e in events_at(tmp_path / "job" / t / "agent")]
    assert sorted(packed, key=str) == events_at(shared_database)


def test_an_id_in_a_database_never_leads_out_of_the_trial(shared_database: Path, tmp_path: Path) -> None:
    connection = sqlite3.connect(shared_database / ".local/share/opencode/opencode.db")
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("UPDATE message SET id = '../../../../out' || id")
    connection.execute("UPDATE part SET message_id = '../../../../out' || message_id, id = '/etc/' || id")
    connection.commit()
    connection.close()
    pack(shared_database, tmp_path / "job")
    assert {path.name for path in tmp_path.iterdir()} == {"home", "job"}
    assert all(part.count("..") == 0 for part in tree(tmp_path / "job"))
    assert len([n for n in tree(tmp_path / "job") if "/storage/part/" in n]) > 10


def test_an_exported_document_is_kept_and_filed_as_a_session(tmp_path: Path) -> None:
    session = {"id": "ses_1", "title": "t", "version": "1.18.33", "time": {"created": 1_767_323_045_000}}
    message = {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1_767_323_045_000}}
    part = {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "Hello"}
    export = tmp_path / "export.json"
    export.write_text(json.dumps({"info": session, "messages": [{"info": message, "parts": [part]}]}))
    pack(export, tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    assert (trial / "agent/source/export.json").read_bytes() == export.read_bytes()
    assert events_at(trial / "agent") == events_at(export)
    assert result["task_name"] == "ses_1"


# -- what the trajectory adds, what is never left behind --------------------------------------------------------


def test_the_system_prompt_is_the_first_step(tmp_path: Path) -> None:
    pack(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / "job", system_prompt="You are careful.\n")
    first, second = trajectory(only_trial(tmp_path / "job")[0])["steps"][:2]
    assert (first["source"], first["message"]) == ("system", "You are careful.\n")
    assert (second["source"], second["message"][:10]) == ("user", "Please run")


def test_a_system_prompt_that_the_session_holds_stands_once(tmp_path: Path) -> None:
    home = RECORDINGS / "kimi-cli-1.40.0/basic/home"
    (source,) = open_any(home)
    system = next(e.data["_prompt"]["text"] for e in source.parse() if e.data.get("_prompt", {}).get("role"))
    pack(home, tmp_path / "job", system_prompt=system)
    steps = trajectory(only_trial(tmp_path / "job")[0])["steps"]
    assert [step["message"] for step in steps if step["source"] == "system"].count(system) == 1


def test_pictures_stand_beside_the_trajectory(tmp_path: Path) -> None:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    events: list[dict[str, Any]] = [
        {"seq": 0, "type": "prompt", "data": {"_prompt": {"text": "Look."}}},
        {
            "seq": 1,
            "type": "user_message_chunk",
            "data": {
                "update": {
                    "sessionUpdate": "user_message_chunk",
                    "content": {"type": "image", "data": pixel, "mimeType": "image/png"},
                }
            },
        },
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(event) + "\n" for event in events))
    pack(trace, tmp_path / "job")
    trial, _ = only_trial(tmp_path / "job")
    names = [name for name in tree(trial / "agent") if name.startswith("images/")]
    assert len(names) == 1
    assert names[0] in json.dumps(trajectory(trial))
    assert (trial / "agent/trace-parsed.jsonl").read_bytes() == trace.read_bytes()


def test_stdout_is_packed_where_a_session_belongs(tmp_path: Path) -> None:
    source = RECORDINGS / "codex-0.171.0/basic/stdout.jsonl"
    conversion = pack(source, tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    assert raw_files(trial) == {f".codex/sessions/packed/rollout-{result['id']}.jsonl": source.read_bytes()}
    assert "started_at" not in result
    assert "started_at" not in json.loads((tmp_path / "job/result.json").read_text())
    assert [warning["code"] for warning in conversion.warnings] == ["no_start_time"]


def test_a_trajectory_is_kept_in_source_and_written_anew(tmp_path: Path) -> None:
    document = RECORDINGS.parent / "atif/harbor-hello.json"
    pack(document, tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    assert (trial / "agent/source/harbor-hello.json").read_bytes() == document.read_bytes()
    assert trajectory(trial)["schema_version"] == "ATIF-v1.7"
    assert result["agent_info"]["name"] == json.loads(document.read_text())["agent"]["name"]


def test_what_is_known_stands_in_the_result_and_nothing_else(tmp_path: Path) -> None:
    pack(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / "job")
    trial, result = only_trial(tmp_path / "job")
    assert set(result) == {
        *("id", "task_name", "trial_name", "trial_uri", "task_id", "task_checksum", "config", "agent_info"),
        *("agent_result", "started_at", "finished_at"),
    }
    assert result["agent_info"] == {
        "name": "claude-code",
        "version": "2.1.197",
        "model_info": {"name": "claude-sonnet-4-5-20250929"},
    }
    assert result["agent_result"] == {"n_input_tokens": 37602, "n_cache_tokens": 36000, "n_output_tokens": 216}
    assert {path.name for path in trial.iterdir()} == {"agent", "config.json", "result.json"}
    assert json.loads((trial / "config.json").read_text()) == result["config"]


def test_a_task_and_a_name_can_be_given(tmp_path: Path) -> None:
    pack(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / "job", task="demo-org/hello", job_name="nightly")
    name, result = next(iter(trials(tmp_path / "job").items()))
    assert (name[:7], result["task_name"]) == ("hello__", "demo-org/hello")
    assert json.loads((tmp_path / "job/config.json").read_text())["job_name"] == "nightly"


def test_an_empty_session_among_others_is_a_warning(tmp_path: Path) -> None:
    shutil.copytree(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / "home")
    (main,) = (tmp_path / "home").rglob("*.jsonl")
    (main.parent / "00000000-0000-4000-8000-000000000000.jsonl").write_bytes(
        b'{"parentUuid":null,"isSidechain":false,"type":"summary","summary":"x","leafUuid":"y","sessionId":"z"}\n'
        b'{"type":"file-history-snapshot","messageId":"m","snapshot":{},"isSnapshotUpdate":false}\n'
    )
    sources = open_any(tmp_path / "home")
    conversion = pack(tmp_path / "home", tmp_path / "job")
    assert len(trials(tmp_path / "job")) == 1
    assert [w["code"] for w in conversion.warnings] == ["empty_trace"] * (len(sources) - 1)


def test_the_same_session_at_two_places_is_packed_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        shutil.copytree(RECORDINGS / "codex-0.171.0/basic/home", tmp_path / "homes" / name)
    pack(tmp_path / "homes", tmp_path / "job")
    assert len(trials(tmp_path / "job")) == 1


def test_a_folder_that_holds_something_is_not_packed_into(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job/notes.txt").write_text("mine")
    with pytest.raises(TraceflowError, match="is there already") as caught:
        pack(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / "job")
    assert caught.value.code == "invalid_input"
    assert tree(tmp_path) == {"job/notes.txt": b"mine"}


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    pack(RECORDINGS / "claude-2.1.197/basic/home", tmp_path / "job")
    assert len(trials(tmp_path / "job")) == 1


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traceflow.conversion import Conversion
    from traceflow.pack import PackOptions, pack_job

    def interrupted(amount: int, word: str) -> None:
        raise KeyboardInterrupt

    sources: list[Source] = open_any(RECORDINGS / "claude-2.1.197/basic/home")
    with pytest.raises(KeyboardInterrupt):
        pack_job(sources, tmp_path / "jobs/job", PackOptions(), Conversion(), progress=interrupted)
    assert list((tmp_path / "jobs").iterdir()) == []
