"""Memory of a server on this machine: its listener with all descendants, and nothing of others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from draftmark.bench import memory
from draftmark.bench.memory import memory_of_server
from draftmark.core.errors import ConfigError

_MIB = 1 << 20
# Listens, starts a child that holds 64 MiB, and tells its port when the child has them.
_SERVER = """
import socket, subprocess, sys
held = "import sys; data = b'x' * (64 << 20); print(1, flush=True); sys.stdin.read()"
listener = socket.create_server((sys.argv[1], 0))
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
child = subprocess.Popen([sys.executable, "-c", held], **pipes)
child.stdout.readline()
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
"""


@contextmanager
def listening(address: str = "127.0.0.1") -> Iterator[tuple[int, int]]:
    """(port, pid) of a server with a child."""
    command = [sys.executable, "-c", _SERVER, address]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield int(process.stdout.readline()), process.pid
        process.stdin.close()


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.shutil, "which", lambda _: None)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_listener_is_found_and_its_children_count(address: str) -> None:
    with listening(address) as (port, pid):
        found = memory_of_server(f"http://127.0.0.1:{port}/v1")
        assert found is not None and found.gpu_bytes is None
        own = psutil.Process(pid).memory_info().rss
        assert found.resident_bytes is not None and found.resident_bytes > own + 64 * _MIB
        named = memory_of_server("http://192.0.2.1:80", pid=pid)
        assert named is not None and named.resident_bytes is not None
        assert named.resident_bytes > 64 * _MIB


def test_of_a_server_elsewhere_nothing_is_known() -> None:
    with listening() as (port, _):
        assert memory_of_server(f"http://192.0.2.1:{port}") is None
    assert memory_of_server("http://127.0.0.1:9") is None
    assert memory_of_server("http://no.such.host.invalid:80") is None


def test_another_server_at_the_same_port_of_another_address_is_not_it() -> None:
    with listening("127.0.0.2") as (port, _):
        assert memory_of_server(f"http://127.0.0.1:{port}") is None


def test_a_forwarder_is_not_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening() as (port, pid):
        monkeypatch.setattr(memory, "_FORWARDERS", frozenset({psutil.Process(pid).name()}))
        assert memory_of_server(f"http://127.0.0.1:{port}") is None


def test_a_listener_of_somebody_else_is_not_guessed_at(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        real = psutil.net_connections(kind="tcp")
        hidden = [one._replace(pid=None) for one in real]
        monkeypatch.setattr(memory.psutil, "net_connections", lambda kind: hidden)
        assert memory_of_server(f"http://127.0.0.1:{port}") is None


def test_a_named_process_that_is_none() -> None:
    with pytest.raises(ConfigError, match="--pid 999999999: No such process"):
        memory_of_server("http://127.0.0.1:1", pid=999999999)


@pytest.mark.parametrize(
    ("rows", "gpu_bytes"),
    [
        ("{pid}, 100\n{pid}, 28\n1, 4096\n", 128 * _MIB),
        ("999999999, 100\n", None),
        ("{pid}, [N/A]\n", None),
        ("No devices were found\n", None),
    ],
)
def test_memory_of_gpus_is_that_of_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: str, gpu_bytes: int | None
) -> None:
    tool = tmp_path / "nvidia-smi"
    (tmp_path / "rows").write_text(rows.format(pid=os.getpid()))
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/rows\n")
    tool.chmod(0o755)
    monkeypatch.setattr(memory.shutil, "which", lambda _: str(tool))
    found = memory_of_server("http://127.0.0.1:1", pid=os.getpid())
    assert found is not None and found.gpu_bytes == gpu_bytes
