"""For tests: events in a few words, a small job, and the contract that every backend keeps.

class TestMyBackend(BackendContract):
    @pytest.fixture
    def backend(self): return MyBackend(...)
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable
from typing import Any

from traceflow_formats.trace import Event

from .backend import Backend
from .manifest import Manifest
from .store import Store

__all__ = ["BackendContract", "call", "chunk", "error", "prompt", "result", "usage", "write_job"]


def prompt(text: str, **beside: Any) -> Event:
    """The instruction."""
    return Event("prompt", {"_prompt": {"text": text}, **beside})


def chunk(kind: str, text: str, **beside: Any) -> Event:
    """A chunk of a `user` or `agent` message or of a `thought`."""
    name = {"user": "user_message_chunk", "agent": "agent_message_chunk", "thought": "agent_thought_chunk"}[kind]
    return Event(name, {"update": {"sessionUpdate": name, "content": {"type": "text", "text": text}}, **beside})


def call(call_id: str, tool: str, raw_input: Any, kind: str = "execute", **beside: Any) -> Event:
    """A tool call."""
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": call_id,
        "toolName": tool,
        "title": tool,
        "kind": kind,
        "status": "pending",
        "rawInput": raw_input,
    }
    return Event("tool_call", {"update": update, **beside})


def result(call_id: str, text: str, status: str = "completed", **beside: Any) -> Event:
    """What a call returned."""
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    update = {"sessionUpdate": "tool_call_update", "toolCallId": call_id, "status": status, "content": content}
    return Event("tool_call_update", {"update": update, **beside})


def usage(
    prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0, *, scope: str = "call", **beside: Any
) -> Event:
    """The tokens of a model call, or of the run; `cost=` and `source=` go into the update."""
    numbers: dict[str, Any] = {
        "promptTokens": prompt_tokens,
        "completionTokens": completion_tokens,
        "cachedTokens": cached_tokens,
    }
    if (cost := beside.pop("cost", None)) is not None:
        numbers["costUsd"] = cost
    update: dict[str, Any] = {"sessionUpdate": "usage", "scope": scope, "usage": numbers}
    if (source := beside.pop("source", None)) is not None:
        update["source"] = source
    return Event("usage", {"update": update, **beside})


def error(message: str, fatal: bool = False, **beside: Any) -> Event:
    """A failure."""
    return Event("error", {"update": {"sessionUpdate": "error", "message": message, "fatal": fatal}, **beside})


def write_job(
    store: Store,
    job_id: str,
    trials: Iterable[tuple[dict[str, Any], Iterable[Event]]],
    files: dict[str, bytes] | None = None,
    job: dict[str, Any] | None = None,
) -> Manifest:
    """Write a job of trials, each a row (`trial_id`; the name is the id where it has none) and its events."""
    with store.writer(job_id) as writer:
        for row, events in trials:
            totals = writer.add_events(row["trial_id"], events)
            writer.add_trial({"trial_name": row["trial_id"], **totals.as_row(), **row})
        for path, data in (files or {}).items():
            writer.add_file(path, io.BytesIO(data))
        return writer.commit(job=job)


class BackendContract:
    """What the store relies on. Subclasses give a fixture `backend`, empty at first."""

    def test_an_object_is_read_whole_and_in_parts(self, backend: Backend) -> None:
        with backend.create("a/b/one") as stream:
            stream.write(b"0123456789")
        assert backend.read_bytes("a/b/one") == b"0123456789"
        assert backend.read_range("a/b/one", 3, 4) == b"3456"
        assert backend.read_range("a/b/one", 8, 100) == b"89"
        assert backend.size("a/b/one") == 10
        with backend.open_read("a/b/one") as stream:
            stream.seek(5)
            assert stream.read() == b"56789"

    def test_an_object_can_be_cut_back_while_it_is_written(self, backend: Backend) -> None:
        with backend.create("one") as stream:
            stream.write(b"kept, dropped")
            stream.seek(4)
            stream.truncate()
            stream.write(b"!")
        assert backend.read_bytes("one") == b"kept!"

    def test_an_object_is_invisible_until_it_is_complete(self, backend: Backend) -> None:
        with backend.create("a/one") as stream:
            stream.write(b"x" * 100_000)
            stream.flush()
            assert not backend.exists("a/one")
        assert backend.exists("a/one")

    def test_nothing_is_left_of_an_object_whose_writing_failed(self, backend: Backend) -> None:
        try:
            with backend.create("a/one") as stream:
                stream.write(b"x" * 100_000)
                raise RuntimeError("on purpose")
        except RuntimeError:
            pass
        assert not backend.exists("a/one")
        assert list(backend.objects("a")) == []

    def test_of_many_writers_one_puts_and_the_others_are_told(self, backend: Backend) -> None:
        told: list[tuple[bool, bytes]] = []

        def put(data: bytes) -> None:
            told.append((backend.put_if_absent("a/commit", data), data))

        threads = [threading.Thread(target=put, args=(b"writer %d" % n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = [data for won, data in told if won]
        assert len(winners) == 1
        assert backend.read_bytes("a/commit") == winners[0]
        assert [o.name for o in backend.objects("a")] == ["a/commit"]

    def test_a_swap_replaces_what_is_still_the_old_and_nothing_else(self, backend: Backend) -> None:
        assert not backend.swap("a/commit", b"", b"1")
        assert not backend.exists("a/commit")
        assert backend.put_if_absent("a/commit", b"1")
        assert backend.swap("a/commit", b"1", b"2")
        assert not backend.swap("a/commit", b"1", b"3")
        assert backend.read_bytes("a/commit") == b"2"
        assert [o.name for o in backend.objects("a")] == ["a/commit"]

    def test_an_object_that_was_carried_outlives_its_first_name(self, backend: Backend) -> None:
        with backend.create("a/r1/one") as stream:
            stream.write(b"12345")
        backend.carry("a/r1/one", "a/r2/deep/one")
        assert backend.read_bytes("a/r2/deep/one") == b"12345"
        backend.delete_prefix("a/r1")
        assert backend.read_bytes("a/r2/deep/one") == b"12345"
        assert [(o.name, o.size) for o in backend.objects("a")] == [("a/r2/deep/one", 5)]

    def test_what_is_not_there_is_a_file_not_found(self, backend: Backend) -> None:
        for read in (backend.read_bytes, backend.size, backend.open_read):
            try:
                read("none")
            except FileNotFoundError:
                continue
            raise AssertionError(f"{read.__name__} found something")
        assert not backend.exists("none")
        assert backend.folders("none") == []
        assert list(backend.objects("none")) == []
        backend.delete("none")
        backend.delete_prefix("none")

    def test_folders_and_objects_are_listed_and_removed(self, backend: Backend) -> None:
        assert backend.is_empty()
        for name in ("jobs/b/r1/two", "jobs/a/r1/one", "jobs/a/manifest.json", "store.json"):
            assert backend.put_if_absent(name, b"12345")
        assert not backend.is_empty()
        assert backend.folders("jobs") == ["a", "b"]
        assert backend.folders("jobs/a") == ["r1"]
        found = sorted(backend.objects("jobs/a"), key=lambda o: o.name)
        assert [(o.name, o.size) for o in found] == [("jobs/a/manifest.json", 5), ("jobs/a/r1/one", 5)]
        assert all(0 <= o.age < 60 for o in found)
        backend.delete("jobs/a/manifest.json")
        backend.delete_prefix("jobs/a/r1")
        assert list(backend.objects("jobs/a")) == []
        assert [o.name for o in backend.objects("jobs")] == ["jobs/b/r1/two"]
