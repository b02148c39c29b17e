"""The process groups of one worker: made at start, all of them, in one order everywhere.

A group made lazily by its first message waits for a peer that may be waiting elsewhere, for ever.
So every group is made before anything else is sent, in the topology's order, and tried in both
directions. Groups are objects that are handed on; there is no default group.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    ProcessGroupGloo,
    Store,
    TCPStore,
)

from draftmark.core.topology import LaneName, Topology
from draftmark.parallel.collectives import Alone, ProcessTensorGroup, TensorGroup
from draftmark.parallel.host_peer import HostPeerWire
from draftmark.parallel.lanes import Wire
from draftmark.parallel.peer import PeerWire
from draftmark.parallel.wires import GlooWire, NcclWire

logger = logging.getLogger(__name__)

NCCL_LANES, PEER_LANES = "nccl", "peer"


class Communicators:
    """Those of worker `worker`. Raises `RuntimeError` when a peer does not come in time."""

    def __init__(
        self,
        topology: Topology,
        *,
        worker: int,
        store: Store,
        host: str,
        timeout: timedelta,
        device: torch.device,
    ) -> None:
        self.names: list[str] = []
        self.group: TensorGroup = Alone()
        self._topology = topology
        self._worker = worker
        self._store = store
        self._device = device
        self._timeout = timeout
        self._groups: dict[str, Any] = {}
        self._host_wires: list[HostPeerWire] = []
        for name, workers in topology.communicators():
            if worker not in workers:
                continue
            is_tensor = name not in {str(lane) for lane in topology.lane_names()}
            on_gpu = device.type == "cuda" and (is_tensor or topology.lanes == NCCL_LANES)
            rank, prefixed = workers.index(worker), PrefixStore(name, store)
            make = _make_nccl if on_gpu else _make_gloo
            group: Any = make(
                prefixed, rank, len(workers), host=host, timeout=timeout, device=device
            )
            where = device if on_gpu else torch.device("cpu")
            if is_tensor:
                _try_gather(group, where)
            else:
                _try_lane(group, where)
            self._groups[name] = group
            self.names.append(name)
            logger.info("communicator %d: %s, workers %s", len(self.names), name, list(workers))
            if is_tensor:
                self.group = ProcessTensorGroup(group)

    def wire(self, name: LaneName) -> Wire:
        """What carries lane `name`, which ends in this worker."""
        source, target = self._topology.workers_of(name)
        if self._topology.lanes == PEER_LANES:
            return self._make_peer(str(name), is_source=self._worker == source)
        group = self._groups[str(name)]
        peer = 0 if self._worker == target else 1
        if self._topology.lanes == NCCL_LANES:
            return NcclWire(group, peer=peer, device=self._device)
        return GlooWire(group, peer=peer)

    def _make_peer(self, name: str, *, is_source: bool) -> Wire:
        if self._device.type == "cuda":
            return PeerWire(name, store=self._store, is_source=is_source, device=self._device)
        wire = HostPeerWire(name, store=self._store, is_source=is_source, patience=self._timeout)
        self._host_wires.append(wire)
        return wire

    def drop(self) -> None:
        """Break every connection, as a network does; for tests."""
        for wire in self._host_wires:
            wire.close()
        for group in self._groups.values():
            group.abort()

    def close(self) -> None:
        for group in self._groups.values():
            group.shutdown()


def address_towards(host: str) -> str:
    """The address of this machine by which `host` can reach it. Sends nothing."""
    family, _, _, _, target = socket.getaddrinfo(host, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def open_store(host: str, port: int, *, timeout: timedelta) -> TCPStore:
    """Where workers find one another, at `host` and `port` (0: a free one, see `store.port`)."""
    with socket.create_server((host, port)) as listening:
        port = listening.getsockname()[1]
        return TCPStore(
            host,
            port,
            is_master=True,
            timeout=timeout,
            wait_for_workers=False,
            master_listen_fd=listening.detach(),
        )


def find_store(host: str, port: int, *, timeout: timedelta) -> TCPStore:
    """The store that worker 0 opened."""
    return TCPStore(host, port, is_master=False, timeout=timeout, wait_for_workers=False)


def _make_gloo(
    store: Store,
    rank: int,
    size: int,
    *,
    host: str,
    timeout: timedelta,
    device: torch.device,
) -> Any:
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [ProcessGroupGloo.create_device(hostname=host)]
    options._threads = 1
    options._timeout = timeout
    return ProcessGroupGloo(store, rank, size, options)


def _make_nccl(
    store: Store,
    rank: int,
    size: int,
    *,
    host: str,
    timeout: timedelta,
    device: torch.device,
) -> Any:
    from torch.distributed import ProcessGroupNCCL  # not in a build for CPUs

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    group = ProcessGroupNCCL(store, rank, size, options)
    # torch warns that messages of such a group are then serialised: a lane has only one direction.
    group.eager_connect_single_device(device)
    return group


def _try_lane(group: Any, device: torch.device) -> None:
    """One small message each way, waited for."""
    mine = torch.full((1,), group.rank(), dtype=torch.int64, device=device)
    for sender in (0, 1):
        if group.rank() == sender:
            group.send([mine], 1 - sender, 0).wait()
        else:
            _check(_received(group, sender, like=mine), [sender])


def _try_gather(group: Any, device: torch.device) -> None:
    """Likewise for a tensor group."""
    mine = torch.full((1,), group.rank(), dtype=torch.int64, device=device)
    every = torch.empty(group.size(), dtype=torch.int64, device=device)
    group._allgather_base(every, mine).wait()
    _check(every, range(group.size()))


def _received(group: Any, sender: int, *, like: Tensor) -> Tensor:
    theirs = torch.full_like(like, -1)
    group.recv([theirs], sender, 0).wait()
    return theirs


def _check(found: Tensor, expected: Sequence[int]) -> None:
    if found.tolist() != list(expected):
        raise RuntimeError(f"a first exchange gave {found.tolist()}, expected {list(expected)}")
