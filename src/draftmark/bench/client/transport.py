"""HTTP/1.1 over plain sockets, one exchange at a time on each connection.

Sockets are read and written here and not through asyncio's transports, so that a request's time of
sending is that of the system call, and an arrival's that of the loop's turn. Nothing is sent
twice: a request that meets a broken connection has failed.
"""

from __future__ import annotations

import asyncio
import socket
from time import perf_counter_ns
from typing import Protocol
from urllib.parse import urlsplit

import httptools
import msgspec

from draftmark.bench.client.answer import Problem
from draftmark.bench.request import Failure
from draftmark.core.errors import ConfigError

# More than 64 KiB would be mapped and unmapped by the allocator each time: ten times the cost.
_READ_BYTES = 1 << 16
_CONNECT_S = 10.0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is. `prefix` comes before every path."""

    host: str
    port: int
    prefix: str = ""


def parse_url(url: str) -> Target:
    """Of the base of a server: `http://host:port`, with or without a path. A last `/v1` is left
    out, because paths bring their own. Raises `ConfigError`."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        raise ConfigError(
            f"{url}: https is not spoken here, because its work in the client would be measured as "
            "the server's; put the client where plain http reaches the server",
            param="url",
        )
    if parts.scheme != "http" or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{url}: a server is given as http://host:port", param="url")
    if parts.username or parts.password:
        raise ConfigError(f"{url}: keys are given by --api-key, not in the address", param="url")
    try:
        port = parts.port or 80
    except ValueError as error:
        raise ConfigError(f"{url}: {error}", param="url") from error
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return Target(host=parts.hostname, port=port, prefix=prefix)


def request_bytes(target: Target, path: str, *, body: bytes | None, api_key: str | None) -> bytes:
    """A request as it goes out: POST with a body of JSON, GET without one."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        f"{'GET' if body is None else 'POST'} {target.prefix}{path} HTTP/1.1",
        f"Host: {host}:{target.port}",
        "Accept: text/event-stream, application/json",
        "Connection: keep-alive",
    ]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    return head + (body or b"")


class Receiver(Protocol):
    """Takes what comes of an exchange. Times are `perf_counter_ns`."""

    def sent(self, now: int, /) -> None: ...
    def begin(self, status: int, content_type: bytes, /) -> None: ...
    def feed(self, now: int, data: bytes, /) -> None: ...


class Broken(Exception):
    """An exchange that did not come to its end."""

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(failure, text)


async def connect(target: Target, *, timeout_s: float = _CONNECT_S) -> Connection:
    """A new connection to the first address of the host that takes one. Raises `Broken`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Broken(Failure.CLIENT_ERROR, f"{target.host}: {error.strerror}") from error
    problem: Broken | None = None
    for family, kind, protocol, _, address in found:
        try:
            return await _connect_to(socket.socket(family, kind, protocol), address, timeout_s)
        except Broken as error:
            problem = error
    assert problem is not None, "a host without an address"
    raise problem


async def _connect_to(
    sock: socket.socket, address: tuple[object, ...], timeout_s: float
) -> Connection:
    sock.setblocking(False)
    try:
        await asyncio.wait_for(asyncio.get_running_loop().sock_connect(sock, address), timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except TimeoutError as error:
        sock.close()
        text = f"no connection within {timeout_s:g} s"
        raise Broken(Failure.CONNECT_TIMEOUT, text) from error
    except ConnectionRefusedError as error:
        sock.close()
        raise Broken(Failure.REFUSED, "connection refused") from error
    except ConnectionError as error:
        sock.close()
        raise Broken(Failure.RESET, f"while connecting: {error.strerror}") from error
    except OSError as error:
        # Too many open files, no route: the fault is on this side or between the two.
        sock.close()
        raise Broken(Failure.CLIENT_ERROR, f"cannot connect: {error.strerror}") from error
    except BaseException:  # cancelled: the socket must not stay open
        sock.close()
        raise
    return Connection(sock)


class Connection:
    """An open socket. `is_open` turns false when either side ends it, also while it is idle."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._exchange: _Exchange | None = None
        self._unsent = memoryview(b"")
        self.is_open = True
        self.idle_since = perf_counter_ns()
        self._loop.add_reader(sock, self._readable)

    async def exchange(self, request: bytes, receiver: Receiver, *, timeout_s: float) -> int:
        """Send one request and hand what comes back to `receiver`; returns when the last of it
        came. Raises `Broken`."""
        assert self.is_open and self._exchange is None, "one exchange at a time"
        exchange = self._exchange = _Exchange(receiver, self._loop.create_future())
        timer = self._loop.call_later(timeout_s, self._time_out, timeout_s)
        try:
            receiver.sent(perf_counter_ns())
            self._unsent = memoryview(request)
            self._write()
            ended = await exchange.ended
        except BaseException:  # broken or cancelled: the rest of an answer may still come
            self.close()
            raise
        finally:
            timer.cancel()
            self._exchange = None
            self.idle_since = perf_counter_ns()
        if self._unsent or not exchange.keeps_alive:
            self.close()
        return ended

    def abort(self, problem: Broken) -> None:
        """End what is under way, for a reason of the client's own."""
        if self._exchange is None:
            self.close()
        else:
            self._exchange.fail(problem)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._sock)
            if self._unsent:
                self._loop.remove_writer(self._sock)
            self._sock.close()

    def _write(self) -> None:
        """Send what the socket takes; the rest when it has room again."""
        try:
            while self._unsent:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            self._loop.add_writer(self._sock, self._write)
            return
        except OSError as error:
            self._unsent = memoryview(b"")
            # An early answer (an error, say) may be there to be read: reading finds the end, too.
            if self._exchange is not None:
                self._exchange.write_error = error
        self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):  # woken for nothing
            return
        except OSError as error:
            self.abort(Broken(Failure.RESET, error.strerror or "connection reset"))
            return
        now = perf_counter_ns()  # after reading: what was read has come by now, all of it
        exchange = self._exchange
        if exchange is None:
            self.close()  # the server ended an idle connection, or speaks unasked
            return
        try:
            if data:
                exchange.feed(now, data)
            else:
                exchange.end_of_connection(now)
        except Exception as error:  # the receiver's own fault: whoever waits must learn of it
            exchange.fail(error)

    def _time_out(self, timeout_s: float) -> None:
        self.abort(Broken(Failure.READ_TIMEOUT, f"no end of the answer within {timeout_s:g} s"))


class _Exchange:
    """One request and its response, as the parser's callbacks see it."""

    def __init__(self, receiver: Receiver, ended: asyncio.Future[int]) -> None:
        self.ended = ended
        self.keeps_alive = False
        self.write_error: OSError | None = None
        self._receiver = receiver
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._content_type = b""
        self._has_length = False
        self._has_begun = False
        self._is_complete = False

    def feed(self, now: int, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(Broken(Failure.BAD_SSE, f"no HTTP/1.1: {error}"))
            return
        body, self._body = self._body, []
        if body:
            self._receiver.feed(now, body[0] if len(body) == 1 else b"".join(body))
        if self._is_complete:
            self._succeed(now)

    def end_of_connection(self, now: int) -> None:
        """The server sends no more. That is the end of a body without a length, and of no other."""
        if self._has_begun and not self._has_length:
            self._succeed(now)
            return
        text = "the server ended the connection"
        if self.write_error is not None:
            text = f"the request could not be sent whole: {self.write_error.strerror}"
        self.fail(Broken(Failure.RESET, text))

    def _succeed(self, now: int) -> None:
        if not self.ended.done():
            self.ended.set_result(now)

    def fail(self, problem: Exception) -> None:
        if not self.ended.done():
            self.ended.set_exception(problem)

    def on_header(self, name: bytes, value: bytes) -> None:
        lowered = name.lower()
        if lowered == b"content-type":
            self._content_type = value.lower()
        elif lowered in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # the real one follows
        self._has_begun = True
        self.keeps_alive = self._parser.should_keep_alive()
        self._receiver.begin(status, self._content_type)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._has_begun:
            self._is_complete = True
