"""A worker is frozen, killed, hangs or loses its connections: who is named, and what is left."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cpu.engine.conftest import take_report
from tests.workers.conftest import (
    IDLE_S,
    LIMIT_S,
    assert_ended,
    client_of,
    failure_of,
    open_engine,
    pids_of,
)

pytestmark = [pytest.mark.dist, pytest.mark.timeout(120)]


def test_a_worker_frozen_in_prefill(model: Path, socket_root: Path) -> None:
    """It is delayed, so that the prompt takes a while."""
    flags = {"pp": 2, "stages": "2,2", "inject": "delay=60", "prefill_tokens": 8}
    with open_engine(model, **flags) as engine:
        stream = engine.stream(list(range(200)), max_tokens=20)
        pid = pids_of(engine)[1]
        threading.Timer(0.3, os.kill, (pid, signal.SIGSTOP)).start()
        began = time.monotonic()
        message = failure_of(stream)
        assert time.monotonic() - began < LIMIT_S + 3
        assert re.search(r"worker 0 \(stage 0\) .* step \d+.* the process is stopped$", message)
        assert "lane" in message
        assert_ended(engine)
        assert client_of(engine).stats.output_tokens == 0


def test_a_worker_frozen_while_idle_is_noticed_at_the_next_step(
    model: Path, socket_root: Path
) -> None:
    with open_engine(model, pp=2, stages="2,2") as engine:
        engine.generate([[1]], max_tokens=2)
        os.kill(pids_of(engine)[2], signal.SIGSTOP)
        time.sleep(IDLE_S)
        assert client_of(engine).state.state == "ready"
        began = time.monotonic()
        message = failure_of(engine.stream([1], max_tokens=20))
        assert LIMIT_S <= time.monotonic() - began < LIMIT_S + 3
        assert re.search(r"worker 1 \(stage 1\) has finished step \d+, .*last on a lane", message)
        assert_ended(engine)


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_killed_worker_is_named_and_not_its_neighbour(
    model: Path, socket_root: Path, number: int
) -> None:
    with open_engine(model, pp=2, stages="2,2") as engine:
        pid = pids_of(engine)[1 + number]
        stream = engine.stream([1, 2], max_tokens=250, ignore_eos=True)
        next(stream)
        os.kill(pid, signal.SIGKILL)
        message = failure_of(stream)
        dead = rf"worker {number} \(pid {pid}\) was killed by signal 9 \(SIGKILL\)"
        assert re.match(rf"{dead} .*: worker {number} \(stage {number}\) .*step \d+", message)
        assert "lane" in message
        assert_ended(engine)
        assert f"none: worker {number} (pid {pid}) was killed" in take_report(client_of(engine))


@pytest.mark.parametrize(
    ("fault", "flags", "expected"),
    [
        ("exit=0:30", {"pp": 2, "stages": "2,2"}, r"worker 0 \(pid \d+\) exited with status 9 "),
        (
            "hang=1:30",
            {"pp": 2, "stages": "2,2"},
            r"step 3\d is not finished .*: worker 1 \(stage 1\) has finished step 2\d, .*"
            r"\(last on a lane: sent step 2\d on return lane 1>0\)$",
        ),
        (
            "drop=1:30",
            {"pp": 2, "stages": "2,2"},
            r"worker \d: (forward lane 0>1|return lane 1>0) broke at step \d+, cohort \d: ",
        ),
        pytest.param(
            "hang=1:30",
            {"tp": 2},
            r"step 3\d is not .*: worker 1 \(stage 0, tensor rank 1\) has finished step [23]\d, ",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "exit=1:30",
            {"tp": 2},
            r"worker 1 \(pid \d+\) exited with status 9 ",
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, str) and "=" in value[:5] else "",
)
def test_an_injected_fault_is_named(
    model: Path, socket_root: Path, fault: str, flags: dict[str, Any], expected: str
) -> None:
    with open_engine(model, inject=fault, **flags) as engine:
        message = failure_of(engine.stream([1, 2], max_tokens=250, ignore_eos=True))
        assert re.match(expected, message), message
        assert_ended(engine)
