"""I01: real workers whose peer does not come end the start in time, with where each is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from draftmark.core.errors import EngineFailure
from draftmark.core.resolve import load_config, to_dict
from draftmark.core.start import Join, Joined, WorkerHello, WorkerInit
from draftmark.core.topology import Topology
from draftmark.engine.launch import WORKER_MODULE, Addresses
from draftmark.engine.workers import Workers
from tests.workers.conftest import SMALL

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]

PP3 = Topology(stages=(2, 1, 1), cohorts=3, lanes="gloo")
LIMIT_S = 3.0


@pytest.fixture
def workers(model: Path, socket_root: Path) -> Iterator[tuple[Workers, int]]:
    """Three that have said hello, and the port of their store."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    made = Workers(context, count=3, arguments=WORKER_MODULE, addresses=addresses)
    config = dict[str, object](to_dict(load_config({"model": str(model), **SMALL}).config))
    inits = [
        WorkerInit(model_dir=str(model), config=config, worker=n, num_workers=3, num_local=3)
        for n in range(3)
    ]
    hellos = made.ask(inits, WorkerHello, while_waiting=lambda: None)
    yield made, hellos[0].store_port
    made.end()
    addresses.remove()
    context.destroy(linger=0)


def test_a_peer_that_does_not_come(workers: tuple[Workers, int]) -> None:
    """Worker 1 is frozen: 0 waits for it first, 2 does too, and both give up."""
    made, port = workers
    os.kill(made.all[1].child.pid, signal.SIGSTOP)
    join = Join(topology=PP3, store_host="127.0.0.1", store_port=port, timeout_s=LIMIT_S)
    began = time.monotonic()
    with pytest.raises(EngineFailure) as caught:
        made.ask(join, Joined, while_waiting=lambda: None)
    assert time.monotonic() - began < LIMIT_S + 5
    message = caught.value.message
    assert "worker 1 has not answered 'join' and is stopped" in message, message
    assert "worker 0" in message and "worker 2" in message
