"""Fetching: what lies here stays, what lies elsewhere comes whole or not at all."""

from __future__ import annotations

import base64
import io
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fsspec
import pytest
from archive_bytes import tree_of
from traceflow_formats.errors import TraceflowError

from traceflow.archive.fetch import fetch
from traceflow.archive.http_source import _Redirects
from traceflow.archive.urls import is_url, shown_url
from traceflow.limits import Limits

BODY = bytes(range(256)) * 4000  # about a megabyte
QUICK: dict[str, Any] = {"retries": 2, "wait": 0.001, "timeout": 5.0}

Answer = Callable[["_Handler", int], None]  # the handler, and the number of the request


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answer: Answer
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append({key.lower(): value for key, value in self.headers.items()} | {"path": self.path})
        type(self).answer(self, len(self.seen))

    def log_message(self, *_: object) -> None:
        pass

    def reply(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, length: int | None = -1
    ) -> None:
        """An answer. `length` is what it announces (None: nothing); the connection ends with the body."""
        self.close_connection = True
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        if length is not None:
            self.send_header("Content-Length", str(len(body) if length == -1 else length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def part(self, total: bytes, headers: dict[str, str], most: int | None = None) -> None:
        """Serve a Range request, or the whole; at most so many bytes before the connection breaks."""
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        if start:
            headers = {**headers, "Content-Range": f"bytes {start}-{len(total) - 1}/{len(total)}"}
        rest = total[start:]
        self.reply(206 if start else 200, rest[:most], headers, length=len(rest))


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """The client is allowed to hang up."""


class Server:
    def __init__(self, port: int, seen: list[dict[str, str]]) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.seen = seen


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], Server]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running: list[tuple[ThreadingHTTPServer, threading.Thread]] = []

    def start(answer: Answer) -> Server:
        seen: list[dict[str, str]] = []
        handler = type("Handler", (_Handler,), {"answer": staticmethod(answer), "seen": seen})
        server = _QuietServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return Server(server.server_port, seen)

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


# -- here ------------------------------------------------------------------------------------------------------


def test_what_lies_here_stays(tmp_path: Path) -> None:
    archive = tmp_path / "a b#1.tgz"
    archive.touch()
    spool = tmp_path / "spool"
    spool.mkdir()
    for source in (archive, str(archive), archive.as_uri(), tmp_path):
        fetched = fetch(source, spool)
        assert (fetched.path, fetched.temporary) == (tmp_path if source is tmp_path else archive, False)
    assert list(spool.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("/no/such/file", "not_found"),
        ("file:///no/such/file", "not_found"),
        ("file://other.example/file", "invalid_input"),
        ("nosuchscheme://x/y", "invalid_input"),
        ("memory://no/such", "not_found"),
        ("zip://a::memory://x", "invalid_input"),
        ("http://", "invalid_input"),
        ("http://127.0.0.1:99999/x", "invalid_input"),
    ],
)
def test_what_cannot_be_fetched(source: str, code: str, tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as refused:
        fetch(source, tmp_path, **QUICK)
    assert refused.value.code == code
    assert list(tmp_path.iterdir()) == []


def test_urls_and_paths() -> None:
    assert is_url("https://x/y")
    assert is_url("s3://bucket/key")
    assert not is_url("C:\\x")
    assert not is_url("./a:b")


def test_messages_hold_no_secrets() -> None:
    assert shown_url("https://me:pw@host.example:8443/a/b.tgz?sig=1#x") == "https://host.example:8443/a/b.tgz"
    assert shown_url("http://[bad") == "(the URL)"


# -- HTTP ------------------------------------------------------------------------------------------------------


def test_a_whole_file(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    server = serve(lambda handler, _: handler.reply(200, BODY))
    steps: list[tuple[int, int | None]] = []
    fetched = fetch(f"{server.base}/dir/job é.tgz?a=b c", tmp_path, progress=lambda *step: steps.append(step), **QUICK)
    assert fetched.temporary
    assert fetched.path.parent == tmp_path
    assert fetched.path.read_bytes() == BODY
    assert steps[-1] == (len(BODY), len(BODY))
    assert server.seen[0]["path"] == "/dir/job%20%C3%A9.tgz?a=b%20c"
    assert server.seen[0]["accept-encoding"] == "identity"


def test_a_broken_connection_is_resumed(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    server = serve(lambda handler, _: handler.part(BODY, {"ETag": '"v1"'}, most=300_000))
    fetched = fetch(server.base + "/a", tmp_path, **QUICK)
    assert fetched.path.read_bytes() == BODY
    assert [seen.get("range") for seen in server.seen] == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert {seen.get("if-range") for seen in server.seen[1:]} == {'"v1"'}


def test_a_date_is_a_version_too(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    headers = {"ETag": 'W/"weak"', "Last-Modified": "Mon, 05 Oct 2026 10:00:00 GMT"}
    server = serve(lambda handler, number: handler.part(BODY, headers, most=500_000 if number == 1 else None))
    assert fetch(server.base + "/a", tmp_path, **QUICK).path.read_bytes() == BODY
    assert server.seen[1]["if-range"] == headers["Last-Modified"]


def test_without_a_version_it_starts_again(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    server = serve(lambda handler, number: handler.part(BODY, {}, most=500_000 if number == 1 else None))
    assert fetch(server.base + "/a", tmp_path, **QUICK).path.read_bytes() == BODY
    assert "range" not in server.seen[1]


def test_a_file_that_changed_is_never_mixed(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    new = BODY[::-1]

    def answer(handler: _Handler, number: int) -> None:
        if number == 1:
            handler.part(BODY, {"ETag": '"old"'}, most=500_000)
        elif number == 2:  # a server that ignores If-Range
            handler.part(new, {"ETag": '"new"'})
        else:
            handler.reply(200, new, {"ETag": '"new"'})

    server = serve(answer)
    assert fetch(server.base + "/a", tmp_path, **QUICK).path.read_bytes() == new
    assert "range" not in server.seen[2]


def test_a_server_that_answers_a_range_with_the_whole(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    new = BODY[::-1]

    def answer(handler: _Handler, number: int) -> None:
        if number == 1:
            handler.part(BODY, {"ETag": '"old"'}, most=500_000)
        else:
            handler.reply(200, new, {"ETag": '"new"'})

    assert fetch(serve(answer).base + "/a", tmp_path, **QUICK).path.read_bytes() == new


def test_a_file_that_became_shorter(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    def answer(handler: _Handler, number: int) -> None:
        if number == 1:
            handler.part(BODY, {"ETag": '"old"'}, most=500_000)
        elif number == 2:
            handler.reply(416)
        else:
            handler.reply(200, b"short")

    assert fetch(serve(answer).base + "/a", tmp_path, **QUICK).path.read_bytes() == b"short"


def test_a_busy_server_is_asked_again(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    answer = lambda handler, number: handler.reply(503 if number < 3 else 200, BODY, {"Retry-After": "0"})  # noqa: E731
    server = serve(answer)
    assert fetch(server.base + "/a", tmp_path, **QUICK).path.read_bytes() == BODY
    assert len(server.seen) == 3


@pytest.mark.parametrize(
    ("answer", "code", "part", "requests"),
    [
        (lambda h, _: h.reply(404), "not_found", "no such file", 1),
        (lambda h, _: h.reply(403), "io_error", "may have expired", 1),
        (lambda h, _: h.reply(500), "io_error", "answered 500", 3),
        (lambda h, _: h.reply(200, b"x", length=9), "io_error", "broke off after 1 bytes", 3),
        (
            lambda h, _: h.reply(302, headers={"Location": "file:///etc/hostname"}),
            "io_error",
            "to where none is followed",
            1,
        ),
        (lambda h, _: h.reply(302, headers={"Location": "ftp://host.example/x"}), "io_error", "redirects to a ftp", 1),
        (lambda h, _: h.reply(302, headers={"Location": "/again"}), "io_error", "a redirect in a circle", None),
        (lambda h, _: h.reply(200, BODY), "upload_too_large", "archive_bytes", 1),
        (lambda h, _: h.reply(200, BODY, length=None), "upload_too_large", "archive_bytes", 1),
    ],
)
def test_failures(
    answer: Answer, code: str, part: str, requests: int | None, serve: Callable[[Answer], Server], tmp_path: Path
) -> None:
    server = serve(answer)
    with pytest.raises(TraceflowError) as refused:
        fetch(server.base + "/a?token=secret", tmp_path, Limits(archive_bytes=100_000), **QUICK)
    assert refused.value.code == code
    assert part in refused.value.message
    assert "secret" not in str(refused.value) + str(refused.value.details)
    assert requests in (None, len(server.seen))
    assert list(tmp_path.iterdir()) == []


def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(TraceflowError) as refused:
        fetch("http://127.0.0.1:1/a", tmp_path, **QUICK)
    assert refused.value.code == "io_error"


def test_a_redirect_is_followed(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    def answer(handler: _Handler, _: int) -> None:
        if handler.path == "/old":
            handler.reply(302, headers={"Location": "/new"})
        else:
            handler.reply(200, BODY)

    assert fetch(serve(answer).base + "/old", tmp_path, **QUICK).path.read_bytes() == BODY


def test_no_way_back_from_https() -> None:
    request = urllib.request.Request("https://host.example/a")
    with pytest.raises(OSError, match="redirects to a http URL"):
        _Redirects().redirect_request(request, io.BytesIO(), 302, "", HTTPMessage(), "http://host.example/a")


def test_user_and_password_go_to_the_host_alone(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    target = serve(lambda handler, _: handler.reply(200, BODY))
    front = serve(lambda handler, _: handler.reply(302, headers={"Location": target.base + "/a"}))
    fetch(front.base.replace("//", "//me:p%40ss@") + "/a", tmp_path, **QUICK)
    assert front.seen[0]["authorization"] == "Basic " + base64.b64encode(b"me:p@ss").decode()
    assert "authorization" not in target.seen[0]


def test_an_interrupt_leaves_nothing(serve: Callable[[Answer], Server], tmp_path: Path) -> None:
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    server = serve(lambda handler, _: handler.reply(200, BODY))
    with pytest.raises(KeyboardInterrupt):
        fetch(server.base + "/a", tmp_path, progress=interrupt, **QUICK)
    assert list(tmp_path.iterdir()) == []


# -- fsspec ----------------------------------------------------------------------------------------------------


@pytest.fixture
def memory() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_a_file_from_another_file_system(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/bucket/a.tgz", BODY)
    fetched = fetch("memory://bucket/a.tgz", tmp_path, **QUICK)
    assert (fetched.path.read_bytes(), fetched.temporary) == (BODY, True)
    with pytest.raises(TraceflowError) as refused:
        fetch("memory://bucket/a.tgz", tmp_path, Limits(archive_bytes=9), **QUICK)
    assert refused.value.code == "upload_too_large"
    assert list(tmp_path.iterdir()) == [fetched.path]


def test_a_read_that_fails_is_resumed(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = BODY * 3
    memory.pipe_file("/a", body)
    opened: list[int] = []
    real_open = type(memory).open

    class Failing:
        def __init__(self, file: Any) -> None:
            self._file = file
            opened.append(0)

        def __enter__(self) -> Failing:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def seek(self, position: int) -> None:
            opened[-1] = position
            self._file.seek(position)

        def read(self, size: int) -> bytes:
            if self._file.tell() > opened[-1]:
                raise OSError("reset by peer")
            return bytes(self._file.read(size))

    monkeypatch.setattr(type(memory), "open", lambda self, *a, **k: Failing(real_open(self, *a, **k)))
    assert fetch("memory://a", tmp_path, **QUICK).path.read_bytes() == body
    assert opened == [0, 1 << 20, 2 << 20, len(body)]


def test_a_folder_from_another_file_system(memory: Any, tmp_path: Path) -> None:
    memory.pipe_file("/b/job/result.json", b"{}")
    memory.pipe_file("/b/job/t1/agent/big", b"x" * 11)
    memory.pipe_file("/b/job/t1/é.txt", b"")
    memory.mkdirs("/b/job/empty")
    memory.pipe_file("/b/jobs-not-this-one", b"x")
    fetched = fetch("memory://b/job", tmp_path, Limits(file_bytes=10), **QUICK)
    assert fetched.temporary
    assert [(m.name, m.size) for m in fetched.left_out] == [("t1/agent/big", 11)]
    found = {name: entry[2] for name, entry in tree_of(fetched.path).items() if entry[0] == "file"}
    assert found == {"result.json": b"{}", "t1/é.txt": b""}
    assert (fetched.path / "empty").is_dir()


@pytest.mark.parametrize(
    ("names", "limits", "code"),
    [
        (["a", "b", "c"], Limits(members=2), "upload_too_large"),
        (["a", "b", "c"], Limits(unpacked_bytes=2), "upload_too_large"),
        (["a", "n" * 300], Limits(), "invalid_archive"),
        (["a\\..\\b"], Limits(), "invalid_archive"),
    ],
)
def test_a_folder_is_bounded_as_an_archive_is(
    names: list[str], limits: Limits, code: str, memory: Any, tmp_path: Path
) -> None:
    for name in names:
        memory.store[f"/job/{name}"] = memory.store.get("/x") or _file(memory)
    with pytest.raises(TraceflowError) as refused:
        fetch("memory://job", tmp_path, limits, **QUICK)
    assert refused.value.code == code
    assert list(tmp_path.iterdir()) == []


def _file(memory: Any) -> Any:
    memory.pipe_file("/x", b"x")
    return memory.store["/x"]


def test_keys_of_an_object_store(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's own mark is no file; a key with an empty component cannot be a path and is not passed over."""
    memory.pipe_file("/job/a", b"x")
    mark = {"name": "/job/", "type": "file", "size": 0}
    real = type(memory).ls
    for extra, code in ((mark, None), ({**mark, "type": "directory"}, "io_error"), ({**mark, "size": 3}, "io_error")):
        monkeypatch.setattr(type(memory), "ls", lambda self, p, extra=extra, **k: [extra, *real(self, p, **k)])
        try:
            assert [p.name for p in fetch("memory://job", tmp_path, **QUICK).path.iterdir()] == ["a"]
            got = None
        except TraceflowError as error:
            got = error.code
        assert got == code
