"""One end of the pair of sockets between two of our processes, with reused coders.

Queues are unlimited: a message is never dropped and a send never blocks once both sides are
connected (`can_send`), so a stalled reader cannot stall the loop. What may be in flight is bounded
by the request queue, not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
import zmq

from draftmark.core.declared import Declared
from draftmark.core.errors import EngineFailure
from draftmark.core.messages import FromEngine, ToEngine
from draftmark.core.start import FromWorkerStart, WorkerFailed, is_start_message
from draftmark.core.step import StepResult
from draftmark.core.torchrun import Place

Received = TypeVar("Received")

# Plain numbers: arithmetic on enums costs more than the calls it is for.
_EVENTS, _NOBLOCK = int(zmq.EVENTS), int(zmq.NOBLOCK)
_POLLIN, _POLLOUT = int(zmq.POLLIN), int(zmq.POLLOUT)


class EngineInit(msgspec.Struct, frozen=True, tag="engine_init"):
    """First message to the engine process.

    `model_rule` says how MODEL led to `model_dir`. `worker` holds the arguments to Python that
    start a worker; with a `place` only the first is started, the others join it.
    """

    model_dir: str
    model_rule: str
    declared: Declared
    worker: list[str]
    start_id: str
    place: Place | None = None


ToEngineProcess = EngineInit | ToEngine
FromEngineProcess = FromEngine | WorkerFailed
FromWorker = StepResult | FromWorkerStart


class PeerGone(EngineFailure):
    """The other side of a channel died, or was never there."""

    code = "peer_gone"


class Channel(Generic[Received]):
    """Messages in order, both ways, between exactly two processes. Not thread-safe."""

    def __init__(self, socket: zmq.Socket[bytes], *, decode: Callable[[bytes], Received]) -> None:
        self.socket = socket
        self._decode = decode
        self._encoder = msgspec.msgpack.Encoder()

    @classmethod
    def bind(
        cls,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        address: str,
        decode: Callable[[bytes], Received],
    ) -> Channel[Received]:
        socket = _pair(context)
        socket.bind(address)
        return cls(socket, decode=decode)

    @classmethod
    def connect(
        cls,
        context: zmq.Context[zmq.Socket[bytes]],
        *,
        address: str,
        decode: Callable[[bytes], Received],
    ) -> Channel[Received]:
        socket = _pair(context)
        socket.connect(address)
        return cls(socket, decode=decode)

    def send(self, message: Any) -> None:
        """Never blocks, as a pair of sockets without its other side would, for ever: raises
        `PeerGone`. A side that binds has no other side before that one connected (`can_send`).
        """
        self.send_bytes(self._encoder.encode(message))

    def send_bytes(self, data: bytes) -> None:
        """`send` of a message that is encoded already."""
        try:
            self.socket.send(data, _NOBLOCK)
        except zmq.Again as error:
            raise PeerGone("the process at the other side of a channel is gone") from error

    def receive(self) -> Received | None:
        """The next message, or None at once when there is none. A bad message raises."""
        # Asking first is ten times cheaper than the exception of an empty socket.
        return self._decode(self.socket.recv(_NOBLOCK)) if self.has_input else None

    @property
    def address(self) -> str:
        """Where the other side may connect to a channel that was bound."""
        address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        assert isinstance(address, str)
        return address

    @property
    def fd(self) -> int:
        """Readable when something may have happened; edge-triggered, so read until None."""
        fd = self.socket.getsockopt(zmq.FD)
        assert isinstance(fd, int)
        return fd

    @property
    def has_input(self) -> bool:
        return self._events & _POLLIN != 0

    @property
    def can_send(self) -> bool:
        """False before the other side has connected and after it died: then a send raises."""
        return self._events & _POLLOUT != 0

    @property
    def _events(self) -> int:
        events = self.socket.getsockopt(_EVENTS)
        assert isinstance(events, int)
        return events

    def close(self, *, flush_s: float = 0.0) -> None:
        """Close; what is not yet sent may still go out within `flush_s` while the context ends."""
        self.socket.close(linger=int(flush_s * 1000))


def _pair(context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.PAIR)
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.RCVHWM, 0)
    return socket


encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
decode_to_engine: Callable[[bytes], ToEngineProcess] = msgspec.msgpack.Decoder(
    ToEngineProcess
).decode
decode_from_engine: Callable[[bytes], FromEngineProcess] = msgspec.msgpack.Decoder(
    FromEngineProcess
).decode
_decode_result = msgspec.msgpack.Decoder(StepResult).decode
_decode_start = msgspec.msgpack.Decoder(FromWorkerStart).decode


def decode_from_worker(data: bytes) -> FromWorker:
    """A message of the start conversation, or a step's result."""
    return _decode_start(data) if is_start_message(data) else _decode_result(data)
