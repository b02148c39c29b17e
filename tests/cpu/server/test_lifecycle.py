"""The life of the real server and engine processes, over a worker without torch (C07, D08)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from draftmark.core.errors import ConfigError
from draftmark.server.lifecycle import listen, url_of
from tests.fakes import tokenizer
from tests.fakes.api import CHAT, TEXT, chat_body, events

SERVE = Path(__file__).parents[2] / "fakes" / "serve.py"
# For processes to start, on a machine that is busy with other things.
START_S = 60.0
END_S = 10.0


class Served:
    """A server process. `url` waits until it is ready."""

    def __init__(self, model_dir: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVE), str(model_dir), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.log: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._pumps = [
            threading.Thread(target=self._pump, args=(self.process.stdout, self._lines.put)),
            threading.Thread(target=self._pump, args=(self.process.stderr, self.log.append)),
        ]
        for pump in self._pumps:
            pump.start()

    @property
    def url(self) -> str:
        return self._lines.get(timeout=START_S).strip()

    def wait_log(self, words: str) -> None:
        deadline = time.monotonic() + START_S
        while not any(words in line for line in self.log):
            assert time.monotonic() < deadline, "".join(self.log)
            assert self.process.poll() is None, "".join(self.log)
            time.sleep(0.02)

    def end(self, timeout_s: float = END_S) -> int:
        """The exit status; everything it started is gone by then."""
        status = self.process.wait(timeout_s)
        for pump in self._pumps:
            pump.join()
        return status

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def _pump(self, lines: Any, take: Any) -> None:
        with lines:
            for line in lines:
                take(line)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tokenizer.write_model_dir(tmp_path_factory.mktemp("model"))
    (directory / "config.json").write_text("{}")
    return directory


@contextlib.contextmanager
def serving(model_dir: Path, *arguments: str) -> Iterator[Served]:
    served = Served(model_dir, *arguments)
    try:
        yield served
    finally:
        for process in (
            [*served.children(), served.process] if served.process.poll() is None else []
        ):
            process.kill()
        served.end()


class Stream:
    """A streamed completion that goes on for long, read in a thread."""

    def __init__(self, url: str, *, tokens: int) -> None:
        self._lines: list[str] = []
        self._has_begun = threading.Event()
        body = {"prompt": "x", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        self._thread = threading.Thread(target=self._read, args=(url, body))
        self._thread.start()
        assert self._has_begun.wait(START_S)

    def _read(self, url: str, body: dict[str, Any]) -> None:
        try:
            with httpx.stream("POST", url + TEXT, json=body, timeout=START_S) as response:
                for line in response.iter_lines():
                    self._lines.append(line)
                    self._has_begun.set()
        except httpx.HTTPError as error:
            self._lines.append(f"data: {json.dumps({'broken': repr(error)})}")

    def events(self) -> list[Any]:
        self._thread.join()
        return events("\n".join(line for line in self._lines if line).replace("\n", "\n\n"))


@pytest.mark.slow
def test_sigterm_lets_running_answers_end(model_dir: Path) -> None:
    with serving(model_dir, "--worker", "step_ms=10") as served:
        url = served.url
        stream = Stream(url, tokens=100)
        children = served.children()
        served.process.terminate()
        served.wait_log("draining")
        for path, body in (("/v1/completions", {"prompt": "a"}), (CHAT, chat_body())):
            assert httpx.post(url + path, json=body).status_code == 503
        assert httpx.get(url + "/readyz").status_code == 503
        *chunks, done = stream.events()
        assert done == "[DONE]"
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"
        assert served.end() == 0
        assert not psutil.wait_procs(children, timeout=END_S)[1]


@pytest.mark.slow
def test_a_second_signal_and_the_end_of_the_drain_time_cut_off(model_dir: Path) -> None:
    with serving(model_dir, "--worker", "step_ms=20", "--set", "drain_seconds=0.2") as served:
        stream = Stream(served.url, tokens=500)
        served.process.terminate()
        *_, error, done = stream.events()
        assert done == "[DONE]"
        assert "closed" in error["error"]["message"]
        assert served.end() == 0
    with serving(model_dir, "--worker", "step_ms=20") as served:
        stream = Stream(served.url, tokens=500)
        served.process.send_signal(signal.SIGINT)
        served.wait_log("draining")
        served.process.send_signal(signal.SIGINT)
        *_, error, done = stream.events()
        assert ("error" in error, done) == (True, "[DONE]")
        assert served.end() == 1


@pytest.mark.slow
def test_a_killed_engine_ends_streams_with_a_reason_and_the_server(model_dir: Path) -> None:
    with serving(model_dir, "--worker", "step_ms=20") as served:
        url = served.url
        streams = [Stream(url, tokens=500) for _ in range(3)]
        children = served.children()
        engine = next(c for c in children if "draftmark.engine.process" in c.cmdline())
        engine.kill()
        for stream in streams:
            *_, error, done = stream.events()
            assert done == "[DONE]"
            assert "SIGKILL" in error["error"]["message"]
        with contextlib.suppress(httpx.TransportError):  # it may have ended meanwhile
            assert httpx.get(url + "/health").status_code == 503
            assert httpx.post(url + TEXT, json={"prompt": "a"}).status_code == 503
        assert served.end() == 1
        assert any("the engine is gone" in line for line in served.log)
        assert not psutil.wait_procs(children, timeout=END_S)[1]


@pytest.mark.slow
def test_a_frozen_engine_is_given_up(model_dir: Path) -> None:
    with serving(model_dir, "--worker", "step_ms=20") as served:
        url = served.url
        stream = Stream(url, tokens=500)
        engine = next(c for c in served.children() if "draftmark.engine.process" in c.cmdline())
        engine.suspend()
        *_, error, done = stream.events()
        assert done == "[DONE]"
        assert "silent" in error["error"]["message"]
        assert served.end(2 * END_S) == 1


@pytest.mark.slow
def test_loading_answers_503_and_can_be_told_to_end(model_dir: Path) -> None:
    with listen("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    with serving(model_dir, "--worker", "hang_in=load", "--set", f"port={port}") as served:
        served.wait_log("loading")
        for path in ("/health", "/readyz"):
            response = httpx.get(f"http://127.0.0.1:{port}{path}")
            assert response.status_code == 503
            assert "loading" in response.json()["error"]["message"]
        assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
        served.process.terminate()
        assert served.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_a_broken_model_is_one_line_before_serving(tmp_path: Path, name: str) -> None:
    directory = tokenizer.write_model_dir(tmp_path)
    (directory / "config.json").write_text("{}")
    (directory / name).write_text("{")
    with serving(directory) as served:
        assert served.process.wait(START_S) == 3
        served.end()
        [line] = [line for line in served.log if line.startswith("error: ")]
        assert name in line


def test_a_taken_port_is_one_line() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is taken"):
            listen("127.0.0.1", port).__enter__()
    with pytest.raises(ConfigError, match="--host"):
        listen("no.such.host.invalid", 0).__enter__()
    with (
        listen("::1", 0)
        if socket.has_ipv6 and os.path.exists("/proc/net/if_inet6")
        else (contextlib.nullcontext()) as six
    ):
        assert six is None or url_of(six).startswith("http://[::1]:")
