"""Workers that others started (torchrun, a person on another machine), as the engine sees them.

`core.torchrun` says how a process learns of the others, `core.lifeline` what the line between a
worker and the engine carries. A remote worker behaves as a child does: it has a life line, a trace,
stacks; killing it closes the line, which ends it. Its log stays on its machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections import deque
from dataclasses import replace

import zmq

from draftmark.core.declared import Declared
from draftmark.core.errors import ConfigError
from draftmark.core.lifeline import CLOCK, LENGTH, STACKS, TRACE, keep_alive, receive_exactly
from draftmark.core.resolve import check_built, count_workers, to_dict
from draftmark.core.torchrun import CONNECT_S, Place
from draftmark.core.trace import TRACE_BYTES, StageTrace, TraceFile
from draftmark.engine.channel import Channel, decode_from_worker
from draftmark.engine.launch import child_environment
from draftmark.engine.source import resolve_source
from draftmark.engine.worker import Worker

REMOTE_MODULE = ("-m", "draftmark.runtime.remote")

_ANSWER_S = 0.5
_FRESH_S = 0.2
_POLL_S = 0.02


def check_place(place: Place, declared: Declared, *, rank: int) -> None:
    """Raise `ConfigError` unless as many processes were started as there are workers, and this one
    is `rank`."""
    if place.rank != rank:
        raise ConfigError(f"RANK={place.rank}: only `draftmark serve` joins a server as a worker")
    wanted = count_workers(declared.config)
    if place.world_size != wanted:
        parallel = declared.config.parallel
        raise ConfigError(
            f"WORLD_SIZE={place.world_size}, but --pp {parallel.pp} --tp {parallel.tp} needs "
            f"{wanted} workers"
        )


def become_worker(place: Place, declared: Declared) -> None:
    """Replace this process by worker `place.rank`; it needs MODEL as every machine does. Raises
    `ConfigError` or `ModelError`."""
    check_built(declared.config)
    check_place(place, declared, rank=place.rank)
    source = resolve_source(declared.config.model.model, progress=_say)
    os.execve(
        sys.executable,
        [
            *(sys.executable, "-P", *REMOTE_MODULE),
            *("--model-dir", str(source.directory)),
            *("--config", json.dumps(to_dict(declared.config))),
        ],
        child_environment(),
    )


def _say(phase: str) -> None:
    print(phase, file=sys.stderr)


class RemoteWorker(Worker):
    """Worker `number` of those that `place` is among. It connects when it finds `published`."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], *, number: int, place: Place
    ) -> None:
        self.number = number
        host = _address_of(place)
        self.child = child = RemoteChild(number, host=host)
        self.channel = Channel.bind(context, address=f"tcp://{host}:*", decode=decode_from_worker)
        self._port = child.port
        self.trace = RemoteTrace(child)
        self.stacks = RemoteStacks(child)

    @property
    def published(self) -> str:
        """Where it is to connect: the channel's address, and the port of its life line."""
        return f"{self.channel.address} {self._port}"

    @property
    def is_gone(self) -> bool:
        """An answer on its life line is no end."""
        return self.child.poll() is not None

    @property
    def state(self) -> str:
        return "gone" if self.child.poll() is not None else "on another machine or not our child"


def _address_of(place: Place) -> str:
    """Numeric, as a socket wants it to listen on."""
    try:
        return socket.gethostbyname(place.master_addr)
    except OSError as error:
        raise ConfigError(f"MASTER_ADDR={place.master_addr} is unknown here: {error}") from error


def _listen(host: str) -> socket.socket:
    try:
        return socket.create_server((host, 0))
    except OSError as error:
        raise ConfigError(
            f"MASTER_ADDR: rank 0 cannot listen on {host}: {error.strerror}"
        ) from error


class RemoteChild:
    """The other end of a life line. Until the worker connects, nothing is on it."""

    def __init__(self, number: int, *, host: str) -> None:
        self.name = f"worker {number}"
        self.pid = 0
        self.tail: deque[str] = deque()
        self._number = number
        self._began = time.monotonic()
        self._listener = _listen(host)
        self._listener.setblocking(False)
        self._line: socket.socket | None = None
        self._where = "not connected yet"
        # Something to wait on until then.
        self._silence, self._other_end = socket.socketpair()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def wrote_at(self) -> float:
        """Its log is elsewhere: that its line is there counts as a word. One that never connects
        is waited for as long as it would wait itself."""
        now = time.monotonic()
        return now if self._line is not None else min(now, self._began + CONNECT_S)

    @property
    def life(self) -> socket.socket:
        if self._line is None:
            self._accept()
        return self._line or self._silence

    def ask(self, question: bytes, count: int) -> bytes | None:
        """The first `count` bytes of the answer, or None when none comes."""
        line = self._line
        if line is None:
            return None
        try:
            line.settimeout(_ANSWER_S)
            line.sendall(question)
            return receive_exactly(line, count)
        except OSError:  # late or gone: the answer None says it
            return None

    def receive(self, count: int) -> bytes:
        """More of an answer that has begun; what came of it when it breaks off."""
        assert self._line is not None
        with contextlib.suppress(OSError):  # gone in the middle of its answer
            return receive_exactly(self._line, count) or b""
        return b""

    def ask_for_stacks(self) -> None:
        """They are asked for when they are taken."""

    def poll(self) -> int | None:
        """1 once the line is at its end; how the process ended is not known here."""
        if self._line is None:
            return None
        self._line.setblocking(False)
        try:
            return 1 if self._line.recv(1, socket.MSG_PEEK) == b"" else None
        except BlockingIOError:  # nothing is said: it lives
            return None
        except OSError:  # the line broke
            return 1

    def wait(self, timeout_s: float) -> int | None:
        deadline = time.monotonic() + timeout_s
        while (status := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return status

    def begin_kill(self) -> None:
        """It ends when its line does."""
        if self._line is not None:
            with contextlib.suppress(OSError):  # it was first
                self._line.shutdown(socket.SHUT_RDWR)

    def kill(self) -> None:
        self.begin_kill()
        for one in (self._line, self._listener, self._silence, self._other_end):
            if one is not None:
                one.close()

    def describe_end(self) -> str:
        return f"{self.name} ({self._where}) closed its life line"

    def _accept(self) -> None:
        try:
            line, peer = self._listener.accept()
        except BlockingIOError:  # nobody yet
            return
        line.settimeout(_ANSWER_S)
        said = receive_exactly(line, LENGTH.size)
        if said != LENGTH.pack(self._number):
            line.close()  # a stranger
            return
        self._line = keep_alive(line)
        self._where = f"at {peer[0]}"


class RemoteTrace(TraceFile):
    """The trace of a worker, asked for when it is read, in our clock. One that does not answer
    shows what it last said."""

    def __init__(self, child: RemoteChild) -> None:
        own = TraceFile.create()
        super().__init__(own.fd)
        self._child = child
        self._asked_at = 0.0
        self._ahead_s = 0.0

    def read(self, index: int) -> StageTrace:
        self._renew()
        trace = super().read(index)
        return replace(trace, since_s=trace.since_s - self._ahead_s)

    def _renew(self) -> None:
        now = time.monotonic()
        if now - self._asked_at < _FRESH_S:
            return
        answer = self._child.ask(TRACE, CLOCK.size + TRACE_BYTES)
        self._asked_at = time.monotonic()
        if answer is not None:
            (clock_ns,) = CLOCK.unpack(answer[: CLOCK.size])
            self._ahead_s = clock_ns / 1e9 - now
            self.fill(answer[CLOCK.size :])


class RemoteStacks:
    """The stacks of a worker, asked for when they are taken."""

    def __init__(self, child: RemoteChild) -> None:
        self._child = child
        self._taken_at = 0.0

    def take(self) -> str:
        """Once in a while: what was just given is not given again."""
        if time.monotonic() - self._taken_at < _ANSWER_S:
            return ""
        self._taken_at = time.monotonic()
        answer = self._child.ask(STACKS, LENGTH.size)
        if answer is None:
            return ""
        (length,) = LENGTH.unpack(answer)
        return self._child.receive(length).decode(errors="replace")

    def close(self) -> None:
        """Nothing is held."""
