"""What becomes of the events of a trace: steps, calls, results, subagents, pictures."""

from __future__ import annotations

import base64
import hashlib
import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from trace_events import call, error, event, loss, prompt, result, says, thinks, usage, user
from traceflow_formats.atif import AtifBuilder, strict_problems, trajectory
from traceflow_formats.trace import Event, TraceLine


def built(*events: Event, **options: Any) -> dict[str, Any]:
    document = trajectory(events, **options)
    assert strict_problems(document) == []
    return document


def steps(*events: Event, **options: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = built(*events, **options)["steps"]
    return made


def test_a_whole_document() -> None:
    document = built(
        prompt("You are a harness.", role="system", session="s1", harness="claude-code", harnessVersion="2.1.0"),
        prompt("Create it.", session="s1", time="2026-01-01T00:00:00.000Z"),
        thinks("One call.", "m1", time="2026-01-01T00:00:01.000Z", model="claude"),
        says("Writing.", "m1", model="claude", time="2026-01-01T00:00:02.000Z", requestId="r1"),
        call("t1", "m1", {"command": "ls"}, "Bash", model="claude"),
        result("t1", "ok\n", exitCode=1, status="failed", durationMs=12, raw={"lines": 1}),
        usage("m1", 100, 20, 40, 0.5, {"cache_creation_input_tokens": 3}, stopReason="tool_use"),
        says("Done.", "m2", model="claude"),
        usage("m2", 160, 5, 120, 0.25),
    )
    assert document == {
        "schema_version": "ATIF-v1.7",
        "session_id": "s1",
        "trajectory_id": "s1",
        "agent": {"name": "claude-code", "version": "2.1.0", "model_name": "claude"},
        "steps": [
            {"step_id": 1, "source": "system", "message": "You are a harness."},
            {"step_id": 2, "timestamp": "2026-01-01T00:00:00.000Z", "source": "user", "message": "Create it."},
            {
                "step_id": 3,
                "timestamp": "2026-01-01T00:00:01.000Z",
                "source": "agent",
                "model_name": "claude",
                "message": "Writing.",
                "reasoning_content": "One call.",
                "tool_calls": [{"tool_call_id": "t1", "function_name": "Bash", "arguments": {"command": "ls"}}],
                "observation": {
                    "results": [
                        {
                            "source_call_id": "t1",
                            "content": "ok\n",
                            "extra": {
                                "status": "failed",
                                "raw_output": {"lines": 1},
                                "exit_code": 1,
                                "duration_ms": 12,
                            },
                        }
                    ]
                },
                "metrics": {
                    "prompt_tokens": 100,
                    "completion_tokens": 20,
                    "cached_tokens": 40,
                    "cost_usd": 0.5,
                    "extra": {"cache_creation_input_tokens": 3},
                },
                "llm_call_count": 1,
                "extra": {"request_id": "r1", "stop_reason": "tool_use"},
            },
            {
                "step_id": 4,
                "source": "agent",
                "model_name": "claude",
                "message": "Done.",
                "metrics": {
                    "prompt_tokens": 160,
                    "completion_tokens": 5,
                    "cached_tokens": 120,
                    "cost_usd": 0.25,
                },
                "llm_call_count": 1,
            },
        ],
        "final_metrics": {
            "total_prompt_tokens": 260,
            "total_completion_tokens": 25,
            "total_cached_tokens": 160,
            "total_cost_usd": 0.75,
            "total_steps": 4,
        },
    }
    assert [list(part) for part in (document, document["steps"][2], document["final_metrics"])] == [
        ["schema_version", "session_id", "trajectory_id", "agent", "steps", "final_metrics"],
        [
            "step_id", "timestamp", "source", "model_name", "message", "reasoning_content", "tool_calls", "observation",
            "metrics", "llm_call_count", "extra",
        ],
        ["total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps"],
    ], "keys stand in the order of the models"  # fmt: skip


def test_who_ran_when_the_trace_does_not_say() -> None:
    document = built(prompt("x"))
    assert document["agent"] == {"name": "unknown", "version": "unknown"}
    assert document["trajectory_id"] == "root"
    assert "session_id" not in document
    named = built(prompt("x", harness="codex"), harness="mine", version="3")
    assert named["agent"] == {"name": "mine", "version": "3"}


def test_no_step_is_no_document() -> None:
    builder = AtifBuilder()
    for e in (usage(None, 1, scope="run"), loss("malformed_line"), error("again", retried=True)):
        if e.data["update"].get("scope") != "call":
            builder.add(e)
    with builder.finish() as made:
        assert made.is_empty
        assert made.write(io.BytesIO()) == 0
        assert made.summary.steps == 0


# -- messages ------------------------------------------------------------------------------------------------


def test_blocks_stand_apart_and_deltas_join() -> None:
    assert steps(says("a", "m"), says("b", "m"))[0]["message"] == "a\n\nb"
    deltas = [says(text, "m", delta=True) for text in ("Hel", "lo", " world")]
    assert steps(*deltas, says("next", "m"))[0]["message"] == "Hello world\n\nnext"
    assert steps(thinks("x", "m"), thinks("y", "m"))[0]["reasoning_content"] == "x\n\ny"
    assert steps(thinks("x", "m", delta=True), thinks("y", "m", delta=True))[0]["reasoning_content"] == "xy"


def test_text_of_the_harness_is_a_system_step() -> None:
    made = steps(
        user("cwd: /", injected="environment_context"),
        prompt("do it"),
        says("ok", "m1"),
        user("summary", compaction={"trigger": "auto", "preTokens": 110}),
        user("go on"),
    )
    assert [step["source"] for step in made] == ["system", "user", "agent", "system", "user"]
    assert made[0]["extra"] == {"kind": "environment_context"}
    assert made[3]["message"] == "summary"
    assert made[3]["extra"] == {
        "kind": "compaction",
        "context_management": {"type": "compaction", "boundary": "replace"},
        "compaction": {"trigger": "auto", "preTokens": 110},
    }


def test_an_error_is_a_step_of_no_model_call() -> None:
    """Case 13: a failure of the provider never becomes what the agent said."""
    made = steps(
        says("ok", "m1", model="m"),
        error("429 {...}", isApiErrorMessage=True, error="rate_limit", requestId="r", time="2026-01-01T00:00:00Z"),
    )
    assert made[1] == {
        "step_id": 2,
        "timestamp": "2026-01-01T00:00:00Z",
        "source": "agent",
        "message": "",
        "llm_call_count": 0,
        "extra": {
            "error": {"message": "429 {...}", "fatal": True, "kind": "rate_limit"},
            "is_api_error": True,
            "request_id": "r",
        },
    }


@pytest.mark.parametrize(
    ("raw", "arguments"),
    [
        ({"a": 1}, {"a": 1}),
        (None, {}),
        ('{"a": [1, 2]}', {"a": [1, 2]}),
        (' {"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ("*** Begin Patch", {"input": "*** Begin Patch"}),
        ('{"cut": ', {"input": '{"cut": '}),
        ('"text"', {"input": '"text"'}),
        ("", {"input": ""}),
        ([1], {"input": [1]}),
        (7, {"input": 7}),
    ],
)
def test_arguments_are_an_object(raw: Any, arguments: dict[str, Any]) -> None:
    assert steps(call("c", "m", raw))[0]["tool_calls"][0]["arguments"] == arguments


def test_the_tool_name_of_an_older_trace_is_its_title() -> None:
    update = {"toolCallId": "c", "title": "Run ls", "kind": "execute", "status": "pending"}
    made = steps(event("tool_call", update, "m"))
    assert made[0]["tool_calls"] == [
        {
            "tool_call_id": "c",
            "function_name": "Run ls",
            "arguments": {},
            "extra": {"function_name_from": "title"},
        }
    ]


# -- results -------------------------------------------------------------------------------------------------


def observed(step: dict[str, Any]) -> list[tuple[Any, Any]]:
    return [(r.get("source_call_id"), r.get("content")) for r in step["observation"]["results"]]


def test_results_are_in_the_step_of_their_call_however_late() -> None:
    made = steps(call("a", "m1"), call("b", "m1"), says("x", "m2"), user("hm"), result("b", "2"), result("a", "1"))
    assert observed(made[0]) == [("b", "2"), ("a", "1")]
    assert all("observation" not in step for step in made[1:])


def test_a_call_without_result_keeps_the_call() -> None:
    """Case 29."""
    document = built(prompt("x"), call("c1", "m"), call("c2", "m"), result("c1", "ok"), loss("truncated_tail"))
    assert [c["tool_call_id"] for c in document["steps"][1]["tool_calls"]] == ["c1", "c2"]
    assert observed(document["steps"][1]) == [("c1", "ok")]
    assert document["final_metrics"]["extra"]["status"] == "incomplete"
    assert document["extra"]["trace_loss"] == [
        {"reason": "truncated_tail", "count": 1, "source": {"path": "a.jsonl", "lines": [3]}}
    ]


def test_call_ids_that_repeat() -> None:
    """Cases 31 and 32: over turns, and within one."""
    made = steps(
        call("call_0", "m1", {"path": "."}),
        result("call_0", "here"),
        call("call_0", "m2", {"path": "/"}),
        result("call_0", "root"),
        call("x", "m3", name="f"),
        call("x", "m3", name="g"),
        result("x", "r1"),
        result("x", "r2"),
    )
    assert [observed(step) for step in made] == [
        [("call_0", "here")],
        [("call_0", "root")],
        [("x", "r1"), ("x", "r2")],
    ]


def test_a_result_without_call_names_no_call() -> None:
    made = steps(prompt("x"), says("y", "m1"), result("gone", "late"))
    assert made[1]["observation"]["results"] == [{"content": "late", "extra": {"tool_call_id": "gone"}}]
    first = steps(result("gone", "early"), prompt("x"))[0]
    assert (first["source"], first["message"], first["extra"]) == ("system", "", {"kind": "result_without_call"})


def test_a_result_that_came_before_its_call() -> None:
    """Traces of the platform: an update may stand before the call."""
    document = built(prompt("x"), result("c", "r", exitCode=0), call("c", "m1"))
    assert "observation" not in document["steps"][0]
    assert document["steps"][1]["observation"]["results"] == [
        {"source_call_id": "c", "content": "r", "extra": {"exit_code": 0}}
    ]
    assert "extra" not in document["final_metrics"], "nothing is missing"


def test_news_of_a_running_call_is_no_result() -> None:
    made = steps(call("c", "m1"), result("c", "so far", status="in_progress"), result("c", "all"))
    assert observed(made[0]) == [("c", "all")]
    killed = built(call("c", "m1"), result("c", "so far", status="in_progress"))
    assert "observation" not in killed["steps"][0]
    assert killed["final_metrics"]["extra"] == {"status": "incomplete"}


def test_content_of_results_is_verbatim() -> None:
    diff = {"type": "diff", "path": "a", "oldText": None, "newText": "n"}
    made = steps(
        call("a", "m"), call("b", "m"), call("c", "m"), call("d", "m"),
        result("a", " two\n\nlines\n"), result("b", "one", "two"), result("c"), result("d", diff),
    )  # fmt: skip
    assert made[0]["observation"]["results"] == [
        {"source_call_id": "a", "content": " two\n\nlines\n"},
        {"source_call_id": "b", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
        {"source_call_id": "c"},
        {"source_call_id": "d", "extra": {"diffs": [{"path": "a", "oldText": None, "newText": "n"}]}},
    ]


def test_a_raw_output_that_repeats_the_text_is_left_to_the_trace() -> None:
    made = steps(
        call("a", "m"), call("b", "m"),
        result("a", "x", raw={"stdout": "x" * 9000}), result("b", raw={"stdout": "x" * 9000}),
    )  # fmt: skip
    assert ["extra" in r for r in made[0]["observation"]["results"]] == [False, True]


# -- subagents -----------------------------------------------------------------------------------------------


def test_subagents_are_embedded_where_they_were_spawned() -> None:
    document = built(
        prompt("x", session="s", harness="h"),
        call("task", "m1", name="Task"),
        user("look", agent="kid", parent="task", session="s"),
        call("inner", "m1", name="Task", agent="kid", parent="task", model="small"),
        says("deep", "m1", agent="grandkid", parent="inner"),
        result("inner", "deep", agent="kid", parent="task"),
        result("task", "looked"),
        says("done", "m2"),
        says("late", "m1", agent="other", parent="task"),
        says("lost", "m1", agent="stray", parent="nowhere"),
    )
    refs = document["steps"][1]["observation"]["results"]
    assert refs == [
        {
            "source_call_id": "task",
            "content": "looked",
            "subagent_trajectory_ref": [{"trajectory_id": "kid"}, {"trajectory_id": "other"}],
        }
    ]
    kid, other, stray = document["subagent_trajectories"]
    assert [d["trajectory_id"] for d in (kid, other, stray)] == ["kid", "other", "stray"]
    assert kid["agent"] == {"name": "h", "version": "unknown", "model_name": "small"}
    assert [step["source"] for step in kid["steps"]] == ["user", "agent"]
    inner = kid["steps"][1]["observation"]["results"][0]
    assert inner["subagent_trajectory_ref"] == [{"trajectory_id": "grandkid"}]
    assert [d["trajectory_id"] for d in kid["subagent_trajectories"]] == ["grandkid"]


def test_a_subagent_whose_file_comes_after_everything() -> None:
    """Files of subagents are read behind the main one: the call is closed and written out by then."""
    many = [e for n in range(300) for e in (says("x", f"m{n}"), call(f"c{n}", f"m{n}"), result(f"c{n}", "r"))]
    document = built(*many, says("hi", "k1", agent="kid", parent="c7"))
    assert document["steps"][7]["observation"]["results"][0]["subagent_trajectory_ref"] == [{"trajectory_id": "kid"}]


def test_a_spawning_call_without_result_still_refers() -> None:
    document = built(call("task", "m1"), says("hi", "k", agent="kid", parent="task"))
    assert document["steps"][0]["observation"]["results"] == [
        {"source_call_id": "task", "subagent_trajectory_ref": [{"trajectory_id": "kid"}]}
    ]


def test_calls_of_one_id_in_two_turns_spawn_each_their_own() -> None:
    document = built(
        call("call_0", "m1"),
        says("a", "k", agent="first", parent="call_0"),
        result("call_0", "1"),
        call("call_0", "m2"),
        says("b", "k", agent="second", parent="call_0"),
        result("call_0", "2"),
    )
    refs = [step["observation"]["results"][0]["subagent_trajectory_ref"] for step in document["steps"]]
    assert refs == [[{"trajectory_id": "first"}], [{"trajectory_id": "second"}]]


def test_a_trace_of_a_subagent_alone_is_its_trajectory() -> None:
    document = built(says("hi", "m", agent="kid", parent="gone", session="s"))
    assert (document["trajectory_id"], document["session_id"]) == ("s", "s")
    assert "subagent_trajectories" not in document


def test_agents_that_spawned_each_other_hang_on_the_root() -> None:
    document = built(
        prompt("x"),
        call("a", "m", agent="one", parent="b"),
        call("b", "m", agent="two", parent="a"),
    )

    def count(d: dict[str, Any]) -> int:
        return 1 + sum(count(child) for child in d.get("subagent_trajectories", ()))

    assert count(document) == 3


def test_a_long_line_of_subagents_is_cut_at_the_depth_that_is_read() -> None:
    line = [call(f"c{n}", "m", agent=f"a{n}", parent=f"c{n - 1}") for n in range(1, 100)]
    document = built(call("c0", "m"), *line)
    assert len(document["subagent_trajectories"]) > 1


# -- what is left out ----------------------------------------------------------------------------------------


def test_withdrawn_events_are_in_no_step() -> None:
    made = steps(prompt("x"), says("no", "m1", abandoned=True), call("c", "m1", abandoned=True), says("yes", "m2"))
    assert [step["message"] for step in made] == ["x", "yes"]


def test_copied_context_is_marked() -> None:
    made = steps(prompt("x", copied=True), says("y", "m1", copied=True), says("z", "m1"))
    assert [step.get("is_copied_context") for step in made] == [True, True, None]


def test_a_plan_is_kept_where_no_call_says_it() -> None:
    entries = [{"content": "do", "status": "pending", "priority": "medium"}]
    alone = steps(event("plan", {"entries": entries}))
    assert alone[0]["extra"] == {"plan": entries}
    beside = steps(call("c", "m", {"todos": []}), event("plan", {"entries": entries}, "m"))
    assert "extra" not in beside[0]


def test_steps_of_a_trial_carry_their_name() -> None:
    made = steps(
        prompt("a", stepName="first"),
        says("b", "call-1", stepName="first"),
        call("c", "call-1", stepName="second"),
        result("c", "r", stepName="second"),
    )
    assert [step["extra"] for step in made] == [{"step_name": "first"}, {"step_name": "first"}, {"step_name": "second"}]
    assert made[2]["observation"]["results"] == [{"source_call_id": "c", "content": "r"}]


# -- values --------------------------------------------------------------------------------------------------


def test_times_that_are_none_stand_beside_the_step() -> None:
    made = steps(
        prompt("a", time="2026-01-01 10:00:00+02:00"), user("b", time="yesterday"), user("c", time="2026-01-01")
    )
    assert [step.get("timestamp") for step in made] == ["2026-01-01 10:00:00+02:00", None, "2026-01-01"]
    assert made[1]["extra"] == {"timestamp": "yesterday"}


def test_text_that_cannot_be_written_is_mended() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = [deep]
    made = steps(prompt("cut \ud83d, nul \0"), call("c", "m", {"k\ud83d": deep, "n": float("nan"), "big": 2**70}))
    assert made[0]["message"] == "cut \ufffd, nul \0"
    arguments = made[1]["tool_calls"][0]["arguments"]
    assert list(arguments) == ["k\ufffd", "n", "big"]
    assert arguments["n"] is None


def test_lines_of_a_trace_are_taken_like_events() -> None:
    events = [prompt("x"), says("y", "m")]
    lines = [TraceLine(n * 7, e.type, e.data) for n, e in enumerate(events)]
    assert trajectory(lines) == trajectory(events)


def test_memory_does_not_grow_with_the_trace() -> None:
    text = "x" * 8000
    tracemalloc.start()
    builder = AtifBuilder()
    for n in range(8000):
        builder.add(call(f"c{n}", f"m{n}", {"n": n}))
        builder.add(result(f"c{n}", f"{n}{text}"))
        builder.add(usage(f"m{n}", 1, 1, 0))
    with builder.finish() as made:
        size = sum(map(len, made.chunks()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size > 64_000_000
    assert peak < 24_000_000


# -- pictures ------------------------------------------------------------------------------------------------

PNG = b"\x89PNG not really"
PICTURE = {"type": "image", "data": base64.b64encode(PNG).decode(), "mimeType": "image/png"}
NAME = f"images/{hashlib.sha256(PNG).hexdigest()[:32]}.png"
PART = {"type": "image", "source": {"media_type": "image/png", "path": NAME}}


def test_pictures_go_into_files(tmp_path: Path) -> None:
    made = steps(
        user("look", "u1"), user(PICTURE, "u1"), user("a", "u1"), user("b", "u1"),
        call("c", "m"), result("c", "a picture", PICTURE),
        images=tmp_path,
    )  # fmt: skip
    assert made[0]["message"] == [{"type": "text", "text": "look"}, PART, {"type": "text", "text": "a\n\nb"}]
    assert observed(made[1]) == [("c", [{"type": "text", "text": "a picture"}, PART])]
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")] == [NAME]
    assert (tmp_path / NAME).read_bytes() == PNG


def test_pictures_are_words_where_there_is_no_place_for_them() -> None:
    made = steps(user("look", "u"), user(PICTURE, "u"), call("c", "m"), result("c", PICTURE))
    assert made[0]["message"] == "look\n\n[image: image/png, 15 bytes]"
    assert observed(made[1]) == [("c", "[image: image/png, 15 bytes]")]


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        ({"data": "", "mimeType": "", "uri": "https://h/a.jpeg?x=1"}, ("image/jpeg", "https://h/a.jpeg?x=1")),
        ({"data": "", "mimeType": "image/webp", "uri": "images/a"}, ("image/webp", "images/a")),
        ({"data": "", "mimeType": "", "uri": "https://h/a"}, "[image: https://h/a]"),
        ({"data": "aGk=", "mimeType": "image/svg+xml"}, "[image: image/svg+xml, 2 bytes]"),
        ({"data": "%%", "mimeType": "image/png"}, "[image: image/png, data that is no base64]"),
        ({"data": "", "mimeType": "image/png", "uri": "data:image/png;base64,x"}, "[image: image/png, no data]"),
        ({}, "[image: unknown type, no data]"),
    ],
)
def test_odd_pictures(picture: dict[str, Any], expected: Any) -> None:
    taken: dict[str, bytes] = {}
    message = steps(user({"type": "image", **picture}), images=taken.__setitem__)[0]["message"]
    if isinstance(expected, str):
        assert message == expected
    else:
        media_type, path = expected
        assert message == [{"type": "image", "source": {"media_type": media_type, "path": path}}]
    assert taken == {}
