"""The server's life: listen, load, serve, and one of three ends.

    listen ── load the engine ── ready ──┬─ SIGTERM or SIGINT: drain, status 0
       /health says 503 until here       ├─ a second signal: end at once, status 1
                                         └─ the engine failed: streams end with the reason, status 1

The socket is open from the first moment, so that probes see "loading" and not a refused connection,
and stays open while running answers are drained.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib.util
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import uvicorn

from draftmark.core.declared import Declared
from draftmark.core.errors import ConfigError
from draftmark.engine.client import EngineClient
from draftmark.server.access import ApiKeys, is_loopback
from draftmark.server.app import make_app
from draftmark.server.model import ServedModel, load_model
from draftmark.server.service import Service

logger = logging.getLogger(__name__)

# Longer than the pause between two requests of a client: closing first would lose the second one.
_KEEP_ALIVE_S = 75
_BACKLOG = 2048
# What answers get to reach their clients once the engine is gone.
_LAST_BYTES_S = 2

# Called with the URL, the model and the ready record.
Announce = Callable[[str, ServedModel, Mapping[str, object]], None]


def run_server(declared: Declared, *, announce: Announce, **options: Any) -> int:
    """Serve until told to end; the exit status. `announce` is called when ready.

    `options` go to `EngineClient.launch`. Raises `ConfigError` or `ModelError` for what is wrong
    before serving.
    """
    keys = ApiKeys.read(declared.config.server.api_key_file)
    server = declared.config.server
    with listen(server.host, server.port) as listener:
        _warn_if_open(server.host, keys)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_serve(declared, keys, listener, announce, options))


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; port 0 takes a free one. Raises `ConfigError` with one line."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigError(f"--host {host}: {error.strerror}", param="host") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        listener.setblocking(False)
        yield listener


def url_of(listener: socket.socket) -> str:
    """Where to reach it from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _cannot_listen(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"port {port} of {host} is taken; choose another with --port, or 0 for a free one",
            param="port",
        )
    return ConfigError(f"cannot listen on {host} port {port}: {error.strerror}", param="host")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, which writes to many sockets in half the time; None where it is not installed."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _warn_if_open(host: str, keys: ApiKeys) -> None:
    if not is_loopback(host) and not keys.digests:
        logger.warning(
            "listening on %s without --api-key-file: whoever can reach it can use the model",
            host,
        )


async def _serve(
    declared: Declared,
    keys: ApiKeys,
    listener: socket.socket,
    announce: Announce,
    options: dict[str, Any],
) -> int:
    engine = EngineClient.launch(declared, **options)
    service = Service(declared, engine=engine, keys=keys)
    http = HttpServer(service)
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    try:
        async with _Signals() as signals:
            if await signals.unless(_load(engine, service, declared)):
                announce(url_of(listener), service.model, engine.ready)
                return await _until_end(engine, signals, declared.config.server.drain_seconds)
            logger.info("told to end while loading")
            return 0
    finally:
        await engine.close()
        await http.stop()
        await serving


async def _load(engine: EngineClient, service: Service, declared: Declared) -> None:
    await engine.wait_ready()
    source = engine.source
    model = await asyncio.to_thread(
        load_model,
        source.directory,
        config=declared.config,
        ready=engine.ready,
        max_choices=engine.most_in_flight,
        own=source.own,
    )
    service.begin(model)
    # Everything of the start lives for ever: keep the collector from walking it again and again.
    gc.collect()
    gc.freeze()


async def _until_end(engine: EngineClient, signals: _Signals, drain_s: float) -> int:
    """Wait for a signal or for the engine's end; the exit status."""
    ended = engine.wait_ended()
    if await signals.unless(ended):
        logger.error("the engine is gone: %s", engine.state.detail)
        return 1
    logger.info("draining: running answers get %g s, new requests 503", drain_s)
    if await signals.unless(engine.drain(drain_s)):
        return 1 if engine.state.state == "failed" else 0
    logger.warning("told to end twice: cutting off what runs")
    return 1


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handling: what a signal means is decided here."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                make_app(service),
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_LAST_BYTES_S,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def stop(self) -> None:
        """Close the sockets once the answers under way are sent."""
        self.should_exit = True


class _Signals:
    """SIGTERM and SIGINT as something to wait for."""

    def __init__(self) -> None:
        self._came = asyncio.Event()

    async def __aenter__(self) -> _Signals:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._came.set)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    async def unless(self, work: Awaitable[object]) -> bool:
        """Await `work` until a signal cancels it. True when it was done; raises what it raises."""
        working = asyncio.ensure_future(work)
        waiting = asyncio.create_task(self._came.wait())
        try:
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            is_done = working.done()
        finally:
            for task in (working, waiting):
                task.cancel()
            await asyncio.gather(working, waiting, return_exceptions=True)
        if is_done:
            working.result()
        else:
            self._came.clear()
        return is_done
