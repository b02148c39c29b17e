"""A send to somebody who just died raises at once: a pair of sockets alone would block for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
import zmq

from draftmark.core.errors import EngineFailure
from draftmark.core.start import ModelFacts, WorkerHello, WorkerInit
from draftmark.core.step import StepPlan
from draftmark.engine.channel import PeerGone
from draftmark.engine.launch import Addresses
from draftmark.engine.worker import Worker
from tests.fakes import worker_process

PLAN = StepPlan(0, 0, 0, 0, [], [], [], [])


@pytest.fixture
def worker() -> Iterator[Worker]:
    """A worker that was connected and then killed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    started = Worker(context, rank=0, arguments=worker_process.command(), addresses=addresses)
    init = WorkerInit(model_dir="", config={})
    hello = started.ask(init, expect=WorkerHello, while_waiting=lambda: None)
    assert isinstance(hello.model, ModelFacts)
    os.kill(started.child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while started.channel.can_send:
        assert time.monotonic() < deadline, "the socket does not notice the death"
        time.sleep(0.001)
    yield started
    started.end()
    addresses.remove()
    context.destroy(linger=0)


@pytest.mark.timeout(20)
def test_a_plan_for_a_dead_worker_names_its_death(worker: Worker) -> None:
    with pytest.raises(PeerGone):
        worker.channel.send(PLAN)
    with pytest.raises(EngineFailure, match=r"worker 0 .*SIGKILL.* in step 0"):
        worker.report_death("in step 0")


@pytest.mark.timeout(20)
def test_a_dead_worker_is_stopped_at_once(worker: Worker) -> None:
    worker.stop()
    assert worker.child.poll() == -signal.SIGKILL
