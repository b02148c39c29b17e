"""The peer wire of one host's CPUs: both ends of a lane are the same memory, nothing is copied.

The source makes the buffers in a file without a name and two pipes that count: a byte in `arrived`
says that the next buffer is full, a byte in `freed` that the oldest one is free again. The target
opens all three by the descriptors of the source's process, which it learns from the store. A wait
is a blocking read, so one wake-up is all that a message costs; a peer that is gone is the end of
its pipe.
"""

from __future__ import annotations

import mmap
import os
import secrets
import select
from datetime import timedelta

import msgspec
import torch
from torch import Tensor

from draftmark.core.errors import ConfigError
from draftmark.parallel.lanes import Parcel, Ticket
from draftmark.parallel.peer import KeyStore

_TOKEN = b"\0"


class _Address(msgspec.Struct, frozen=True):
    """Where the target finds what the source made; `name` shows that it is the right process."""

    pid: int
    name: str
    memory: int
    arrived: int
    freed: int


class _Counter:
    """One end of a pipe that counts. Raises `RuntimeError` when the other end is gone or late."""

    def __init__(self, fd: int, *, patience: timedelta) -> None:
        self._fd = fd
        self._patience_s = patience.total_seconds()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def add(self) -> None:
        try:
            os.write(self._open_fd, _TOKEN)
        except BrokenPipeError as error:
            raise RuntimeError("connection closed by peer") from error

    def take(self) -> None:
        fd = self._open_fd
        if not self._poll.poll(1000 * self._patience_s):
            raise RuntimeError(f"timed out after {self._patience_s:g} s")
        if not os.read(fd, len(_TOKEN)):
            raise RuntimeError("connection closed by peer")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def _open_fd(self) -> int:
        if self._fd < 0:
            raise RuntimeError("the lane was closed")
        return self._fd


class _Taking:
    """A ticket: done when the counter had one to take."""

    def __init__(self, counter: _Counter) -> None:
        self._counter = counter

    def wait(self) -> None:
        self._counter.take()


class HostPeerWire:
    """One end; the other is made by another process of this host, of the same lane, with the same
    `store`. Nobody waits longer than `patience`."""

    def __init__(self, name: str, *, store: KeyStore, is_source: bool, patience: timedelta) -> None:
        self._name = name
        self._store = store
        self._is_source = is_source
        self._patience = patience
        self._arrived: _Counter | None = None
        self._freed: _Counter | None = None

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
        """The same memory at both ends. Raises `ConfigError` when the other process cannot be
        reached."""
        stride = -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
        share = self._offer if self._is_source else self._accept
        memory = share(count * stride)
        return [
            torch.frombuffer(memory, dtype=torch.uint8, count=num_bytes, offset=index * stride)
            for index in range(count)
        ]

    def send(self, parcel: Parcel) -> Ticket:
        """The ticket is done when the consumer has released the buffer."""
        assert self._arrived is not None and self._freed is not None, "buffers come first"
        self._arrived.add()
        return _Taking(self._freed)

    def receive(self, parcel: Parcel) -> Ticket:
        assert self._arrived is not None, "buffers come first"
        return _Taking(self._arrived)

    def released(self, parcel: Parcel) -> None:
        assert self._freed is not None, "buffers come first"
        self._freed.add()

    def close(self) -> None:
        for counter in (self._arrived, self._freed):
            if counter is not None:
                counter.close()

    def _offer(self, num_bytes: int) -> mmap.mmap:
        name = f"draftmark-lane-{secrets.token_hex(8)}"
        memory = os.memfd_create(name)
        os.ftruncate(memory, num_bytes)
        arrived, freed = os.pipe(), os.pipe()
        self._set_counters(arrived[1], freed[0])
        address = _Address(os.getpid(), name, memory, arrived[0], freed[1])
        self._store.set(self._name, msgspec.msgpack.encode(address))
        self._store.get(self._opened)
        # The target has ends of its own now; ours would hide that it is gone.
        mapped = mmap.mmap(memory, num_bytes)
        for fd in (memory, arrived[0], freed[1]):
            os.close(fd)
        return mapped

    def _accept(self, num_bytes: int) -> mmap.mmap:
        address = msgspec.msgpack.decode(self._store.get(self._name), type=_Address)
        folder = f"/proc/{address.pid}/fd"
        try:
            if address.name not in os.readlink(f"{folder}/{address.memory}"):
                raise FileNotFoundError(f"process {address.pid} is of another host")
            memory = os.open(f"{folder}/{address.memory}", os.O_RDWR)
            arrived = os.open(f"{folder}/{address.arrived}", os.O_RDONLY)
            freed = os.open(f"{folder}/{address.freed}", os.O_WRONLY)
        except OSError as error:
            raise ConfigError(
                f"--lanes peer: the memory of {self._name} cannot be reached ({error}); use "
                "--lanes gloo",
                param="lanes",
            ) from error
        self._set_counters(arrived, freed)
        mapped = mmap.mmap(memory, num_bytes)
        os.close(memory)
        self._store.set(self._opened, "1")
        return mapped

    def _set_counters(self, arrived: int, freed: int) -> None:
        self._arrived = _Counter(arrived, patience=self._patience)
        self._freed = _Counter(freed, patience=self._patience)

    @property
    def _opened(self) -> str:
        return f"{self._name} opened"


def can_share_memory() -> bool:
    """Whether this system has what the wire needs."""
    return hasattr(os, "memfd_create") and os.path.isdir(f"/proc/{os.getpid()}/fd")
