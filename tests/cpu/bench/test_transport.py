"""Requests over real sockets against servers that misbehave, each in its own way."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from draftmark.bench.client import pool as pool_module
from draftmark.bench.client.answer import Answer, Problem
from draftmark.bench.client.pool import Pool
from draftmark.bench.client.transport import Broken, Target, parse_url, request_bytes
from draftmark.bench.request import Failure, PlannedRequest, RequestRecord
from draftmark.core.errors import ConfigError

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Behaviour = Callable[[Reader, Writer], Awaitable[None]]

EVENTS = b'data: {"choices":[{"text":"a","finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n" % len(EVENTS) + EVENTS


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://a:8000", Target(host="a", port=8000)),
        ("http://a", Target(host="a", port=80)),
        ("http://127.0.0.1:1/v1/", Target(host="127.0.0.1", port=1)),
        ("http://[::1]:8/x/v1", Target(host="::1", port=8, prefix="/x")),
    ],
)
def test_addresses(url: str, target: Target) -> None:
    assert parse_url(url) == target


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://a:8000", "https is not spoken"),
        ("a:8000", "http://host:port"),
        ("http://", "http://host:port"),
        ("http://a:99999", "[Pp]ort"),
        ("http://a?x=1", "http://host:port"),
        ("http://me:secret@a", "--api-key"),
    ],
)
def test_addresses_that_cannot_be(url: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_url(url)


def test_a_request_as_it_goes_out() -> None:
    sent = request_bytes(parse_url("http://[::1]:8/x"), "/v1/models", body=b"{}", api_key="k")
    head, _, body = sent.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    assert lines[0] == b"POST /x/v1/models HTTP/1.1" and body == b"{}"
    assert {b"Host: [::1]:8", b"Authorization: Bearer k", b"Content-Length: 2"} <= set(lines)
    assert request_bytes(parse_url("http://a"), "/h", body=None, api_key=None).startswith(
        b"GET /h "
    )


class Server:
    """Counts its connections; each is handled by the behaviour."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.connections = 0
        self.target = Target(host="", port=0)
        self._behaviour = behaviour

    async def handle(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        try:
            await self._behaviour(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left
        finally:
            writer.close()


@asynccontextmanager
async def serving(behaviour: Behaviour) -> AsyncIterator[tuple[Server, Pool]]:
    server = Server(behaviour)
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.target = Target(host="127.0.0.1", port=port)
    pool = Pool(server.target)
    yield server, pool
    pool.close()
    listener.close()
    await listener.wait_closed()


async def read_request(reader: Reader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length")]
    return await reader.readexactly(int(length.split(b":")[1]))


def reset(writer: Writer) -> None:
    """End the connection by a RST."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def send(
    pool: Pool, server: Server, *, size: int = 2, timeout_s: float = 20.0
) -> RequestRecord:
    body = b"{" + b" " * (size - 2) + b"}"
    plan = PlannedRequest(
        index=0,
        at_s=None,
        path="/v1/completions",
        body=body,
        max_tokens=1,
        ignore_eos=False,
        num_prompt_tokens=None,
        prompt_sha="",
    )
    answer = Answer(plan, origin=0, keep_text=True)
    request = request_bytes(server.target, plan.path, body=body, api_key=None)
    now, problem = await pool.exchange(request, answer, timeout_s=timeout_s)
    return answer.end(now, problem)


def answers(*pieces: bytes, then: Callable[[Writer], None] | None = None) -> Behaviour:
    """Each request is answered by these pieces, a moment apart."""

    async def behaviour(reader: Reader, writer: Writer) -> None:
        while True:
            await read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
            if then is not None:
                then(writer)
                return

    return behaviour


CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


def chunked(data: bytes, *, end: bool = True) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) + (b"0\r\n\r\n" if end else b"")


@pytest.mark.parametrize(
    "pieces",
    [
        (WHOLE,),
        (CHUNKED, chunked(EVENTS)),
        (CHUNKED, chunked(EVENTS[:9], end=False), chunked(EVENTS[9:])),
        tuple(WHOLE[i : i + 40] for i in range(0, len(WHOLE), 40)),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,),
    ],
)
async def test_answers_by_any_framing_keep_the_connection(pieces: tuple[bytes, ...]) -> None:
    async with serving(answers(*pieces)) as (server, pool):
        records = [await send(pool, server) for _ in range(3)]
    assert [record.text for record in records] == ["a", "a", "a"]
    assert all(record.ok for record in records) and server.connections == 1


@pytest.mark.parametrize(
    "head", [HEAD + b"Connection: close\r\n\r\n", b"HTTP/1.0" + HEAD[8:] + b"\r\n"]
)
async def test_an_answer_may_end_with_its_connection(head: bytes) -> None:
    async with serving(answers(head + EVENTS, then=lambda writer: writer.close())) as (
        server,
        pool,
    ):
        records = [await send(pool, server) for _ in range(2)]
    assert all(record.ok for record in records) and server.connections == 2


@pytest.mark.parametrize(
    ("behaviour", "failure", "words"),
    [
        (answers(then=lambda writer: writer.close()), Failure.RESET, "ended the connection"),
        (answers(then=reset), Failure.RESET, "reset"),
        (answers(CHUNKED, then=lambda writer: writer.close()), "truncated_stream", "cut"),
        (answers(CHUNKED + chunked(EVENTS[:60], end=False), then=reset), "truncated_stream", "cut"),
        (answers(b"SSH-2.0-OpenSSH\r\n"), Failure.BAD_SSE, "no HTTP"),
        (
            answers(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
            Failure.BAD_SSE,
            "no HTTP",
        ),
        (answers(b"HTTP/1.1 503 X\r\nContent-Length: 2\r\n\r\n{}"), Failure.HTTP_5XX, "503"),
    ],
)
async def test_answers_that_break(behaviour: Behaviour, failure: str, words: str) -> None:
    async with serving(behaviour) as (server, pool):
        record = await send(pool, server)
    assert record.failure == failure
    assert record.error is not None and words in record.error
    assert server.connections == 1, "nothing is sent twice"


async def test_a_fault_of_the_receiver_is_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Answer, now: int, data: bytes) -> None:
        raise RuntimeError("a fault of the client")

    monkeypatch.setattr(Answer, "feed", broken)
    async with serving(answers(WHOLE)) as (server, pool):
        with pytest.raises(RuntimeError, match="a fault of the client"):
            await send(pool, server)


async def test_silence_times_out_and_the_connection_is_not_used_again() -> None:
    async with serving(answers(CHUNKED)) as (server, pool):
        record = await send(pool, server, timeout_s=0.1)
        assert record.failure is Failure.READ_TIMEOUT and record.http == 200
        assert not (await send(pool, server, timeout_s=0.1)).ok
    assert server.connections == 2


async def test_a_long_request_is_sent_in_parts() -> None:
    sizes = []

    async def behaviour(reader: Reader, writer: Writer) -> None:
        while True:
            await asyncio.sleep(0.05)
            sizes.append(len(await read_request(reader)))
            writer.write(WHOLE)

    async with serving(behaviour) as (server, pool):
        for size in (20_000_000, 10):
            assert (await send(pool, server, size=size)).ok
    assert sizes == [20_000_000, 10] and server.connections == 1


async def test_an_answer_may_come_before_the_request_is_whole() -> None:
    async def behaviour(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps({"error": {"message": "too large"}}).encode()
        writer.write(b"HTTP/1.1 413 X\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()
        await asyncio.sleep(0.2)

    async with serving(behaviour) as (server, pool):
        record = await send(pool, server, size=20_000_000)
    assert record.failure is Failure.HTTP_4XX and record.error == "HTTP 413: too large"


async def test_nobody_listens() -> None:
    async with serving(answers(WHOLE)) as (server, pool):
        assert (await send(pool, server)).ok
    with pytest.raises(Broken) as caught:
        await Pool(server.target).open(2)
    assert caught.value.problem == Problem(Failure.REFUSED, "connection refused")
    assert (await send(Pool(server.target), server)).failure is Failure.REFUSED


async def test_a_host_that_is_not_there() -> None:
    with pytest.raises(Broken) as caught:
        await Pool(Target(host="nowhere.invalid", port=80)).open(1)
    assert caught.value.problem.failure is Failure.CLIENT_ERROR


async def test_connections_are_open_before_they_are_needed() -> None:
    async with serving(answers(WHOLE)) as (server, pool):
        await pool.open(4)
        records = await asyncio.gather(*(send(pool, server) for _ in range(4)))
        assert all(record.ok for record in records) and server.connections == 4


async def test_an_idle_connection_that_the_server_ended_is_replaced() -> None:
    async def behaviour(reader: Reader, writer: Writer) -> None:
        await read_request(reader)
        writer.write(WHOLE)
        await writer.drain()

    async with serving(behaviour) as (server, pool):
        for _ in range(3):
            assert (await send(pool, server)).ok
            await asyncio.sleep(0.05)
        assert server.connections == 3


async def test_an_old_connection_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(answers(WHOLE)) as (server, pool):
        assert (await send(pool, server)).ok
        monkeypatch.setattr(pool_module, "_FRESH_NS", 0)
        assert (await send(pool, server)).ok
        assert server.connections == 2


async def test_a_pool_can_be_ended_while_answers_are_under_way() -> None:
    async with serving(answers(CHUNKED)) as (server, pool):
        sending = asyncio.create_task(send(pool, server))
        await asyncio.sleep(0.05)
        pool.abort(Broken(Failure.CLIENT_ERROR, "interrupted"))
        record = await sending
    assert (record.failure, record.error) == (Failure.CLIENT_ERROR, "interrupted")


async def test_an_ended_pool_begins_nothing() -> None:
    async with serving(answers(WHOLE)) as (server, pool):
        sending = asyncio.create_task(send(pool, server))
        await asyncio.sleep(0)  # it is connecting now
        pool.abort(Broken(Failure.CLIENT_ERROR, "interrupted"))
        record = await sending
    assert (record.failure, record.t_send) == (Failure.CLIENT_ERROR, None)
