"""Single requests beside the load: what a server is asked before, between and after.

Blocking, a connection a request: these are never timed. The load has a client of its own.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from draftmark.core.errors import ConfigError, Unavailable

# What a server that lacks a route, or has it switched off, answers.
_ABSENT = frozenset({404, 405, 501})
_READ_BYTES = 65536


class Reply(msgspec.Struct, frozen=True):
    """A whole answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


def base_url(url: str) -> str:
    """`url` without a trailing slash or `/v1`. Raises `ConfigError` for what is no http URL."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme != "http" or not parts.hostname:
        what = "https is not built: measure behind the proxy" if parts.scheme == "https" else url
        raise ConfigError(f"--url must be http://HOST:PORT ({what})", param="url")
    return f"http://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


class Control:
    """Requests to one server. Safe to share between threads."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout_s: float = 10.0) -> None:
        self.url = base_url(url)
        parts = urlsplit(self.url)
        self._host, self._port, self._prefix = parts.hostname or "", parts.port or 80, parts.path
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s

    @contextmanager
    def opened(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer as it comes, for `with`. Raises `OSError` and `http.client.HTTPException`."""
        connection = http.client.HTTPConnection(
            self._host, self._port, timeout=timeout_s or self._timeout_s
        )
        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        with closing(connection):
            connection.request(method, self._prefix + path, body, headers)
            with connection.getresponse() as response:
                yield response

    def request(
        self, method: str, path: str, body: bytes | None = None, *, timeout_s: float | None = None
    ) -> Reply:
        """Raises `Unavailable` when no whole answer comes, whatever its status."""
        try:
            with self.opened(method, path, body, timeout_s=timeout_s) as response:
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Reply(response.status, headers, response.read())
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            raise Unavailable(f"{method} {self.url}{path}: {why}") from error

    def text(self, path: str) -> str | None:
        """What a GET of `path` gives; None where the server has no such route."""
        reply = self.request("GET", path)
        if reply.status in _ABSENT:
            return None
        _check(reply, f"GET {self.url}{path}")
        return reply.body.decode("utf-8", "replace")

    def json(self, path: str) -> Any:
        """Likewise, decoded. Raises `Unavailable` when it is no JSON."""
        text = self.text(path)
        return None if text is None else _decode(text.encode(), f"GET {self.url}{path}")

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """The decoded answer to a POST, None where there is no such route or it says nothing."""
        reply = self.request("POST", path, msgspec.json.encode(body or {}))
        if reply.status in _ABSENT:
            return None
        _check(reply, f"POST {self.url}{path}")
        return _decode(reply.body, f"POST {self.url}{path}") if reply.body.strip() else None

    def posts(self, path: str) -> bool:
        """POST without a body, for its effect: whether the server did it. False where it has no
        such route."""
        reply = self.request("POST", path)
        if reply.status in _ABSENT:
            return False
        _check(reply, f"POST {self.url}{path}")
        return True


def pieces(response: http.client.HTTPResponse) -> Iterator[bytes]:
    """The body as it arrives."""
    while piece := response.read1(_READ_BYTES):
        yield piece


def _check(reply: Reply, what: str) -> None:
    if not 200 <= reply.status < 300:
        shown = reply.body[:300].decode("utf-8", "replace")
        raise Unavailable(f"{what} answered {reply.status}: {shown}")


def _decode(data: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Unavailable(f"{what} gave no JSON: {error}") from error
