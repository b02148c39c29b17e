"""`draftmark serve` as a process of its own, for tests that ask, kill and freeze its parts."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import httpx
import psutil

# For processes to start, on a machine that is busy with other things.
START_S = 60.0
ENGINE, WORKER = "draftmark.engine.process", "worker"


class ServerProcess:
    """Started with `command`; what it writes is read along."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.log: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None and self.process.stderr is not None
        self._pumps = [
            _pump(self.process.stdout, self._lines.put),
            _pump(self.process.stderr, self.log.append),
        ]

    def wait_url(self) -> str:
        """Its address, once it is ready."""
        while not (found := re.search(r" at (http://[^/]+)/v1", self._next_line())):
            pass
        return found[1]

    def wait_phase(self, words: str) -> None:
        """Until it says that it does this."""
        while words not in self._next_line():
            pass

    def _next_line(self) -> str:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                return self._lines.get(timeout=0.2)
            except queue.Empty:  # and will remain so, if it is gone
                assert self.process.poll() is None, "".join(self.log)
        raise AssertionError("".join(self.log))

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, words: str, index: int = 0) -> psutil.Process:
        """A process below it with these words in its command line, the oldest being 0."""
        found = [process for process in self.children() if words in " ".join(process.cmdline())]
        return sorted(found, key=lambda process: process.pid)[index]

    def end(self, timeout_s: float) -> int:
        """Its exit status, within `timeout_s`."""
        status = self.process.wait(timeout_s)
        for pump in self._pumps:
            pump.join()
        return status


def _pump(lines: IO[str], take: Callable[[str], None]) -> threading.Thread:
    def run() -> None:
        with lines:
            for line in lines:
                take(line)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@contextmanager
def serving(command: Sequence[str]) -> Iterator[ServerProcess]:
    """Killed at the end with all its children, however it is."""
    server = ServerProcess(command)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            for process in [*server.children(), server.process]:
                process.kill()
        server.end(10.0)


class Load:
    """Streamed completions that go on for long, each read in a thread. `ends` has for each how it
    ended: the message of an error, or what broke."""

    def __init__(self, url: str, *, streams: int, tokens: int) -> None:
        self.ends: list[str] = []
        self._begun = threading.Semaphore(0)
        body = {"prompt": "x", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        self._threads = [
            threading.Thread(target=self._read, args=(url, body)) for _ in range(streams)
        ]
        for thread in self._threads:
            thread.start()
        for _ in self._threads:
            assert self._begun.acquire(timeout=START_S)

    def _read(self, url: str, body: dict[str, object]) -> None:
        last = ""
        try:
            with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=START_S) as given:
                for line in given.iter_lines():
                    last = line if line not in ("", "data: [DONE]") else last
                    self._begun.release()
        except httpx.HTTPError as error:
            last = f"broken: {error}"
        self.ends.append(last)

    def wait(self) -> list[str]:
        for thread in self._threads:
            thread.join()
        return self.ends
