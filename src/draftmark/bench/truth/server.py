"""The truth server: plain sockets under asyncio, one coroutine a connection.

Next to what clients of models ask, it answers `GET /truth/log` with every exchange so far and takes
a new script by `POST /truth/script`, which also empties the log. Death is played: all connections
are reset and the port is closed, while the process lives on and keeps its log.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from time import perf_counter_ns
from typing import Any

import httptools
import msgspec

from draftmark.bench.truth.figures import Figures
from draftmark.bench.truth.script import Exchange, Kind, Reply, Script, Step, WrittenStep
from draftmark.bench.truth.timeline import (
    Asked,
    asked,
    event_bytes,
    steps_of,
    usage_of,
    whole_bytes,
)

_MODEL_PATHS = ("/v1/completions", "/v1/chat/completions")
_NO_LINGER = struct.pack("ii", 1, 0)


class _Gone(Exception):
    """The connection is over, by the script or by the client."""


class _Incoming:
    """One request as the parser's callbacks fill it."""

    def __init__(self, t_first_byte: int) -> None:
        self.t_first_byte = t_first_byte
        self.path = ""
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_whole = False
        self.parser = httptools.HttpRequestParser(self)

    def on_url(self, url: bytes) -> None:
        self.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_whole = True


class TruthServer:
    """`await start()`, then `url`; `exchanges` is the log."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.exchanges: list[Exchange] = []
        self.figures = Figures()
        self.url = ""
        self._connections: dict[socket.socket, asyncio.Task[None]] = {}
        self._accepting: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    async def start(self, *, host: str = "127.0.0.1", port: int = 0) -> None:
        listener = socket.create_server((host, port), backlog=4096)
        listener.setblocking(False)
        self._listener = listener
        self.url = f"http://{host}:{listener.getsockname()[1]}"
        self._accepting = asyncio.create_task(self._accept(listener))

    async def close(self) -> None:
        tasks = [task for task in (self._accepting, *self._connections.values()) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def die(self) -> None:
        """As a killed process: nobody is heard, nobody is let in."""
        assert self._accepting is not None and self._listener is not None
        self._accepting.cancel()
        # Before the first reset: who sees that and comes again must be refused.
        self._listener.shutdown(socket.SHUT_RDWR)
        for connection, task in self._connections.items():
            if task is not asyncio.current_task():
                task.cancel()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        raise _Gone

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                connection, _ = await loop.sock_accept(listener)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[connection] = asyncio.create_task(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        try:
            while True:
                request = await self._receive(connection)
                await self._answer(connection, request)
        except (_Gone, ConnectionError):
            pass  # both are ends that the log already tells
        finally:
            del self._connections[connection]
            connection.close()

    async def _receive(self, connection: socket.socket) -> _Incoming:
        loop = asyncio.get_running_loop()
        incoming: _Incoming | None = None
        while incoming is None or not incoming.is_whole:
            data = await loop.sock_recv(connection, 1 << 16)
            if not data:
                raise _Gone
            incoming = incoming or _Incoming(perf_counter_ns())
            incoming.parser.feed_data(data)
        return incoming

    async def _answer(self, connection: socket.socket, request: _Incoming) -> None:
        if request.path in _MODEL_PATHS:
            status = await self._answer_model(connection, request)
        else:
            status, body = self._answer_other(request)
            await _send_whole(connection, status, body)
        key = (request.path, status)
        self.figures.answers[key] = self.figures.answers.get(key, 0) + 1

    def _answer_other(self, request: _Incoming) -> tuple[int, bytes]:
        match request.path:
            case "/health":
                return self.script.health, b"{}"
            case "/v1/models":
                limit = self.script.max_model_len
                card = {"id": self.script.model, "object": "model", "max_model_len": limit}
                return 200, msgspec.json.encode({"object": "list", "data": [card]})
            case "/metrics" if self.script.metrics:
                return 200, self.figures.text(self.script.metrics, model=self.script.model)
            case "/truth/log":
                return 200, msgspec.json.encode(self.exchanges)
            case "/truth/script":
                self.script = msgspec.json.decode(request.body, type=Script)
                self.exchanges.clear()
                self.figures = Figures()
                return 200, b"{}"
        return 404, b'{"error": {"message": "the truth server has no such path"}}'

    async def _answer_model(self, connection: socket.socket, incoming: _Incoming) -> int:
        t_read = perf_counter_ns()
        # Others that came at the same moment note theirs before any of them takes time.
        await asyncio.sleep(0)
        body: dict[str, Any] = msgspec.json.decode(incoming.body)
        own = body.pop("truth", None)
        replies = self.script.replies
        scripted = replies[min(len(self.exchanges), len(replies) - 1)]
        reply = scripted if own is None else msgspec.convert(own, Reply)
        request = asked(incoming.path, body)
        key = incoming.headers.get(b"authorization")
        exchange = Exchange(
            index=len(self.exchanges),
            path=incoming.path,
            authorization=None if key is None else key.decode("latin-1"),
            fields={k: v for k, v in body.items() if k not in ("prompt", "messages")},
            prompt_tokens=request.prompt_tokens,
            t_first_byte=incoming.t_first_byte,
            t_read=t_read,
        )
        self.exchanges.append(exchange)
        if reply.status != 200:
            error = {"error": {"message": reply.message, "code": reply.status}}
            await _sleep_until(t_read, reply.ttft_ms)
            await _send_whole(connection, reply.status, msgspec.json.encode(error))
            return reply.status
        self.figures.running += 1
        try:
            await self._play(connection, exchange, reply, request)
        except ConnectionError:
            exchange.was_left = True
            raise
        finally:
            self.figures.running -= 1
        self._count(exchange, reply, request)
        return 200

    def _count(self, exchange: Exchange, reply: Reply, request: Asked) -> None:
        """What an answer that came to its end adds."""
        counts = [step.tokens for step in exchange.written if step.tokens]
        usage = usage_of(reply, request, tokens=sum(counts))
        figures = self.figures
        figures.prompt_tokens += usage["prompt_tokens"]
        figures.queried_tokens += usage["prompt_tokens"]
        figures.cached_tokens += reply.cached_tokens or 0
        figures.output_tokens += sum(counts)
        figures.verify_steps += len(counts[1:])
        figures.accepted += sum(counts[1:]) - len(counts[1:])
        reason = reply.finish or "none"
        figures.finished[reason] = figures.finished.get(reason, 0) + 1

    async def _play(
        self, connection: socket.socket, exchange: Exchange, reply: Reply, request: Asked
    ) -> None:
        steps = steps_of(reply, request)
        if not request.stream:
            tokens = sum(step.tokens for step in steps)
            await _sleep_until(exchange.t_read, max(step.at_ms for step in steps))
            body = whole_bytes(steps, reply, request)
            exchange.written.append(WrittenStep(t=perf_counter_ns(), kind=Kind.TEXT, tokens=tokens))
            await _send_whole(connection, 200, body)
            return
        tokens, head = 0, _STREAM_HEAD
        for step in steps:
            await _sleep_until(exchange.t_read, step.at_ms)
            tokens += step.tokens
            data = head + self._bytes_of(step, reply, request, connection, tokens=tokens)
            head = b""
            exchange.written.append(
                WrittenStep(t=perf_counter_ns(), kind=step.kind, tokens=step.tokens)
            )
            if step.kind is Kind.DIE:
                self.die()
            await asyncio.get_running_loop().sock_sendall(connection, data)
            await self._stop(connection, step)

    def _bytes_of(
        self,
        step: Step,
        reply: Reply,
        request: Asked,
        connection: socket.socket,
        *,
        tokens: int,
    ) -> bytes:
        if step.kind is Kind.END:
            return b"0\r\n\r\n"
        if step.kind in (Kind.CUT, Kind.RESET, Kind.STALL, Kind.DIE):
            return b""
        data = event_bytes(step, reply, request, tokens=tokens)
        return b"%x\r\n%b\r\n" % (len(data), data)

    async def _stop(self, connection: socket.socket, step: Step) -> None:
        """What ends an answer in the middle."""
        if step.kind is Kind.STALL:
            # Only the client can end this one.
            await asyncio.get_running_loop().sock_recv(connection, 1)
            raise ConnectionResetError("left while stalled")
        if step.kind is Kind.RESET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        if step.kind in (Kind.CUT, Kind.RESET):
            raise _Gone


_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)


async def _sleep_until(start: int, after_ms: float) -> None:
    """Until `after_ms` past `start`, a time of `perf_counter_ns`."""
    left = after_ms / 1e3 - (perf_counter_ns() - start) / 1e9
    if left > 0:
        await asyncio.sleep(left)


async def _send_whole(connection: socket.socket, status: int, body: bytes) -> None:
    head = (
        f"HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(connection, head.encode() + body)
