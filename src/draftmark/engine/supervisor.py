"""The engine process as seen from the API process: start, messages, signs of death, end.

Runs on one asyncio event loop. Decides nothing about requests; `client` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

import psutil
import zmq

from draftmark.engine.channel import (
    Channel,
    EngineInit,
    FromEngineProcess,
    PeerGone,
    decode_from_engine,
)
from draftmark.engine.launch import ENGINE_MODULE, Addresses, Child, start_child

logger = logging.getLogger(__name__)

_MESSAGES_A_TURN = 100
_POLL_S = 0.02
_WORKER_GRACE_S = 1.0


class EngineProcess:
    """Owns the child, its channel and its workers' identities; `init` is what it is told first.

    `on_message` gets each message in order; `on_gone` is called once when the process is gone, its
    last messages delivered before; `on_fault` when a message cannot be handled.
    """

    def __init__(
        self,
        init: EngineInit,
        *,
        on_message: Callable[[FromEngineProcess], None],
        on_gone: Callable[[], None],
        on_fault: Callable[[str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_gone = on_gone
        self._on_fault = on_fault
        self._workers: list[psutil.Process] = []
        self._farewell: asyncio.Task[None] | None = None
        self._init: EngineInit | None = init
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._addresses = Addresses.create()
        address = self._addresses.engine
        try:
            self._channel = Channel.bind(self._context, address=address, decode=decode_from_engine)
            self.child: Child = start_child(
                "engine", arguments=[*ENGINE_MODULE, "--address", address]
            )
        except BaseException:  # interrupts too: leave no socket
            self._context.destroy(linger=0)
            self._addresses.remove()
            raise
        self._loop.add_reader(self._channel.fd, self._read)
        self._loop.add_reader(self.child.life, self._see_death)

    def send(self, message: object) -> None:
        with contextlib.suppress(PeerGone):  # `on_gone` is on its way, and ends every request
            self._channel.send(message)
        # Sending may swallow the edge that announces input.
        if self._channel.has_input:
            self._loop.call_soon(self._read)

    def remember_workers(self, pids: Sequence[int]) -> None:
        """Know the workers by pid and start time, so that no stranger is ever killed."""
        for pid in pids:
            with contextlib.suppress(psutil.NoSuchProcess):  # already dead
                self._workers.append(psutil.Process(pid))

    async def wait_exit(self, timeout_s: float) -> int | None:
        """The exit status, or None if it still runs after `timeout_s`."""
        deadline = self._loop.time() + timeout_s
        while (status := self.child.poll()) is None and self._loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
        return status

    async def end(self, *, grace_s: float) -> None:
        """Leave nothing: process, workers, sockets, directory. It may exit by itself until
        `grace_s` is over.
        """
        await self.wait_exit(grace_s)
        if self._farewell is not None:
            await self._farewell
        self._loop.remove_reader(self._channel.fd)
        self._loop.remove_reader(self.child.life)
        await asyncio.to_thread(self._end_blocking)

    def _end_blocking(self) -> None:
        self.child.kill()
        for worker in _await_end(self._workers, timeout_s=_WORKER_GRACE_S):
            with contextlib.suppress(psutil.NoSuchProcess):  # it was first
                worker.kill()
        _await_end(self._workers, timeout_s=_WORKER_GRACE_S)
        self._channel.close()
        self._context.term()
        self._addresses.remove()

    def _read(self) -> None:
        try:
            for _ in range(_MESSAGES_A_TURN):
                message = self._channel.receive()
                if message is None:
                    return
                if self._init is not None:
                    # Not earlier: until the other side is there, nobody is to send to.
                    init, self._init = self._init, None
                    self.send(init)
                self._on_message(message)
            self._loop.call_soon(self._read)
        except Exception as error:
            # Process edge: an event loop would only log this, and streams would wait for ever.
            logger.exception("cannot handle a message of the engine")
            self._on_fault(f"cannot handle a message of the engine: {error}")

    def _see_death(self) -> None:
        self._loop.remove_reader(self.child.life)
        self._farewell = self._loop.create_task(self._hear_last_words())

    async def _hear_last_words(self) -> None:
        """What it flushed before it died is still on its way through the socket's own thread."""
        await self.wait_exit(1.0)
        quiet = 0
        while quiet < 3:
            await asyncio.sleep(_POLL_S)
            quiet = 0 if self._channel.has_input else quiet + 1
            self._read()
        self._on_gone()


def _await_end(processes: list[psutil.Process], *, timeout_s: float) -> list[psutil.Process]:
    """Those that still run after `timeout_s`. They are not our children, so a dead one may stay a
    zombie until whoever inherited it looks: that counts as ended.
    """
    deadline = time.monotonic() + timeout_s
    while (alive := [process for process in processes if _runs(process)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(_POLL_S)
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # which is the answer
        return False
