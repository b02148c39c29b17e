"""Over real sockets: clients that leave (D07), slow readers, large bodies, keys of many clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from draftmark.server.body import MAX_BODY_BYTES
from tests.fakes.api import CHAT, TEXT, Api, chat_body, events, joined, listening, open_api
from tests.fakes.engine import LETTERS, FakeEngine

LONG = {"max_tokens": 400, "ignore_eos": True}


@asynccontextmanager
async def served(engine: FakeEngine | None = None) -> AsyncIterator[tuple[Api, str]]:
    async with open_api(engine) as api, listening(api) as url:
        yield api, url


async def post(url: str, path: str, body: dict[str, Any]) -> asyncio.StreamWriter:
    """Send a request and leave the answer in the socket."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
    writer.write(head.encode() + data)
    await writer.drain()
    return writer


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()  # as a killed client: no goodbye


async def until(condition: Any) -> None:
    """Wait for something that the event loop will bring about (the test's time-out bounds it)."""
    while not condition():
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("fields", [{}, {"n": 2}], ids=["one", "two"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("phase", ["queued", "prefilling", "decoding"])
async def test_a_client_that_leaves_takes_its_request_along(
    phase: str, stream: bool, fields: dict[str, Any]
) -> None:
    engine = FakeEngine(capacity=2, prefill_steps=10_000 if phase == "prefilling" else 1)
    async with served(engine) as (api, url):
        start = engine.stats
        if phase == "queued":
            engine.pause()
        writer = await post(url, CHAT, chat_body(**LONG, **fields, stream=stream))
        count = fields.get("n", 1)
        await until(lambda: len(engine.submitted) == count)
        if phase != "queued":
            await engine.wait_steps(5)
            assert engine.stats.running == count
        await hang_up(writer)
        await until(lambda: len(engine.abort_calls) == count)
        await engine.wait_idle()
        ids = [request.id for request in engine.submitted]
        assert sorted(engine.abort_calls) == ids
        assert sorted(engine.ended) == ids
        now = engine.stats
        assert (now.running, now.waiting) == (0, 0)
        assert (now.pages_free, now.slots_free) == (start.pages_free, start.slots_free)
        engine.resume()
        engine.prefill_steps = 1
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.post(CHAT, json=chat_body())).status_code == 200
        assert len(engine.abort_calls) == count  # none for an answer that came to its end
        text = (await api.client.get("/metrics")).text
        assert f'finished_reason="abort",model_name="fake"}} {count}.0' in text


async def test_no_abort_when_a_client_leaves_after_the_end() -> None:
    async with served() as (api, url):
        async with httpx.AsyncClient(base_url=url) as client:
            for stream in (False, True):
                response = await client.post(CHAT, json=chat_body(n=2, stream=stream))
                assert response.status_code == 200
        await api.engine.wait_idle()
        assert api.engine.abort_calls == []


async def test_a_client_that_leaves_while_it_still_sends() -> None:
    async with served() as (api, url):
        host, _, port = url.removeprefix("http://").rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
        writer.write(b'Content-Length: 100\r\n\r\n{"prompt": ')
        await writer.drain()
        await hang_up(writer)
        async with httpx.AsyncClient(base_url=url) as client:
            assert (await client.get("/health")).status_code == 200
        assert api.engine.submitted == []


async def test_one_event_a_step_while_the_client_reads() -> None:
    engine = FakeEngine(answer=lambda request: list(LETTERS), step_s=0.003)
    async with served(engine) as (_, url), httpx.AsyncClient(base_url=url) as client:
        body = {"prompt": "x", "stream": True, "max_tokens": 40, "ignore_eos": True}
        stream = events((await client.post(TEXT, json=body)).text)
        assert len(stream) == 41


@pytest.mark.slow
async def test_events_are_joined_only_when_the_socket_is_behind() -> None:
    """The engine is done before the client has read anything: 16 MB of events, one a token."""
    engine = FakeEngine(capacity=16)
    async with served(engine) as (api, url):
        fields = {"n": 16, "max_tokens": 500, "ignore_eos": True, "seed": 3}
        whole = (await api.complete("x", **fields)).json()
        body = {"prompt": "x", **fields, "stream": True, "logprobs": 20}
        async with (
            httpx.AsyncClient(base_url=url, timeout=60) as client,
            client.stream("POST", TEXT, json=body) as response,
        ):
            await engine.wait_idle()
            stream = events("".join([part async for part in response.aiter_text()]))
        assert len(stream) < 16 * 500 / 2
        choices = joined(stream)
        for choice in whole["choices"]:
            streamed = choices[choice["index"]]
            assert streamed["text"] == choice["text"]
            assert streamed["reasons"] == ["length"]
            assert sum(len(part["tokens"]) for part in streamed["logprobs"]) == 500


async def test_a_body_beyond_the_limit_is_a_413_and_is_not_kept() -> None:
    async with served() as (api, url), httpx.AsyncClient(base_url=url, timeout=60) as client:
        size = 50 * 2**20

        async def chunks() -> AsyncIterator[bytes]:
            yield b'{"prompt": "'
            for _ in range(size // 2**20):
                yield b"x" * 2**20
            yield b'"}'

        for content in (chunks(), b'{"prompt": "' + b"x" * size + b'"}'):
            response = await client.post(TEXT, content=content)
            assert response.status_code == 413
            error = response.json()["error"]
            assert error["code"] == "body_too_large"
            assert str(MAX_BODY_BYTES) in error["message"]
        assert (await client.post(TEXT, json={"prompt": "x"})).status_code == 200
        assert len(api.engine.submitted) == 1


async def test_a_client_that_asks_first_is_told_before_it_sends() -> None:
    async with served() as (_, url):
        host, _, port = url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
            b"Content-Length: 52428800\r\n\r\n"
        )
        assert b" 413 " in await reader.readline()
        await hang_up(writer)


async def healthy_while(client: httpx.AsyncClient, path: str, body: Any) -> httpx.Response:
    """The answer to a large body, if /health answered again and again meanwhile. This test shares
    the server's event loop: were it held, /health would be asked once and answered at the end.
    """
    data = json.dumps(body, ensure_ascii=False).encode()
    large = asyncio.create_task(client.post(path, content=data))
    count = 0
    while not large.done():
        assert (await client.get("/health")).status_code == 200
        count += 1
    assert count >= 5
    return await large


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "hello world " * 1_700_000},
        {"prompt": [5] * 4_000_000},
        {"messages": [{"role": "user", "content": "\u65e5" * 6_000_000}]},
    ],
    ids=["text", "ids", "chat"],
)
async def test_health_answers_while_a_large_body_is_worked_on(body: dict[str, Any]) -> None:
    """D03: 20 MB of text or ids."""
    path = CHAT if "messages" in body else TEXT
    async with served() as (api, url), httpx.AsyncClient(base_url=url, timeout=60) as client:
        response = await healthy_while(client, path, body)
        assert response.status_code == 400
        assert response.json()["error"]["code"] == "context_length_exceeded"
        assert not api.engine.submitted


async def test_a_long_text_is_tokenised_away_from_the_loop() -> None:
    """Where no bound is known from the length alone, tokenising itself must not hold the loop."""
    async with served() as (api, url), httpx.AsyncClient(base_url=url, timeout=60) as client:
        api.service.model.tokenizer.__dict__["_bytes_per_token"] = 0
        response = await healthy_while(client, TEXT, {"prompt": "hello world " * 30_000})
        assert "tokens" in response.json()["error"]["message"]


async def test_many_clients_at_once() -> None:
    async with served(FakeEngine(capacity=3)) as (api, url):
        limits = httpx.Limits(max_connections=40)
        async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60) as client:
            bodies = [chat_body(f"q{number}", seed=number) for number in range(40)]
            whole = await asyncio.gather(*(client.post(CHAT, json=body) for body in bodies))
            streams = await asyncio.gather(
                *(client.post(CHAT, json={**body, "stream": True}) for body in bodies)
            )
        for one, stream in zip(whole, streams, strict=True):
            [choice] = joined(events(stream.text)).values()
            assert choice["text"] == one.json()["choices"][0]["message"]["content"]
        assert api.engine.abort_calls == []
