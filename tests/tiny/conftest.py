"""A server of `tiny`, started by its name as a user would."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import draftmark
from tests.cpu.conftest import one_thread
from tests.cpu.engine.conftest import socket_root
from tests.fakes import server_process

__all__ = ["one_thread", "socket_root"]

_MODEL = Path(draftmark.__file__).parent / "builtin" / "tiny"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Until the weights are there, there is nothing to hold them to."""
    if not (_MODEL / "config.json").is_file():
        skip = pytest.mark.skip(reason="the weights of tiny are not in this checkout")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skip)


@contextmanager
def serving_tiny(*flags: str) -> Iterator[str]:
    """Its address. At the end it stops by itself, within the time of its last steps."""
    command = [sys.executable, "-m", "draftmark.cli.main", "serve", "tiny", "--port", "0", *flags]
    with server_process.serving(command) as server:
        yield server.wait_url()
        server.process.terminate()
        assert server.end(30.0) == 0, "".join(server.log)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """float32: goldens are those of any machine then, but for near ties. One thread: a second one
    gains a third alone, and waits for its turn beside other processes."""
    flags = ("--dtype", "float32", "--threads", "1", "--kv-pool-tokens", "65536")
    with serving_tiny(*flags) as address:
        yield address
