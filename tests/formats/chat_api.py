"""What OpenAI's own library says of a list of messages."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter

__all__ = ["check_record"]


@cache
def _adapter() -> tuple[TypeAdapter[Any], TypeAdapter[Any]]:
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionMessageParam

    return TypeAdapter(list[ChatCompletionMessageParam]), TypeAdapter(list[ChatCompletionFunctionToolParam])


def check_record(record: dict[str, Any]) -> None:
    """Raise where a record is not what the API takes: its models, and what its server asks beyond them."""
    messages, tools = _adapter()
    plain = [_without_pictures(message) for message in record["messages"]]
    exact(messages.validate_python(plain))
    exact(tools.validate_python(record.get("tools", [])))
    open_calls: dict[str, int] = {}
    for message in record["messages"]:
        if message["role"] == "tool":
            assert open_calls[message["tool_call_id"]], "a result of a call that was not made, or a second one"
            open_calls[message["tool_call_id"]] -= 1
        for call in message.get("tool_calls", ()):
            open_calls[call["id"]] = open_calls.get(call["id"], 0) + 1


def exact(value: Any) -> Any:
    """The models take lists as iterators: go through them, so that what is in them is checked."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [exact(item) for item in value]


def _without_pictures(message: dict[str, Any]) -> dict[str, Any]:
    """Results may hold pictures here, which is all that the API would not take."""
    if message["role"] != "tool" or isinstance(message["content"], str):
        return message
    texts = [part for part in message["content"] if part["type"] == "text"]
    assert all(set(part) == {"type", "image_url"} for part in message["content"] if part not in texts)
    return {**message, "content": texts}
