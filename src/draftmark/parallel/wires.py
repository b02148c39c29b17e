"""Wires between processes: gloo for hosts, NCCL for GPUs. One process group a lane and direction.

Both are first in first out and untagged. A receive of NCCL does not wait for the compute stream but
for the release of the buffer it fills, so it may overlap the step before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from draftmark.parallel.lanes import Parcel, Ticket, Wire, plain_buffers


class GlooWire:
    """Between the memories of two processes. A ticket's wait blocks, and does not spin."""

    def __init__(self, group: Any, *, peer: int) -> None:
        self._group = group
        self._peer = peer

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
        return plain_buffers(count, num_bytes, device)

    def send(self, parcel: Parcel) -> Ticket:
        return self._group.send([parcel.payload], self._peer, 0)

    def receive(self, parcel: Parcel) -> Ticket:
        return self._group.recv([parcel.payload], self._peer, 0)

    def released(self, parcel: Parcel) -> None:
        pass

    def close(self) -> None:
        pass


class NcclWire:
    """Between the memories of two GPUs, on a stream of its own. Waiting is the current stream's."""

    def __init__(self, group: Any, *, peer: int, device: torch.device) -> None:
        self._group = group
        self._peer = peer
        self._stream = torch.cuda.Stream(device)
        self._released: dict[int, torch.cuda.Event] = {}

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
        return plain_buffers(count, num_bytes, device)

    def send(self, parcel: Parcel) -> Ticket:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            return self._group.send([parcel.payload], self._peer, 0)

    def receive(self, parcel: Parcel) -> Ticket:
        released = self._released.get(parcel.payload.data_ptr())
        if released is not None:
            self._stream.wait_event(released)
        with torch.cuda.stream(self._stream):
            return self._group.recv([parcel.payload], self._peer, 0)

    def released(self, parcel: Parcel) -> None:
        event = self._released.setdefault(parcel.payload.data_ptr(), torch.cuda.Event())
        event.record()

    def close(self) -> None:
        pass


class DelayedWire:
    """A wire that is late by a random time, for tests of whole processes."""

    def __init__(self, wire: Wire, *, seed: float, max_delay_s: float) -> None:
        self._wire = wire
        self._random = random.Random(seed)
        self._max_delay_s = max_delay_s

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> Sequence[Tensor]:
        return self._wire.buffers(count, num_bytes, device)

    def send(self, parcel: Parcel) -> Ticket:
        self._sleep()
        return self._wire.send(parcel)

    def receive(self, parcel: Parcel) -> Ticket:
        self._sleep()
        return self._wire.receive(parcel)

    def released(self, parcel: Parcel) -> None:
        self._wire.released(parcel)

    def close(self) -> None:
        self._wire.close()

    def _sleep(self) -> None:
        time.sleep(self._random.uniform(0.0, self._max_delay_s))
