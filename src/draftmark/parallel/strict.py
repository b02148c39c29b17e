"""The strict wire (`--lanes test`): whatever a lane may do to its users, this one does.

Stricter than any real one: first in first out without tags, a transfer begins only when both sides
have asked for it and after a random delay, the sender's buffer is read at that moment, and buffers
are poisoned before arrival, after consumption and after they were sent.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque

import torch
from torch import Tensor

from draftmark.parallel.lanes import LaneFault, Parcel, plain_buffers

MAX_DELAY_S = 0.002
_PATIENCE_S = 60.0


class _Transfer:
    def __init__(self, parcel: Parcel, *, patience_s: float) -> None:
        self.parcel = parcel
        self.fault: str | None = None
        self.is_broken = False
        self.done = threading.Event()
        self._patience_s = patience_s

    def wait(self) -> None:
        if not self.done.wait(self._patience_s):
            raise RuntimeError(f"nothing came within {self._patience_s:g} s")
        if self.is_broken:
            raise RuntimeError("the lane was closed")
        if self.fault is not None:
            raise LaneFault(self.fault)

    def give_up(self) -> None:
        self.is_broken = True
        self.done.set()


class StrictWire:
    """Both ends are in this process, in any threads; a thread of its own makes the transfers."""

    def __init__(
        self, *, seed: int, max_delay_s: float = MAX_DELAY_S, patience_s: float = _PATIENCE_S
    ) -> None:
        self._random = random.Random(seed)
        self._max_delay_s = max_delay_s
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._sends: deque[_Transfer] = deque()
        self._receives: deque[_Transfer] = deque()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="strict-lane", daemon=True)
        self._thread.start()

    def buffers(self, count: int, num_bytes: int, device: torch.device) -> list[Tensor]:
        return plain_buffers(count, num_bytes, device)

    def send(self, parcel: Parcel) -> _Transfer:
        return self._post(self._sends, parcel)

    def receive(self, parcel: Parcel) -> _Transfer:
        parcel.poison()
        return self._post(self._receives, parcel)

    def released(self, parcel: Parcel) -> None:
        parcel.poison()

    def close(self) -> None:
        """Whoever waits, or asks later, is told."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            for transfer in (*self._sends, *self._receives):
                transfer.give_up()
        self._thread.join()

    def _post(self, queue: deque[_Transfer], parcel: Parcel) -> _Transfer:
        transfer = _Transfer(parcel, patience_s=self._patience_s)
        with self._changed:
            if self._is_closed:
                transfer.give_up()
            queue.append(transfer)
            self._changed.notify_all()
        return transfer

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed or (self._sends and self._receives))
                if self._is_closed:
                    return
                send, receive = self._sends.popleft(), self._receives.popleft()
            time.sleep(self._random.uniform(0.0, self._max_delay_s))
            _move(send, receive)


@torch.inference_mode()
def _move(send: _Transfer, receive: _Transfer) -> None:
    sent, wanted = send.parcel.payload, receive.parcel.payload
    if len(sent) != len(wanted):
        receive.fault = f"{len(sent)} bytes were sent, {len(wanted)} are expected"
    else:
        wanted.copy_(sent)
    send.parcel.poison()
    send.done.set()
    receive.done.set()
