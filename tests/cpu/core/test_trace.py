"""What a rank was last at, read by another process through an inherited file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmark.core.trace import NO_LANE, Operation, TraceFile

ROOT = Path(__file__).resolve().parents[3]
CHILD = """
import sys
from draftmark.core.trace import Operation, TraceFile

trace = TraceFile(int(sys.argv[1]))
trace.write(0, step=2**40, cohort=3, operation=Operation.RETURN, lane=7)
trace.write(63, step=5, cohort=0, operation=Operation.COMPUTE)
print("written", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def trace() -> Iterator[TraceFile]:
    made = TraceFile.create()
    yield made
    made.close()


def test_before_the_first_step(trace: TraceFile) -> None:
    for index in (0, 1, 63):
        found = trace.read(index)
        assert (found.step, found.operation, found.lane) == (-1, Operation.IDLE, NO_LANE)
        assert not found.is_waiting and found.last_use is None


def test_what_is_written_is_read(trace: TraceFile) -> None:
    before = time.monotonic()
    for step, operation in enumerate(Operation):
        trace.write(2, step=step, cohort=step % 2, operation=operation, lane=step)
        found = trace.read(2)
        assert (found.step, found.cohort) == (step, step % 2)
        assert (found.operation, found.lane) == (operation, step)
        assert before <= found.since_s <= time.monotonic()
        assert found.is_waiting == (operation in (Operation.RETURN, Operation.RECEIVE))
    assert trace.read(1).step == trace.read(3).step == -1


def test_the_last_use_of_a_lane_outlives_it(trace: TraceFile) -> None:
    trace.write(1, step=4, cohort=0, operation=Operation.SEND, lane=6)
    trace.write(1, step=5, cohort=1, operation=Operation.COMPUTE)
    found = trace.read(1)
    assert (found.step, found.lane) == (5, NO_LANE)
    assert found.last_use is not None
    assert (found.last_use.step, found.last_use.operation) == (4, Operation.SEND)
    assert found.last_use.lane == 6
    assert trace.read(0).last_use is None


def test_operations_have_words() -> None:
    assert {str(operation) for operation in Operation} == {
        "finished",
        "waiting on",
        "computing",
        "sending on",
    }


def test_a_process_writes_and_the_other_reads_while_it_hangs(trace: TraceFile) -> None:
    """The file has no name: the descriptor is inherited."""
    assert os.fstat(trace.fd).st_nlink == 0
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(trace.fd)],
        cwd=ROOT,
        pass_fds=(trace.fd,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "written\n"
        found = trace.read(0)
        assert (found.step, found.cohort, found.operation) == (2**40, 3, Operation.RETURN)
        assert found.lane == 7 and found.is_waiting
        assert abs(time.monotonic() - found.since_s) < 30
        assert trace.read(63).operation is Operation.COMPUTE
    finally:
        child.communicate("\n", timeout=20)
    assert child.returncode == 0
    assert trace.read(0).step == 2**40
