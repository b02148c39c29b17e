"""Servers whose workers are started by others: by hand with an environment, and by torchrun."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftmark.models import gguf
from tests.cpu.models.gguf_file import write_gguf

pytestmark = [pytest.mark.dist, pytest.mark.slow]

PROMPT = [5, 9, 300, 17, 44]
FLAGS = (
    *("--device", "cpu", "--dtype", "float64", "--kv-pool-tokens", "1024", "--max-context", "256"),
    *("--pp", "2", "--stages", "1,1", "--step-timeout-s", "20"),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_gguf(folder / "m.gguf")
    gguf.convert(folder / "m.gguf", folder / "m", generation={}, progress=lambda *said: None)
    return folder / "m"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


class Started:
    """Processes that are ended, and their output, with the test."""

    def __init__(self) -> None:
        self.processes: list[subprocess.Popen[str]] = []

    def __call__(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def end(self) -> None:
        """Ask first: torchrun ends what it started only then."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    started.end()


def serve(model: Path, port: int, *flags: str) -> list[str]:
    command = [sys.executable, "-m", "draftmark.cli.main", "serve", str(model)]
    return [*command, *FLAGS, "--port", str(port), *flags]


def by_hand(
    start: Started, model: Path, *, port: int, flags: dict[int, tuple[str, ...]] | None = None
) -> list[subprocess.Popen[str]]:
    """Rank 1 first, to show that it waits."""
    shared = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
    }
    ranks = {
        rank: start(*serve(model, port, *(flags or {}).get(rank, ())), RANK=str(rank), **shared)
        for rank in (1, 0)
    }
    return [ranks[0], ranks[1]]


def complete(port: int, *, patience_s: float = 60.0) -> str:
    """The answer to `PROMPT`, once the server is ready."""
    body = {"model": "m", "prompt": PROMPT, "max_tokens": 24, "temperature": 1, "seed": 3}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions",
        data=json.dumps(body | {"model": model_name(port, patience_s)}).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["text"]


def model_name(port: int, patience_s: float) -> str:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                break
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline, "the server is not ready"
            time.sleep(0.2)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5) as answer:
        return json.load(answer)["data"][0]["id"]


@pytest.fixture(scope="module")
def expected(model: Path) -> str:
    """What one process answers."""
    started, port = Started(), free_port()
    started(*serve(model, port, "--lanes", "local"))
    try:
        return complete(port)
    finally:
        started.end()


def test_two_processes_started_by_hand(model: Path, start: Started, expected: str) -> None:
    port = free_port()
    server, worker = by_hand(start, model, port=port)
    assert complete(port) == expected
    server.send_signal(signal.SIGTERM)
    assert server.wait(20) == 0
    assert worker.wait(20) == 0


def test_torchrun(model: Path, start: Started, expected: str) -> None:
    port = free_port()
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python")
    start(
        *(sys.executable, *launcher, "--master-port", str(free_port())),
        *serve(model, port),
    )
    assert complete(port) == expected


def test_a_killed_remote_worker_ends_the_server_by_name(model: Path, start: Started) -> None:
    port = free_port()
    server, worker = by_hand(start, model, port=port)
    complete(port)
    worker.kill()
    said, _ = server.communicate(timeout=20)
    assert server.returncode != 0
    assert "worker 1 (at 127.0.0.1) closed its life line" in said


def test_a_killed_server_ends_its_remote_worker(model: Path, start: Started) -> None:
    port = free_port()
    server, worker = by_hand(start, model, port=port)
    complete(port)
    server.kill()
    assert worker.wait(10) == 70


def test_other_flags_on_another_machine_are_refused_by_name(model: Path, start: Started) -> None:
    flags = {0: ("--max-running", "8"), 1: ("--max-running", "4")}
    server, worker = by_hand(start, model, port=free_port(), flags=flags)
    said, _ = server.communicate(timeout=60)
    assert server.returncode == 2
    assert "error: rank 1 was started with --max-running 4, rank 0 with 8" in said
    assert worker.wait(20) != 0


def test_as_many_processes_as_workers(model: Path, start: Started) -> None:
    for rank in ("0", "1"):
        process = start(
            *serve(model, free_port()),
            RANK=rank,
            WORLD_SIZE="3",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT="1",
        )
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "error: WORLD_SIZE=3, but --pp 2 --tp 1 needs 2 workers" in said
