"""Peer lanes on a CPU: one memory at both ends, a full ring waits, and a lost peer is named."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
import torch

from draftmark.core.errors import ConfigError
from draftmark.core.topology import LaneKind, LaneName
from draftmark.parallel.host_peer import HostPeerWire
from draftmark.parallel.lanes import Label, Lane, LaneBroken, LaneFormat, Shape, make_lane

CPU = torch.device("cpu")
NAME = LaneName(kind=LaneKind.FORWARD, source=1, target=2, tp_rank=0)
DEPTH, ROUNDS = 3, 200
FORMAT = LaneFormat(
    name=NAME,
    number=5,
    depth=DEPTH,
    max_words=6,
    max_tokens=900,
    hidden_size=3,
    dtype=torch.float32,
)


class MemoryStore:
    """As torch's store: `get` waits."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def set(self, key: str, value: str | bytes) -> None:
        with self._changed:
            self._values[key] = value.encode() if isinstance(value, str) else value
            self._changed.notify_all()

    def get(self, key: str) -> bytes:
        with self._changed:
            assert self._changed.wait_for(lambda: key in self._values, 10)
            return self._values[key]


@contextmanager
def lanes(*, patience_s: float = 10.0) -> Iterator[tuple[Lane, Lane, list[HostPeerWire]]]:
    """The sending and the receiving end, each made as by a process of its own."""
    store = MemoryStore()
    patience = timedelta(seconds=patience_s)
    wires = [
        HostPeerWire(str(NAME), store=store, is_source=is_source, patience=patience)
        for is_source in (True, False)
    ]

    def make(wire: HostPeerWire) -> Lane:
        is_source = wire is wires[0]
        return make_lane(
            FORMAT,
            device=CPU,
            has_source=is_source,
            has_target=not is_source,
            wire=wire,
            checks=True,
        )

    with ThreadPoolExecutor(2) as pool:
        source, target = pool.map(make, wires)
    yield source, target, wires
    for wire in wires:
        wire.close()


def shape(step: int) -> Shape:
    return Shape(step % 7, 1 + 131 * step % 900)


def label(step: int) -> Label:
    return Label(step, step % 2, 7000 + step)


def send(lane: Lane, step: int) -> None:
    assert lane.outlet is not None
    parcel = lane.outlet.open(shape(step))
    parcel.label.copy_(torch.tensor(label(step)))
    parcel.words.fill_(step)
    parcel.hidden.fill_(step)
    lane.outlet.send()


def receive(lane: Lane, step: int) -> None:
    assert lane.inlet is not None
    parcel = lane.inlet.receive(shape(step), label(step))
    assert parcel.hidden.shape == (shape(step).tokens, 3)
    assert (parcel.hidden == step).all() and (parcel.words == step).all()


def test_messages_in_order_and_a_full_ring_waits() -> None:
    ahead: list[int] = []
    received = 0
    with lanes() as (source, target, _):

        def sender() -> None:
            for step in range(ROUNDS):
                send(source, step)
                ahead.append(step + 1 - received)

        thread = threading.Thread(target=sender)
        thread.start()
        for step in range(ROUNDS):
            receive(target, step)
            assert target.inlet is not None
            received += 1
            target.inlet.release()
        thread.join()
    assert max(ahead) <= DEPTH + 1  # counted a little before the release


def test_nothing_is_copied() -> None:
    with lanes() as (source, target, _):
        assert source.outlet is not None and target.inlet is not None
        parcel = source.outlet.open(shape(1))
        parcel.label.copy_(torch.tensor(label(1)))
        source.outlet.send()
        received = target.inlet.receive(shape(1), label(1))
        received.hidden.fill_(42)
        assert (parcel.hidden == 42).all()


def test_a_peer_that_is_gone_is_named() -> None:
    for gone in (0, 1):
        with lanes() as (source, target, wires):
            send(source, 0)
            receive(target, 0)
            wires[gone].close()
            with pytest.raises(LaneBroken, match=f"{NAME} broke at step 1.*closed by peer"):
                send(source, 1) if gone else receive(target, 1)
            with pytest.raises(LaneBroken, match="the lane was closed"):
                receive(target, 1) if gone else send(source, 1)


def test_a_peer_that_is_gone_while_the_ring_is_full() -> None:
    with lanes() as (source, _, wires):
        for step in range(DEPTH):
            send(source, step)
        wires[1].close()
        assert source.outlet is not None
        with pytest.raises(LaneBroken, match=r"broke at step 0.*closed by peer"):
            source.outlet.open(shape(DEPTH))


def test_a_peer_that_is_gone_while_its_message_is_read() -> None:
    with lanes() as (source, target, wires):
        send(source, 4)
        receive(target, 4)
        wires[0].close()
        assert target.inlet is not None
        with pytest.raises(LaneBroken, match=r"broke at step 4.*closed by peer"):
            target.inlet.release()


def test_a_peer_that_is_late_is_named() -> None:
    with (
        lanes(patience_s=0.05) as (_, target, _),
        pytest.raises(LaneBroken, match=r"step 3, cohort 1: timed out after 0\.05 s"),
    ):
        receive(target, 3)


def test_no_descriptor_is_left() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with lanes():
        assert len(list(Path("/proc/self/fd").iterdir())) > before
    # The memory stays as long as somebody holds a buffer of it: nobody does.
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("pid", [os.getpid(), 2**22 + 1], ids=["another file", "no process"])
def test_a_process_of_another_host(pid: int) -> None:
    store = MemoryStore()
    address = {
        "pid": pid,
        "name": "draftmark-lane-of-a-host",
        "memory": 0,
        "arrived": 1,
        "freed": 2,
    }
    store.set(str(NAME), msgspec.msgpack.encode(address))
    wire = HostPeerWire(str(NAME), store=store, is_source=False, patience=timedelta(seconds=1))
    with pytest.raises(ConfigError, match=r"--lanes peer: the memory of .* use --lanes gloo"):
        wire.buffers(2, 100, CPU)
