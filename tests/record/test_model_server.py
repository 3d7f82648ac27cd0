"""The recorder's model server: it plays a scenario to the end over each of its four APIs, and logs the truth."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).parents[2] / "fixtures" / "record"
PROMPT = "Please run the scripted tour. [[scn:short]]"
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a running server, and its log."""
    log = tmp_path_factory.mktemp("model") / "truth.jsonl"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [sys.executable, str(RECORD / "model.py"), "--port", str(port), "--log", str(log), "--delay", "0"]
    running = subprocess.Popen(words)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", log
    finally:
        running.kill()
        running.wait()


def ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        value: dict[str, Any] = json.loads(response.read())
        return value


def stream(url: str, body: dict[str, Any]) -> list[Any]:
    """The data of the events of a streamed answer."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as response:
        lines = response.read().decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def last_line(log: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(log.read_text().splitlines()[-1])
    return value


def test_anthropic(server: tuple[str, Path]) -> None:
    url, log = server
    body: dict[str, Any] = {
        "model": "m",
        "tools": [{"name": "Bash", "input_schema": SHELL}],
        "messages": [{"role": "user", "content": PROMPT}],
    }
    first = ask(f"{url}/v1/messages", body)
    (text, call) = first["content"]
    assert (text["text"], call["name"], call["input"]) == ("I'll list the files.", "Bash", {"command": "ls"})
    truth = last_line(log)
    assert (truth["scn"], truth["turn"], truth["ids"]) == ("short", 0, [call["id"]])
    assert first["usage"]["input_tokens"] == truth["usage"]["fresh"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "README.md"}
    body["messages"] += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    events = stream(f"{url}/v1/messages", {**body, "stream": True})
    said = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
    assert said == "There is one file: README.md."
    assert [events[0]["type"], events[-1]["type"]] == ["message_start", "message_stop"]
    assert last_line(log)["turn"] == 1


def test_chat_completions(server: tuple[str, Path]) -> None:
    url, log = server
    tool = {"type": "function", "function": {"name": "bash", "parameters": SHELL}}
    body: dict[str, Any] = {"model": "m", "tools": [tool], "messages": [{"role": "user", "content": PROMPT}]}
    message = ask(f"{url}/v1/chat/completions", body)["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"command": "ls"}
    body["messages"] += [message, {"role": "tool", "tool_call_id": call["id"], "content": "README.md"}]
    events = stream(f"{url}/v1/chat/completions", {**body, "stream": True})
    said = "".join(c["delta"].get("content") or "" for e in events for c in e["choices"])
    assert said == "There is one file: README.md."
    assert len({event["id"] for event in events}) == 1
    assert events[-1]["usage"]["prompt_tokens"] == sum(last_line(log)["usage"][k] for k in ("fresh", "cread"))


def test_responses(server: tuple[str, Path]) -> None:
    url, log = server
    tool = {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}, "required": ["cmd"]}}
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]}
    body: dict[str, Any] = {"model": "m", "tools": [tool], "input": [asked], "stream": True}
    done = stream(f"{url}/v1/responses", body)[-1]
    assert done["type"] == "response.completed"
    (call,) = (item for item in done["response"]["output"] if item["type"] == "function_call")
    assert json.loads(call["arguments"]) == {"cmd": "ls"}
    body["input"] += [call, {"type": "function_call_output", "call_id": call["call_id"], "output": "README.md"}]
    (message,) = ask(f"{url}/v1/responses", {**body, "stream": False})["output"]
    assert message["content"][0]["text"] == "There is one file: README.md."
    assert last_line(log)["calls"] == []


def test_gemini_which_gives_no_ids(server: tuple[str, Path]) -> None:
    url, log = server
    tool = {"functionDeclarations": [{"name": "run_shell_command", "parametersJsonSchema": SHELL}]}
    body: dict[str, Any] = {"tools": [tool], "contents": [{"role": "user", "parts": [{"text": PROMPT}]}]}
    path = f"{url}/v1beta/models/gemini-x:streamGenerateContent"
    parts = [part for event in stream(path, body) for part in event["candidates"][0]["content"]["parts"]]
    (call,) = (part["functionCall"] for part in parts if "functionCall" in part)
    assert call == {"name": "run_shell_command", "args": {"command": "ls"}}
    assert last_line(log)["model"] == "gemini-x"
    answered = {"functionResponse": {"name": call["name"], "response": {"output": "README.md"}}}
    body["contents"] += [
        {"role": "model", "parts": [{"functionCall": call}]},
        {"role": "user", "parts": [answered]},
    ]
    said = [part for event in stream(path, body) for part in event["candidates"][0]["content"]["parts"]]
    assert "".join(part["text"] for part in said) == "There is one file: README.md."


@pytest.mark.parametrize(("hit", "status"), [(1, 529), (2, 500), (3, 400), (4, 400)])
def test_failures_come_as_the_scenario_lists_them(server: tuple[str, Path], hit: int, status: int) -> None:
    url, log = server
    body = {
        "model": "m",
        "tools": [{"name": "Bash", "input_schema": SHELL}],
        "messages": [
            {"role": "user", "content": "[[scn:errors]]"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}]},
        ],
    }
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(f"{url}/v1/messages", body)
    with caught.value as error:
        assert (error.code, json.loads(error.read())["type"]) == (status, "error")
    assert (last_line(log)["hit"], last_line(log)["usage"]) == (hit, None)


def test_an_mcp_tool_is_found_under_any_name(server: tuple[str, Path]) -> None:
    url, log = server
    for name in ("mcp__demo__lookup", "mcp_demo_lookup", "demo_lookup", "lookup"):
        tools = [{"name": name, "input_schema": {}}]
        ask(
            f"{url}/v1/messages",
            {"model": "m", "tools": tools, "messages": [{"role": "user", "content": "[[scn:mcp]]"}]},
        )
        assert last_line(log)["calls"] == [[name, {"key": "alpha"}]]


def test_the_demo_server_speaks_mcp() -> None:
    requests = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": {"name": "picture", "arguments": {"colour": "red"}}},
        {"id": 4, "method": "tools/call", "params": {"name": "fail", "arguments": {"why": "scripted"}}},
        {"id": 5, "method": "resources/list"},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **request}) + "\n" for request in requests)
    words = [sys.executable, str(RECORD / "mcp_server.py")]
    done = subprocess.run(words, input=lines, capture_output=True, text=True, check=True)
    replies = {reply["id"]: reply for reply in map(json.loads, done.stdout.splitlines())}
    assert sorted(replies) == [1, 2, 3, 4, 5]
    assert [tool["name"] for tool in replies[2]["result"]["tools"]] == ["lookup", "picture", "fail"]
    assert replies[3]["result"]["content"][1]["mimeType"] == "image/png"
    assert replies[4]["result"]["isError"] is True
    assert replies[5]["error"]["code"] == -32601
