"""What a run and its shards say to each other: msgpack over pipes, four bytes of length before."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import IO

import msgspec

from draftmark.bench.client.shares import Share
from draftmark.bench.request import RequestRecord

_LENGTH = struct.Struct("<I")


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """First word to a shard: what it has to do, once it is told to start."""

    url: str
    api_key: str | None
    timeout_s: float
    keep_text: bool
    share: Share


class AskClock(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    asked: int


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The run begins at `at` on the shard's clock; `offset` is its clock minus the parent's."""

    at: int
    offset: int


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Written at `t` on the parent's clock: how late it is read is the lag of the shard's loop."""

    t: int


class Resume(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The server lives: what failed has failed by itself."""


class Halt(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Send nothing more and end what is under way: the server is gone, or the run is given up."""

    server_is_gone: bool
    reason: str


ToShard = Setup | AskClock | Start | Tick | Resume | Halt


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All connections are open."""


class NotOpened(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    reason: str


class Clock(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    asked: int
    now: int


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """So far, of this shard. `tokens` as the events tell: by the server's counts or one each."""

    sent: int
    tokens: int
    # The longest lag since the last word.
    lag_us: int | None


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    record: RequestRecord


class Suspect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A connection failed as it does when a server died; nothing is sent until `Resume`."""

    index: int


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Last word. Lags in microseconds, one a tick; the time of the processor and of the wall."""

    lags_us: list[int]
    cpu_ns: int
    wall_ns: int


FromShard = Opened | NotOpened | Clock | Progress | Ended | Suspect | Finished

_encode = msgspec.msgpack.Encoder().encode
decode_to_shard = msgspec.msgpack.Decoder(ToShard).decode
decode_from_shard = msgspec.msgpack.Decoder(FromShard).decode


def frame(message: ToShard | FromShard) -> bytes:
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Puts frames together from what a pipe gives."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._data += data
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + size
            if len(self._data) < end:
                return
            content = bytes(self._data[_LENGTH.size : end])
            del self._data[:end]
            yield content


def frames_of(pipe: IO[bytes]) -> Iterator[bytes]:
    """Until the pipe ends."""
    frames = Frames()
    while data := os.read(pipe.fileno(), 1 << 20):
        yield from frames.feed(data)
