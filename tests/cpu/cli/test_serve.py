"""`draftmark serve` as a process: its messages, exit codes, and nothing left behind."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from draftmark.cli.main import main
from tests.fakes import command_line

DEADLINE_S = 30.0


class Server:
    """A `draftmark serve` under test. `out` has the lines of standard output read so far."""

    def __init__(self, *argv: str, **faults: object) -> None:
        self._process = subprocess.Popen(
            command_line.command("serve", *argv, "--port", "0", **faults),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.out: list[str] = []
        self.family: list[psutil.Process] = []

    def read_until(self, text: str) -> str:
        """The first line that holds `text`."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.out.append(line)
            if text in line:
                self.family = psutil.Process(self._process.pid).children(recursive=True)
                return line
        raise AssertionError(f"no {text!r} in {self.out}: {self._process.communicate()[1]}")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> tuple[int, str]:
        """(exit status, standard error) of a server that ends by itself, with all its children."""
        _, errors = self._process.communicate(timeout=DEADLINE_S)
        _, alive = psutil.wait_procs(self.family, timeout=5)
        assert not alive, f"left behind: {alive}"
        return self._process.returncode, errors

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


Start = Callable[..., Server]


@pytest.fixture
def start(model_dir: Path) -> Iterator[Start]:
    started: list[Server] = []

    def serve(*argv: str, **faults: object) -> Server:
        server = Server(str(model_dir), *argv, **faults)
        started.append(server)
        return server

    yield serve
    for server in started:
        server.kill()


def test_the_printed_request_works_and_sigterm_ends_with_0(start: Start) -> None:
    server = start()
    words = shlex.split(server.read_until("curl "))
    phases = "".join(server.out)
    assert "starting the worker ..." in phases and "KV pool" in phases and "ready after" in phases
    body = json.loads(words[words.index("-d") + 1])
    answer = httpx.post(words[1], json=body, trust_env=False).json()
    assert answer["usage"]["completion_tokens"] == 64
    page = words[1].removesuffix("v1/chat/completions")
    assert any(f"chat page at {page}\n" in line for line in server.out)
    server.read_until("Ctrl-C stops it.")
    server.send(signal.SIGTERM)
    status, errors = server.end()
    assert status == 0 and "Traceback" not in errors


@pytest.mark.slow
def test_ctrl_c_while_loading_leaves_nothing(start: Start) -> None:
    server = start(hang_in="load")
    server.read_until("loading")
    assert len(server.family) == 2
    server.send(signal.SIGINT)
    status, errors = server.end()
    assert status == 0 and "Traceback" not in errors


@pytest.mark.slow
def test_a_start_that_fails_is_one_line_and_1(start: Start) -> None:
    status, errors = start(refuse_in="load:CheckpointError:model.safetensors is cut off").end()
    assert status == 1
    assert errors.splitlines()[-1] == "error: model.safetensors is cut off"
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_budget_that_does_not_fit_is_2_and_says_what_would(start: Start) -> None:
    status, errors = start("--kv-pool-tokens", "10000000").end()
    assert status == 2
    assert "This would fit: --kv-pool-tokens" in errors.splitlines()[-1]


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_server_with_1(start: Start) -> None:
    server = start(kill_step=2)
    url = shlex.split(server.read_until("curl "))[1].removesuffix("chat/completions")
    answer = httpx.post(f"{url}completions", json={"prompt": "a"}, trust_env=False)
    assert answer.status_code == 500 and "SIGKILL" in answer.json()["error"]["message"]
    assert server.end()[0] == 1


@pytest.mark.slow
def test_the_shown_file_starts_the_same_server(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    shown = []
    for argv in (["--max-running", "5", "--seed", "9"], ["--config", str(file)]):
        server = start(*argv)
        url = shlex.split(server.read_until("curl "))[1].removesuffix("chat/completions")
        text = httpx.get(f"{url}engine/config?format=yaml", trust_env=False).text
        record = httpx.get(f"{url}engine/config", trust_env=False).json()
        file.write_text(text)
        shown.append((values(text), record["ready"]["pool_tokens"]))
        server.send(signal.SIGTERM)
        assert server.end()[0] == 0
    assert shown[0] == shown[1]
    assert record["file"]["path"] == str(file)


def values(text: str) -> list[str]:
    """The settings of a file, without the comments and the port."""
    lines = [line.partition("#")[0].rstrip() for line in text.splitlines()]
    return [line for line in lines if line and "port:" not in line]


def test_a_taken_port_is_one_line_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "draftmark.cli.main", "serve", "no/model", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: port {port} of 127.0.0.1 is taken")
    assert done.stderr.count("\n") == 1


@pytest.fixture
def own_logging() -> Iterator[None]:
    """What serve does to the root logger, undone."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("own_logging")
@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--max-model-len", "1"], "error: --max-model-len is a flag of vLLM"),
        (["--tp", "8", "--eager", "none"], "error: not built yet: --eager none"),
        (["--config", "no.yaml"], "error: --config no.yaml: cannot be read"),
        (["--api-key-file", "no.keys"], "error: --api-key-file no.keys: "),
        (["--host", "not a host"], "error: --host not a host: "),
        (["--host", "192.0.2.1"], "error: cannot listen on 192.0.2.1 port 8000"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_2(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "no/model", *argv]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith(line) and shown.count("\n") == 1
