"""A worker process as the engine sees it: its child, its channel, questions and results."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import zmq

from draftmark.core.errors import EngineFailure
from draftmark.core.faults import error_from
from draftmark.core.start import Stop, ToWorkerStart, WorkerFailed
from draftmark.core.step import StepResult
from draftmark.engine.channel import Channel, FromWorker, PeerGone, decode_from_worker
from draftmark.engine.launch import Addresses, start_child

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_BEAT_MS = 1000
_LAST_WORDS_MS = 500
_STOP_GRACE_S = 5.0


class Worker:
    """Rank `rank`. `channel` carries questions first, then plans and results."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        rank: int,
        arguments: Sequence[str],
        addresses: Addresses,
    ) -> None:
        address = addresses.worker(rank)
        self.channel: Channel[FromWorker] = Channel.bind(
            context, address=address, decode=decode_from_worker
        )
        self.child = start_child(f"worker {rank}", arguments=[*arguments, "--address", address])

    def ask(
        self,
        question: ToWorkerStart,
        *,
        expect: type[Answer],
        while_waiting: Callable[[], None],
    ) -> Answer:
        """Send a question of the start conversation and wait for its answer, however long it takes.

        Raises the worker's own error, or `EngineFailure` when it died. `while_waiting` is called
        about once a second.
        """
        self._send_when_connected(question, while_waiting)
        while True:
            is_gone = self._await_event(zmq.POLLIN)
            while_waiting()
            answer = self.channel.receive()
            if answer is not None:
                return self._checked(answer, expect)
            if is_gone:
                self.report_death(f"while answering {type(question).__name__}")

    def _send_when_connected(
        self, question: ToWorkerStart, while_waiting: Callable[[], None]
    ) -> None:
        """There is nobody to send to until the other side is there, and importing torch takes
        seconds."""
        while not self.channel.can_send:
            is_gone = self._await_event(zmq.POLLOUT)
            while_waiting()
            if is_gone:
                self.report_death("before it was asked anything")
        try:
            self.channel.send(question)
        except PeerGone:
            self.report_death("before it was asked anything")

    def _await_event(self, event: int) -> bool:
        """Wait up to a second for `event` of the channel; True when the worker is gone."""
        poller = zmq.Poller()
        poller.register(self.channel.socket, event)
        poller.register(self.child.life, zmq.POLLIN)
        return self.child.life.fileno() in dict(poller.poll(_BEAT_MS))

    def receive_result(self) -> StepResult | None:
        """The next step's result, or None at once. Raises what the worker says it died of."""
        message = self.channel.receive()
        return None if message is None else self._checked(message, StepResult)

    def report_death(self, where: str) -> NoReturn:
        """Raise for a worker whose life line is at its end, with its last words if it has any."""
        self.child.wait(_LAST_WORDS_MS / 1000)
        if self.channel.socket.poll(_LAST_WORDS_MS):
            message = self.channel.receive()
            while message is not None:
                if isinstance(message, WorkerFailed):
                    raise self._error(message)
                message = self.channel.receive()
        last = f"; it wrote last: {self.child.tail[-1]}" if self.child.tail else ""
        raise EngineFailure(f"{self.child.describe_end()} {where}{last}")

    def stop(self) -> None:
        """Ask it to end, and end it if it does not."""
        with contextlib.suppress(PeerGone):  # it was first
            self.channel.send(Stop())
        self.child.wait(_STOP_GRACE_S)
        self.end()

    def end(self) -> None:
        """End it now, however it is."""
        self.child.kill()
        self.channel.close()

    def _checked(self, message: FromWorker, expected: type[Answer]) -> Answer:
        if isinstance(message, WorkerFailed):
            raise self._error(message)
        assert isinstance(message, expected), f"{self.child.name} sent {type(message).__name__}"
        return message

    def _error(self, failure: WorkerFailed) -> Exception:
        if not failure.traceback:
            return error_from(failure)
        logger.error("%s crashed:\n%s", self.child.name, failure.traceback)
        return EngineFailure(f"{self.child.name} crashed: {failure.message}")
