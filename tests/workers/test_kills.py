"""I06: `kill -9` of one process of a server, under load and while it loads: nothing of it remains.

`draftmark serve` with two real workers; while loading, workers that never finish doing so.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from tests.cpu.engine.conftest import GONE_S, REPORT, assert_gone
from tests.fakes import command_line
from tests.fakes.server_process import ENGINE, Load, ServerProcess, serving
from tests.fakes.tokenizer import write_model_dir
from tests.workers.conftest import SMALL

pytestmark = [pytest.mark.dist, pytest.mark.timeout(180)]

STAGES = ("--pp", "2", "--stages", "2,2")
REAL_WORKER, FAKE_WORKER = "draftmark.runtime.worker", "worker_process.py"


@pytest.fixture
def port() -> int:
    """One that was free just now, for servers that follow one another on it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def serve(model: Path, port: int) -> list[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = [sys.executable, "-m", "draftmark.cli.main", "serve", str(model)]
    return [*command, "--port", str(port), *STAGES, *flags]


def kill(server: ServerProcess, who: str) -> int:
    """Kill one of its processes; the exit status of the server. Nothing of it remains in time."""
    pids = [process.pid for process in server.children()]
    assert len(pids) == 3
    victim = {
        "api": lambda: server.process.pid,
        "engine": lambda: server.child(ENGINE).pid,
        "worker 0": lambda: server.child("worker", 0).pid,
        "worker 1": lambda: server.child("worker", 1).pid,
    }[who]()
    os.kill(victim, signal.SIGKILL)
    status = server.end(GONE_S)
    assert_gone(pids)
    return status


@pytest.mark.slow
def test_under_load_and_started_again_at_once(model: Path, socket_root: Path, port: int) -> None:
    for who, expected, reason in (
        ("api", -signal.SIGKILL, "broken: "),
        ("worker 1", 1, "worker 1 (pid "),
        ("engine", 1, "engine (pid "),
    ):
        with serving(serve(model, port)) as server:
            load = Load(server.wait_url(), streams=3, tokens=200)
            assert kill(server, who) == expected
            ends = load.wait()
            assert all(reason in end for end in ends), ends
            assert who == "api" or all("SIGKILL" in end for end in ends), ends
        reports = [path for path in socket_root.iterdir() if REPORT.fullmatch(path.name)]
        assert len(reports) == (who == "worker 1")
        for path in reports:
            path.unlink()
        assert list(socket_root.iterdir()) == []
    with serving(serve(model, port)) as server:
        assert server.wait_url().endswith(f":{port}")
        pids = [process.pid for process in server.children()]
        server.process.terminate()
        assert server.end(GONE_S) == 0
        assert_gone(pids)


@pytest.mark.parametrize(
    ("who", "expected"), [("api", -signal.SIGKILL), ("engine", 1), ("worker 0", 1), ("worker 1", 1)]
)
def test_while_weights_are_loaded(
    tmp_path: Path, socket_root: Path, port: int, who: str, expected: int
) -> None:
    model = write_model_dir(tmp_path)
    (model / "config.json").write_text("{}")
    flags = ("--pp", "2", "--stages", "1,1", "--port", str(port))
    command = command_line.command("serve", str(model), *flags, hang_in="load")
    with serving(command) as server:
        server.wait_phase("loading")
        assert kill(server, who) == expected
        said = [line for line in server.log if line.startswith("error: ")]
        assert who == "api" or (who in said[0] and "SIGKILL" in said[0]), said
    assert list(socket_root.iterdir()) == []
    with socket.create_server(("127.0.0.1", port)):
        pass  # it is free again
