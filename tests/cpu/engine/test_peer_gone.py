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
from draftmark.engine.workers import Workers
from tests.fakes import worker_process

PLAN = StepPlan(0, 0, 0, 0, [], [], [], [])


@pytest.fixture
def workers() -> Iterator[Workers]:
    """One that was connected and then killed."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    addresses = Addresses.create()
    started = Workers(context, count=1, arguments=worker_process.command(), addresses=addresses)
    init = WorkerInit(model_dir="", config={})
    [hello] = started.ask(init, WorkerHello, while_waiting=lambda: None)
    assert isinstance(hello.model, ModelFacts)
    [worker] = started.all
    os.kill(worker.child.pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while worker.channel.can_send:
        assert time.monotonic() < deadline, "the socket does not notice the death"
        time.sleep(0.001)
    yield started
    started.end()
    addresses.remove()
    context.destroy(linger=0)


@pytest.mark.slow
@pytest.mark.timeout(20)
def test_a_plan_for_a_dead_worker_names_its_death(workers: Workers) -> None:
    with pytest.raises(PeerGone):
        workers.send_plan(PLAN)
    with pytest.raises(EngineFailure, match=r"worker 0 .*SIGKILL.* in step 0"):
        workers.report_death("in step 0")


@pytest.mark.timeout(20)
def test_a_question_to_a_dead_worker_names_its_death(workers: Workers) -> None:
    with pytest.raises(EngineFailure, match=r"worker 0 .*SIGKILL.* while the engine started"):
        workers.ask(WorkerInit(model_dir="", config={}), WorkerHello, while_waiting=lambda: None)


@pytest.mark.timeout(20)
def test_a_dead_worker_is_stopped_at_once(workers: Workers) -> None:
    workers.stop()
    assert workers.all[0].child.poll() == -signal.SIGKILL
