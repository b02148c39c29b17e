"""The worker process: the whole conversation over its socket, and every way it ends."""

from __future__ import annotations

import signal
import socket as sockets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq

from draftmark.core.start import (
    BusyReport,
    FromWorkerStart,
    ReportBusy,
    Stop,
    WeightsLoaded,
    WorkerFailed,
    WorkerHello,
    WorkerReady,
    is_start_message,
)
from draftmark.core.step import StepPlan, StepResult, VerifyRow
from draftmark.core.trace import Operation, TraceFile
from draftmark.engine.worker import StacksFile
from draftmark.runtime.rank import Rank
from draftmark.runtime.results import StepPending
from draftmark.runtime.worker import WorkerProcess
from tests.cpu.runtime.model_dir import write_tiny_llama
from tests.cpu.runtime.test_rank import LOAD, POOLS, make_init, plans, start

WAIT_MS = 60_000


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("tiny"))


class EngineSide:
    """The other end of the worker's socket."""

    def __init__(self, context: zmq.Context, address: str) -> None:
        self.socket = context.socket(zmq.PAIR)
        self.socket.bind(address)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode_start = msgspec.msgpack.Decoder(FromWorkerStart).decode
        self._decode_result = msgspec.msgpack.Decoder(StepResult).decode

    def send(self, message: object) -> None:
        self.socket.send(self._encode(message))

    def receive(self) -> object:
        assert self.socket.poll(WAIT_MS), "the worker says nothing"
        data = self.socket.recv()
        return self._decode_start(data) if is_start_message(data) else self._decode_result(data)

    def start(self, model_dir: Path) -> None:
        self.send(make_init(model_dir))
        assert isinstance(self.receive(), WorkerHello)
        self.send(LOAD)
        assert isinstance(self.receive(), WeightsLoaded)
        self.send(POOLS)
        assert isinstance(self.receive(), WorkerReady)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineSide]:
    with zmq.Context() as context:
        side = EngineSide(context, f"ipc://{tmp_path / 'w'}")
        yield side
        side.socket.close(linger=0)


class Inside:
    """The worker's own code on a thread of this process: all of it but `main`."""

    def __init__(self, tmp_path: Path, rank: Rank) -> None:
        self.status: int | None = None
        self._process = WorkerProcess(rank, address=f"ipc://{tmp_path / 'w'}")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self.status = self._process.run()

    def join(self) -> int | None:
        self._thread.join(30)
        return self.status


def test_plans_ahead_results_in_order_and_a_clean_stop(
    engine: EngineSide, tmp_path: Path, model_dir: Path
) -> None:
    worker = Inside(tmp_path, Rank())
    engine.start(model_dir)
    steps = plans(10)
    expected = [start(model_dir).execute(steps[0])]
    engine.send(steps[0])
    alone = start(model_dir)
    alone.execute(steps[0])
    for plan in steps[1:]:
        engine.send(plan)  # two are in flight now
        result = engine.receive()
        assert isinstance(result, StepResult)
        assert result.rows == expected[-1].rows and result.step == plan.step - 1
        expected.append(alone.execute(plan))
    assert engine.receive().rows == expected[-1].rows
    engine.send(Stop())
    assert worker.join() == 0


def test_busy_time_is_that_of_all_steps_before(
    engine: EngineSide, tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the result thread is, which is the one that may send."""
    original = StepPending.result

    def late(self: StepPending) -> StepResult | None:
        time.sleep(0.1)
        return original(self)

    monkeypatch.setattr(StepPending, "result", late)
    worker = Inside(tmp_path, Rank())
    engine.start(model_dir)
    engine.send(ReportBusy())
    assert engine.receive() == BusyReport([0])
    total = 0
    for plan in plans(3):
        engine.send(plan)
        engine.send(ReportBusy())
        result = engine.receive()
        assert isinstance(result, StepResult) and result.run_us > 0
        total += result.run_us
        assert engine.receive() == BusyReport([total])
    engine.send(Stop())
    assert worker.join() == 0


def test_a_crash_in_a_step_gives_earlier_results_first(
    engine: EngineSide, tmp_path: Path, model_dir: Path
) -> None:
    worker = Inside(tmp_path, Rank())
    engine.start(model_dir)
    engine.send(plans(1)[0])
    engine.send(StepPlan(1, 0, 0, 0, [], [], [], [VerifyRow(1, 9)]))  # a wrong generation
    assert engine.receive().step == 0
    failure = engine.receive()
    assert isinstance(failure, WorkerFailed)
    assert failure.kind == "crash" and "generation 9" in failure.message
    assert "Traceback" in failure.traceback and "directory.py" in failure.traceback
    assert worker.join() == 1


def test_a_fault_that_shows_only_in_the_result_is_a_crash_too(
    engine: EngineSide, tmp_path: Path, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error of the device does: it surfaces where somebody waits for it."""
    worker = Inside(tmp_path, Rank())
    engine.start(model_dir)

    def broken(self: StepPending) -> StepResult:
        raise RuntimeError("the device gave up")

    monkeypatch.setattr(StepPending, "result", broken)
    engine.send(plans(1)[0])
    failure = engine.receive()
    assert isinstance(failure, WorkerFailed) and "the device gave up" in failure.message
    assert worker.join() == 1


def test_a_fault_of_the_user_ends_the_start_with_its_class(
    engine: EngineSide, tmp_path: Path
) -> None:
    worker = Inside(tmp_path, Rank())
    engine.send(make_init(tmp_path / "nowhere"))
    failure = engine.receive()
    assert isinstance(failure, WorkerFailed)
    assert failure.kind == "ModelError" and not failure.traceback
    assert "config.json" in failure.message
    assert worker.join() == 1


@pytest.fixture
def life() -> Iterator[tuple[sockets.socket, int]]:
    """(the parent's end of a worker's life line, the number of the worker's end)."""
    ours, theirs = sockets.socketpair()
    with ours, theirs:
        yield ours, theirs.fileno()


@pytest.mark.slow
def test_the_process_itself(
    engine: EngineSide, tmp_path: Path, model_dir: Path, life: tuple[sockets.socket, int]
) -> None:
    """Started as the engine starts it: answers, shows its stacks, outlives SIGTERM, and ends at
    once with its parent."""
    ours, fd = life
    address, life_line = f"ipc://{tmp_path / 'w'}", ("--parent-fd", str(fd))
    trace, stacks = TraceFile.create(), StacksFile()
    files = ("--trace-fd", str(trace.fd), "--stacks-fd", str(stacks.fd))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "draftmark.runtime.worker", "--address", address),
            *life_line,
            *files,
        ],
        pass_fds=[fd, trace.fd, stacks.fd],
    )
    try:
        engine.start(model_dir)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGUSR1)
        engine.send(plans(1)[0])
        assert engine.receive().step == 0
        ours.shutdown(sockets.SHUT_WR)
        process.wait(timeout=30)
        seen, written = trace.read(0), stacks.take()
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 70
    assert "most recent call first" in written and "worker.py" in written
    assert (seen.step, seen.operation) == (0, Operation.IDLE)
