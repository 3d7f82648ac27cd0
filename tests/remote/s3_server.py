"""An S3 server on loopback: moto, in a process of its own, whose objects outlive it.

    with S3Server(folder) as server:
        Store.open("s3://bucket/store")     # the environment names the server
        server.kill(); server.start()       # SIGKILL; what was answered is still there

moto keeps its objects in memory and looks at the condition of a write before it writes. So writes go one by one here,
as S3 does it for one key, and each is noted in a journal before it is answered; a server that starts plays the journal.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

from s3fs import S3FileSystem

BUCKET = "traces"
_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "loopback",
    "AWS_SECRET_ACCESS_KEY": "loopback",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_MAX_ATTEMPTS": "5",  # of one request; the file system tries five times above it
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


class S3Server:
    """A server whose state is in a folder. `options` are those of `Journal`."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder, self.options = folder, options
        self.port = _free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {**_CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}
        self.process: subprocess.Popen[bytes] | None = None
        self._before: dict[str, str | None] = {}

    def start(self) -> None:
        """Start it, and wait until it answers."""
        if self.process is not None:
            self.process.wait()
        self.process = subprocess.Popen(
            [
                sys.executable,
                __file__,
                str(self.port),
                str(self.folder),
                *(f"{k}={v}" for k, v in self.options.items()),
            ],
            stderr=subprocess.DEVNULL,
        )
        for _ in range(600):
            if self.process.poll() is not None:
                raise AssertionError(f"the server ended with {self.process.returncode}")
            try:
                urllib.request.urlopen(f"{self.endpoint}/moto-api/", timeout=5).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def kill(self) -> None:
        """End it at once, in the middle of what it does."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def restart_when_it_dies(self) -> threading.Thread:
        """A thread that starts it again when it has ended by itself."""

        def watch() -> None:
            self.options = {}
            self.start()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        return thread

    def requests(self) -> list[str]:
        """Method and path of every request so far."""
        with urllib.request.urlopen(f"{self.endpoint}/-/requests", timeout=5) as answer:
            return list(answer.read().decode().splitlines())

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        self._before = {name: os.environ.get(name) for name in self.environment}
        os.environ.update(self.environment)
        S3FileSystem.clear_instance_cache()  # an instance keeps the address that it was made with
        self.start()
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(request, timeout=5).close()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        S3FileSystem.clear_instance_cache()


def _free_port() -> int:
    """A port that no connection is given by itself, so that it stays free while the server is down."""
    for port in random.Random(os.getpid() + time.time_ns()).sample(range(20_000, 32_000), 100):
        with socket.socket() as trial, contextlib.suppress(OSError):
            trial.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Journal:
    """The application with its journal around it.

    `ignore=conditions` passes over If-Match and If-None-Match, as some servers do; `die_after=SUFFIX` ends the server
    when it has written the first object whose name ends so, before it has answered; `die_at=N` at the N-th write,
    before it; `delay=SECONDS` waits before each answer, as a network does.
    """

    def __init__(
        self,
        app: Callable[..., Any],
        folder: Path,
        ignore: str = "",
        die_after: str = "",
        die_at: str = "",
        delay: str = "0",
    ) -> None:
        self._app, self._path, self._delay = app, folder / "journal", float(delay)
        self._ignore, self._die_after, self._die_at = ignore, die_after, int(die_at or 0)
        self._lock = threading.Lock()
        self._seen: list[str] = []
        self._writes = 0
        if self._path.exists():
            self._play()
        self._file = self._path.open("ab")

    def _play(self) -> None:
        from werkzeug.test import Client

        client = Client(self._app)
        with self._path.open("rb") as stream:
            while True:
                try:
                    method, path, headers, body = pickle.load(stream)
                except EOFError:
                    return
                client.open(path, method=method, headers=headers, data=body).close()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["RAW_URI"]
        if path == "/-/requests":
            start_response("200 OK", [("Content-Type", "text/plain")])
            return ["\n".join(self._seen).encode()]
        time.sleep(self._delay)
        self._seen.append(f"{environ['REQUEST_METHOD']} {path}")
        if self._ignore:
            environ = {k: v for k, v in environ.items() if k not in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")}
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._app(environ, start_response)  # type: ignore[no-any-return]
        with self._lock:
            return self._write(path, environ, start_response)

    def _write(self, path: str, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        import io

        self._writes += 1
        if self._writes == self._die_at:
            os._exit(1)
        from werkzeug.wrappers import Request

        request = Request(environ)
        body = request.get_data()
        environ["wsgi.input"] = io.BytesIO(body)
        answer = list(self._app(environ, start_response))
        headers = [pair for pair in request.headers if pair[0] not in ("Host", "Connection")]
        pickle.dump((request.method, path, headers, body), self._file)
        self._file.flush()
        if self._die_after and path.partition("?")[0].endswith(self._die_after):
            os._exit(1)
        return answer


def main(port: int, folder: Path, **options: str) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, run_simple

    app = Journal(DomainDispatcherApplication(create_backend_app), folder, **options)
    WSGIRequestHandler.log = lambda *_: None  # type: ignore[method-assign, assignment]
    run_simple("127.0.0.1", port, app, threaded=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), **dict(pair.split("=", 1) for pair in sys.argv[3:]))
