"""A trial's records: what Harbor wrote is read as it stands, and what is broken is named with its place."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from traceflow_formats.errors import TraceflowError
from traceflow_formats.harbor import (
    Timing,
    TrialRecord,
    Usage,
    outcome_of,
    policy_of,
    read_trial,
    read_trial_config,
    read_trial_lock,
    trial_cost,
)

FIXTURES = Path(__file__).parents[2] / "fixtures"
JOBS = FIXTURES / "harbor" / "jobs"
EXAMPLES = FIXTURES / "harbor" / "examples"
CASES = FIXTURES / "cases"
RESULTS = sorted(JOBS.glob("*/*/result.json"))
NEEDED = ("task_name", "trial_name", "trial_uri", "task_id", "task_checksum", "config", "agent_info")
BARE: dict[str, Any] = {key: {} if key in ("task_id", "config", "agent_info") else "" for key in NEEDED}


def read(path: Path) -> TrialRecord:
    return read_trial(path.read_bytes(), f"{path.parent.name}/{path.name}")


def trial(**fields: Any) -> TrialRecord:
    return read_trial(json.dumps({**BARE, **fields}).encode())


def codes(record: Any) -> list[str]:
    return [warning.code for warning in record.warnings]


def refused(data: bytes, path: str = "t/result.json") -> TraceflowError:
    with pytest.raises(TraceflowError) as caught:
        read_trial(data, path)
    return caught.value


# -- records that Harbor wrote ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", RESULTS, ids=lambda p: f"{p.parts[-3]}/{p.parts[-2]}")
def test_a_record_of_harbor_is_read_without_a_warning_and_as_it_stands(path: Path) -> None:
    truth = json.loads(path.read_bytes())
    record = read(path)
    assert record.warnings == ()
    assert json.dumps(record.raw, indent=4, ensure_ascii=False).encode() == path.read_bytes()
    assert record.id == truth["id"]
    assert (record.task_name, record.trial_name) == (truth["task_name"], truth["trial_name"])
    assert record.rewards.values == ((truth["verifier_result"] or {}).get("rewards") or {})
    assert [type(v) for v in record.rewards.values.values()] == [
        type(v) for v in ((truth["verifier_result"] or {}).get("rewards") or {}).values()
    ]
    assert record.reward_valid is truth["reward_valid"]
    assert record.agent_name == truth["agent_info"]["name"]
    assert [step.name for step in record.steps] == [step["step_name"] for step in truth["step_results"] or []]
    recorded = [truth, *(truth["step_results"] or [])]
    infos = [item["exception_info"] for item in recorded if item["exception_info"]]
    assert [e.type for e in record.exceptions] == [info["exception_type"] for info in infos]
    for failure, info in zip(record.exceptions, infos, strict=True):
        policy = policy_of(failure.type, failure.override)
        assert {name: getattr(policy, name) for name in info["policy"]} == info["policy"]
        assert failure.occurred_at == info["occurred_at"]


@pytest.mark.parametrize(
    ("name", "status", "primary"),
    [
        ("smoke/hello__rz7Z8xn", "SCORED", 1.0),
        ("aborted/fails__dWeuojH", "INDETERMINATE", None),
        ("aborted/gated__j3e4KgD", "CANCELLED", None),
        ("big/hello__NwHQNDN", "SCORED", 1.0),
        ("big/hello__HwTMvs6", "SCORED", 0.0),
        ("big/timeout__4QKEGBr", "SCORED", 1.0),
        ("big/noreward__74mHcDj", "INDETERMINATE", None),
        ("big/vtimeout__4fo5Eph", "INDETERMINATE", None),
        ("big/unhealthy__5T3PMT2", "INDETERMINATE", None),
        ("big/multi__FebiTBa", "SCORED", 1.0),
        ("big/gated__HDtCd7g", "SCORED", 0.0),
        ("big/steptimeout__DAXqkx5", "SCORED", 1),
        ("big/multikey__2SmyAJU", "SCORED", 0.75),
        ("traj/hello__BLa5Boi", "SCORED", 1.0),
    ],
)
def test_outcomes_of_harbors_own_trials(name: str, status: str, primary: float | None) -> None:
    outcome = outcome_of(read(JOBS / name / "result.json"))
    assert (outcome.status, outcome.primary) == (status, primary)
    assert outcome.exception_type == {
        "fails__dWeuojH": "AssertionError",
        "gated__j3e4KgD": "CancelledError",
        "timeout__4QKEGBr": "AgentTimeoutError",
        "noreward__74mHcDj": "RewardFileNotFoundError",
        "vtimeout__4fo5Eph": "VerifierTimeoutError",
        "unhealthy__5T3PMT2": "HealthcheckError",
        "steptimeout__DAXqkx5": "AgentTimeoutError",
    }.get(name.partition("/")[2])


def test_a_trial_with_an_exception_keeps_its_timings_and_traceback() -> None:
    record = read(JOBS / "big" / "timeout__4QKEGBr" / "result.json")
    assert record.started_at == "2026-11-30T11:54:07.222208Z"
    assert record.phases["agent_execution"] == Timing("2026-11-30T11:54:07.350486Z", "2026-11-30T11:54:09.358127Z")
    assert list(record.phases) == ["environment_setup", "agent_setup", "agent_execution", "verifier"]
    assert record.exception is not None
    assert record.exception.message == "Agent execution timed out after 2.0 seconds"
    assert record.exception.traceback.startswith("Traceback (most recent call last):\n")
    assert record.verifier_environment_mode == "shared"
    assert record.source == "ds"
    assert record.job_id == "133e7120-49dd-49fd-bdaa-59cab6b5e9fe"


def test_a_multi_step_trial_has_its_steps_and_the_sum_of_their_tokens() -> None:
    record = read(JOBS / "traj" / "multi__DwBMmrr" / "result.json")
    assert record.agent_result is None
    assert record.verifier_environment_mode is None
    assert [(s.name, s.rewards.values) for s in record.steps] == [("first", {"reward": 0}), ("second", {"reward": 0})]
    assert record.usage == Usage(574, 320, 54, 0.0032)
    first = record.steps[0].agent_result
    assert first is not None
    assert first.usage == Usage(287, 160, 27, 0.0016)
    assert first.models == {"demo-model": Usage(280, 160, 25, 0.0015), "demo-small": Usage(7, 0, 2, 0.0001)}


def test_the_model_comes_from_agent_info_else_from_the_config() -> None:
    known = read(EXAMPLES / "trial.result.json")
    assert (known.model_name, known.model_provider) == ("claude-sonnet-4-5", "anthropic")
    configured = read(EXAMPLES / "trial.result.error.json")
    assert (configured.model_name, configured.model_provider) == ("anthropic/claude-sonnet-4-5", None)
    assert (configured.agent_name, configured.agent_version) == ("claude-code", "2.0.0")


def test_records_travel_between_processes() -> None:
    record = read(JOBS / "big" / "steptimeout__DAXqkx5" / "result.json")
    assert pickle.loads(pickle.dumps(record)) == record


# -- locks and configs -----------------------------------------------------------------------------------


def test_a_lock_has_the_task_and_its_digest() -> None:
    lock = read_trial_lock((JOBS / "big" / "named__SkJXKKo" / "lock.json").read_bytes())
    assert (lock.task_name, lock.task_type, lock.source) == ("named", "local", "ds")
    assert lock.task_version == "1.2.3"
    assert lock.digest == "sha256:c9652cbe2773f0cedae81e405ce78b95b28e873614942cb5fe1c0ad06056fcaa"
    assert lock.warnings == ()


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "A" * 64, "sha256:" + "A" * 64, "sha256:" + "a" * 63, "md5:" + "a" * 64]
)
def test_a_digest_of_another_form_is_none(digest: str) -> None:
    lock = read_trial_lock(json.dumps({"task": {"name": "t", "type": "local", "digest": digest}}).encode())
    assert lock.digest is None
    assert codes(lock) == (["bad_digest"] if digest else [])


def test_the_config_of_an_unfinished_trial() -> None:
    config = read_trial_config((JOBS / "aborted" / "hello__bkeWQk7" / "config.json").read_bytes())
    assert config.trial_name == "hello__bkeWQk7"
    assert config.job_id == "9c8bdc05-6d13-4953-8983-de8ca1bcb337"
    assert str(config.task["path"]).endswith("/hello")


# -- what is refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", NEEDED)
def test_each_of_the_seven_keys_is_needed(missing: str) -> None:
    error = refused(json.dumps({k: v for k, v in BARE.items() if k != missing}).encode())
    assert error.code == "invalid_trial"
    assert error.message == f"t/result.json is no trial result: {missing} missing"
    assert error.details["missing"] == [missing]


def test_all_faults_of_the_needed_keys_are_named_at_once() -> None:
    error = refused(json.dumps({"task_name": 1, "task_id": None, "config": [], "agent_info": {}}).encode())
    assert error.message == (
        "t/result.json is no trial result: trial_name, trial_uri, task_checksum missing; "
        "task_name must be a string; task_id must be an object; config must be an object"
    )
    assert error.details["wrong_type"] == ["task_name", "task_id", "config"]


def test_empty_texts_and_objects_are_fine() -> None:
    record = trial()
    assert record.warnings == ()
    assert (record.id, record.agent_name, record.model_name, record.source) == (None, None, None, None)
    assert record.usage == Usage()
    assert outcome_of(record).status == "UNSCORED"


@pytest.mark.parametrize(
    ("data", "message", "byte", "line"),
    [
        (b"", "t/result.json is empty", 0, 1),
        (b" \n\n", "t/result.json is empty", 0, 1),
        (b'{"a": 1 2}', "t/result.json is no JSON: ", 8, 1),
        (
            b'{\n "a": "\xc3\xa9",\n "b": ?}',
            "t/result.json is no JSON: expecting value at byte 20 (line 3, column 7)",
            20,
            3,
        ),
        (
            b'{"cost_usd": [REDACTED]}',
            "t/result.json is no JSON: [REDACTED] stands where a value belongs (a scrubber replaced it) "
            "at byte 13 (line 1, column 14)",
            13,
            1,
        ),
        (b'{"a": "b', "t/result.json is no JSON: ", 6, 1),
        (b"[" * 100_000, "t/result.json is nested too deeply", None, None),
        (b"[]", "t/result.json holds a list, a record is an object", None, None),
        (b"null", "t/result.json holds null, a record is an object", None, None),
    ],
)
def test_what_is_no_json_object_is_refused_with_its_place(
    data: bytes, message: str, byte: int | None, line: int | None
) -> None:
    error = refused(data)
    assert error.code == "invalid_trial"
    assert error.message.startswith(message)
    assert error.details.get("byte") == byte
    assert error.details.get("line") == line


def test_case_59_each_broken_trial_is_named() -> None:
    job = CASES / "59-harbor-missing-partial-results" / "j"
    assert outcome_of(read(job / "t1__aaaaaaa" / "result.json")).primary == 1.0
    cut = refused((job / "t3__ccccccc" / "result.json").read_bytes(), "t3__ccccccc/result.json")
    assert cut.details["byte"] == 200
    assert "the file ends inside the document" in cut.message
    empty = refused((job / "t4__ddddddd" / "result.json").read_bytes(), "t4__ddddddd/result.json")
    assert empty.message == "t4__ddddddd/result.json is empty"
    schema = refused((job / "t5__eeeeeee" / "result.json").read_bytes(), "t5__eeeeeee/result.json")
    assert schema.message == "t5__eeeeeee/result.json is no trial result: task_id must be an object"


# -- what is odd and read all the same -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"agent_result": {"n_input_tokens": "[REDACTED]"}}, "redacted_value"),
        ({"agent_result": {"n_input_tokens": "12"}}, "coerced_number"),
        ({"agent_result": {"n_input_tokens": -1}}, "bad_number"),
        ({"agent_result": {"n_input_tokens": 1.5}}, "bad_number"),
        ({"agent_result": {"n_input_tokens": 2**63}}, "bad_number"),
        ({"agent_result": {"n_input_tokens": True}}, "wrong_type"),
        ({"agent_result": {"cost_usd": -0.1}}, "bad_number"),
        ({"agent_result": {"cost_usd": float("nan")}}, "non_finite_number"),
        ({"agent_result": {"cost_usd": {}}}, "wrong_type"),
        ({"agent_result": []}, "wrong_type"),
        ({"agent_info": {"name": 1}}, "wrong_type"),
        ({"started_at": "yesterday"}, "bad_time"),
        ({"started_at": "2026-01-01T00:00:00"}, "naive_time"),
        ({"id": "../../x"}, "bad_id"),
        ({"id": 7}, "wrong_type"),
        ({"step_results": {}}, "wrong_type"),
        ({"step_results": [1]}, "wrong_type"),
        ({"exception_info": {"exception_type": None, "occurred_at": "x"}}, "bad_time"),
    ],
)
def test_a_field_of_another_type_is_a_warning(fields: dict[str, Any], code: str) -> None:
    assert codes(trial(**fields)) == [code]


def test_numbers_in_strings_and_whole_floats_are_taken() -> None:
    record = trial(agent_result={"n_input_tokens": "12", "n_output_tokens": 3.0, "cost_usd": "0.5"})
    assert record.usage == Usage(12, None, 3, 0.5)


def test_an_exception_of_no_known_form_is_still_an_exception() -> None:
    record = trial(exception_info="boom")
    assert record.exception is not None
    assert outcome_of(record).status == "INDETERMINATE"
    assert outcome_of(record).exception_type is None


def test_text_is_made_valid_and_that_is_said() -> None:
    data = json.dumps({**BARE, "source": "x"}).replace('"x"', '"a\\ud800b"').encode()
    record = read_trial(data)
    assert (record.source, codes(record)) == ("a\ufffdb", ["lone_surrogate"])
    record = read_trial(json.dumps({**BARE, "source": "x"}).encode().replace(b'"x"', b'"a\xff\xfeb"'))
    assert (record.source, codes(record)) == ("a\ufffd\ufffdb", ["invalid_utf8"])


def test_a_byte_order_mark_and_numbers_of_any_length_are_read() -> None:
    data = b"\xef\xbb\xbf" + json.dumps({**BARE, "x": 0}).replace('"x": 0', '"x": ' + "9" * 5000).encode()
    assert read_trial(data).raw["x"] == float("inf")


def test_one_record_never_fills_the_memory_with_warnings() -> None:
    assert len(trial(step_results=[1] * 10_000).warnings) == 100


def test_the_folders_name_and_the_records_may_differ_and_that_is_said() -> None:
    path = CASES / "69-harbor-trial-name-collisions" / "j" / "renamed" / "result.json"
    record = read(path)
    assert record.id == "2b2e4d93-2728-5f6e-950d-fa83c3878bfe"
    assert record.trial_name == "t1__aaaaaaa"
    assert codes(record) == ["trial_name_mismatch"]
    assert "renamed" in record.warnings[0].message


# -- totals and money ------------------------------------------------------------------------------------


def step(tokens: int | None, cost: float | None = None, *, ran: bool = True) -> dict[str, Any]:
    result = {"n_input_tokens": tokens, "cost_usd": cost} if ran else None
    return {"step_name": "s", "agent_result": result}


@pytest.mark.parametrize(
    ("steps", "tokens", "warned"),
    [
        ([step(1), step(2)], 3, []),
        ([step(None), step(None)], None, []),
        ([step(1), step(None)], None, ["partial_usage"]),
        ([step(1), step(None, ran=False)], 1, []),
        ([], None, []),
    ],
)
def test_a_trials_tokens_are_the_sum_of_its_steps_or_unknown(
    steps: list[dict[str, Any]], tokens: int | None, warned: list[str]
) -> None:
    record = trial(step_results=steps)
    assert record.usage.n_input_tokens == tokens
    assert codes(record) == warned


def test_the_trials_own_total_counts_before_its_steps() -> None:
    assert trial(agent_result={"n_input_tokens": 9}, step_results=[step(1)]).usage.n_input_tokens == 9


def test_unknown_cost_is_null_and_zero_is_zero() -> None:
    assert trial_cost(trial(agent_result={"cost_usd": None})).usd is None
    assert trial_cost(trial(agent_result={"cost_usd": 0})).usd == 0.0
