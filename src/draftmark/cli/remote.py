"""Answers from a running server, by its chat endpoint (any OpenAI-compatible one)."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Any

import httpx

from draftmark.cli.talk import Message, Piece
from draftmark.core.errors import (
    ConfigError,
    ContextOverflow,
    DraftmarkError,
    EngineFailure,
    Unavailable,
)

_CONNECT_S = 5.0


class RemoteTalker:
    """Speaks to `url`, with or without `/v1` at its end. `sampling` holds request fields."""

    def __init__(self, url: str, *, sampling: dict[str, Any], api_key: str | None = None) -> None:
        base = url.rstrip("/").removesuffix("/v1")
        if not base.startswith(("http://", "https://")):
            raise ConfigError(f"--url must begin with http:// or https://; got {url!r}")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        try:
            # trust_env off: no environment variable of ours, and a proxy is of no use to localhost.
            self._client = httpx.Client(
                base_url=base,
                headers=headers,
                timeout=httpx.Timeout(None, connect=_CONNECT_S),
                trust_env=False,
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise ConfigError(f"--url {url}: {error}", param="url") from error
        self._url = base
        self._sampling = sampling
        self._model = self._find_model()

    @property
    def name(self) -> str:
        return f"{self._model} at {self._url}"

    def answer(
        self, messages: list[Message], *, max_tokens: int | None
    ) -> Generator[Piece, None, None]:
        body = {
            "model": self._model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            **self._sampling,
        }
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        try:
            with self._client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refusal(response)
                yield from map(_piece, _events(response))
        except httpx.HTTPError as error:
            raise _lost(self._url, error) from error

    def close(self) -> None:
        self._client.close()

    def _find_model(self) -> str:
        try:
            response = self._client.get("/v1/models", timeout=_CONNECT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _lost(self._url, error) from error
        if response.status_code != 200:
            raise _refusal(response)
        try:
            return str(response.json()["data"][0]["id"])
        except (ValueError, LookupError, TypeError) as error:
            raise Unavailable(f"{self._url} does not speak the OpenAI protocol") from error


def _events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON objects of a stream of server-sent events."""
    for line in response.iter_lines():
        data = line.removeprefix("data:").strip()
        if data == line or not data:
            continue
        if data == "[DONE]":
            return
        event = json.loads(data)
        if "error" in event:
            raise EngineFailure(str(event["error"].get("message", "the server failed")))
        yield event
    raise EngineFailure("the server ended the stream before the answer was complete")


def _piece(event: dict[str, Any]) -> Piece:
    choices = event.get("choices") or [{}]
    usage = event.get("usage") or {}
    return Piece(
        text=(choices[0].get("delta") or {}).get("content") or "",
        num_tokens=usage.get("completion_tokens"),
        finish=choices[0].get("finish_reason"),
    )


def _refusal(response: httpx.Response) -> DraftmarkError:
    """The server's own words where it gave any."""
    try:
        error = response.json()["error"]
        message, code, param = str(error["message"]), error.get("code"), error.get("param")
    except (ValueError, LookupError, TypeError, AttributeError):
        return Unavailable(f"the server answered {response.status_code}")
    kind = ContextOverflow if code == ContextOverflow.code else Unavailable
    return kind(message, param=param)


def _lost(url: str, error: Exception) -> Unavailable:
    return Unavailable(f"no answer from {url}: {error}")
