"""Scores and recorded exceptions: by session id, file name or path, and never for a run that is not there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pack_inputs import AGENTS, RECORDINGS, only_trial, pack, sdk_log, stdout, tree, trials
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import outcome_of, read_trial

from traceflow.pack import read_exceptions, read_rewards


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with two SDK logs, `one` and `two`."""
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.jsonl").write_bytes(sdk_log("claude", stdout(AGENTS["claude"]), tag=f"evolve-{name}"))
    return folder


def given(tmp_path: Path, text: str, name: str = "scores.json") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def scored(logs: Path, tmp_path: Path, text: str, name: str = "scores.json") -> dict[str, Any]:
    path = given(tmp_path, text, name)
    pack(logs, tmp_path / "job", rewards=(path, read_rewards(path)))
    return {r["task_name"]: r.get("verifier_result", {}).get("rewards") for r in trials(tmp_path / "job").values()}


SCORES = {
    "json, by session": ("scores.json", '{"evolve-one": 1, "evolve-two": 0.5}', {"reward": 1}, {"reward": 0.5}),
    "json, by file": ("scores.json", '{"one.jsonl": 0, "two": 1.0}', {"reward": 0}, {"reward": 1.0}),
    "json, several": ("s.json", '{"evolve-one": {"tests": 3, "style": -0.5}}', {"tests": 3, "style": -0.5}, None),
    "json, not scored": ("s.json", '{"evolve-one": null, "evolve-two": {}}', None, None),
    "csv": ("scores.csv", "evolve-one,1\nevolve-two,0.25\n", {"reward": 1}, {"reward": 0.25}),
    "csv, one line": ("scores.csv", "evolve-two,1e-3", None, {"reward": 0.001}),
    "csv, named": (
        "s.csv",
        "session,tests,style\none.jsonl,1,\ntwo.jsonl,0,2\n",
        {"tests": 1},
        {"tests": 0, "style": 2},
    ),
    "csv, quoted with CRLF": ("s.csv", '\ufeffsession,reward\r\n"evolve-one"," 1 "\r\n', {"reward": 1}, None),
}


@pytest.mark.parametrize("case", SCORES)
def test_scores_go_to_their_runs(case: str, logs: Path, tmp_path: Path) -> None:
    name, text, one, two = SCORES[case]
    assert scored(logs, tmp_path, text, name) == {"evolve-one": one, "evolve-two": two}


def test_integers_stay_integers(logs: Path, tmp_path: Path) -> None:
    scored(logs, tmp_path, '{"evolve-one": 1, "evolve-two": 1.0}')
    texts = [data.decode() for name, data in tree(tmp_path / "job").items() if name.count("/") == 1]
    assert sum('"reward": 1\n' in text for text in texts) == 1
    assert sum('"reward": 1.0\n' in text for text in texts) == 1


WRONG = {
    "unknown": ('{"evolve-three": 1, "evolve-one": 1}', "1 of 2 names fit no run: evolve-three"),
    "twice": ('{"evolve-one": 1, "evolve-one": 0}', "'evolve-one' stands twice"),
    "two names of one run": ('{"evolve-one": 1, "one.jsonl": 0}', "names a run that another entry names too"),
    "text": ('{"evolve-one": "1"}', "no finite number: '1'"),
    "true": ('{"evolve-one": true}', "no finite number"),
    "NaN": ('{"evolve-one": NaN}', "no finite number"),
    "beyond every float": ('{"evolve-one": 1e999}', "no finite number"),
    "a list": ("[1, 2]", "not an object of run names"),
    "no JSON": ("evolve-one: 1", "no JSON"),
    "a name twice inside": ('{"evolve-one": {"reward": 1, "reward": 0}}', "a name stands twice"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_score_is_refused(case: str, logs: Path, tmp_path: Path) -> None:
    text, why = WRONG[case]
    with pytest.raises(TraceflowError) as caught:
        scored(logs, tmp_path, text)
    assert caught.value.code == "invalid_input"
    assert why in caught.value.message
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("session\nevolve-one\n", "must name the scores"),
        ("session,reward,reward\nevolve-one,1,1\n", "must name the scores"),
        ("session,reward\nevolve-one,1,2\n", "row 1 has 3 cells"),
        ("session,reward\nevolve-one,good\n", "no finite number: 'good'"),
        ("session,reward\nevolve-one,1_0\n", "no finite number: '1_0'"),
        ("evolve-one,1\nevolve-one,0\n", "stands twice"),
    ],
)
def test_a_table_that_is_no_table_of_scores_is_refused(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(TraceflowError, match=why):
        read_rewards(given(tmp_path, text, "scores.csv"))


def test_a_name_that_fits_two_runs_is_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / "log.jsonl").write_bytes(sdk_log("claude", stdout(AGENTS["claude"]), tag=name))
    with pytest.raises(TraceflowError, match="fits 2 runs"):
        scored(tmp_path / "logs", tmp_path, '{"log.jsonl": 1}')
    assert scored(tmp_path / "logs", tmp_path, '{"a/log.jsonl": 1, "b": 0}') == {"a": {"reward": 1}, "b": {"reward": 0}}


def test_a_session_goes_by_its_id_its_name_and_its_path(tmp_path: Path) -> None:
    home = RECORDINGS / "claude-2.1.197/basic/home"
    (session,) = home.rglob("*.jsonl")
    for number, name in enumerate((session.stem, session.name, str(session), session.relative_to(home).as_posix())):
        path = given(tmp_path, json.dumps({name: 1}))
        pack(home, tmp_path / f"job{number}", rewards=(path, read_rewards(path)))
        trial, result = only_trial(tmp_path / f"job{number}")
        assert result["verifier_result"] == {"rewards": {"reward": 1}}
        outcome = outcome_of(read_trial((trial / "result.json").read_bytes()))
        assert (outcome.status, outcome.primary) == ("SCORED", 1)


def test_runs_without_a_score_are_told(logs: Path, tmp_path: Path) -> None:
    path = given(tmp_path, '{"evolve-one": 1}')
    conversion = pack(logs, tmp_path / "job", rewards=(path, read_rewards(path)))
    assert [(w["code"], w["message"][:17]) for w in conversion.warnings] == [("unscored", "1 of 2 runs have ")]


def test_the_statistics_of_the_job_are_harbors(logs: Path, tmp_path: Path) -> None:
    scored(logs, tmp_path, '{"evolve-one": 1, "evolve-two": 0}')
    stats = json.loads((tmp_path / "job/result.json").read_text())["stats"]
    one, two = sorted(trials(tmp_path / "job"))
    assert stats["evals"] == {
        "claude__claude-sonnet-4-5-20250929__adhoc": {
            "n_trials": 2,
            "n_errors": 0,
            "metrics": [{"mean": 0.5}],
            "reward_stats": {"reward": {"1.0": [one], "0.0": [two]}},
            "exception_stats": {},
        }
    }


RECORDED = {
    "exception_type": "AgentTimeoutError",
    "exception_message": "timed out after 30.0 seconds",
    "exception_traceback": "Traceback ...",
    "occurred_at": "2026-01-02T03:08:59Z",
}


def test_an_exception_without_one_of_its_keys_is_refused(tmp_path: Path) -> None:
    for key in RECORDED:
        lacking = {name: value for name, value in RECORDED.items() if name != key}
        with pytest.raises(TraceflowError, match=f"no recorded exception: {key}"):
            read_exceptions(given(tmp_path, json.dumps({"evolve-one": lacking})))
    with pytest.raises(TraceflowError, match="occurred_at"):
        read_exceptions(given(tmp_path, json.dumps({"evolve-one": {**RECORDED, "occurred_at": "yesterday"}})))


def test_a_reward_beside_an_exception_counts_as_harbor_counts_it(logs: Path, tmp_path: Path) -> None:
    rewards, exceptions = tmp_path / "r.json", tmp_path / "e.json"
    rewards.write_text('{"evolve-one": 1, "evolve-two": 1}')
    exceptions.write_text(
        json.dumps({"evolve-one": RECORDED, "evolve-two": {**RECORDED, "exception_type": "VerifierTimeoutError"}})
    )
    pack(
        logs,
        tmp_path / "job",
        rewards=(rewards, read_rewards(rewards)),
        exceptions=(exceptions, read_exceptions(exceptions)),
    )
    (stats,) = json.loads((tmp_path / "job/result.json").read_text())["stats"]["evals"].values()
    assert (stats["n_trials"], stats["n_errors"]) == (1, 2)
    assert sorted(stats["exception_stats"]) == ["AgentTimeoutError", "VerifierTimeoutError"]
