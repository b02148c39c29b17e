"""A worker process as the engine sees it: its child, its channel, what it is at, its last words."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import tempfile
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import zmq

from draftmark.core.errors import EngineFailure
from draftmark.core.faults import error_from
from draftmark.core.start import Stop, ToWorkerStart, WorkerFailed
from draftmark.core.trace import TraceFile
from draftmark.engine.channel import Channel, FromWorker, PeerGone, decode_from_worker
from draftmark.engine.launch import Addresses, start_child

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_BEAT_MS = 1000
_LAST_WORDS_MS = 500
_STOP_GRACE_S = 5.0


class StacksFile:
    """Where a worker writes its stacks, without a name; the engine reads what was added."""

    def __init__(self) -> None:
        self.fd, path = tempfile.mkstemp(prefix="draftmark-stacks-")
        os.unlink(path)
        self._read = 0

    @property
    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def take(self) -> str:
        """What was written since the last time."""
        data = os.pread(self.fd, self.size - self._read, self._read)
        self._read += len(data)
        return data.decode(errors="replace")

    def close(self) -> None:
        os.close(self.fd)


class Worker:
    """Worker number `number`. `channel` carries questions first, then plans and results; `trace`
    says what it is at."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        number: int,
        arguments: Sequence[str],
        addresses: Addresses,
    ) -> None:
        self.number = number
        self.has_failed = False
        self.trace = TraceFile.create()
        self.stacks = StacksFile()
        address = addresses.worker(number)
        self.channel: Channel[FromWorker] = Channel.bind(
            context, address=address, decode=decode_from_worker
        )
        self.child = start_child(
            f"worker {number}",
            arguments=[*arguments, "--address", address],
            fds={"--trace-fd": self.trace.fd, "--stacks-fd": self.stacks.fd},
        )

    @property
    def is_gone(self) -> bool:
        """Whether its life line is at its end."""
        ready, _, _ = select.select([self.child.life], [], [], 0)
        return bool(ready)

    def send_when_connected(
        self, question: ToWorkerStart, while_waiting: Callable[[], None]
    ) -> None:
        """There is nobody to send to until the other side is there, and importing torch takes
        seconds. `while_waiting` is called about once a second."""
        poller = zmq.Poller()
        poller.register(self.channel.socket, zmq.POLLOUT)
        poller.register(self.child.life, zmq.POLLIN)
        while not self.channel.can_send:
            is_gone = self.child.life.fileno() in dict(poller.poll(_BEAT_MS))
            while_waiting()
            if is_gone:
                self.report_death("before it was asked anything")
        try:
            self.channel.send(question)
        except PeerGone:
            self.report_death("before it was asked anything")

    def report_death(self, where: str) -> NoReturn:
        """Raise for a worker whose life line is at its end, with its last words if it has any."""
        self.child.wait(_LAST_WORDS_MS / 1000)
        if self.channel.socket.poll(_LAST_WORDS_MS):
            message = self.channel.receive()
            while message is not None:
                if isinstance(message, WorkerFailed):
                    raise self.error(message)
                message = self.channel.receive()
        last = f"; it wrote last: {self.child.tail[-1]}" if self.child.tail else ""
        raise EngineFailure(f"{self.child.describe_end()} {where}{last}")

    def ask_to_stop(self) -> None:
        with contextlib.suppress(PeerGone):  # it was first
            self.channel.send(Stop())

    def await_stop(self) -> None:
        """It was asked to end; end it if it does not."""
        self.child.wait(_STOP_GRACE_S)
        self.end()

    def end(self) -> None:
        """End it now, however it is."""
        self.child.kill()
        self.channel.close()
        self.trace.close()
        self.stacks.close()

    def checked(self, message: FromWorker, expected: type[Answer]) -> Answer:
        assert isinstance(message, expected), f"{self.child.name} sent {type(message).__name__}"
        return message

    def error(self, failure: WorkerFailed) -> Exception:
        """What to raise for its last words."""
        self.has_failed = True
        if not failure.traceback:
            return error_from(failure)
        logger.error("%s crashed:\n%s", self.child.name, failure.traceback)
        return EngineFailure(f"{self.child.name} crashed: {failure.message}")
