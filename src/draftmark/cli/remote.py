"""How to reach a running server, and answers of any that has OpenAI's chat endpoint."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from pathlib import Path
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
from draftmark.core.synthetic import rates_of, synthetic_mark

_CONNECT_S = 5.0


def base_url(url: str) -> str:
    """Without `/v1` at its end."""
    return url.rstrip("/").removesuffix("/v1")


def open_client(url: str, *, api_key: str | None) -> httpx.Client:
    """For requests below `base_url(url)`, which may take for ever. Raises `ConfigError`."""
    base = base_url(url)
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"--url must begin with http:// or https://; got {url!r}")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        # trust_env off: no environment variable of ours, and a proxy is of no use to localhost.
        return httpx.Client(
            base_url=base,
            headers=headers,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            trust_env=False,
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(f"--url {url}: {error}", param="url") from error


def read_key(file: str | None) -> str | None:
    """The first key in `file`. Raises `ConfigError`."""
    if file is None:
        return None
    try:
        lines = Path(file).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--api-key-file {file}: cannot be read ({error})") from error
    keys = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"--api-key-file {file}: holds no key")
    return keys[0]


class RemoteTalker:
    """Speaks to `url`, with or without `/v1` at its end. `sampling` holds request fields."""

    def __init__(self, url: str, *, sampling: dict[str, Any], api_key: str | None = None) -> None:
        self._client = open_client(url, api_key=api_key)
        self._url = base_url(url)
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
                    raise refusal(response)
                yield from map(read_piece, _events(response))
        except httpx.HTTPError as error:
            raise lost(self._url, error) from error

    def close(self) -> None:
        self._client.close()

    def _find_model(self) -> str:
        try:
            response = self._client.get("/v1/models", timeout=_CONNECT_S)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise lost(self._url, error) from error
        if response.status_code != 200:
            raise refusal(response)
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


def read_piece(event: dict[str, Any]) -> Piece:
    """What one event of the stream says."""
    choices = event.get("choices") or [{}]
    usage = event.get("usage") or {}
    # Ours alone: another server may mean something else by it.
    speculation = usage.get("speculation")
    length = speculation.get("acceptance_length") if isinstance(speculation, dict) else None
    return Piece(
        text=(choices[0].get("delta") or {}).get("content") or "",
        num_tokens=usage.get("completion_tokens"),
        acceptance_length=length if isinstance(length, float) else None,
        finish=choices[0].get("finish_reason"),
        mark=synthetic_mark(rates_of(event)),
    )


def refusal(response: httpx.Response) -> DraftmarkError:
    """The server's own words where it gave any."""
    try:
        error = response.json()["error"]
        message, code, param = str(error["message"]), error.get("code"), error.get("param")
    except (ValueError, LookupError, TypeError, AttributeError):
        return Unavailable(f"the server answered {response.status_code}")
    kind = ContextOverflow if code == ContextOverflow.code else Unavailable
    return kind(message, param=param)


def lost(url: str, error: Exception) -> Unavailable:
    """What to raise when no answer came."""
    return Unavailable(f"no answer from {url}: {error}")
