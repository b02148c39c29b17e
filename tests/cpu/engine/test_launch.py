"""Children of ours: death in both directions, logs with their levels, nothing left behind."""

from __future__ import annotations

import logging
import os
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
import zmq

from draftmark.core.errors import ConfigError
from draftmark.core.start import Stop, WorkerFailed
from draftmark.core.step import StepPlan, StepResult
from draftmark.engine.channel import Channel, decode_from_worker
from draftmark.engine.launch import Addresses, Child, start_child
from tests.cpu.engine.conftest import assert_gone

# A child that watches its parent, prints what it is told to, and sleeps.
CHILD = """
import argparse, faulthandler, signal, sys, time
from draftmark.core.parent import watch_parent
from draftmark.engine.logs import log_as_child
parser = argparse.ArgumentParser()
parser.add_argument("--parent-fd", type=int)
arguments = parser.parse_args()
log_as_child()
import logging
faulthandler.register(signal.SIGUSR1)
watch_parent(arguments.parent_fd)
logging.getLogger("toy").info("hello")
logging.getLogger("toy").error("trouble")
print("bare", flush=True)
def sleep_for_long():
    time.sleep(60)
sleep_for_long()
"""

# A parent that starts the child above, says its pid, and waits to be killed.
PARENT = """
import sys, time
from draftmark.engine.launch import start_child
child = start_child("toy", arguments=sys.argv[1:])
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return path


@pytest.fixture
def child(script: Path) -> Iterator[Child]:
    started = start_child("toy 0", arguments=[str(script)])
    yield started
    started.kill()


def _wait(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_a_childs_lines_keep_their_level(child: Child, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="draftmark"):
        _wait(lambda: "bare" in child.tail)
    records = [(r.name, r.levelname, r.getMessage()) for r in caplog.records]
    assert records == [
        ("draftmark.toy0", "INFO", "toy: hello"),
        ("draftmark.toy0", "ERROR", "toy: trouble"),
        ("draftmark.toy0", "WARNING", "bare"),
    ]


def test_the_life_line_ends_with_the_child(child: Child) -> None:
    assert select.select([child.life], [], [], 0)[0] == []
    os.kill(child.pid, signal.SIGKILL)
    assert select.select([child.life], [], [], 10)[0] == [child.life]
    assert child.wait(10) == -signal.SIGKILL
    assert child.describe_end() == f"toy 0 (pid {child.pid}) was killed by signal 9 (SIGKILL)"


def test_stacks_go_to_the_log(child: Child) -> None:
    _wait(lambda: "bare" in child.tail)
    child.ask_for_stacks()
    child.await_lines(10)
    assert any("sleep_for_long" in line for line in child.tail)


def test_a_stopped_child_is_killed_too(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    child.kill()
    assert child.poll() == -signal.SIGKILL


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_child_ends_with_its_parent(script: Path, is_stopped: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(script)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        if is_stopped:
            child.suspend()
            _wait(lambda: child.status() == psutil.STATUS_STOPPED)
        parent.kill()
    assert_gone([child.pid])


def test_ctrl_c_does_not_reach_a_child(child: Child) -> None:
    assert os.getpgid(child.pid) == child.pid


def test_addresses_are_private_and_removable() -> None:
    addresses = Addresses.create()
    assert stat.S_IMODE(addresses.directory.stat().st_mode) == 0o700
    assert Addresses.beside(addresses.worker(3)) == addresses == Addresses.beside(addresses.engine)
    addresses.remove()
    addresses.remove()
    assert not addresses.directory.exists()


def test_a_long_temporary_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with pytest.raises(ConfigError, match="TMPDIR"):
        Addresses.create()
    assert list(long.iterdir()) == []


def test_a_channel_works_without_its_name() -> None:
    """The directory of the sockets is removed as soon as both sides are connected."""
    addresses = Addresses.create()
    with zmq.Context() as context:
        here = Channel.bind(context, address=addresses.worker(0), decode=decode_from_worker)
        there = Channel.connect(context, address=addresses.worker(0), decode=decode_from_worker)
        try:
            there.send(WorkerFailed(kind="crash", message="first"))
            assert here.socket.poll(10_000)
            assert here.receive() == WorkerFailed(kind="crash", message="first")
            addresses.remove()
            there.send(StepResult(4, 0, []))
            assert here.socket.poll(10_000)
            assert here.has_input
            assert here.receive() == StepResult(4, 0, [])
            assert here.receive() is None
        finally:
            here.close()
            there.close()


@pytest.mark.parametrize("step", [0, 15, 16, 127, 128, 70_000])
def test_results_and_messages_of_a_worker_are_told_apart(step: int) -> None:
    encode = msgspec.msgpack.encode
    result = StepResult(step, 0, [], run_us=step)
    assert decode_from_worker(encode(result)) == result
    failed = WorkerFailed(kind="crash", message="x" * step)
    assert decode_from_worker(encode(failed)) == failed
    for other in (Stop(), StepPlan(1, 0, 0, 0, [], [], [], [])):
        with pytest.raises(msgspec.ValidationError):
            decode_from_worker(encode(other))
