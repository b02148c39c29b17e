"""pp=2 and tp=2, one start: what a live engine can do, until one of its workers is frozen."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from draftmark import Engine
from draftmark.core.topology import Topology
from tests.cpu.engine.conftest import assert_gone, take_report, temporary_root
from tests.workers.conftest import (
    IDLE_S,
    LIMIT_S,
    Log,
    assert_ended,
    client_of,
    failure_of,
    logged,
    open_engine,
    pids_of,
    tokens_of_history,
)

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with logged() as log:
        yield log


@pytest.fixture(scope="module")
def engine(model: Path, log: Log) -> Iterator[Engine]:
    with temporary_root(), open_engine(model, pp=2, tp=2, stages="2,2") as engine:
        pids = pids_of(engine)
        yield engine
    assert_gone(pids)


def test_communicators_are_made_at_start_in_one_order(engine: Engine, log: Log) -> None:
    """I01: nothing is left to the first message, and what was made is in the log."""
    topology = msgspec.convert(engine.ready["topology"], Topology)
    expected = [
        (str(worker), f"{name}, workers {list(members)}")
        for worker in range(4)
        for name, members in topology.communicators()
        if worker in members
    ]
    assert len(expected) == 4 + 4 + 4
    made = log.find(r"worker(\d): .*communicator \d+: (.*)")
    assert sorted(made, key=lambda entry: entry[0]) == expected


def test_idle_is_no_fault_and_the_next_request_may_be_large(engine: Engine) -> None:
    """I05, I01: idle for longer than a step may take, and than a lane waits for a message."""
    time.sleep(IDLE_S)
    [answer] = engine.generate([[9] * 250], max_tokens=5, ignore_eos=True)
    assert len(answer.token_ids) == 5


def test_tokens(engine: Engine, expected_tokens: list[list[int]]) -> None:
    assert tokens_of_history(engine) == expected_tokens


def test_stacks_of_a_live_engine(engine: Engine) -> None:
    stream = engine.stream([1, 2], max_tokens=240, ignore_eos=True)
    next(stream)
    report = engine._thread.run(client_of(engine).stacks())
    assert len(re.findall(r"^worker \d \(stage \d, tensor rank \d\) ", report, re.M)) == 4
    for name in ("forward lane 0>1", "return lane 1>0 of tensor rank 1"):
        ends = report.partition(f"\n{name}\n")[2].splitlines()[:2]
        assert re.match(r"  source: worker \d .*step \d+", ends[0]), ends
        assert re.match(r"  target: worker \d .*step \d+", ends[1]), ends
    for worker in range(4):
        assert "runtime/worker.py" in report.partition(f"Stacks of worker {worker}")[2]
    assert len(list(stream)) > 0


def test_a_worker_frozen_in_decode(engine: Engine, log: Log) -> None:
    """The last test of this engine."""
    streams = [
        engine.stream([seed], max_tokens=250, ignore_eos=True, temperature=0.0) for seed in range(3)
    ]
    for stream in streams:
        next(stream)
    os.kill(pids_of(engine)[3], signal.SIGSTOP)
    for stream in streams:
        message = failure_of(stream)
    assert re.fullmatch(
        rf"step \d+ is not finished after \d+\.\d s \(limit {LIMIT_S:g} s, "
        r"--step-timeout-s\): worker 2 \(stage 1, tensor rank 0\) is .* step \d+.*"
        r"and the process is stopped",
        message,
    ), message
    assert "lane" in message
    assert_ended(engine)
    report = take_report(client_of(engine))
    assert report.startswith(message)
    assert log.find(r"its stacks: (.*draftmark-stacks.*)")
