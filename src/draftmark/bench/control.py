"""Single requests beside the load: what a server is asked before, between and after.

Blocking, a connection a request: these are never timed. The load has a client of its own.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import msgspec

from draftmark.bench.client.transport import parse_url
from draftmark.core.errors import Unavailable

# What a server that lacks a route, or has it switched off, answers.
_ABSENT = frozenset({404, 405, 501})


class Reply(msgspec.Struct, frozen=True):
    """A whole answer."""

    status: int
    body: bytes


class Control:
    """Requests to one server; its `url` is without `/v1`. Safe to share between threads."""

    def __init__(self, url: str, *, api_key: str | None = None, timeout_s: float = 10.0) -> None:
        self._target = parse_url(url)
        host = f"[{self._target.host}]" if ":" in self._target.host else self._target.host
        self.url = f"http://{host}:{self._target.port}{self._target.prefix}"
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s

    def request(self, method: str, path: str, body: bytes | None = None) -> Reply:
        """Raises `Unavailable` when no whole answer comes, whatever its status."""
        connection = http.client.HTTPConnection(
            self._target.host, self._target.port, timeout=self._timeout_s
        )
        headers = self._headers | ({"Content-Type": "application/json"} if body else {})
        try:
            with closing(connection):
                connection.request(method, self._target.prefix + path, body, headers)
                response = connection.getresponse()
                return Reply(response.status, response.read())
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


def _check(reply: Reply, what: str) -> None:
    if not 200 <= reply.status < 300:
        shown = reply.body[:300].decode("utf-8", "replace")
        raise Unavailable(f"{what} answered {reply.status}: {shown}")


def _decode(data: bytes, what: str) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise Unavailable(f"{what} gave no JSON: {error}") from error
