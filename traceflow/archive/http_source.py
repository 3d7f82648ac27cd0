"""Reading a file over HTTP(S) with the standard library, across broken connections.

A download that breaks off goes on where it stopped, as long as the server proves that the file is still the same
one (`If-Range` with its ETag or date); otherwise it starts again. No byte of two versions is ever mixed.
"""

from __future__ import annotations

import base64
import email.message
import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import IO, Protocol

from traceflow_formats.errors import TraceflowError

from .urls import shown_url

__all__ = ["Sink", "download"]

_CHUNK = 1 << 18
_LONGEST_WAIT = 30.0
_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)").fullmatch


class Sink(Protocol):
    """Where the bytes go: `size` is what it has; it raises when that is too much."""

    size: int

    def expect(self, total: int | None) -> None: ...
    def write(self, chunk: bytes) -> None: ...
    def restart(self) -> None: ...


@dataclass(slots=True)
class _Known:
    """What is known of the file from an earlier answer."""

    validator: str | None = None
    total: int | None = None


def download(url: str, sink: Sink, *, retries: int, wait: float, timeout: float) -> None:
    """Fetch the file at a URL into a sink, whole.

    After a failure it waits `wait` seconds, then twice as long each time, and gives up after `retries` failures
    in a row that brought nothing new. Raises `not_found` (404, 410), `io_error` (refused, unreachable, broken).
    """
    opener = _opener()
    known = _Known()
    failures = 0
    furthest = 0
    while True:
        retry_after = 0.0
        try:
            if _attempt(opener, url, sink, known, timeout):
                return
            problem = f"the connection broke off after {sink.size} bytes"
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and sink.size:  # what we have is not a part of the file any more
                    sink.restart()
                    known.validator = known.total = None
                elif error.code not in _RETRIED:
                    raise _refused(url, error.code) from None
                retry_after = _seconds(error.headers.get("Retry-After"))
                problem = f"the server answered {error.code}"
        except http.client.InvalidURL as error:
            raise _no_url(url, error) from None
        except (OSError, http.client.HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            unknown_host = isinstance(reason, socket.gaierror) and reason.errno == socket.EAI_NONAME
            if unknown_host or isinstance(reason, ssl.SSLCertVerificationError | _Forbidden):
                raise TraceflowError("io_error", f"{shown_url(url)}: {reason}", url=shown_url(url)) from None
            problem = str(reason) or type(reason).__name__
        failures = 1 if sink.size > furthest else failures + 1
        furthest = max(furthest, sink.size)
        if failures > retries:
            raise TraceflowError(
                "io_error",
                f"{shown_url(url)}: {problem}, and {retries} further tries brought nothing: try again later",
                url=shown_url(url),
                bytes=sink.size,
            )
        time.sleep(min(max(wait * 2 ** (failures - 1), retry_after), _LONGEST_WAIT))


def _attempt(opener: urllib.request.OpenerDirector, url: str, sink: Sink, known: _Known, timeout: float) -> bool:
    """One request; whether the file is whole now."""
    if sink.size and known.validator is None:
        sink.restart()
    request = _request(url)
    if sink.size and known.validator is not None:
        request.add_header("Range", f"bytes={sink.size}-")
        request.add_header("If-Range", known.validator)
    with opener.open(request, timeout=timeout) as response:
        headers = response.headers
        validator = _validator(headers)
        if response.status == 206:
            match = _CONTENT_RANGE(headers.get("Content-Range", ""))
            total = int(match[3]) if match and match[3] != "*" else None
            same = validator is None or validator == known.validator
            if match is None or int(match[1]) != sink.size or not same or (known.total or total) != total:
                sink.restart()
                known.validator = known.total = None
                return False
        else:
            if sink.size:
                sink.restart()
            length = headers.get("Content-Length", "")
            total = int(length) if length.isdecimal() else None
        known.validator, known.total = validator or known.validator, total
        sink.expect(total)
        while chunk := response.read(_CHUNK):
            sink.write(chunk)
    if total is not None and sink.size > total:
        raise TraceflowError("io_error", f"{shown_url(url)}: the server sent more than the {total} bytes it announced")
    return total is None or sink.size == total


def _request(url: str) -> urllib.request.Request:
    try:
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError("it names no host")
    except ValueError as error:
        raise _no_url(url, error) from None
    host = parts.netloc.rpartition("@")[2]
    path = urllib.parse.quote(parts.path, safe="/%:@!$&'()*+,;=~")
    query = urllib.parse.quote(parts.query, safe="/%:@!$&'()*+,;=~?")
    request = urllib.request.Request(urllib.parse.urlunsplit((parts.scheme, host, path, query, "")))
    request.add_header("Accept-Encoding", "identity")  # an archive as it lies there
    request.add_header("User-Agent", "traceflow")
    if parts.username is not None:
        name, password = (urllib.parse.unquote(part or "") for part in (parts.username, parts.password))
        token = base64.b64encode(f"{name}:{password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {token}")
    return request


def _validator(headers: email.message.Message) -> str | None:
    """What If-Range may be asked with: a strong ETag, else the date of the last change."""
    tag = headers.get("ETag")
    if tag and not tag.startswith("W/"):
        return str(tag)
    return headers.get("Last-Modified")


def _no_url(url: str, error: Exception) -> TraceflowError:
    return TraceflowError("invalid_input", f"{shown_url(url)} is no URL: {error}", url=shown_url(url))


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdecimal() and len(text) < 6 else 0.0


def _refused(url: str, status: int) -> TraceflowError:
    where = shown_url(url)
    if status in (404, 410):
        return TraceflowError(
            "not_found", f"{where}: there is no such file (status {status})", url=where, status=status
        )
    hint = ": the URL may have expired, or needs a login" if status in (401, 403) else ""
    if 300 <= status < 400:
        hint = ": a redirect in a circle, or to where none is followed"
    return TraceflowError("io_error", f"{where}: the server answered {status}{hint}", url=where, status=status)


class _Forbidden(OSError):
    """A redirect that is not followed."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        scheme = urllib.parse.urlsplit(newurl).scheme
        if scheme != "https" and (scheme != "http" or req.type == "https"):
            fp.close()
            raise _Forbidden(f"it redirects to a {scheme or 'strange'} URL")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    """Only HTTP and HTTPS: the default opener would also follow a redirect to ftp."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(),
    ):
        opener.add_handler(handler)
    return opener
